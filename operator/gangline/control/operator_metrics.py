"""Prometheus metrics under Kueue's names, fed by carried-out decisions and by the engine's ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gangline.engine import Engine
from gangline.kube.resources import Json

#: 1 s, then 2.5·2ⁿ s, as in Kueue's histograms.
BUCKETS = (1.0, *(2.5 * 2**n for n in range(14)))


# Creation times of series are useless here (Kueue's metrics lack them, too), and take a tenth of the lines of a scrape.
disable_created_metrics()


class _Counts(Collector):
    """Counters or gauges whose values are kept elsewhere, read when they are scraped."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: list[str],
        read: Callable[[], Mapping[tuple[str, ...], float]],
        family: type[CounterMetricFamily | GaugeMetricFamily] = CounterMetricFamily,
    ) -> None:
        self._name, self._text, self._labels, self._read, self._family = name, text, labels, read, family

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        family = self._family(self._name, self._text, labels=self._labels)
        for key, count in sorted(self._read().items()):
            family.add_metric(list(key), count)
        yield family


class Metrics:
    """The operator's metrics, by name."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        queue = ["cluster_queue"]
        why = [*queue, "reason", "underlying_cause"]
        make: dict[str, Any] = {"registry": self.registry}
        self._reserved = Counter("kueue_quota_reserved_workloads", "Workloads that got quota.", queue, **make)
        self._admitted = Counter("kueue_admitted_workloads", "Workloads that were admitted.", queue, **make)
        self._evicted = Counter("kueue_evicted_workloads", "Workloads that were evicted.", why, **make)
        self._quota_wait = Histogram(
            "kueue_quota_reserved_wait_time_seconds", "From queued to quota.", queue, buckets=BUCKETS, **make
        )
        self._wait = Histogram(
            "kueue_admission_wait_time_seconds", "From queued to admitted.", queue, buckets=BUCKETS, **make
        )
        self._checks_wait = Histogram(
            "kueue_admission_checks_wait_time_seconds", "From quota to admitted.", queue, buckets=BUCKETS, **make
        )
        self._pending = Gauge("kueue_pending_workloads", "Pending workloads.", [*queue, "status"], **make)
        self._reserving = Gauge("kueue_reserving_active_workloads", "Workloads that hold quota.", queue, **make)
        self._active = Gauge("kueue_admitted_active_workloads", "Admitted, unfinished workloads.", queue, **make)
        self._status = Gauge(
            "kueue_cluster_queue_status", "1 for the queue's current state.", [*queue, "status"], **make
        )
        seconds = {"buckets": (0.1, 0.25, 0.5, *(2.0**n for n in range(13))), **make}
        self._swaps = Histogram("gangline_swap_seconds", "Replacing lost nodes, stage by stage.", ["stage"], **seconds)
        self._recoveries = Histogram(
            "gangline_recovery_seconds", "From the loss of a node until the gang runs again.", queue, **seconds
        )
        self._overruns = Counter("gangline_overrun", "Runs that lasted longer than forecast.", ["state"], **make)
        self._stalls = Counter("gangline_stalled", "Runs that were found to hang.", ["action"], **make)
        self._notified = Counter("gangline_notifications", "Notices by outcome.", ["kind", "outcome"], **make)
        #: the metrics whose series are removed when their ClusterQueue is deleted
        self._by_queue = (
            *(self._reserved, self._admitted, self._evicted, self._quota_wait, self._wait, self._checks_wait),
            *(self._pending, self._reserving, self._active, self._status, self._recoveries),
        )
        self._known: set[str] = set()
        self.leader = Gauge("gangline_leader", "1 while this process leads.", **make)
        self.decide = Histogram(
            "gangline_decide_seconds",
            "One round of deciding.",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
            **make,
        )
        self.decide_cpu = Counter("gangline_decide_cpu_seconds", "CPU time of all rounds of deciding.", **make)

    async def text(self) -> bytes:
        """All metrics in Prometheus' text format. With 1,000 queues they are more than 40,000 lines, so a thread renders them."""
        return await asyncio.to_thread(generate_latest, self.registry)

    def count_requests(
        self, requests: Callable[[], Mapping[tuple[str, ...], int]], writes: Callable[[], Mapping[tuple[str, ...], int]]
    ) -> None:
        """Count the requests to the API server and the outcomes of intended writes."""
        requested = _Counts("gangline_api_requests", "Requests to the API server.", ["verb", "resource"], requests)
        written = _Counts("gangline_writes", "Intended writes.", ["verb", "resource", "outcome"], writes)
        self.registry.register(requested)
        self.registry.register(written)

    def count_troubles(
        self,
        failures: Callable[[], Mapping[tuple[str, ...], float]],
        objects: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """Count objects that could not be handled: failed attempts, and objects in quarantine now."""
        failed = _Counts(
            "gangline_object_failures", "Failed attempts to handle an object.", ["stage", "kind"], failures
        )
        self.registry.register(failed)
        text = "Objects in quarantine because they could not be handled."
        self.registry.register(_Counts("gangline_quarantined_objects", text, ["kind"], objects, GaugeMetricFamily))

    def count_lag(self, waiting: Callable[[], int], paused: Callable[[], Iterable[tuple[str, str]]]) -> None:
        """Show how far behind the process is, and the flavors for which the circuit breaker is open."""
        writes = _Counts(
            "gangline_waiting_writes",
            "Writes that wait for their turn.",
            [],
            lambda: {(): waiting()},
            GaugeMetricFamily,
        )
        self.registry.register(writes)
        text = "1 while no gang is moved because too many nodes of the flavor were lost at once."
        labels = ["cluster_queue", "flavor"]
        breaker = _Counts(
            "gangline_recovery_paused", text, labels, lambda: dict.fromkeys(paused(), 1), GaugeMetricFamily
        )
        self.registry.register(breaker)

    def show_clock(self, offset: Callable[[], float]) -> None:
        """Show by how much the clock of this machine is off."""
        text = "Seconds by which the API server's clock is ahead of this machine's; 0 below 2 s."
        self.registry.register(
            _Counts("gangline_clock_offset_seconds", text, [], lambda: {(): offset()}, GaugeMetricFamily)
        )

    def count_head_delay(self, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Count for how long heads with a reservation were delayed by workloads started before them."""
        text = "Time for which a reserved head waited only because of workloads started before it."
        self.registry.register(_Counts("gangline_head_delay_seconds", text, ["cluster_queue", "cause"], read))

    def reserved(self, queue: str, waited: int, *, admitted: bool) -> None:
        self._known.add(queue)
        self._reserved.labels(queue).inc()
        self._quota_wait.labels(queue).observe(waited)
        if admitted:
            self._admitted.labels(queue).inc()
            self._wait.labels(queue).observe(waited)

    def admitted(self, queue: str, waited: int) -> None:
        """Admission checks are ready, `waited` seconds after the quota was reserved."""
        self._known.add(queue)
        self._admitted.labels(queue).inc()
        self._checks_wait.labels(queue).observe(waited)

    def evicted(self, workload: Json, reason: str, cause: str = "") -> None:
        queue = workload.get("status", {}).get("admission", {}).get("clusterQueue", "")
        self._known.add(queue)
        self._evicted.labels(queue, reason, cause).inc()

    def recovered(self, queue: str, stages: Mapping[str, float]) -> None:
        """A gang runs again; `stages` are seconds, with their sum as `total`."""
        for stage, seconds in stages.items():
            if stage != "total":
                self._swaps.labels(stage).observe(seconds)
        self._known.add(queue)
        self._recoveries.labels(queue).observe(stages.get("total", 0.0))

    def overrun(self, state: str) -> None:
        """A run is warned, overdue, or has reached its hard limit: Warned, Overdue, Limit."""
        self._overruns.labels(state).inc()

    def stalled(self, action: str) -> None:
        self._stalls.labels(action).inc()

    def notified(self, kind: str, outcome: str) -> None:
        self._notified.labels(kind, outcome).inc()

    def queues(self, engine: Engine, names: list[str]) -> None:
        """Refresh the gauges from the ledger, and drop the series of deleted queues; called on every scrape."""
        for gone in self._known - {"", *names}:
            for metric in self._by_queue:
                metric.remove_by_labels({"cluster_queue": gone})
        self._known = {"", *names}
        for name in names:
            status = engine.queue_status(name)
            pending = engine.pending_counts(name)
            self._pending.labels(name, "active").set(pending[0])
            self._pending.labels(name, "inadmissible").set(pending[1])
            self._reserving.labels(name).set(status.reserving)
            self._active.labels(name).set(status.admitted)
            for state in ("pending", "active", "terminating"):
                wanted = "active" if status.active else "terminating" if status.reason == "Terminating" else "pending"
                self._status.labels(name, state).set(state == wanted)
