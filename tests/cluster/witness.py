"""Looks at a cluster all the time and notes whatever must never be: the judge of the chaos test."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.harness import condition

from gangline.devcluster.nodes import is_ready
from gangline.kube.client import ApiClient
from gangline.kube.reflector import Event, Reflector, ReflectorGroup, Removed, Upsert
from gangline.kube.resources import NODES, PODS, WORKLOADS, Resource, key_of

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
WORKLOAD = "kueue.x-k8s.io/workload"

#: What may be untrue for a moment, since one write follows the other, in seconds: a gang is told to be ready that is not …
READY_GRACE = 15.0
#: … and one waits that could run in the place of lesser ones: preemption, pods that end, an operator that is down meanwhile.
WAITING_GRACE = 30.0
#: a node that came back is trusted after its soak, which flapping makes up to sixteen times as long
TRUSTED = 20.0
PERIOD = 0.5


@dataclass
class Witness:
    objects: dict[Resource, dict[str, Json]] = field(default_factory=lambda: {NODES: {}, PODS: {}, WORKLOADS: {}})
    #: what went wrong, in words
    violations: list[str] = field(default_factory=list)
    looks: int = 0
    _since: dict[tuple[str, str], float] = field(default_factory=dict)
    _ready_since: dict[str, float] = field(default_factory=dict)
    #: (job uid, index) -> uids of pods that succeeded for it
    succeeded: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    @classmethod
    @contextlib.asynccontextmanager
    async def at(cls, client: ApiClient) -> AsyncIterator[Witness]:
        witness, group = cls(), ReflectorGroup()
        for resource in witness.objects:
            group.add(Reflector(client, resource), witness._sink(resource))
        tasks = [asyncio.ensure_future(group.run())]
        await group.wait_synced()
        tasks.append(asyncio.ensure_future(witness._look_on()))
        try:
            yield witness
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _sink(self, resource: Resource) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            if isinstance(event, Upsert):
                self.objects[resource][key_of(event.obj)] = event.obj
                if resource == PODS:
                    self._note_success(event.obj)
                if resource == NODES:
                    self._note_node(event.obj)
            elif isinstance(event, Removed):
                self.objects[resource].pop(event.key, None)
                if resource == NODES:
                    self._ready_since.pop(event.key, None)

        return take

    def _note_success(self, pod: Json) -> None:
        owner, index = member(pod)
        if owner and index and pod["status"].get("phase") == "Succeeded":
            self.succeeded.setdefault((owner, index), set()).add(pod["metadata"]["uid"])

    def _note_node(self, node: Json) -> None:
        if is_ready(node):
            self._ready_since.setdefault(key_of(node), time.monotonic())
        else:
            self._ready_since.pop(key_of(node), None)

    async def _look_on(self) -> None:
        while True:
            self.look(time.monotonic())
            await asyncio.sleep(PERIOD)

    # --- what must not be ---------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        self.looks += 1
        self._overcommitted()
        self._twice()
        seen = {*self._partial(now), *self._inverted(now)}
        self._since = {key: since for key, since in self._since.items() if key in seen}

    def _overcommitted(self) -> None:
        used = Counter[str]()
        for pod in self.objects[PODS].values():
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                used[pod["spec"]["nodeName"]] += gpus(pod)
        for name, node in self.objects[NODES].items():
            room = int(node["status"].get("allocatable", {}).get(GPU, 0))
            if used[name] > room:
                self.violations.append(f"node {name} has {room} GPUs and pods with {used[name]}")

    def _twice(self) -> None:
        """No member of a Job runs in two places at the same time."""
        there = Counter[tuple[str, str]]()
        for pod in self.objects[PODS].values():
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]:
                there[member(pod)] += 1
        for (owner, index), count in there.items():
            if owner and index and count > 1:
                self.violations.append(f"index {index} of Job {owner} runs {count} times")

    def _partial(self, now: float) -> Iterable[tuple[str, str]]:
        """Gangs that are called ready while pods of them are missing."""
        alive = Counter[str]()
        for pod in self.objects[PODS].values():
            name = (pod["metadata"].get("annotations") or {}).get(WORKLOAD, "")
            node = self.objects[NODES].get(pod["spec"].get("nodeName") or "")
            sound = condition(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]
            if pod["status"].get("phase") == "Succeeded" or (sound and node is not None and is_ready(node)):
                alive[name] += 1
        for workload in self.objects[WORKLOADS].values():
            name = workload["metadata"]["name"]
            if not condition(workload, "PodsReady") or condition(workload, "Finished") or not runs(workload):
                continue
            wanted = sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
            if alive[name] < wanted:
                yield from self._lasting("partial", name, now, READY_GRACE, f"{alive[name]} of {wanted} pods are there")

    def _inverted(self, now: float) -> Iterable[tuple[str, str]]:
        """Gangs that wait while others of lower priority run where they would fit."""
        waiting = [w for w in self.objects[WORKLOADS].values() if not condition(w, "QuotaReserved") and not over(w)]
        for workload in waiting:
            lesser = {
                other["metadata"]["name"]
                for other in self.objects[WORKLOADS].values()
                if runs(other) and priority(other) < priority(workload)
            }
            name = workload["metadata"]["name"]
            if lesser and self._fits(workload, lesser, now):
                words = f"priority {priority(workload)} waits behind {sorted(lesser)}"
                yield from self._lasting("inverted", name, now, WAITING_GRACE, words)

    def _fits(self, workload: Json, without: set[str], now: float) -> bool:
        """It would fit on trusted nodes if these others were not there."""
        free = {
            name: int(node["status"].get("allocatable", {}).get(GPU, 0))
            for name, node in self.objects[NODES].items()
            if now - self._ready_since.get(name, now) > TRUSTED
        }
        for pod in self.objects[PODS].values():
            owner = (pod["metadata"].get("annotations") or {}).get(WORKLOAD, "")
            node = pod["spec"].get("nodeName")
            if node in free and pod["status"].get("phase") not in ("Succeeded", "Failed") and owner not in without:
                free[node] -= gpus(pod)
        for pod_set in workload["spec"]["podSets"]:
            size = gpus({"spec": pod_set["template"]["spec"]})
            for _ in range(pod_set["count"]):
                node = next((name for name in sorted(free) if free[name] >= size), None)
                if node is None:
                    return False
                free[node] -= size
        return True

    def _lasting(self, kind: str, name: str, now: float, grace: float, words: str) -> Iterable[tuple[str, str]]:
        """It must not last longer than `grace`."""
        since = self._since.setdefault((kind, name), now)
        if now - since > grace:
            self.violations.append(f"{name}: {kind} for {now - since:.0f} s: {words}")
            self._since[(kind, name)] = now  # said once per grace
        yield kind, name


def member(pod: Json) -> tuple[str, str]:
    """Which Job it belongs to, by uid, and which index of it."""
    owner = next((ref["uid"] for ref in pod["metadata"].get("ownerReferences") or () if ref.get("controller")), "")
    return owner, (pod["metadata"].get("labels") or {}).get("batch.kubernetes.io/job-completion-index", "")


def gpus(pod: Json) -> int:
    found = (c.get("resources", {}) for c in pod["spec"]["containers"])
    return sum(int((row.get("limits") or row.get("requests") or {}).get(GPU, 0)) for row in found)


def priority(workload: Json) -> int:
    return workload["spec"].get("priority", 0)


def over(workload: Json) -> bool:
    return condition(workload, "Finished") or "deletionTimestamp" in workload["metadata"]


def runs(workload: Json) -> bool:
    return condition(workload, "Admitted") and not condition(workload, "Evicted") and not over(workload)
