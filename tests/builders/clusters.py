"""A cluster made of JSON, with the engine and the forecasts of a command on it: what answers are asked of in unit tests."""

from __future__ import annotations

from typing import Any

from tests.objects import JobObject

from gangline.api import names
from gangline.api.read.conditions import timestamp
from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline.console.views.own_answers import ClusterInstant
from gangline.control.answers.answers import Answers
from gangline.control.answers.usage.attempt_watch import AttemptWatch
from gangline.control.parts.messages import Messages
from gangline.jobs import workload as workloads
from gangline.jobs.gpujob import GPUJobKind
from gangline.kube import resources as kube

Json = dict[str, Any]
Entry = tuple[kube.Resource, Json]
NOW = 1_700_000_000
GPU = "nvidia.com/gpu"


def queue(name: str, gpus: int, *, namespace: str = "ml", cohort: str = "", **others: int) -> list[Entry]:
    """A ClusterQueue and a LocalQueue of that name. `gpus` are of flavor h100; `others` are more flavors."""
    quotas = [
        {"name": flavor, "resources": [{"name": GPU, "nominalQuota": n}]}
        for flavor, n in {"h100": gpus, **others}.items()
    ]
    spec: Json = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": [GPU], "flavors": quotas}]}
    if cohort:
        spec["cohortName"] = cohort
    active = {"type": "Active", "status": "True", "reason": "Ready", "message": ""}
    cluster_queue = {
        "kind": "ClusterQueue",
        "metadata": {"name": name, "uid": name},
        "spec": spec,
        "status": {"conditions": [active]},
    }
    return [(kube.CLUSTER_QUEUES, cluster_queue), local_queue(name, name, namespace)]


def local_queue(name: str, to: str, namespace: str = "ml") -> Entry:
    meta = {"name": name, "namespace": namespace, "uid": f"lq-{namespace}-{name}"}
    return kube.LOCAL_QUEUES, {"kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": to}}


def gpujob(name: str, workers: int, expected: str, queue: str = "a", namespace: str = "ml") -> JobObject:
    template = {"spec": {"containers": [{"name": "main", "image": f"example.com/{name}"}]}}
    metadata = {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}}
    spec = {"workers": workers, "gpusPerWorker": 8, "runtime": {"expected": expected}, "template": template}
    return JobObject({"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob", "metadata": metadata, "spec": spec})


def submitted(
    name: str,
    workers: int,
    expected: str,
    *,
    ago: int,
    started: int | None = None,
    queue: str = "a",
    on: str = "h100",
    namespace: str = "ml",
    message: str = "",
    after: str = "",
) -> list[Entry]:
    """A GPUJob and its Workload, `ago` seconds old; `started` that many seconds ago, or waiting with this message. `after`: what
    it waits for.
    """
    job = gpujob(name, workers, expected, queue, namespace)
    job["metadata"] |= {"uid": f"job-{name}", "annotations": {names.AFTER: after} if after else {}}
    kind = GPUJobKind()
    workload = workloads.build(kind, job, kind.pod_sets(job), queue=queue, priority=0)
    workload["metadata"] |= {"uid": f"wl-{name}", "creationTimestamp": timestamp((NOW - ago) * 1000)}
    if started is not None:
        assigned = {"name": "worker", "count": workers, "flavors": {GPU: on}, "resourceUsage": {GPU: 8 * workers}}
        rows = [
            {"type": kind_, "status": "True", "reason": kind_, "lastTransitionTime": timestamp((NOW - started) * 1000)}
            for kind_ in ("QuotaReserved", "Admitted")
        ]
        workload["status"] = {
            "conditions": rows,
            "admission": {"clusterQueue": queue, "podSetAssignments": [assigned]},
        }
    elif message:
        row = {"type": "QuotaReserved", "status": "False", "reason": "WaitingForQuota", "message": message}
        workload["status"] = {"conditions": [row | {"lastTransitionTime": timestamp((NOW - ago) * 1000)}]}
    return [(kube.GPU_JOBS, job), (kube.WORKLOADS, workload)]


