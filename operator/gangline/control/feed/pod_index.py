"""The pods that concern the operator, each read once: its gang, its node, its gates.

The engine observes a gang's pods as a whole, once per round and only when something has changed; of all other pods it observes
the resources that they take.

The resources that pods outside Gangline take on nodes, as the engine counts them for topologies; and whose pods they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from gangline.api import names
from gangline.api.read import parse
from gangline.control.feed.pod import Pod, claimed_workload, read_pod, waits_at_node_gate
from gangline.control.feed.pod_owners import PodOwners
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.control.parts.messages import Messages
from gangline.control.parts.part import Part
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Resource
from gangline.objects import PodObject


@dataclass(frozen=True, slots=True)
class Belonging:
    """The controller of a foreign pod as its JSON says ("" = none), and the queue that the pod's own label names."""

    kind: str = ""
    name: str = ""
    queue: str = ""


_NOTHING = Belonging()


@dataclass(slots=True)
class ForeignPods:
    """The resources of each foreign pod, as last reported to `observe`."""

    observe: Callable[[model.Change], None]
    _known: dict[str, tuple[model.ForeignPod, Belonging]] = field(
        default_factory=dict[str, tuple[model.ForeignPod, Belonging]]
    )

    def upsert(self, pod: PodObject) -> None:
        key, room = pod.key, _room(pod)
        if room is None:
            self.remove(key)
            return
        before = self._known.get(key)
        self._known[key] = room, _belonging(pod)
        if before is None or before[0] != room:
            self.observe(model.Put(room))

    def remove(self, key: str) -> None:
        if self._known.pop(key, None) is not None:
            self.observe(model.Gone(model.ForeignPod, key))

    def bound(self) -> Iterator[tuple[model.ForeignPod, Belonging]]:
        """The foreign pods that take room on a node, each with what it belongs to."""
        return iter(self._known.values())


def _room(pod: PodObject) -> model.ForeignPod | None:
    try:
        return parse.foreign_pod(pod)
    except parse.ParseError:  # the API server has validated it; a pod that we cannot read takes no room
        return None


def _belonging(pod: PodObject) -> Belonging:
    owner = pod.controller or {}
    queue = pod.labels.get(names.QUEUE_NAME)
    found = Belonging(*(str(each or "") for each in (owner.get("kind"), owner.get("name"), queue)))
    return _NOTHING if found == _NOTHING else found


@dataclass(frozen=True, slots=True)
class Seat:
    """One pod on a node. `workload`: the key of its gang, "" = it belongs to none, but to what `belonging` says."""

    key: str
    node: str
    requests: model.Requests
    workload: str = ""
    belonging: Belonging = field(default_factory=Belonging)


#: pods of one pod set that run at the same time
Counts: TypeAlias = Mapping[str, int]

#: dead or terminating pods that count per pod that a pod set may have: those of a few attempts
SPARE: Final = 4


@dataclass(frozen=True, slots=True)
class PodReported:
    """A pod of a gang has an annotation that reports its progress; it may be unchanged."""

    pod: Pod


