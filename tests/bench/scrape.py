"""What a scrape of the operator's metrics costs: `make bench-scrape`, JSON on stdout.

1,000 ClusterQueues in cohorts of ten, each with a LocalQueue, and 15,000 workloads: a third runs, a third waits, a third has
finished. Every queue has all counters and histograms that such a history leaves. `first_ms` is a scrape after all counters and
histograms changed, `next_ms` one after a hundredth of them did (the median of several). `held_ms` is the longest time for which
a scrape kept the loop from anything else. All are CPU milliseconds: others' work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from statistics import median
from typing import Any

from gangline.api.read import conditions
from gangline.api.read.configuration.metrics_settings import MetricsSettings
from gangline.control.controller import Controller
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.writes.writer import Writer
from gangline.engine import Engine
from gangline.kube import resources as kube
from gangline.kube.reflector import Synced, Upsert
from gangline.kube.resources import Json, Resource

QUEUES, WORKLOADS, ROUNDS = 1_000, 15_000, 9
NOW = 1_767_225_600_000


class Tape:
    """In place of the event recorder."""

    def record(self, *args: Any, **named: Any) -> None:
        pass


def main() -> None:
    print(json.dumps(asyncio.run(measured(QUEUES, WORKLOADS)), indent=1))


async def measured(queues: int, workloads: int) -> dict[str, Any]:
    metrics = Metrics(MetricsSettings(cluster_queue_resources=True), fair_sharing=True)
    controller = Controller(None, Writer(None), Engine(), Tape(), metrics, now=lambda: NOW)  # type: ignore[arg-type]
    _fill(controller, queues, workloads)
    _live(metrics, range(queues))
    gc.collect()
    gc.freeze()
    text = await metrics.text()
    _live(metrics, range(queues))
    first, held = await _scrape(metrics)
    later: list[float] = []
    for number in range(ROUNDS):
        _live(metrics, range(number, queues, 100))
        taken, longest = await _scrape(metrics)
        later.append(taken)
        held = max(held, longest)
    return {
        "queues": queues,
        "workloads": workloads,
        "lines": text.count(b"\n"),
        "megabytes": round(len(text) / 1e6, 1),
        "first_ms": round(first * 1e3, 1),
        "next_ms": round(median(later) * 1e3, 1),
        "held_ms": round(held * 1e3, 1),
    }


async def _scrape(metrics: Metrics) -> tuple[float, float]:
    """Seconds, and the longest time in seconds for which another task of the loop had to wait. Parts are dropped once sent."""
    held, done = 0.0, False

    async def others() -> None:
        nonlocal held
        last = time.thread_time()
        while not done:
            await asyncio.sleep(0)
            held, last = max(held, time.thread_time() - last), time.thread_time()

    watch = asyncio.ensure_future(others())
    await asyncio.sleep(0)
    start = time.process_time()
    async for _ in metrics.parts():
        pass
    taken, done = time.process_time() - start, True
    await watch
    return taken, held


# --- the cluster ---


def _fill(controller: Controller, queues: int, workloads: int) -> None:
    def show(resource: Resource, name: str, status: Json | None = None, **spec: Any) -> None:
        meta = {"name": name, "uid": name, "resourceVersion": "1", "creationTimestamp": conditions.timestamp(NOW)}
        if resource.namespaced:
            meta["namespace"] = "ns"
        controller.sink(resource)(Upsert({"metadata": meta, "spec": spec, "status": status or {}}))

    resources = [{"name": name, "nominalQuota": "64"} for name in ("cpu", "nvidia.com/gpu")]
    groups = [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": [{"name": "f", "resources": resources}]}]
    show(kube.NAMESPACES, "ns")
    show(kube.RESOURCE_FLAVORS, "f")
    for number in range(queues):
        cohort = f"cohort-{number // 10}"
        show(kube.CLUSTER_QUEUES, f"queue-{number}", cohortName=cohort, namespaceSelector={}, resourceGroups=groups)
        show(kube.LOCAL_QUEUES, f"queue-{number}", clusterQueue=f"queue-{number}")
    for number in range(workloads):
        requests = {"cpu": str(1 + number % 3), "nvidia.com/gpu": "1"}
        template = {"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}}
        queue = f"queue-{number % queues}"
        pod_sets = [{"name": "main", "count": 1, "template": template}]
        status = _status(queue, number // queues % 3)
        show(kube.WORKLOADS, f"workload-{number}", status, queueName=queue, podSets=pod_sets)
    controller.sink(kube.PODS)(Synced())
    while not controller.absorb():
        pass


def _status(queue: str, kind: int) -> Json:
    """0: it waits, 1: it runs, 2: it has finished."""
    if kind == 0:
        return {"conditions": [_row("QuotaReserved", "False", "WaitingForQuota")]}
    rows = [_row(name, "True", name) for name in ("QuotaReserved", "Admitted", "Finished")[: kind + 1]]
    flavors = {"cpu": "f", "nvidia.com/gpu": "f"}
    usage = {"name": "main", "count": 1, "flavors": flavors, "resourceUsage": {"cpu": "1", "nvidia.com/gpu": "1"}}
    return {"conditions": rows, "admission": {"clusterQueue": queue, "podSetAssignments": [usage]}}


def _row(kind: str, status: str, reason: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": conditions.timestamp(NOW)}


def _live(metrics: Metrics, numbers: range) -> None:
    """What workloads of these queues leave behind: admissions, readiness, evictions, ends."""
    for number in numbers:
        queue = f"queue-{number}"
        rows = [_row(name, "True", name) for name in ("QuotaReserved", "Admitted", "PodsReady", "Evicted", "Finished")]
        meta = {"namespace": "ns", "creationTimestamp": conditions.timestamp(NOW)}
        status = {"conditions": rows, "admission": {"clusterQueue": queue}, "admissionChecks": [{}]}
        workload: Json = {"metadata": meta, "spec": {"queueName": queue}, "status": status}
        metrics.kueue.reserved(workload, queue, number, admitted=True)
        metrics.kueue.ready(workload, NOW + 1000 * number)
        metrics.kueue.evicted(workload, "Preempted")
        metrics.kueue.released(workload, queue, NOW + 1000)
        metrics.kueue.finished(workload)


if __name__ == "__main__":
    main()
