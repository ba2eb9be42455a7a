"""The queues of another cluster, as far as quotas go: the ClusterQueue of each LocalQueue, and its nominal quotas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from gangline import tenants
from gangline.api import quantity
from gangline.control.checks.multikueue.clusters.remote_store import MOST_QUEUES, TooManyError
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource, namespace_of
from gangline.objects import Stored

#: followed in a cluster whose quotas are summed up
KINDS: Final = (kube.LOCAL_QUEUES, kube.CLUSTER_QUEUES)

#: resource -> amount, in the unit of `api.quantity`
Amounts: TypeAlias = dict[str, int]


class RemoteQueues:
    """The queues that one connection has shown. `changed` is called when a sum of quotas may be another one."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._cluster_queue_of: tenants.SharedRoom[str, str] = tenants.SharedRoom(MOST_QUEUES)
        self._amounts: dict[str, Amounts] = {}

    def quotas_behind(self, local_queues: Collection[str]) -> Amounts:
        """The nominal quotas, over all flavors, of the ClusterQueues to which these LocalQueues lead; each counts once."""
        names = {self._cluster_queue_of.get(namespace_of(key), key) for key in local_queues}
        total: Amounts = {}
        for name in filter(None, names):
            for resource, amount in self._amounts.get(name, {}).items():
                total[resource] = total.get(resource, 0) + amount
        return total

    @staticmethod
    def decode(sent: Json) -> tuple[str, str | Amounts]:
        """The key of a LocalQueue with its ClusterQueue, or of a ClusterQueue with its quotas."""
        queue = Stored(sent)
        if queue.namespace:
            return queue.key, str(queue.spec.get("clusterQueue", ""))
        amounts: Amounts = {}
        for group in queue.spec.get("resourceGroups") or ():
            for flavor in group["flavors"]:
                for row in flavor["resources"]:
                    name = row["name"]
                    amounts[name] = amounts.get(name, 0) + quantity.parse(row["nominalQuota"], name)
        return queue.key, amounts

    def sink(self, resource: Resource) -> Callable[[Event], None]:
        """Takes the events of this kind, whose objects `decode` has reduced."""
        change = self._note_local_queue if resource == kube.LOCAL_QUEUES else self._note_cluster_queue

        def take(event: Event) -> None:
            if (isinstance(event, Upsert) and change(*event.obj)) or (
                isinstance(event, Removed) and change(event.key, None)
            ):
                self._changed()

        return take

    def _note_local_queue(self, key: str, cluster_queue: str | None) -> bool:
        """Whether it leads to another ClusterQueue than before, None: to none. Tenants create LocalQueues: those of the namespace
        with most of them give way."""
        namespace, known = namespace_of(key), self._cluster_queue_of
        if known.get(namespace, key) == cluster_queue:
            return False
        known.drop(namespace, key)
        if cluster_queue is not None:
            known.use(namespace, key, lambda: cluster_queue)
        return True

    def _note_cluster_queue(self, name: str, amounts: Amounts | None) -> bool:
        """Whether its quotas have changed; None: it is gone."""
        if self._amounts.get(name) == amounts:
            return False
        self._amounts.pop(name, None)
        if len(self._amounts) >= MOST_QUEUES:
            raise TooManyError(f"the cluster has more than {MOST_QUEUES} ClusterQueues")
        if amounts is not None:
            self._amounts[name] = amounts
        return True