def flavor(name: str) -> Entry:
    return kube.RESOURCE_FLAVORS, {"kind": "ResourceFlavor", "metadata": {"name": name, "uid": name}, "spec": {}}


def world_of(*entries: Entry, managed: ManagedJobs | None = None) -> ClusterInstant:
    objects: dict[kube.Resource, list[Json]] = {}
    for number, (resource, obj) in enumerate(entries):
        obj["metadata"]["resourceVersion"] = str(number)
        objects.setdefault(resource, []).append(obj)
    world = ClusterInstant(now=NOW * 1000)
    world.mirror.managed = managed or world.mirror.managed
    world.fill(objects)
    world.forecast(None)
    return world


def busy() -> ClusterInstant:
    """32 GPUs: one job runs on all of them for 40 more minutes, and two wait; queue b has 16 GPUs that nobody uses."""
    return world_of(
        flavor("h100"),
        *queue("a", 32),
        *queue("b", 16),
        *submitted("runs", 4, "1h", ago=1300, started=1200),
        *submitted("next", 4, "2h", ago=600),
        *submitted("last", 2, "30m", ago=300),
    )


def several_flavors() -> ClusterInstant:
    """Queue a has 8 fast GPUs and 32 slow ones; a job is to run on the slow ones for 40 more minutes, and one waits for them."""
    here = world_of(
        flavor("h100"),
        flavor("v100"),
        *queue("a", 8, v100=32),
        *queue("b", 16),
        *submitted("runs", 4, "1h", ago=1300, started=1200, on="v100"),
        *submitted("waits", 4, "2h", ago=600),
    )
    forecast = {"quantiles": [600, 1200, 2400, 3600, 4800], "source": "Model", "samples": 7}
    there = {"h100": [300, 600, 1200, 1800, 2400], "v100": [1200, 2400, 4800, 7200, 9600], "odd": [1]}
    here.forecast({key_of(here, "waits"): forecast | {"byFlavor": there}})
    return here


SECRET = "secret-team"


def shared() -> ClusterInstant:
    """Team ml shares a cohort with another team, whose names it must not learn; of 32 GPUs, the other holds 16 and waits with 8.

    In ml's own queue, a job of the other team (through a queue of its own) is before ml's.
    """
    short = (
        f"couldn't assign flavors to pod set worker: insufficient unused quota for {GPU} in flavor h100, 8 more needed"
    )
    return world_of(
        flavor("h100"),
        *queue("a", 16, cohort="lab"),
        *queue(f"{SECRET}-queue", 16, namespace=SECRET, cohort="lab"),
        local_queue("a", "a", SECRET),
        *submitted("runs", 2, "1h", ago=1300, started=1200),
        *submitted(f"{SECRET}-runs", 2, "2h", ago=1300, started=1100, queue=f"{SECRET}-queue", namespace=SECRET),
        *submitted(f"{SECRET}-waits", 1, "30m", ago=700, namespace=SECRET, message=short),
        *submitted(
            "next", 1, "1h", ago=600, message=f"{short}. Workload would delay {SECRET}/gpujob-{SECRET}-waits-1a"
        ),
    )


def attempt_record(answers: Answers) -> AttemptWatch:
    """The record of a leader without a history, which knows the jobs that run now."""
    source = answers.source
    assert source.pods is not None
    watch = AttemptWatch(source.mirror, source.pods, Messages(), store=None, now=source.now)
    watch._begin()
    watch.act(source.now())
    return watch


def key_of(here: ClusterInstant, job: str) -> str:
    """The key of a job's Workload."""
    return next(
        key for key in here.mirror.objects[kube.WORKLOADS] if key.partition("/")[2].startswith(f"gpujob-{job}-")
    )
