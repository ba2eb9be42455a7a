"""Where the pods of gangs are, by node and by workload, and what they report of their nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, TypeAlias

from gangline.engine.model import BoundPod, Millis, Node, WorkloadPods
from gangline.engine.nodes.health import NodeHealth

# --- pod complaints ---------------------------------------------------------------------------------------------------
# Complaints of gangs' pods about their nodes, and which of them count.
#
# Pods belong to users, so a complaint alone is weak evidence: of the gangs of one namespace only one is heard at a time. A user
# can then make no more nodes Suspect than those of one of the user's own gangs, whatever happens to the others. A node that gangs
# of two namespaces complain of counts in any case.


#: node and kind of signal
Complaint: TypeAlias = tuple[str, str]


class Complaints:
    """Complaints by node and kind, each with the gangs (namespace/name) that make it and the time since when they do."""

    def __init__(self) -> None:
        self._made: dict[Complaint, dict[str, Millis]] = {}
        #: namespace -> its gangs that complain, and their complaints
        self._by: dict[str, dict[str, set[Complaint]]] = {}
        #: namespace -> the gang that is heard
        self._heard: dict[str, str] = {}

    def put(self, complaint: Complaint, gangs: Mapping[str, Millis]) -> set[Complaint]:
        """Take note that these gangs complain now, and no others. Returns the complaints whose `since` may have changed."""
        old = self._made.pop(complaint, {})
        if gangs:
            self._made[complaint] = dict(gangs)
        changed = {complaint}
        for gang in old.keys() - gangs.keys():
            changed |= self._withdraw(gang, complaint)
        for gang in sorted(gangs.keys() - old.keys()):
            namespace = _namespace(gang)
            self._by.setdefault(namespace, {}).setdefault(gang, set()).add(complaint)
            self._heard.setdefault(namespace, gang)
        return changed

    def _withdraw(self, gang: str, complaint: Complaint) -> set[Complaint]:
        """Withdraw a gang's complaint. Where the gang that was heard has no complaint left, another one of its namespace is
        heard. Returns the complaints whose `since` may have changed.
        """
        namespace = _namespace(gang)
        others = self._by[namespace]
        others[gang].discard(complaint)
        if others[gang]:
            return set()
        del others[gang]
        if self._heard[namespace] != gang:
            return set()
        if not others:
            del self._by[namespace], self._heard[namespace]
            return set()
        self._heard[namespace] = min(others)
        return set(others[min(others)])

    def since(self, complaint: Complaint) -> Millis | None:
        """The time since when the complaint counts, 0 = since it is known; None for one that does not count."""
        gangs = self._made.get(complaint, {})
        heard = [at for gang, at in gangs.items() if self._heard[_namespace(gang)] == gang]
        if heard:
            return min(heard)
        return min(gangs.values()) if len({_namespace(gang) for gang in gangs}) > 1 else None


def _namespace(gang: str) -> str:
    return gang.partition("/")[0]


# --- pod locations ----------------------------------------------------------------------------------------------------


#: workload and pod set -> requests of one of its pods
RequestsOf: TypeAlias = Callable[[str, str], Mapping[str, int]]


#: workload -> it holds quota
Holds: TypeAlias = Callable[[str], bool]

_STUCK: Final = "StuckTerminating"
_FAILED: Final = "PodsFailed"


class PodLocations:
    """The last reported `WorkloadPods`. `requests_of` gives what their pods use, nothing for unknown ones.

    What pods report of their nodes counts for workloads that hold quota (`holds`), or held it while these pods existed.
    """

    def __init__(self, health: NodeHealth, requests_of: RequestsOf, holds: Holds) -> None:
        self._health = health
        self._requests_of = requests_of
        self._holds = holds
        #: workloads that held quota at some time since they have pods
        self._held: set[str] = set()
        self._complaints = Complaints()
        self._workload_pods: dict[str, WorkloadPods] = {}
        #: node -> workloads with pods there
        self._on: dict[str, set[str]] = {}
        #: workload -> pods that were bound to an earlier node of the same name
        self._stale: dict[str, set[str]] = {}
        #: workload -> pods that will stop because the whole gang starts again
        self._leaving: dict[str, set[str]] = {}
        #: workload -> its pods that the scheduler can't bind to the node that they were sent to
        self._refused: dict[str, tuple[BoundPod, ...]] = {}
        #: node -> workloads with pods that failed through its fault
        self._blaming: dict[str, set[str]] = {}
        #: nodes of which pods may report something new
        self._recheck: set[str] = set()

    def put(self, workload_pods: WorkloadPods | None, key: str) -> None:
        old = self._workload_pods.pop(key, None)
        for node in _nodes(old):
            self._on[node].discard(key)
            if not self._on[node]:
                del self._on[node]
        self._recheck.update(_nodes(old))
        self._blame(key, old.failed if old else (), workload_pods.failed if workload_pods else ())
        for marked in (self._stale, self._leaving):
            left = (
                marked.pop(key, set[str]()) & {pod.name for pod in workload_pods.pods} if workload_pods else set[str]()
            )
            if left:
                marked[key] = left
        self._refused.pop(key, None)
        if workload_pods is None:
            self._held.discard(key)
            return
        if refused := tuple(pod for pod in workload_pods.pods if pod.refused):
            self._refused[key] = refused
        self._workload_pods[key] = workload_pods
        for node in _nodes(workload_pods):
            self._on.setdefault(node, set()).add(key)
        self._recheck.update(_nodes(workload_pods))

    def _blame(self, key: str, old: Collection[tuple[str, str]], new: Collection[tuple[str, str]]) -> None:
        if old == new:
            return
        for _, node in old:
            self._blaming.get(node, set[str]()).discard(key)
        for pod, node in new:
            self._blaming.setdefault(node, set()).add(key)
            if (pod, node) not in old:
                self._health.renew(node, "PodsFailed")
        touched = {node for _, node in (*old, *new)}
        self._recheck |= touched
        for node in touched:
            if not self._blaming.get(node):
                self._blaming.pop(node, None)

    def put_node(self, old: Node | None, new: Node | None, name: str) -> None:
        """A node came, changed or went. A node of the same name but another identity does not have the pods of the first."""
        self._recheck.add(name)
        if old is None or new is None or not old.uid or not new.uid or old.uid == new.uid:
            return
        for key in self._on.get(name, ()):
            stale = {pod.name for pod in self._workload_pods[key].pods if pod.node == name}
            self._stale.setdefault(key, set()).update(stale)

    def workload_pods(self, key: str) -> WorkloadPods | None:
        return self._workload_pods.get(key)

    def pods(self, key: str) -> tuple[BoundPod, ...]:
        workload_pods = self._workload_pods.get(key)
        return workload_pods.pods if workload_pods is not None else ()

    def dismiss(self, key: str) -> None:
        """The whole gang starts again: its present pods no longer count."""
        self._leaving[key] = {pod.name for pod in self.pods(key)}

    def recall(self, key: str) -> None:
        """The gang does not start again after all."""
        self._leaving.pop(key, None)

    def lasting(self, key: str) -> list[BoundPod]:
        """The workload's pods, without those of a replaced node and those that will stop."""
        gone = self._stale.get(key, set[str]()) | self._leaving.get(key, set[str]())
        return [pod for pod in self.pods(key) if pod.name not in gone]

    def replaced(self, key: str) -> set[str]:
        """The nodes of its pods that were replaced by others of the same name."""
        stale = self._stale.get(key)
        return {pod.node for pod in self.pods(key) if pod.name in stale} if stale else set()

    def of_replaced(self) -> Collection[str]:
        """Workloads with such pods."""
        return self._stale.keys()

    def refused(self) -> Mapping[str, tuple[BoundPod, ...]]:
        """The pods that the scheduler can't bind to the node that they were sent to, by workload."""
        return self._refused

    def on(self, node: str) -> Collection[str]:
        """Workloads with pods on a node."""
        return self._on.get(node, ())

    # --- what pods tell -----------------------------------------------------------------------------------------------

    def tell(self) -> None:
        """Report to `NodeHealth` what pods show of their nodes. While no node is known they show nothing."""
        if not self._health.nodes:
            return
        changed: set[Complaint] = set()
        for name in sorted(self._recheck):
            node = self._health.nodes.get(name)
            if node is None:
                unseen = any(True for _ in self._pods_on(name)) and not self._health.was_known(name)
                self._health.note(name, "Unknown", active=unseen)
            pods = [(key, pod) for key, pod in self._pods_on(name) if self._counts(key)] if node is not None else []
            blaming = self._blaming.get(name, ()) if node is not None else ()
            changed |= self._complaints.put((name, _STUCK), _stuck(pods))
            changed |= self._complaints.put((name, _FAILED), {key: 0 for key in blaming if self._counts(key)})
            if node is not None:
                self._health.note(name, "DevicesMissing", active=self._overcommitted_device(node, pods))
        self._recheck.clear()
        for name, kind in sorted(changed):
            since = self._complaints.since((name, kind))
            if name in self._health.nodes:
                self._health.note(name, kind, active=since is not None, since=since or 0)

    def _counts(self, key: str) -> bool:
        if key not in self._held and self._holds(key):
            self._held.add(key)
        return key in self._held

    def _pods_on(self, node: str) -> Iterator[tuple[str, BoundPod]]:
        for key in sorted(self._on.get(node, ())):
            for pod in self._workload_pods[key].pods:
                if pod.node == node and not pod.sent:
                    yield key, pod

    def _overcommitted_device(self, node: Node, pods: list[tuple[str, BoundPod]]) -> bool:
        """Whether a device's allocatable amount is below its capacity, and below what the pods on the node use."""
        for resource, total in node.capacity.items():
            left = node.allocatable.get(resource, 0)
            if "/" not in resource or left >= total:
                continue
            used = sum(self._requests_of(key, pod.pod_set).get(resource, 0) for key, pod in pods if not pod.terminating)
            if used > left:
                return True
        return False


def _stuck(pods: list[tuple[str, BoundPod]]) -> dict[str, Millis]:
    """Workloads with pods that were deleted, and when the first of these should have ended."""
    found: dict[str, Millis] = {}
    for key, pod in pods:
        if pod.terminating:
            found[key] = min(found.get(key, pod.due), pod.due)
    return found


def _nodes(workload_pods: WorkloadPods | None) -> set[str]:
    return {pod.node for pod in workload_pods.pods} if workload_pods is not None else set()
