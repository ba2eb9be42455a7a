"""Keeps quotas of the manager cluster at the sum of its workers' (gate MultiKueueManagerQuotaAutomation).

Of each ClusterQueue that sends its workloads by a MultiKueueConfig with `quotaManagement: Automated`. A worker's share are the
ClusterQueues behind the LocalQueues that have the names of this queue's. The ClusterQueue has one flavor and covers all resources
of its workers. Its condition says whether its quota is kept so; reasons and messages are Kueue's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from gangline.api import quantity
from gangline.api.read import conditions
from gangline.control.checks.active_checks import UnusableError
from gangline.control.checks.multikueue import activity
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.control.checks.multikueue.clusters.remote_queues import Amounts
from gangline.control.kernel.context import Context
from gangline.control.parts.messages import QuotaAutomationChanged, RemoteQuotasMoved
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status.queue_status import Automation
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: changes are collected for so long, as in Kueue, in milliseconds
PERIOD: Final = 1_000

_NOT_REQUESTED = Automation(False, "NotRequested", "MultiKueue manager quota automation has not been requested.")
_AUTOMATED = Automation(
    True, "QuotaAutomated", "ClusterQueue quota is automatically managed based on MultiKueue workers."
)
_ONE_FLAVOR = "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor"


class ManagerQuotas(Part):
    """Writes the quotas. `clusters` are the connections; one that was lost less than `patience` seconds ago counts with what was
    last seen of it.
    """

    name = "manager quotas"
    kinds = (kube.CLUSTER_QUEUES, kube.LOCAL_QUEUES, kube.ADMISSION_CHECKS, kube.MULTI_KUEUE_CONFIGS)

    def __init__(
        self, context: Context, clusters: Callable[[], Mapping[str, RemoteCluster]], *, patience: float
    ) -> None:
        self._mirror = context.mirror
        self._writes = context.writes
        self._clusters = clusters
        self._patience = patience
        self._wake = context.wake
        self._quarantine = context.quarantine
        self._changed = False
        self._looked = 0
        self._automations: dict[str, Automation] = {}
        self._messages = context.messages
        context.messages.subscribe(RemoteQuotasMoved, lambda message: self._note())

    def automation_of(self, queue: str) -> Automation | None:
        """The state that the ClusterQueue's condition shows; None for a ClusterQueue that sends nothing to other clusters."""
        return self._automations.get(queue)

    def _note(self) -> None:
        """Note that queues of another cluster have changed, or a connection."""
        self._changed = True
        self._wake()

    def observe(self, resource: Resource, event: Event) -> None:
        self._changed = True

    def lead(self) -> None:
        self._changed = True

    def act(self, now: int) -> None:
        self.due = None
        if self._changed and now < self._looked + PERIOD:
            self.due = self._looked + PERIOD
        elif self._changed:
            self._changed, self._looked = False, now
            self._look(now)

    def _look(self, now: int) -> None:
        local_queues: dict[str, list[str]] = {}
        for key, queue in self._mirror.local_queues.items():
            local_queues.setdefault(queue.cluster_queue, []).append(key)
        seen: dict[str, Automation] = {}
        for name, queue in self._mirror.objects[kube.CLUSTER_QUEUES].items():
            check = self._check_of(queue)
            if check is not None:
                work = partial(self._keep, seen, queue, check, local_queues.get(name, []), now)
                self._quarantine.attempt("summing up its quotas", kube.CLUSTER_QUEUES, name, work)
        before, self._automations = self._automations, seen
        for name in sorted(before.keys() | seen.keys()):
            if before.get(name) != seen.get(name):
                self._messages.publish(QuotaAutomationChanged(name))

    def _check_of(self, queue: Stored) -> Stored | None:
        """The AdmissionCheck by which a ClusterQueue sends workloads to other clusters; None if it has none."""
        rules = (queue.spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
        checks = (self._mirror.get(kube.ADMISSION_CHECKS, rule["name"]) for rule in rules)
        return next((check for check in checks if check is not None and activity.is_ours(check)), None)

    def _keep(
        self, seen: dict[str, Automation], queue: Stored, check: Stored, local_queues: list[str], now: int
    ) -> None:
        name = queue.name
        try:
            config = activity.config_of(check, partial(self._mirror.get, kube.MULTI_KUEUE_CONFIGS))
        except UnusableError:
            seen[name] = _unsupported("The referenced MultiKueueConfig was not found.")
            return
        if config.spec.get("quotaManagement") != "Automated":
            seen[name] = _NOT_REQUESTED
        else:
            seen[name] = self._sum_up(queue, config.spec.get("clusters") or [], local_queues, now)

    def _sum_up(self, queue: Stored, clusters: list[str], local_queues: list[str], now: int) -> Automation:
        groups = queue.spec.get("resourceGroups") or ()
        if len(groups) != 1 or len(groups[0]["flavors"]) != 1:
            return _unsupported(_ONE_FLAVOR)
        total: Amounts = {}
        for cluster in dict.fromkeys(clusters):
            remote = self._clusters().get(cluster)
            if remote is None or not (remote.connected or now < remote.lost_at + self._patience * 1000):
                continue
            if refused := remote.hides_queues():
                return _unsupported(f'cluster "{cluster}": {refused}')
            for resource, amount in remote.queues.quotas_behind(local_queues).items():
                total[resource] = total.get(resource, 0) + amount
        covered: list[str] = groups[0]["coveredResources"]
        if missing := sorted(total.keys() - set(covered)):
            listed = " ".join(missing)
            return _unsupported(f"manager-side coveredResources is missing resources configured on workers: [{listed}]")
        self._write(queue, groups[0], [(resource, total.get(resource, 0)) for resource in covered])
        return _AUTOMATED

    def _write(self, queue: Stored, group: Json, wanted: list[tuple[str, int]]) -> None:
        flavor = group["flavors"][0]
        rows = flavor["resources"]
        present = [(row["name"], quantity.parse(row["nominalQuota"], row["name"])) for row in rows]
        if present == wanted and all(set(row) == {"name", "nominalQuota"} for row in rows):
            return
        resources = [{"name": name, "nominalQuota": quantity.format(amount, name)} for name, amount in wanted]
        body = {
            "metadata": {"resourceVersion": queue.resource_version},
            "spec": {"resourceGroups": [{**group, "flavors": [{**flavor, "resources": resources}]}]},
        }
        key = ObjectKey.of(kube.CLUSTER_QUEUES, queue)
        self._writes.send(
            key, "patch", body, priority=Priority.LIFECYCLE, slot="quotas", failed=partial(self._failed, key)
        )

    def _failed(self, key: ObjectKey, error: ApiError) -> None:
        """Log the failure. After a conflict the watch shows the queue as it is now."""
        if not self._writes.expected(error):
            log.warning("quotas of %s: %s", key, error)


def _unsupported(message: str) -> Automation:
    return Automation(False, "UnsupportedConfiguration", conditions.cut(message))
