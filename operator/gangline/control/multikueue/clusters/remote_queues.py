"""The queues of another cluster, as far as quotas go: the ClusterQueue of each LocalQueue, and its nominal quotas."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeAlias

from gangline.api import quantity
from gangline.control.multikueue.clusters.remote_store import MOST_OBJECTS, TooManyError
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource, key_of

#: followed in a cluster whose quotas are summed up
KINDS: Final = (kube.LOCAL_QUEUES, kube.CLUSTER_QUEUES)

#: resource -> amount, in the unit of `api.quantity`
Amounts: TypeAlias = dict[str, int]


class RemoteQueues:
    """The queues that one connection has shown. `changed` is called when a sum of quotas may be another one."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._cluster_queue_of: dict[str, str] = {}
        self._amounts: dict[str, Amounts] = {}

    def quotas_behind(self, local_queues: Collection[str]) -> Amounts:
        """The nominal quotas, over all flavors, of the ClusterQueues to which these LocalQueues lead; each counts once."""
        names = {self._cluster_queue_of[key] for key in local_queues if key in self._cluster_queue_of}
        total: Amounts = {}
        for name in names:
            for resource, amount in self._amounts.get(name, {}).items():
                total[resource] = total.get(resource, 0) + amount
        return total

    @staticmethod
    def decode(obj: Json) -> tuple[str, str | Amounts]:
        """The key of a LocalQueue with its ClusterQueue, or of a ClusterQueue with its quotas."""
        spec = obj["spec"]
        if "namespace" in obj["metadata"]:
            return key_of(obj), str(spec.get("clusterQueue", ""))
        amounts: Amounts = {}
        for group in spec.get("resourceGroups") or ():
            for flavor in group["flavors"]:
                for row in flavor["resources"]:
                    name = row["name"]
                    amounts[name] = amounts.get(name, 0) + quantity.parse(row["nominalQuota"], name)
        return key_of(obj), amounts

    def sink(self, resource: Resource) -> Callable[[Event], None]:
        """Takes the events of this kind, whose objects `decode` has reduced."""
        known: dict[str, str] | dict[str, Amounts]
        known = self._cluster_queue_of if resource == kube.LOCAL_QUEUES else self._amounts

        def take(event: Event) -> None:
            if isinstance(event, Upsert):
                key, value = event.obj
                if key not in known and len(known) >= MOST_OBJECTS:
                    raise TooManyError(f"the cluster has more than {MOST_OBJECTS} {resource}")
                if known.get(key) == value:
                    return
                known[key] = value
            elif not isinstance(event, Removed) or known.pop(event.key, None) is None:
                return
            self._changed()

        return take
