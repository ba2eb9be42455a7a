"""One scrape's gauges, read off the engine's ledger, queue by queue.

`Scrape.run` is a generator: it stops after every queue, so that the operator can decide in between. Each queue is shown as it was
at one moment, and queues at moments some milliseconds apart. The lines of a queue are kept for the next scrape: writing them
takes longer than finding out that all they show is the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf, isinf
from typing import Final, Protocol, TypeAlias

from gangline.api.read.configuration.metrics_settings import CLUSTER_QUEUE, COHORT, LOCAL_QUEUE, WORKLOAD
from gangline.control.metrics.custom_labels import Values
from gangline.control.metrics.kueue_table import RECOMPUTATIONS, TABLE, read_at_scrape
from gangline.control.metrics.recording import Get, KueueMetrics, build_info
from gangline.control.metrics.series import escaped, head, labelled, number
from gangline.control.metrics.workload_tally import WorkloadTally
from gangline.engine import Engine
from gangline.engine.model import UNLIMITED, ClusterQueueFigures, CohortFigures, LocalQueueFigures, QuotaFigures
from gangline.kube import resources as kube

ACTIVE, INADMISSIBLE = "active", "inadmissible"
#: lines that are put together at a time
_TOGETHER: Final = 1_000
_STATES: Final = ("pending", "active", "terminating")


#: lines, each with the name of its family
Sheet: TypeAlias = list[tuple[str, str]]
#: ClusterQueue -> all that its lines show, and the lines
Sheets: TypeAlias = dict[str, tuple[tuple[object, ...], Sheet]]


class Names(Protocol):
    """The keys of all objects of a kind."""

    def __call__(self, resource: kube.Resource, /) -> Iterable[str]: ...


class Scrape:
    """The gauges of one scrape: `run` to its end, then `texts`."""

    def __init__(
        self, engine: Engine, metrics: KueueMetrics, tally: WorkloadTally, get: Get, names: Names, kept: Sheets
    ) -> None:
        """Begin a scrape. `kept`: the lines of the last scrape, which this one replaces."""
        self._engine, self._metrics, self._tally = engine, metrics, tally
        self._kept = kept
        self._sheet: Sheet = []
        self._get, self._names = get, names
        self._custom = metrics.custom
        self._role = labelled(("replica_role",), (metrics.role,))
        self._lines: dict[str, list[str]] = {name: [] for name, row in metrics.shown.items() if read_at_scrape(row)}

    def texts(self) -> Iterator[bytes]:
        for name, lines in self._lines.items():
            yield head(TABLE[name])
            for at in range(0, len(lines), _TOGETHER):
                yield "".join(lines[at : at + _TOGETHER]).encode()

    def _put(self, name: str, labels: str, value: float) -> None:
        if name in self._lines:
            self._sheet.append((name, f"{name}{{{labels}}} {value if type(value) is int else number(value)}\n"))

    def _take(self) -> Sheet:
        """The lines since the last call."""
        sheet, self._sheet = self._sheet, []
        return sheet

    def _show(self, sheet: Sheet) -> None:
        lines = self._lines
        for name, line in sheet:
            lines[name].append(line)

    # --- the scrape ---

    def run(self) -> Iterator[None]:
        self._put("kueue_build_info", build_info(), 1)
        self._show(self._take())
        unadmitted = _by_queue(self._tally.unadmitted)
        queues = sorted(self._names(kube.CLUSTER_QUEUES))
        for name in queues:
            figures = self._engine.cluster_queue_figures(name)
            if figures is not None:
                self._show(self._sheet_of(name, figures, unadmitted))
            yield
        for gone in self._kept.keys() - set(queues):
            del self._kept[gone]
        yield from self._orphans()
        for (name, result), count in sorted(self._engine.recomputations.items()):
            custom = self._values(CLUSTER_QUEUE, kube.CLUSTER_QUEUES, name)
            labels = labelled(("cluster_queue", "result"), (name, result))
            self._put(RECOMPUTATIONS, f"{labels},{self._role}{custom}", count)
        cohorts = self._engine.cohorts()
        self._metrics.keep_cohorts(cohorts)
        for name in cohorts:
            cohort = self._engine.cohort_figures(name)
            if cohort is not None:
                self._cohort(name, cohort)
            self._show(self._take())
            yield

    # --- ClusterQueues ---

    def _sheet_of(
        self, name: str, figures: ClusterQueueFigures, unadmitted: Mapping[str, Mapping[tuple[str, str], int]]
    ) -> Sheet:
        """The lines of a ClusterQueue and its LocalQueues."""
        by_labels = self._custom.configured(WORKLOAD)
        shown = (
            figures,
            self._role,
            self._values(CLUSTER_QUEUE, kube.CLUSTER_QUEUES, name),
            self._engine.preemption_skips.get(name),
            *(
                (
                    self._local_queue_labels(key),
                    self._tally.finished[key],
                    self._engine.local_queue_is_active(key),
                    unadmitted.get(key),
                )
                for key in figures.local_queues
            ),
        )
        kept = self._kept.get(name)
        if by_labels or kept is None or kept[0] != shown:
            self._cluster_queue(name, figures, by_labels=by_labels)
            self._local_queues(name, figures, unadmitted)
            kept = self._kept[name] = shown, self._take()
        return kept[1]

    def _cluster_queue(self, name: str, figures: ClusterQueueFigures, *, by_labels: bool) -> None:
        custom = self._values(CLUSTER_QUEUE, kube.CLUSTER_QUEUES, name)
        own = f'cluster_queue="{escaped(name)}"'
        labels = f"{own},{self._role}{custom}"
        if by_labels:
            self._by_workload_labels(name, own, custom)
        else:
            self._put("kueue_pending_workloads", f'{labels},status="{ACTIVE}"', figures.active)
            self._put("kueue_pending_workloads", f'{labels},status="{INADMISSIBLE}"', figures.inadmissible)
            self._put("kueue_admitted_active_workloads", labels, figures.admitted)
        for status, shapes in zip((ACTIVE, INADMISSIBLE), figures.shapes, strict=True):
            self._put("kueue_pending_scheduling_hashes", f'{labels},status="{status}"', shapes)
        self._put("kueue_reserving_active_workloads", labels, figures.reserving)
        finished = sum(self._tally.finished[key] for key in figures.local_queues)
        self._put("kueue_finished_workloads", labels, finished)
        skips = self._engine.preemption_skips.get(name)
        if skips is not None:
            self._put("kueue_admission_cycle_preemption_skips", labels, skips)
        state = "active" if not figures.reason else "terminating" if figures.reason == "Terminating" else "pending"
        for each in _STATES:
            self._put("kueue_cluster_queue_status", f'{labels},status="{each}"', int(each == state))
        cohorts = figures.cohorts
        parent, root = (cohorts[0], cohorts[-1]) if cohorts else ("", "")
        place = labelled(("parent_cohort", "root_cohort"), (parent, root))
        self._put("kueue_cluster_queue_info", f"{labels},{place}", 1)
        if self._metrics.settings.cluster_queue_resources:
            self._resources(f'cohort="{escaped(parent)}",{labels}', labels, figures)

    def _resources(self, labels: str, without_cohort: str, figures: ClusterQueueFigures) -> None:
        for (flavor, resource), quota in figures.quotas.items():
            where = f'{labels},flavor="{escaped(flavor)}",resource="{escaped(resource)}"'
            for name, value in _quota_values(quota):
                self._put(f"kueue_cluster_queue_{name}", where, _base(resource, value))
        for resource, amount in figures.pending.items():
            where = f'{without_cohort},resource="{escaped(resource)}"'
            self._put("kueue_cluster_queue_resource_pending", where, _base(resource, amount))
        self._put("kueue_cluster_queue_weighted_share", labels, figures.weighted_share)

    def _by_workload_labels(self, name: str, own: str, custom: str) -> None:
        """Add series by labels of Workloads, as far as there are any of these labels."""
        active, inadmissible, admitted = self._engine.workloads_of(name)
        for status, workloads in ((ACTIVE, active), (INADMISSIBLE, inadmissible)):
            for values, count in self._counted(workloads):
                labels = f'{own},{self._role}{custom}{values},status="{status}"'
                self._put("kueue_pending_workloads", labels, count)
        for values, count in self._counted(admitted):
            self._put("kueue_admitted_active_workloads", f"{own},{self._role}{custom}{values}", count)

    def _counted(self, workloads: Iterable[str]) -> Iterator[tuple[str, int]]:
        counts = Counter(self._tally.custom(key) for key in workloads)
        return ((self._labels((WORKLOAD,), values), count) for values, count in counts.items())

    # --- LocalQueues ---

    def _local_queues(
        self, queue: str, figures: ClusterQueueFigures, unadmitted: Mapping[str, Mapping[tuple[str, str], int]]
    ) -> None:
        """Add the metrics of a ClusterQueue's LocalQueues, and the counts of workloads that are not admitted, by LocalQueue and
        in sum.
        """
        own = f'cluster_queue="{escaped(queue)}"'
        custom = self._values(CLUSTER_QUEUE, kube.CLUSTER_QUEUES, queue)
        together: Counter[tuple[str, str]] = Counter()
        frs = tuple(figures.quotas)
        for key, local in figures.local_queues.items():
            why = unadmitted.get(key, {})
            together.update(why)
            labels = self._local_queue_labels(key)
            if labels is None:
                continue
            self._local_queue(key, labels, local, frs)
            if local.fair_usage is not None:
                self._put("kueue_local_queue_admission_fair_sharing_usage", f"{labels},{own}", local.fair_usage)
            for (reason, cause), count in why.items():
                reasons = labelled(("reason", "underlying_cause"), (reason, cause))
                self._put("kueue_local_queue_unadmitted_workloads", f"{labels},{own},{reasons}", count)
        for (reason, cause), count in together.items():
            reasons = labelled(("reason", "underlying_cause"), (reason, cause))
            self._put("kueue_unadmitted_workloads", f"{own},{reasons},{self._role}{custom}", count)

    def _orphans(self) -> Iterator[None]:
        """Add the series of LocalQueues whose ClusterQueue does not exist: nothing is queued in them."""
        for key in sorted(self._names(kube.LOCAL_QUEUES)):
            raw = self._get(kube.LOCAL_QUEUES, key)
            queue = raw.spec.get("clusterQueue", "") if raw is not None else ""
            if self._get(kube.CLUSTER_QUEUES, queue) is None:
                labels = self._local_queue_labels(key)
                if labels is not None:
                    self._local_queue(key, labels, LocalQueueFigures(), ())
                    self._show(self._take())
                yield

    def _local_queue_labels(self, key: str) -> str | None:
        """The labels of a LocalQueue; None if it is not shown."""
        raw = self._get(kube.LOCAL_QUEUES, key)
        if raw is None or not self._metrics.settings.shows(raw):
            return None
        namespace, _, name = key.partition("/")
        custom = self._values(LOCAL_QUEUE, kube.LOCAL_QUEUES, key)
        return f'name="{escaped(name)}",namespace="{escaped(namespace)}",{self._role}{custom}'

    def _local_queue(self, key: str, labels: str, local: LocalQueueFigures, frs: Iterable[tuple[str, str]]) -> None:
        self._put("kueue_local_queue_pending_workloads", f'{labels},status="{ACTIVE}"', local.active)
        self._put("kueue_local_queue_pending_workloads", f'{labels},status="{INADMISSIBLE}"', local.inadmissible)
        self._put("kueue_local_queue_reserving_active_workloads", labels, local.reserving)
        self._put("kueue_local_queue_finished_workloads", labels, self._tally.finished[key])
        if self._custom.configured(WORKLOAD):
            for values, count in self._counted(local.admitted):
                self._put("kueue_local_queue_admitted_active_workloads", f"{labels}{values}", count)
        else:
            self._put("kueue_local_queue_admitted_active_workloads", labels, len(local.admitted))
        state = str(self._engine.local_queue_is_active(key))
        for status in ("True", "False", "Unknown"):
            self._put("kueue_local_queue_status", f'{labels},active="{status}"', int(status == state))
        for flavor, resource in frs:
            where = f'{labels},flavor="{escaped(flavor)}",resource="{escaped(resource)}"'
            for name, amounts in (("reservation", local.reservation), ("usage", local.usage)):
                amount = _base(resource, amounts.get((flavor, resource), 0))
                self._put(f"kueue_local_queue_resource_{name}", where, amount)

    # --- cohorts ---

    def _cohort(self, name: str, figures: CohortFigures) -> None:
        own = f'cohort="{escaped(name)}",{self._role}'
        labels = f"{own}{self._values(COHORT, kube.COHORTS, name)}"
        place = labelled(("parent_cohort", "root_cohort"), (figures.parent, figures.root))
        self._put("kueue_cohort_info", f"{labels},{place}", 1)
        if figures.declared:
            self._put("kueue_cohort_weighted_share", labels, figures.weighted_share)
        if name in self._tally.deleted_cohorts:
            return
        for what, amounts in (("quota", figures.quota), ("resource_reservations", figures.reservation)):
            for (flavor, resource), amount in amounts.items():
                where = f'{labels},flavor="{escaped(flavor)}",resource="{escaped(resource)}"'
                self._put(f"kueue_cohort_subtree_{what}", where, _base(resource, amount))
        admitted: Counter[str] = Counter()
        for queue, count in figures.admitted.items():
            admitted[self._values(CLUSTER_QUEUE, kube.CLUSTER_QUEUES, queue)] += count
        for values, count in (admitted or {"": 0}).items():
            self._put("kueue_cohort_subtree_admitted_active_workloads", f"{own}{values}", count)

    # --- labels ---

    def _values(self, kind: str, resource: kube.Resource, key: str) -> str:
        """The labels that an object gives, with a comma before them."""
        if not self._custom.configured(kind):
            return ""
        return self._labels((kind,), self._custom.values(kind, self._get(resource, key)))

    def _labels(self, kinds: Iterable[str], values: Values) -> str:
        labels = labelled(self._custom.names(kinds), values)
        return f",{labels}" if labels else ""


def _by_queue(counts: Mapping[tuple[str, str, str], int]) -> dict[str, dict[tuple[str, str], int]]:
    found: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
    for (key, reason, cause), count in counts.items():
        found[key][reason, cause] = count
    return found


def _quota_values(quota: QuotaFigures) -> Iterator[tuple[str, float]]:
    yield "nominal_quota", quota.nominal
    yield "borrowing_limit", inf if quota.borrowing_limit is None else quota.borrowing_limit
    yield "lending_limit", inf if quota.lending_limit is None else quota.lending_limit
    yield "resource_reservation", quota.reservation
    yield "resource_usage", quota.usage


def _base(resource: str, amount: float) -> float:
    """An amount in the resource's own unit: the engine counts cpu in thousandths."""
    if amount > UNLIMITED and not isinf(amount):
        amount = UNLIMITED
    return amount / 1000 if resource == "cpu" else amount
