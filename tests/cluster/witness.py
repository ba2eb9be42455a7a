"""Looks at a cluster all the time and notes whatever must never be: the judge of the chaos test.

What may not be for an instant is checked at every event, in what that event has changed; what may not last is looked at twice
a second. Shares no code with what it judges: it reads with the official client, and understands the objects itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.official import Kind, OfficialClient

Json = dict[str, Any]
Member = tuple[str, str]
NODES, PODS = Kind("", "v1", "nodes"), Kind("", "v1", "pods")
WORKLOADS = Kind("kueue.x-k8s.io", "v1beta2", "workloads")
GPU = "nvidia.com/gpu"
WORKLOAD = "kueue.x-k8s.io/workload"
#: what the Workloads of an elastic job, and its pods, have in common
SLICE_NAME = "kueue.x-k8s.io/workload-slice-name"
WHOLE_DOMAINS = "gangline.io/whole-domains"
RECOVERY = "gangline.io/recovery"

#: What may be untrue for a moment, since one write follows the other, in seconds: a gang is said to be ready that is not …
READY_GRACE = 15.0
#: … and one waits that could run in the place of lesser ones: preemption, pods that end, an operator that is down meanwhile.
WAITING_GRACE = 30.0
#: a node that came back is trusted after its soak, which flapping makes up to sixteen times as long; that begins when
#: Kubernetes has taken its taints away
TRUSTED = 30.0
PERIOD = 0.5


@dataclass
class Witness:
    """`quota` is how many GPUs all gangs together may hold; None: not looked at."""

    quota: int | None = None
    #: how many times as long as usual something may be untrue
    patience: float = 1.0
    objects: dict[Kind, dict[str, Json]] = field(default_factory=lambda: {NODES: {}, PODS: {}, WORKLOADS: {}})
    #: what went wrong, in words
    violations: list[str] = field(default_factory=list)
    #: … and how things stood when something had lasted for too long
    scenes: list[Json] = field(default_factory=list)
    events: int = 0
    looks: int = 0
    #: (job uid, index) -> uids of pods that succeeded for it
    succeeded: dict[Member, set[str]] = field(default_factory=dict)
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _ready_since: dict[str, float] = field(default_factory=dict)
    _used: Counter[str] = field(default_factory=Counter)  # node -> GPUs of the pods there
    _running: Counter[Member] = field(default_factory=Counter)
    _holding: dict[str, dict[str, int]] = field(
        default_factory=dict
    )  # gang -> its Workloads -> GPUs they hold quota of
    _held: int = 0  # … by all gangs

    @classmethod
    @contextlib.asynccontextmanager
    async def at(
        cls, client: OfficialClient, quota: int | None = None, patience: float = 1.0
    ) -> AsyncIterator[Witness]:
        witness, tasks = cls(quota, patience), list[asyncio.Task[None]]()
        for resource in witness.objects:
            listed = asyncio.Event()
            tasks.append(asyncio.create_task(client.follow(resource, partial(witness.see, resource), listed)))
            await listed.wait()
        tasks.append(asyncio.create_task(witness._look_on()))
        try:
            yield witness
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            witness.violations += [f"the witness itself failed: {error!r}" for error in ended if _is_failure(error)]

    async def _look_on(self) -> None:
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(PERIOD)

    # --- what must not be for an instant ------------------------------------------------------------------------------

    def see(self, resource: Kind, key: str, new: Json | None, now: float | None = None) -> None:
        """An object is like this now; None: it is gone."""
        self.events += 1
        old = self.objects[resource].pop(key, None)
        if new is not None:
            self.objects[resource][key] = new
        if resource == PODS:
            self._see_pod(old, new)
        elif resource == NODES:
            self._see_node(key, new, time.monotonic() if now is None else now)
        else:
            self._see_workload(key, old, new)

    def _see_pod(self, old: Json | None, new: Json | None) -> None:
        for pod, sign in ((old, -1), (new, 1)):
            if pod is None:
                continue
            if (node := node_of(pod)) is not None and takes_room(pod):
                self._used[node] += sign * gpus(pod)
            if runs_now(pod):
                self._running[member(pod)] += sign
        if new is None:
            return
        if (node := node_of(new)) is not None:
            self._check_room(node)
        who = member(new)
        if all(who) and self._running[who] > 1:
            self.violations.append(f"index {who[1]} of Job {who[0]} runs {self._running[who]} times")
        if all(who) and new["status"].get("phase") == "Succeeded":
            self.succeeded.setdefault(who, set()).add(new["metadata"]["uid"])

    def _see_workload(self, key: str, old: Json | None, new: Json | None) -> None:
        """What a slice of an elastic job holds is part of what its successor does."""
        for workload, holds in ((old, 0), (new, held(new) if new else 0)):
            if workload is not None:
                own = self._holding.setdefault(name_of(workload), {})
                self._held -= max(own.values(), default=0)
                own[key] = holds
                self._held += max(own.values())
        if self.quota is not None and self._held > self.quota:
            self.violations.append(f"gangs hold {self._held} GPUs of a quota of {self.quota}")

    def _see_node(self, name: str, node: Json | None, now: float) -> None:
        if node is not None and is_ready(node):
            self._ready_since.setdefault(name, now)
        else:
            self._ready_since.pop(name, None)
        self._check_room(name)

    def _check_room(self, name: str) -> None:
        node = self.objects[NODES].get(name)
        if node is not None and self._used[name] > capacity(node):
            self.violations.append(f"node {name} has {capacity(node)} GPUs and pods with {self._used[name]}")

    # --- what must not last -------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        self.looks += 1
        seen = {*self._partial(now), *self._inverted(now)}
        self._since = {key: since for key, since in self._since.items() if key in seen}

    def _partial(self, now: float) -> Iterable[tuple[str, str]]:
        """Gangs that are called ready while pods of them are missing."""
        alive = Counter[str]()
        for pod in self.objects[PODS].values():
            node = self.objects[NODES].get(node_of(pod) or "")
            sound = condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]
            if pod["status"].get("phase") == "Succeeded" or (sound and node is not None and is_ready(node)):
                alive[gang_of(pod)] += 1
        for workload in self.objects[WORKLOADS].values():
            name = workload["metadata"]["name"]
            if not condition(workload, "PodsReady") or condition(workload, "Finished") or not runs(workload):
                continue
            if alive[name_of(workload)] < size(workload):
                words = f"{alive[name_of(workload)]} of {size(workload)} pods are there"
                yield from self._lasting("partial", name, now, self.patience * READY_GRACE, words)

    def _inverted(self, now: float) -> Iterable[tuple[str, str]]:
        """Gangs that wait while others of lower priority run where they would fit."""
        waiting = [w for w in self.objects[WORKLOADS].values() if not condition(w, "QuotaReserved") and not over(w)]
        for workload in waiting:
            lesser = {
                name_of(other)
                for other in self.objects[WORKLOADS].values()
                if runs(other) and priority(other) < priority(workload)
            }
            name = workload["metadata"]["name"]
            if lesser and self._fits(workload, {*lesser, name_of(workload)}, now):
                words = f"priority {priority(workload)} waits behind {sorted(lesser)}"
                yield from self._lasting("inverted", name, now, self.patience * WAITING_GRACE, words)

    def _fits(self, workload: Json, without: set[str], now: float) -> bool:
        """It would fit into the quota and on trusted nodes if these others were not there, beside all who stay."""
        others = [w for w in self.objects[WORKLOADS].values() if name_of(w) not in without and held(w)]
        if self.quota is not None and sum(map(held, others)) + wish(workload) > self.quota:
            return False
        free = {
            name: capacity(node)
            for name, node in self.objects[NODES].items()
            if now - self._ready_since.get(name, now) > TRUSTED
        }
        there = Counter[str]()
        taken: set[str] = set()  # domains that others have for themselves alone
        alone = {name_of(w) for w in others if whole_domains(w)}
        for pod in self.objects[PODS].values():
            node, gang = node_of(pod), gang_of(pod)
            if node is None or not takes_room(pod) or gang in without:
                continue
            there[gang] += 1
            if node in free:
                free[node] -= gpus(pod)
            if gang in alone:
                taken.update(self._labels(node).values())
        absent = [(w, size(w) - there[name_of(w)]) for w in others]
        return all(_seat(free, gpus_each(w), count) for w, count in absent if count > 0) and self._seat_all(
            workload, free, taken
        )

    def _seat_all(self, workload: Json, free: dict[str, int], taken: set[str]) -> bool:
        exclusive = whole_domains(workload)
        for pod_set in workload["spec"]["podSets"]:
            each = gpus({"spec": pod_set["template"]["spec"]})
            if pod_set["name"] not in exclusive:
                if not _seat(free, each, pod_set["count"]):
                    return False
                continue
            label, domains = exclusive[pod_set["name"]]
            rooms: dict[str, dict[str, int]] = {}
            for node, left in free.items():
                rooms.setdefault(self._labels(node).get(label, ""), {})[node] = left
            fit = [
                d
                for d, room in rooms.items()
                if d and d not in taken and _seat(room, each, pod_set["count"] // domains)
            ]
            if len(fit) < domains:
                return False
        return True

    def _labels(self, node: str) -> Mapping[str, str]:
        return (self.objects[NODES].get(node) or {"metadata": {}})["metadata"].get("labels") or {}

    def _lasting(self, kind: str, name: str, now: float, grace: float, words: str) -> Iterator[tuple[str, str]]:
        """It must not last longer than `grace`."""
        since = self._since.setdefault((kind, name), now)
        if now - since > grace:
            self.violations.append(f"{name}: {kind} for {now - since:.0f} s: {words}")
            self.scenes.append(self._scene(name))
            self._since[(kind, name)] = now  # said once per grace
        yield kind, name

    def _scene(self, name: str) -> Json:
        workload = next(w for w in self.objects[WORKLOADS].values() if w["metadata"]["name"] == name)
        rows = (workload.get("status") or {}).get("conditions") or ()
        pods = [pod for pod in self.objects[PODS].values() if gang_of(pod) == name_of(workload)]
        return {
            "workload": name,
            "at": time.strftime("%H:%M:%S", time.gmtime()),
            "conditions": {r["type"]: (r["status"], r["reason"], r["message"], r["lastTransitionTime"]) for r in rows},
            "record": (workload["metadata"].get("annotations") or {}).get(RECOVERY),
            "pods": {
                pod["metadata"]["name"]: (
                    node_of(pod),
                    pod["status"].get("phase"),
                    pod["metadata"].get("deletionTimestamp"),
                    pod["spec"].get("schedulingGates"),
                )
                for pod in pods
            },
            "not trusted": sorted(set(self.objects[NODES]) - self._ready_since.keys()),
        }


def _seat(free: dict[str, int], each: int, count: int) -> bool:
    """Take room for so many equal pods, node by node; whether there was enough."""
    for name in sorted(free):
        taken = min(count, max(0, free[name]) // each) if each else count
        free[name] -= taken * each
        count -= taken
    return count <= 0


def _is_failure(ended: object) -> bool:
    return isinstance(ended, Exception)


def condition(obj: Json, kind: str) -> bool:
    rows = (obj.get("status") or {}).get("conditions") or ()
    return any(row["type"] == kind and row["status"] == "True" for row in rows)


def is_ready(node: Json) -> bool:
    return condition(node, "Ready")


# --- pods -------------------------------------------------------------------------------------------------------------


def member(pod: Json) -> Member:
    """Which Job it belongs to, by uid, and which index of it."""
    owner = next((ref["uid"] for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), "")
    return owner, (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-completion-index", "")


def gang_of(pod: Json) -> str:
    notes = pod["metadata"].get("annotations") or {}
    return notes.get(SLICE_NAME) or notes.get(WORKLOAD, "")


def node_of(pod: Json) -> str | None:
    return pod["spec"].get("nodeName")


def takes_room(pod: Json) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def runs_now(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def gpus(pod: Json) -> int:
    found = (c.get("resources", {}) for c in pod["spec"]["containers"])
    return sum(int((row.get("limits") or row.get("requests") or {}).get(GPU, 0)) for row in found)


def capacity(node: Json) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


# --- workloads --------------------------------------------------------------------------------------------------------


def priority(workload: Json) -> int:
    return workload["spec"].get("priority", 0)


def size(workload: Json) -> int:
    """How many pods it has."""
    return sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])


def name_of(workload: Json) -> str:
    """Of its gang, which the slices of an elastic job have in common."""
    meta = workload["metadata"]
    return (meta.get("annotations") or {}).get(SLICE_NAME) or meta["name"]


def gpus_each(workload: Json) -> int:
    """GPUs of one of its pods: the most that any of them has."""
    return max(gpus({"spec": pod_set["template"]["spec"]}) for pod_set in workload["spec"]["podSets"])


def wish(workload: Json) -> int:
    """GPUs of all its pods."""
    return sum(gpus({"spec": p["template"]["spec"]}) * p["count"] for p in workload["spec"]["podSets"])


def held(workload: Json) -> int:
    """GPUs that it holds quota of: an elastic job that was cut holds what it has left, whatever was admitted."""
    status = workload.get("status", {})
    if not condition(workload, "QuotaReserved") or condition(workload, "Finished"):
        return 0
    ended = {row["name"]: row["count"] for row in status.get("reclaimablePods") or ()}
    rows = (status.get("admission") or {}).get("podSetAssignments") or ()
    each = {p["name"]: gpus({"spec": p["template"]["spec"]}) for p in workload["spec"]["podSets"]}
    left = {p["name"]: p["count"] for p in workload["spec"]["podSets"]}
    counts = {row["name"]: min(row["count"], left[row["name"]]) for row in rows}
    return sum(each[name] * max(0, count - ended.get(name, 0)) for name, count in counts.items())


def whole_domains(workload: Json) -> dict[str, tuple[str, int]]:
    """Pod set -> the node label of which it has domains for itself alone, and how many."""
    rows = json.loads((workload["metadata"].get("annotations") or {}).get(WHOLE_DOMAINS, "{}"))
    return {name: (row["by"], row["count"]) for name, row in rows.items()}


def over(workload: Json) -> bool:
    return condition(workload, "Finished") or "deletionTimestamp" in workload["metadata"]


def runs(workload: Json) -> bool:
    return condition(workload, "Admitted") and not condition(workload, "Evicted") and not over(workload)