class PodIndex:
    """The pods of gangs, and the pods that wait at a Gangline gate.

    `observe` receives the engine's facts; `counts` returns how many pods a Workload's pod sets have. Without `owners`, a pod's
    claim to a gang is trusted.
    """

    def __init__(
        self,
        observe: Callable[[model.Change], None],
        counts: Callable[[str], Counts],
        *,
        owners: PodOwners | None = None,
        messages: Messages | None = None,
    ) -> None:
        self._observe = observe
        self._counts = counts
        self._owners = owners
        self._messages = messages or Messages()
        self._foreign = ForeignPods(observe)
        #: Workloads with a pod whose index entry has changed
        self.changed: ChangedKeys[str] = ChangedKeys()
        #: Workloads with a topology assignment and a pod of another version
        self.changed_placed: ChangedKeys[str] = ChangedKeys()
        #: Workloads of elastic jobs with a pod of another version
        self.changed_elastic: ChangedKeys[str] = ChangedKeys()
        #: Workloads ("" = of none) with a pod that waits until its node or domain is known, and is new or of another version, or
        #: that does not wait any more
        self.changed_at_node_gate: ChangedKeys[str] = ChangedKeys()
        #: Workloads with a pod for which the scheduler has begun or ceased to find no node
        self.changed_unschedulable: ChangedKeys[str] = ChangedKeys()
        #: nodes of pods that have changed
        self.changed_nodes: ChangedKeys[str] = ChangedKeys()
        self._pods: dict[str, Pod] = {}
        self._of: dict[str, set[str]] = {}  # Workload -> keys of its pods
        self._on: dict[str, set[str]] = {}  # node -> keys of the pods there
        self._at_node_gate: dict[str, dict[str, Pod]] = {}  # Workload -> key -> pod that waits until its node is known
        self._waits_for: dict[str, str] = {}  # key of such a pod -> its Workload
        self._reported: dict[str, model.WorkloadPods] = {}
        self._unreported: set[str] = set()

    # --- in ---

    def upsert(self, manifest: PodObject) -> None:
        """Store the newest version of a pod. A pod that cannot prove its gang counts as foreign, and keeps its gates for now.

        The watch may bring a version that is older than the answer to a write: it would give the pod a gate again that it lost.
        """
        key, claim = manifest.key, claimed_workload(manifest)
        if self._is_outdated(key, manifest):
            return
        workload = self._owners.gang_of(manifest) if self._owners is not None else claim
        nobodys = claim is None and workload is None and waits_at_node_gate(manifest)
        pod = self._within_memory(read_pod(manifest, workload or "")) if workload is not None or nobodys else None
        self._note_gate(key, pod)
        self._take(key, pod if workload is not None else None)
        if pod is not None and pod.workload and pod.progress:
            self._messages.publish(PodReported(pod))
        if pod is not None and pod.workload and pod.placed:
            self._foreign.remove(key)  # the pod may have arrived before its owners
        else:
            self._foreign.upsert(manifest)

    def _within_memory(self, pod: Pod) -> Pod:
        """The pod, without its JSON where its namespace has no room for it: then its gate stays until the pod changes."""
        if self._owners is None or not pod.manifest or self._owners.may_keep(pod.key, pod.manifest):
            return pod
        return replace(pod, manifest=PodObject(), at_node_gate=False, at_elastic_gate=False)

    def _note_gate(self, key: str, pod: Pod | None) -> None:
        before = self._waits_for.pop(key, None)
        if before is not None:
            self._at_node_gate[before].pop(key)
            if not self._at_node_gate[before]:
                del self._at_node_gate[before]
            self.changed_at_node_gate.add(before)
        if pod is not None and pod.at_node_gate:
            self._waits_for[key] = pod.workload
            self._at_node_gate.setdefault(pod.workload, {})[key] = pod
            self.changed_at_node_gate.add(pod.workload)

    def _is_outdated(self, key: str, manifest: PodObject) -> bool:
        known = self._pods.get(key)
        if known is None or known.uid != manifest.uid:
            return False
        return 0 < manifest.revision < known.version

    def move(self, old: str, new: str) -> None:
        """Move the pods of one slice of an elastic job to another one."""
        for key in sorted(self._of.get(old, ())):
            pod = replace(self._pods[key], workload=new)
            self._note_gate(key, pod)
            self._take(key, pod)

    def remove(self, key: str) -> None:
        if self._owners is not None:
            self._owners.forget(key, gone=True)
        self._take(key, None)
        self._note_gate(key, None)
        self._foreign.remove(key)

    def _take(self, key: str, pod: Pod | None) -> None:
        old = self._pods.get(key)
        self.changed_placed.update({each.workload for each in (old, pod) if each is not None and each.placed})
        self.changed_elastic.update({each.workload for each in (old, pod) if each is not None and each.elastic})
        if pod is not None and pod == old:
            self._pods[key] = pod  # a newer version without a change in the indexed fields
            return
        if old is not None:
            if old.unschedulable:
                self.changed_unschedulable.add(old.workload)
            self._drop(old)
        if pod is not None:
            if pod.unschedulable:
                self.changed_unschedulable.add(pod.workload)
            self._pods[key] = pod
            self._of.setdefault(pod.workload, set()).add(key)
            if pod.node:
                self._on.setdefault(pod.node, set()).add(key)
                self.changed_nodes.add(pod.node)
            self._note(pod.workload)

    def _drop(self, pod: Pod) -> None:
        del self._pods[pod.key]
        for table, name in ((self._of, pod.workload), (self._on, pod.node)):
            keys = table.get(name)
            if keys is not None:
                keys.discard(pod.key)
                if not keys:
                    del table[name]
        self._note(pod.workload)

    def _note(self, workload: str) -> None:
        self.changed.add(workload)
        self._unreported.add(workload)

    # --- out ---

    def pod(self, key: str) -> Pod | None:
        return self._pods.get(key)

    def workload_of(self, pod: str) -> str:
        """The Workload that a pod was proven to belong to, "" = none."""
        found = self._pods.get(pod)
        return found.workload if found is not None else ""

    def with_deadline(self) -> Iterator[Pod]:
        """The pods that say by when their workload should save its work."""
        return (pod for pod in self._pods.values() if pod.save_by)

    def of(self, workload: str) -> list[Pod]:
        return [self._pods[key] for key in sorted(self._of.get(workload, ()))]

    def on(self, node: str) -> list[Pod]:
        return [self._pods[key] for key in sorted(self._on.get(node, ()))]

    def seats(self, requests: Callable[[str, str], model.Requests]) -> Iterator[Seat]:
        """The seats of bound pods that have not ended. `requests` returns what a pod of a Workload's pod set asks for."""
        counted: set[str] = set()
        for pod, belonging in self._foreign.bound():
            of = self._pods.get(pod.key)
            counted.add(pod.key)
            yield Seat(pod.key, pod.node, pod.requests, of.workload if of is not None else "", belonging)
        for key, pod in self._pods.items():  # those that are placed by topology count within their gang
            if pod.node and not pod.ended and key not in counted:
                yield Seat(key, pod.node, requests(pod.workload, pod.pod_set), pod.workload)

    def sent(self, requests: Callable[[str, str], model.Requests]) -> Iterator[Seat]:
        """The seats of pods that were sent to a node and are not bound yet."""
        for key, pod in self._pods.items():
            if pod.sent and pod.alive:
                yield Seat(key, pod.sent, requests(pod.workload, pod.pod_set), pod.workload)

    def strangers(self) -> Iterator[tuple[model.ForeignPod, Belonging]]:
        """The bound pods of no gang, and what they belong to."""
        return ((pod, belonging) for pod, belonging in self._foreign.bound() if pod.key not in self._pods)

    def nodes(self) -> Iterable[str]:
        """Nodes with pods of gangs, including deleted nodes."""
        return self._on

    def at_node_gate(self, workload: str) -> list[Pod]:
        """The pods of a Workload ("" = of none) that wait until their node or domain is known."""
        return [pod for _, pod in sorted(self._at_node_gate.get(workload, {}).items())]

    def with_pods_at_node_gate(self) -> Collection[str]:
        """The Workloads with pods that wait until their node or domain is known."""
        return self._at_node_gate.keys()

    def report_changes(self) -> None:
        """Report changed workloads to the engine."""
        unreported, self._unreported = self._unreported, set()
        for workload in sorted(unreported):
            counts = self._counts(workload)
            placed = _within(counts, (pod for pod in self.of(workload) if pod.node or pod.sent))
            pods = tuple(pod.bound(counts.get(pod.pod_set, 0)) for pod in placed if not pod.ended)
            failed = tuple((pod.name, pod.node) for pod in placed if pod.failed_by_node)
            workload_pods = model.WorkloadPods(workload, pods, failed)
            if not pods and not failed:
                if self._reported.pop(workload, None) is not None:
                    self._observe(model.Gone(model.WorkloadPods, workload))
            elif self._reported.get(workload) != workload_pods:
                self._reported[workload] = workload_pods
                self._observe(model.Put(workload_pods))


