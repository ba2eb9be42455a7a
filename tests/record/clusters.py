"""A cluster that is played event by event into a recorder, by a best-effort queue of its own: what a live one would show."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.builders.objects import Workload, pod_set

from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.objects import JobObject
from gangline.record.recorder import Recorder

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
#: 1 November 2026
BEGIN = 1_793_491_200_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


class Clock:
    """Milliseconds that only the test moves."""

    def __init__(self, now: int = BEGIN) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def stamp(millis: int) -> str:
    return datetime.fromtimestamp(millis // 1000, UTC).isoformat().replace("+00:00", "Z")


def flavor(name: str = "gpu", topology: str = "") -> Json:
    spec = {"topologyName": topology, "nodeLabels": {"pool": name}} if topology else {}
    return {"metadata": {"name": name, "uid": f"flavor-{name}"}, "spec": spec}


def topology() -> Json:
    return {
        "metadata": {"name": "hosts", "uid": "hosts"},
        "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
    }


def node(name: str, gpus: int = 8, *, ready: bool = True) -> Json:
    return {
        "metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name, "pool": "gpu"}},
        "status": {
            "allocatable": {GPU: str(gpus), "cpu": "64", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


def queue(name: str = "cq", gpus: int = 16, **spec: Any) -> Json:
    flavors = [{"name": "gpu", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"team": "research"}},
        "spec": {
            "queueingStrategy": "BestEffortFIFO",
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
            **spec,
        },
    }


def local_queue(name: str = "lq", cluster_queue: str = "cq", namespace: str = "team") -> Json:
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": f"{namespace}-{name}"},
        "spec": {"clusterQueue": cluster_queue},
    }


def policy(name: str = "shortest", **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"clusterQueues": {"names": ["cq"]}, "order": {"key": "ShortestFirst"}, **spec},
    }


def job(name: str, *, hint: str = "", user: str = "") -> JobObject:
    metadata: Json = {"namespace": "team", "name": name, "uid": f"job-{name}"}
    if hint:
        metadata["annotations"] = {"gangline.io/expected-runtime": hint}
    if user:
        metadata["labels"] = {"gangline.io/user": user}
    spec = {"template": {"spec": {}}}
    return JobObject({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def workload(
    name: str,
    created: int,
    gpus: int = 1,
    *,
    pods: int = 1,
    admitted: int | None = None,
    evicted: int | None = None,
    finished: int | None = None,
    checkpoint: str = "",
    priority: int = 0,
    topology: bool = False,
) -> Json:
    """As Kueue stores it, with what must not be recorded in its template."""
    meta: Json = {"uid": f"uid-{name}", "creationTimestamp": stamp(created), "annotations": {"secret": "annotation"}}
    if checkpoint:
        meta["annotations"]["gangline.io/checkpoint-interval"] = checkpoint
    made = (
        Workload(f"job-{name}", **meta).owned_by("Job", name, uid=f"job-{name}").in_queue("lq").spec(priority=priority)
    )

    def says(kind: str, status: bool, at: int, reason: str) -> None:
        row = {"type": kind, "status": str(status), "reason": reason, "lastTransitionTime": stamp(at)}
        made.conditions({**row, "message": "secret message"})

    if admitted is not None:
        says("QuotaReserved", True, admitted, "QuotaReserved")
        says("Admitted", True, admitted, "Admitted")
    if evicted is not None:
        says("QuotaReserved", False, evicted, "Pending")
        says("Evicted", True, evicted, "Preempted")
    if finished is not None:
        says("Finished", True, finished, "Succeeded")
    secret = {
        "name": "secret-container",
        "image": "secret/image",
        "command": ["secret-command"],
        "env": [{"name": "SECRET", "value": "secret-value"}],
        "resources": {"requests": {GPU: str(gpus)}},
    }
    template = {"serviceAccountName": "secret-account", "imagePullSecrets": [{"name": "secret-pull"}]}
    row = pod_set(secret, count=pods, annotations={"secret": "annotation"}, **template)
    if topology:
        row["topologyRequest"] = {"required": "kubernetes.io/hostname"}
    made.pod_sets(row)
    if admitted is not None and evicted is None:
        usage = {"name": "main", "count": pods, "flavors": {GPU: "gpu"}, "resourceUsage": {GPU: str(gpus * pods)}}
        made.holds("cq", usage)
    return made.made


def configuration(recorder: Recorder, gpus: int = 16) -> None:
    for resource, obj in (
        (kube.RESOURCE_FLAVORS, flavor()),
        (kube.CLUSTER_QUEUES, queue(gpus=gpus)),
        (kube.LOCAL_QUEUES, local_queue()),
        (kube.NODES, node("node-1")),
        (kube.NODES, node("node-2")),
    ):
        recorder.observe(resource, Upsert(obj))


def busy(
    folder: Path,
    jobs: int = 150,
    *,
    gpus: int = 16,
    sizes: tuple[int, ...] = (1, 1, 2, 4, 8, 16),
    seed: int = 3,
    load: float = 1.1,
    hints: bool = True,
) -> None:
    """A week of jobs under best effort: all that fit start, in the order of submission, and every one ends."""
    clock, chance = Clock(), random.Random(seed)
    recorder = Recorder(folder, clock)
    configuration(recorder, gpus)
    for at, event in sorted(_best_effort(jobs, gpus, sizes, chance, load), key=lambda each: each[0]):
        clock.now = at
        name, size, created, started, ended = event
        if hints and created == at:
            recorder.show_job(kube.JOBS, job(name, hint=f"{(ended - started) // 1000}s", user=f"user-{size}"))
        state = {"admitted": None if at < started else started, "finished": None if at < ended else ended}
        recorder.observe(kube.WORKLOADS, Upsert(workload(name, created, size, **state)))  # type: ignore[arg-type]
    for at in (clock.now + MINUTE,):
        clock.now = at
        recorder.observe(kube.WORKLOADS, Removed("team/job-0000", "uid-0000"))
    recorder.close()


def _best_effort(
    jobs: int, gpus: int, choices: tuple[int, ...], chance: random.Random, load: float
) -> Iterator[tuple[int, tuple[str, int, int, int, int]]]:
    """(time, (name, GPUs, created, started, ended)) of each state of each job; times are whole seconds."""
    sizes = [chance.choice(choices) for _ in range(jobs)]
    spans = [1000 * round(min(12 * 3600, chance.lognormvariate(7.5, 1.3))) + 1000 for _ in range(jobs)]
    work = sum(size * span for size, span in zip(sizes, spans, strict=True))
    created = sorted(BEGIN + MINUTE + 1000 * round(chance.random() * work / gpus / load / 1000) for _ in range(jobs))
    waiting: list[int] = []
    running: list[tuple[int, int]] = []
    free, arrived, now = gpus, 0, BEGIN
    times: dict[int, tuple[int, int]] = {}
    while arrived < jobs or waiting:
        due = [end for end, _ in running] + ([created[arrived]] if arrived < jobs else [])
        now = min(due)
        free += sum(sizes[number] for end, number in running if end <= now)
        running = [each for each in running if each[0] > now]
        while arrived < jobs and created[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        for number in list(waiting):
            if sizes[number] <= free:
                free -= sizes[number]
                waiting.remove(number)
                times[number] = (now, now + spans[number])
                running.append((now + spans[number], number))
    for number, (started, ended) in times.items():
        row = (f"{number:04d}", sizes[number], created[number], started, ended)
        for at in sorted({created[number], started, ended}):
            yield at, row
