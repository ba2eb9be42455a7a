"""Whether quota was ever granted twice, told from every revision of the API server's store, one after the other. Pure.

- A reservation never leaves its ClusterQueue over nominal quota and borrowing limit, or its cohort's tree over all that it has.
  What pods hold beyond their gang's reservation counts, since they may still run when their Workload is gone. Pods on nodes
  that are not ready or no more don't count, nor, once such a node is back, those of its pods that are told to go: they were
  given up with the node, and are replaced before it ends them.
- A reservation covers the gang: every pod set, and as many pods as it has, or as it says it can do with.
- A pod is bound to a node only while its gang is admitted, and never one more than admitted. When an admitted one is deleted, its
  job may start pods until it is stopped: what these hold must not have been granted to others.

Amounts are in the engine's units. Limits on lending are not looked at: a tree of cohorts is checked as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from gangline.api import names
from gangline.api.read import conditions, parse, podspec
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource, key_of

#: (flavor, resource) -> amount
Usage: TypeAlias = Counter[tuple[str, str]]
#: owners of owners of cohorts are followed so far up
MOST_PARENTS = 20


@dataclass(frozen=True, slots=True)
class Grant:
    """What a Workload holds. `flavors` and `counts` are by pod set, `lacks` says which of them it does not cover."""

    queue: str
    usage: Usage
    flavors: Mapping[str, Mapping[str, str]]
    counts: Mapping[str, int]
    admitted: bool
    lacks: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of a gang. `live`: it was not told to go."""

    uid: str
    gang: str
    pod_set: str
    node: str
    needs: Mapping[str, int]
    live: bool


@dataclass(frozen=True, slots=True)
class Ground:
    """A node. `answers`: what runs there can be told to end."""

    answers: bool


State: TypeAlias = Grant | Member | Ground | model.ClusterQueue | model.Cohort


@dataclass(frozen=True, slots=True)
class Revision:
    """One object at one revision. `state` None: it holds nothing, or is gone. `at` is the time of its arrival, in seconds."""

    number: int
    resource: Resource
    key: str
    state: State | None
    at: float = 0.0
    gone: bool = False

    @classmethod
    def of(cls, resource: Resource, obj: Json, *, gone: bool = False, at: float = 0.0) -> Revision:
        state = None if gone else READERS[resource](obj)
        return cls(int(obj["metadata"]["resourceVersion"]), resource, key_of(obj), state, at, gone)


def _grant(workload: Json) -> Grant | None:
    status = workload.get("status") or {}
    rows = status.get("conditions")
    held = conditions.is_true(rows, names.QUOTA_RESERVED) and not conditions.is_true(rows, names.FINISHED)
    if not held or "admission" not in status:
        return None
    admission = parse.admission(status["admission"])
    # a gang that is admitted again after some of its pods have ended is granted the others
    ended = {row["name"]: row["count"] for row in status.get("reclaimablePods") or ()}
    still = {
        row.get("name", "main"): row.get("count", 1) - ended.get(row.get("name", "main"), 0)
        for row in _pod_sets(workload)
    }
    usage: Usage = Counter()
    for each in admission.pod_sets:
        left = max(0, min(each.count, still.get(each.name, each.count)))
        for resource, flavor in each.flavors.items():
            usage[flavor, resource] += each.usage.get(resource, 0) * left // max(1, each.count)
    return Grant(
        admission.cluster_queue,
        usage,
        {each.name: each.flavors for each in admission.pod_sets},
        {each.name: each.count for each in admission.pod_sets},
        conditions.is_true(rows, names.ADMITTED),
        _uncovered(_pod_sets(workload), still, {each.name: each.count for each in admission.pod_sets}),
    )


def _pod_sets(workload: Json) -> Sequence[Json]:
    return workload["spec"].get("podSets") or ()