def _within(counts: Counts, pods: Iterable[Pod]) -> list[Pod]:
    """The pods without those that exceed what a gang can have: per pod set its count of living pods, and `SPARE` times as many
    others.

    Of the living pods the oldest count, since the job's controller deletes the excess; of ended or terminating ones the newest.
    """
    if not counts:
        return list(pods)
    by_age = sorted(pods, key=lambda pod: (pod.created, pod.key))
    living, leaving = Counter[str](), Counter[str]()
    found: list[Pod] = []
    for pod in (pod for pod in by_age if pod.alive):
        living[pod.pod_set] += 1
        if living[pod.pod_set] <= counts.get(pod.pod_set, 0):
            found.append(pod)
    for pod in (pod for pod in reversed(by_age) if not pod.alive):
        leaving[pod.pod_set] += 1
        if leaving[pod.pod_set] <= SPARE * counts.get(pod.pod_set, 0):
            found.append(pod)
    return sorted(found, key=lambda pod: pod.key)


class PodFeed(Part):
    """Feeds the pod index: stores pods, and looks again at pods whose owners have appeared."""

    name = "pods"
    kinds = (kube.PODS,)

    def __init__(
        self, pods: PodIndex, owners: PodOwners, quarantine: Quarantine, *, all_listed: Callable[[], None]
    ) -> None:
        """Feed `pods`; `all_listed` is called when every existing pod has been stored."""
        self._pods = pods
        self._owners = owners
        self._quarantine = quarantine
        self._all_listed = all_listed
        self._slices = owners.mirror.changes.slices.subscribe(worth=lambda chain: True)

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._pods.upsert(event.obj)
        elif isinstance(event, Removed):
            self._quarantine.forget(kube.PODS, event.key)
            self._pods.remove(event.key)
        else:
            self._all_listed()

    def _follow(self, owner: str, first: str, changed: str) -> None:
        """Move the pods of an elastic job to the slice that holds quota now."""
        current = self._owners.mirror.current_slice(owner, first)
        if current is None:
            return
        for key in {changed, *self._owners.mirror.slices_of(owner, first)} - {current}:
            self._pods.move(key, current)

    def settle(self) -> None:
        for chain in sorted(self._slices.take()):
            self._follow(*chain)
        for pod in self._owners.provable():
            work = partial(self._pods.upsert, pod)
            self._quarantine.attempt("observing it", kube.PODS, pod.key, work, pod)
        self._pods.report_changes()
