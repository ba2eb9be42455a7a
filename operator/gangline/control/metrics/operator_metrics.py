"""The metrics of the operator: Kueue's (`control.metrics`), and Gangline's own, which prometheus_client shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gangline.api.read.configuration import metrics_settings
from gangline.api.read.configuration.metrics_settings import MetricsSettings
from gangline.control.metrics.gauges import Scrape
from gangline.control.metrics.recording import KueueMetrics
from gangline.engine import Comparison, Lateness, PolicyFallback
from gangline.kube.resources import Json

#: A scrape lets others run after so many seconds.
SLICE: Final = 0.002


# Creation times of series are useless here (Kueue's metrics lack them, too), and take a tenth of the lines of a scrape.
disable_created_metrics()


class _Counts(Collector):
    """Counters or gauges whose values other objects keep, read when they are scraped."""

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


def _waits(comparisons: Callable[[], Mapping[str, Comparison]], name: str) -> Mapping[tuple[str, ...], float]:
    return {
        (tree, mode): (figures.mean if name == "mean" else figures.tail) / 1000
        for tree, comparison in comparisons().items()
        for mode, figures in comparison.by_mode.items()
    }


def _by_queue(
    read: Callable[[], Mapping[str, Lateness]], figure: Callable[[Lateness], float]
) -> Callable[[], Mapping[tuple[str, ...], float]]:
    return lambda: {(queue,): figure(sums) for queue, sums in read().items()}


def _by_cause(read: Callable[[], Mapping[str, Lateness]]) -> Mapping[tuple[str, ...], float]:
    return {(queue, cause): count for queue, sums in read().items() for cause, count in sums.causes.items()}


class Metrics:
    """The operator's metrics, by name."""

    def __init__(
        self,
        settings: MetricsSettings = metrics_settings.USUAL,
        *,
        fair_sharing: bool = False,
        usage_based: bool = False,
    ) -> None:
        """Make all metrics. `fair_sharing`, `usage_based`: whether the engine shares fairly, in either way."""
        self.kueue = KueueMetrics(settings, fair=fair_sharing, by_usage=usage_based)
        self.registry = CollectorRegistry()
        self._scrape: Callable[[], Scrape] | None = None
        queue = ["cluster_queue"]
        make: dict[str, Any] = {"registry": self.registry}
        seconds = {"buckets": (0.1, 0.25, 0.5, *(2.0**n for n in range(13))), **make}
        self._swaps = Histogram("gangline_swap_seconds", "Replacing lost nodes, stage by stage.", ["stage"], **seconds)
        self._recoveries = Histogram(
            "gangline_recovery_seconds", "From the loss of a node until the gang runs again.", queue, **seconds
        )
        self._overruns = Counter("gangline_overrun", "Runs that lasted longer than forecast.", ["state"], **make)
        self._stalls = Counter("gangline_stalled", "Runs that were found to hang.", ["action"], **make)
        self._notified = Counter("gangline_notifications", "Notices by outcome.", ["kind", "outcome"], **make)
        self.leader = Gauge("gangline_leader", "1 while this process leads.", **make)
        self.decide = Histogram(
            "gangline_decide_seconds",
            "One round of deciding.",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
            **make,
        )
        self.round = Histogram(
            "gangline_round_seconds",
            "One round of the control loop: events read, decisions, plans.",
            buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
            **make,
        )
        self.decide_cpu = Counter("gangline_decide_cpu_seconds", "CPU time of all rounds of deciding.", **make)

    def show_queues(self, scrape: Callable[[], Scrape]) -> None:
        """Set what reads the gauges of queues, cohorts and workloads."""
        self._scrape = scrape

    async def text(self) -> bytes:
        """The text of all metrics in Prometheus' format."""
        return b"".join([part async for part in self.parts()])

    async def parts(self) -> AsyncIterator[bytes]:
        """Yields the text of all metrics in parts of tens of kilobytes: with 1,000 queues there are 300,000 lines."""
        texts: list[bytes] = []
        begun = time.perf_counter()
        for text in self._texts():
            texts.append(text)
            if time.perf_counter() - begun > SLICE:
                yield b"".join(texts)
                texts.clear()
                await asyncio.sleep(0)
                begun = time.perf_counter()
        yield b"".join(texts)
        yield await asyncio.to_thread(generate_latest, self.registry)

    def _texts(self) -> Iterator[bytes]:
        """Kueue's metrics in many small texts; empty ones while gauges are read."""
        if self._scrape is not None:
            scrape = self._scrape()
            yield from (b"" for _ in scrape.run())
            yield from scrape.texts()
        yield from self.kueue.text()

    def forget_queue(self, queue: str) -> None:
        """Drop the series of a ClusterQueue that was deleted."""
        self._recoveries.remove_by_labels({"cluster_queue": queue})

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

    def show_turns(
        self, most: Callable[[], Mapping[str, float]], total: Callable[[], float], waiting: Callable[[], int]
    ) -> None:
        """Show for which namespaces the loop works most, and of how many it has left work for its next round."""
        text = "Share of a CPU core that work on the objects of this namespace took lately; the ten with most."
        shares = lambda: {(namespace,): share for namespace, share in most().items()}  # noqa: E731
        self.registry.register(_Counts("gangline_namespace_cpu_cores", text, ["namespace"], shares, GaugeMetricFamily))
        text = "CPU time that work on objects took, of all namespaces."
        self.registry.register(_Counts("gangline_object_cpu_seconds", text, [], lambda: {(): total()}))
        text = "Namespaces of which the last round of the control loop left work for the next one."
        left = lambda: {(): waiting()}  # noqa: E731
        self.registry.register(_Counts("gangline_waiting_namespaces", text, [], left, GaugeMetricFamily))

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

    def count_held_unbound(self, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Count what gangs hold of which a pod can't be bound."""
        text = "Accelerators held by admitted gangs while a pod of theirs can't be bound, times seconds."
        self.registry.register(_Counts("gangline_gpu_seconds_held_unbound", text, ["cluster_queue"], read))

    def show_clock(self, offset: Callable[[], float]) -> None:
        """Show by how much the clock of this machine is off."""
        text = "Seconds by which the API server's clock is ahead of this machine's; 0 below 2 s."
        self.registry.register(
            _Counts("gangline_clock_offset_seconds", text, [], lambda: {(): offset()}, GaugeMetricFamily)
        )

    def count_scorer_failures(self, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Count how often scorers that users installed failed."""
        text = "Failures of a scorer of gangline.scorers; after each it is not asked for a while."
        self.registry.register(_Counts("gangline_scorer_failures", text, ["scorer"], read))

    def count_head_delay(self, read: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Count for how long heads with a reservation were delayed by workloads started before them."""
        text = "Time for which a reserved head waited only because of workloads started before it."
        self.registry.register(_Counts("gangline_head_delay_seconds", text, ["cluster_queue", "cause"], read))

    def show_floor(
        self,
        modes: Callable[[], Mapping[str, PolicyFallback]],
        comparisons: Callable[[], Mapping[str, Comparison]],
        cpu: Callable[[], float],
    ) -> None:
        """Show which queues follow something else than their policy, the waits in each counterfactual, and what these cost."""
        text = "1 while the ClusterQueue follows this instead of its QueuePolicy's order and backfill."
        labels = ["cluster_queue", "mode"]
        fallen = lambda: {(queue, each.mode): 1.0 for queue, each in modes().items()}  # noqa: E731
        self.registry.register(_Counts("gangline_floor_fallen_back", text, labels, fallen, GaugeMetricFamily))
        since = lambda: {(queue, each.mode): each.since / 1000 for queue, each in modes().items()}  # noqa: E731
        begun = "Unix time since which the ClusterQueue follows this instead of its QueuePolicy."
        family = _Counts("gangline_floor_fallen_back_timestamp_seconds", begun, labels, since, GaugeMetricFamily)
        self.registry.register(family)
        spent = "CPU seconds of the processes that play the floor's counterfactuals."
        self.registry.register(_Counts("gangline_floor_cpu_seconds", spent, [], lambda: {(): cpu()}))
        for name, about in (("mean", "Mean wait"), ("tail", "Mean of the longest fiftieth of the waits")):
            help_text = f"{about} of the workloads of a cohort, as the floor's counterfactual of this mode has it."
            read = partial(_waits, comparisons, name)
            family = _Counts(
                f"gangline_floor_{name}_wait_seconds", help_text, ["tree", "mode"], read, GaugeMetricFamily
            )
            self.registry.register(family)

    def show_phases(self, runs: Callable[[], Mapping[str, int]]) -> None:
        """Show how many trainings are in each phase."""
        text = "Running workloads whose training is in this phase, by the metric that they report."
        read = lambda: {(phase,): float(count) for phase, count in runs().items()}  # noqa: E731
        self.registry.register(_Counts("gangline_training_phase", text, ["phase"], read, GaugeMetricFamily))

    def show_budgets(self, shares: Callable[[], Mapping[tuple[str, ...], float]]) -> None:
        """Show how much of each budget is used, by those who have used most of it."""
        text = "Share of a budget of GPU-hours that is used in the present period; of each QueuePolicy the 256 largest."
        labels = ["queue_policy", "budget", "owner"]
        self.registry.register(_Counts("gangline_budget_used_ratio", text, labels, shares, GaugeMetricFamily))

    def show_telemetry(
        self,
        nodes: Callable[[], Mapping[tuple[str, ...], float]],
        failures: Callable[[], Mapping[tuple[str, ...], float]],
    ) -> None:
        """Show what telemetry rules say of nodes, and count the questions that were not answered."""
        text = "Nodes that a telemetry rule measures, and those that it excludes."
        labels = ["queue_policy", "rule"]
        self.registry.register(_Counts("gangline_telemetry_nodes", text, [*labels, "state"], nodes, GaugeMetricFamily))
        text = "Queries of a telemetry rule that were not answered."
        self.registry.register(_Counts("gangline_telemetry_query_failures", text, labels, failures))

    def count_head_lateness(self, read: Callable[[], Mapping[str, Lateness]]) -> None:
        """Count what reserved heads were promised, and how late they started."""
        queue = ["cluster_queue"]
        about_planned = "Started workloads for which a start had been planned and others held back."
        about_promised = "Started workloads that had been promised a start by a reservation."
        about_length = "Time between promises and the starts that they promised."
        about_late = "Started workloads that started more than a minute after the start promised to them."
        about_missed = "The same by what moved their starts beyond the promises."
        about_by = "Time by which workloads started after the start promised to them."
        planned = _Counts("gangline_head_planned", about_planned, queue, _by_queue(read, lambda sums: sums.planned))
        length = _Counts(
            "gangline_head_promised_seconds", about_length, queue, _by_queue(read, lambda sums: sums.seconds_ahead)
        )
        causes = _Counts("gangline_head_missed", about_missed, [*queue, "cause"], partial(_by_cause, read))
        promised = _Counts("gangline_head_promised", about_promised, queue, _by_queue(read, lambda sums: sums.promised))
        late = _Counts("gangline_head_late", about_late, queue, _by_queue(read, lambda sums: sums.late))
        by = _Counts("gangline_head_lateness_seconds", about_by, queue, _by_queue(read, lambda sums: sums.seconds))
        for counts in (planned, promised, length, late, causes, by):
            self.registry.register(counts)

    def recovered(self, queue: str, stages: Mapping[str, float]) -> None:
        """Count a gang that runs again; `stages` are seconds, with their sum as `total`."""
        for stage, seconds in stages.items():
            if stage != "total":
                self._swaps.labels(stage).observe(seconds)
        if self.kueue.has_queue(queue):
            self._recoveries.labels(queue).observe(stages.get("total", 0.0))

    def overrun(self, state: str) -> None:
        """Count a run that is warned, overdue, or has reached its hard limit: Warned, Overdue, Limit."""
        self._overruns.labels(state).inc()

    def stalled(self, action: str) -> None:
        self._stalls.labels(action).inc()

    def notified(self, kind: str, outcome: str) -> None:
        self._notified.labels(kind, outcome).inc()


def count_and_mean(histogram: Histogram) -> Json:
    """How often something was measured, and the mean in seconds; null before the first time."""
    found = {
        sample.name.rpartition("_")[2]: sample.value for metric in histogram.collect() for sample in metric.samples
    }
    count = round(found.get("count", 0.0))
    return {"count": count, "meanSeconds": found.get("sum", 0.0) / count if count else None}