def _uncovered(pod_sets: Iterable[Json], still: Mapping[str, int], counts: Mapping[str, int]) -> str:
    for pod_set in pod_sets:
        name, count = pod_set.get("name", "main"), pod_set.get("count", 1)
        least = min(pod_set.get("minCount", count), still[name])
        if not least <= counts.get(name, -1) <= count:
            return f"{counts.get(name, 0)} of {count} pods of pod set {name}"
    return ""


def _member(pod: Json) -> Member | None:
    """None for a pod without a gang, a controller or a node, and for one that has ended."""
    meta, spec = pod["metadata"], pod["spec"]
    workload = (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    owned = any(ref.get("controller") for ref in meta.get("ownerReferences") or ())
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    if not workload or not owned or ended or not spec.get("nodeName"):
        return None
    pod_set = (meta.get("labels") or {}).get(names.PODSET, "main")
    needs = podspec.requests(spec)
    gang = f"{meta['namespace']}/{workload}"
    return Member(meta["uid"], gang, pod_set, spec["nodeName"], needs, "deletionTimestamp" not in meta)


def _ground(node: Json) -> Ground:
    ready = conditions.find((node.get("status") or {}).get("conditions"), "Ready")
    return Ground(ready is None or ready["status"] == "True")


READERS: dict[Resource, Any] = {
    kube.WORKLOADS: _grant,
    kube.PODS: _member,
    kube.NODES: _ground,
    kube.CLUSTER_QUEUES: parse.cluster_queue,
    kube.COHORTS: parse.cohort,
}


@dataclass(slots=True)
class Level:
    """Amounts by ClusterQueue that go up and down. `seconds` adds up, by resource, amount × the time for which it stood."""

    by_queue: dict[str, Usage] = field(default_factory=dict[str, Usage])
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    _total: Counter[str] = field(default_factory=Counter[str])

    def add(self, queue: str, usage: Mapping[tuple[str, str], int], sign: int = 1) -> None:
        here = self.by_queue.setdefault(queue, Counter())
        for place, amount in usage.items():
            here[place] += sign * amount
            self._total[place[1]] += sign * amount

    def of(self, queues: Iterable[str], place: tuple[str, str]) -> int:
        return sum(self.by_queue[queue][place] for queue in queues if queue in self.by_queue)

    def pass_time(self, seconds: float) -> None:
        for resource, amount in self._total.items():
            self.seconds[resource] = self.seconds.get(resource, 0.0) + amount * seconds


@dataclass
class Proof:
    """Takes revisions in their order. `violations` tells what must never have been."""

    violations: list[str] = field(default_factory=list)
    #: revisions taken, and reservations and pods checked among them
    revisions: int = 0
    checked: int = 0
    #: what is reserved, what pods of gangs hold, and what of that is beyond their gang's reservation
    reserved: Level = field(default_factory=Level)
    used: Level = field(default_factory=Level)
    beyond: Level = field(default_factory=Level)
    _queues: dict[str, model.ClusterQueue] = field(default_factory=dict)
    _cohorts: dict[str, model.Cohort] = field(default_factory=dict)
    _trees: dict[str, tuple[list[str], Usage]] = field(
        default_factory=dict
    )  # root -> its queues, and all that they have
    _grants: dict[str, Grant] = field(default_factory=dict)
    _last: dict[str, Grant] = field(default_factory=dict)  # the last grant of every gang
    _deleted: dict[str, Grant] = field(default_factory=dict)  # what Workloads held when they were deleted
    _pods: dict[str, Member] = field(default_factory=dict)
    _of: dict[str, set[str]] = field(default_factory=dict)  # gang -> its pods
    _on: dict[str, set[str]] = field(default_factory=dict)  # node -> gangs with pods there
    _answering: set[str] = field(default_factory=set)  # nodes
    _given_up: set[str] = field(default_factory=set)  # uids of pods that were on a node while that did not answer
    _counted: dict[str, tuple[str, Usage, Usage]] = field(default_factory=dict)  # gang -> queue, used, beyond
    _now: float = 0.0

    def take(self, revision: Revision, *, check: bool = True) -> None:
        """`check=False`: what led to it was not seen, so it only counts from here on."""
        self.revisions += 1
        self._pass_time(revision.at)
        state, key = revision.state, revision.key
        if revision.resource == kube.WORKLOADS:
            self._take_grant(revision, cast("Grant | None", state), check)
        elif revision.resource == kube.PODS:
            self._take_pod(revision, cast("Member | None", state), check)
        elif revision.resource == kube.NODES:
            answers = isinstance(state, Ground) and state.answers
            (self._answering.add if answers else self._answering.discard)(key)
            for gang in self._on.get(key, ()):
                if not answers:
                    pods = (self._pods[name] for name in self._of[gang])
                    self._given_up.update(pod.uid for pod in pods if pod.node == key)
                self._count(gang)
        else:
            table: dict[str, Any] = self._queues if revision.resource == kube.CLUSTER_QUEUES else self._cohorts
            table.pop(key, None)
            if state is not None:
                table[key] = state
            self._trees.clear()

    def check_all(self, number: int) -> None:
        """As things stand at this revision, after some that were not checked."""
        for name in self._queues:
            places = self.reserved.by_queue.get(name, Counter())
            self._check_limits(Revision(number, kube.CLUSTER_QUEUES, name, None), name, places)

    def _pass_time(self, at: float) -> None:
        if self._now and at > self._now:
            for level in (self.reserved, self.used, self.beyond):
                level.pass_time(at - self._now)
        self._now = max(self._now, at)

    # --- reservations -------------------------------------------------------------------------------------------------

    def _take_grant(self, revision: Revision, new: Grant | None, check: bool) -> None:
        gang, old = revision.key, self._grants.pop(revision.key, None)
        if old is not None:
            self.reserved.add(old.queue, old.usage, -1)
            if revision.gone:
                self._deleted[gang] = old
        if new is not None:
            self._grants[gang] = self._last[gang] = new
            self.reserved.add(new.queue, new.usage)
        self._count(gang)
        if new is None or not check:
            return
        before = old.usage if old is not None and old.queue == new.queue else Counter[tuple[str, str]]()
        raised = [place for place, amount in new.usage.items() if amount > before[place]]
        if raised:
            self.checked += 1
            if new.lacks:
                self._blame(revision, f"{gang} has quota for {new.lacks}")
            self._check_limits(revision, new.queue, raised)

    def _check_limits(self, revision: Revision, name: str, places: Iterable[tuple[str, str]]) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        for place in places:
            limit = _most(queue, place)
            if limit is not None:
                self._check(revision, f"ClusterQueue {name}", [name], place, limit)
            if queue.cohort:
                root = self._root(queue.cohort)
                names, total = self._tree(root)
                self._check(revision, f"the tree of cohort {root}", names, place, total[place])

    def _check(self, revision: Revision, what: str, queues: Iterable[str], place: tuple[str, str], limit: int) -> None:
        held, beyond = self.reserved.of(queues, place), self.beyond.of(queues, place)
        if held + beyond > limit:
            flavor, resource = place
            pods = f" and pods beyond their reservations {beyond} ({self._holders(queues, place)})" if beyond else ""
            self._blame(revision, f"{what} has {limit} of {resource} in {flavor}; reserved are {held}{pods}")

    def _holders(self, queues: Iterable[str], place: tuple[str, str]) -> str:
        """The pods of the gangs that hold more than their reservation, where they are, and which of them were told to go."""
        gangs = [gang for gang, (queue, _, beyond) in self._counted.items() if queue in queues and beyond[place]]
        pods = [(key, self._pods[key]) for gang in gangs for key in sorted(self._of[gang])]
        return ", ".join(f"{key} on {pod.node}{'' if pod.live else ', told to go'}" for key, pod in pods)

    def _root(self, cohort: str) -> str:
        for _ in range(MOST_PARENTS):
            parent = self._cohorts[cohort].parent if cohort in self._cohorts else ""
            if not parent:
                break
            cohort = parent
        return cohort

    def _tree(self, root: str) -> tuple[list[str], Usage]:
        if root not in self._trees:
            queues = [name for name, queue in self._queues.items() if queue.cohort and self._root(queue.cohort) == root]
            groups = [self._queues[name].groups for name in queues]
            groups += [cohort.groups for name, cohort in self._cohorts.items() if self._root(name) == root]
            total: Usage = Counter()
            for flavor, resource, quota in (found for each in groups for found in _quotas(each)):
                total[flavor, resource] += quota.nominal
            self._trees[root] = (queues, total)
        return self._trees[root]

    # --- pods ---------------------------------------------------------------------------------------------------------

    def _take_pod(self, revision: Revision, new: Member | None, check: bool) -> None:
        key, old = revision.key, self._pods.pop(revision.key, None)
        if old is not None:
            self._of[old.gang].discard(key)
            self._count(old.gang)
        if new is None:
            self._given_up.discard(old.uid if old is not None else "")
            return
        if new.node not in self._answering:
            self._given_up.add(new.uid)
        self._pods[key] = new
        self._of.setdefault(new.gang, set()).add(key)
        self._on.setdefault(new.node, set()).add(new.gang)
        self._count(new.gang)
        if check and new.live and (old is None or old.uid != new.uid):
            self.checked += 1
            self._check_pod(revision, new)
            queue, _, beyond = self._counted.get(new.gang, ("", Counter(), Counter()))
            self._check_limits(revision, queue, beyond)

    def _check_pod(self, revision: Revision, pod: Member) -> None:
        grant = self._grants.get(pod.gang) or self._deleted.get(pod.gang)
        if grant is None or not grant.admitted:
            self._blame(revision, f"a pod of {pod.gang} was bound to {pod.node}, and its gang is not admitted")
            return
        mates = (self._pods[key] for key in self._of[pod.gang])
        alive = sum(mate.live and mate.pod_set == pod.pod_set and mate.node in self._answering for mate in mates)
        most = grant.counts.get(pod.pod_set, 0)
        if alive > most:
            self._blame(revision, f"{pod.gang} has {alive} pods of pod set {pod.pod_set}, and is admitted with {most}")

    def _count(self, gang: str) -> None:
        """What its pods hold, and what of that is beyond its reservation."""
        queue, used, beyond = self._counted.pop(gang, ("", Counter(), Counter()))
        self.used.add(queue, used, -1)
        self.beyond.add(queue, beyond, -1)
        last, grant = self._last.get(gang), self._grants.get(gang)
        pods = [self._pods[key] for key in self._of.get(gang, ())]
        if last is None or not pods:
            return
        used = Counter()
        for pod in (pod for pod in pods if pod.node in self._answering and (pod.live or pod.uid not in self._given_up)):
            for resource, flavor in last.flavors.get(pod.pod_set, {}).items():
                used[flavor, resource] += 1 if resource == "pods" else pod.needs.get(resource, 0)
        beyond = used - grant.usage if grant is not None else used
        self._counted[gang] = (last.queue, used, beyond)
        self.used.add(last.queue, used)
        self.beyond.add(last.queue, beyond)

    def _blame(self, revision: Revision, what: str) -> None:
        self.violations.append(f"revision {revision.number} ({revision.key}): {what}")


def _most(queue: model.ClusterQueue, place: tuple[str, str]) -> int | None:
    """What the queue may hold; None: as much as there is in its cohort."""
    quota = next((q for flavor, resource, q in _quotas(queue.groups) if (flavor, resource) == place), model.Quota())
    if not queue.cohort:
        return quota.nominal
    return None if quota.borrowing_limit is None else quota.nominal + quota.borrowing_limit


def _quotas(groups: Iterable[model.ResourceGroup]) -> Iterable[tuple[str, str, model.Quota]]:
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.resources.items():
                yield flavor.name, resource, quota
