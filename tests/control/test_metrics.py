"""Kueue's metrics: the table, what is counted, what a scrape shows of the ledger, and which series go."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families
from tests.control.test_parts import Tape, an_object
from tests.objects import WorkloadObject, altered

from gangline.api.read.configuration import file
from gangline.control.controller import Controller
from gangline.control.metrics import kueue_table
from gangline.control.metrics.kueue_table import HISTOGRAM, TABLE
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.metrics.recording import FOLLOWER, KueueMetrics
from gangline.control.metrics.series import MOST_OF_OWNER
from gangline.control.metrics.workload_tally import WorkloadTally
from gangline.control.writes.writer import Writer
from gangline.engine import IsolatedEngine
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Synced, Upsert
from gangline.kube.resources import Json, Resource

#: seconds after it was queued: reserved, admitted, ready, evicted, released
START = "2026-01-01T00:00:00Z"
Configured = dict[str, Any]
FAIR: Configured = {"fairSharing": {}, "metrics": {"enableClusterQueueResources": True}}


def at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


def millis(seconds: int) -> int:
    return 1_767_225_600_000 + 1000 * seconds


class MeteredLeader:
    """A leader without an API server: two queues of a cohort with a parent, each with a LocalQueue in `ns`."""

    def __init__(self, configuration: Configured | None = None, **labels: dict[str, str]) -> None:
        chosen = file.load(configuration or {})
        settings = chosen.settings
        self.metrics = Metrics(
            chosen.metrics,
            fair_sharing=settings.fair_sharing is not None,
            usage_based=settings.admission_fair_sharing is not None,
        )
        self.engine = IsolatedEngine(settings)
        self.now = millis(0)
        self.version = 0
        self.generation = 1
        self.controller = Controller(
            None,  # type: ignore[arg-type]
            Writer(None, gate=lambda: False),  # type: ignore[arg-type]
            self.engine,
            Tape(),  # type: ignore[arg-type]
            self.metrics,
            now=lambda: self.now,
        )
        quotas = [
            {"name": "cpu", "nominalQuota": "4", "borrowingLimit": "2"},
            {"name": "gpu", "nominalQuota": "8", "lendingLimit": "3"},
        ]
        groups = [{"coveredResources": ["cpu", "gpu"], "flavors": [{"name": "f", "resources": quotas}]}]
        self.show(kube.NAMESPACES, "ns")
        self.show(kube.RESOURCE_FLAVORS, "f")
        self.show(kube.WORKLOAD_PRIORITY_CLASSES, "high")
        self.show(kube.COHORTS, "team", parentName="all")
        for name in ("a", "b"):
            self.show(kube.CLUSTER_QUEUES, name, cohortName="team", namespaceSelector={}, resourceGroups=groups)
            self.show(kube.LOCAL_QUEUES, f"lq-{name}", clusterQueue=name)
        self.controller.sink(kube.PODS)(Synced())
        self.controller.absorb()

    def show(
        self, resource: Resource, name: str, status: Json | None = None, labels: Json | None = None, **spec: Any
    ) -> Json:
        self.version += 1
        obj = an_object(resource, name, spec=spec, status=status or {})
        obj["metadata"] |= {"resourceVersion": str(self.version), "creationTimestamp": START, "labels": labels or {}}
        obj["metadata"]["generation"] = self.generation
        self.controller.sink(resource)(Upsert(obj))
        self.controller.absorb()
        return obj

    def workload(
        self, name: str, *conditions: tuple[str, bool, str, int], queue: str = "a", **more: Any
    ) -> WorkloadObject:
        """A Workload with conditions (type, status, reason, seconds); it holds quota of `queue` where they say so."""
        rows = [
            {"type": kind, "status": str(status), "reason": reason, "lastTransitionTime": at(seconds), "message": ""}
            for kind, status, reason, seconds in conditions
        ]
        status: Json = {"conditions": rows, **more.pop("status", {})}
        if any(row["type"] == "QuotaReserved" and row["status"] == "True" for row in rows):
            usage = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1500m"}, "count": 1, "name": "main"}
            status["admission"] = {"clusterQueue": queue, "podSetAssignments": [usage]}
        container = {"name": "c", "resources": {"requests": {"cpu": "1500m"}}}
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
        spec = {"queueName": f"lq-{queue}", "podSets": [pod_set], "priorityClassRef": {"name": "high"}}
        return WorkloadObject(self.show(kube.WORKLOADS, name, status, **{**spec, **more}))

    def remove(self, resource: Resource, key: str) -> None:
        obj = self.controller.mirror.objects[resource][key]
        self.controller.sink(resource)(Removed(key, obj["metadata"]["uid"]))
        self.controller.absorb()

    async def text(self) -> str:
        return (await self.metrics.text()).decode()

    async def value(self, name: str, /, **labels: str) -> float | None:
        """The one sample with (at least) these labels; None if there is none."""
        found = [value for given, value in samples(await self.text(), name) if labels.items() <= given.items()]
        assert len(found) < 2, found
        return found[0] if found else None


def samples(text: str, name: str) -> Iterable[tuple[dict[str, str], float]]:
    for family in text_string_to_metric_families(text):
        yield from ((sample.labels, sample.value) for sample in family.samples if sample.name == name)


RESERVED = ("QuotaReserved", True, "QuotaReserved", 10)
ADMITTED = ("Admitted", True, "Admitted", 30)
READY = ("PodsReady", True, "Started", 50)


# --- the table ------------------------------------------------------------------------------------------------------------


def test_the_table_has_every_metric_of_kueue_with_buckets_where_they_belong() -> None:
    assert len(TABLE) == 64
    for metric in TABLE.values():
        assert bool(metric.buckets) == (metric.kind == HISTOGRAM), metric.name
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert len(set(metric.labels)) == len(metric.labels)
    assert kueue_table.exponential(14)[-1] == 10240
    assert TABLE["kueue_admission_wait_time_seconds"].buckets[-1] == 40960
    assert TABLE["kueue_local_queue_admission_wait_time_seconds"].buckets[-1] == 10240


async def test_the_text_has_the_families_of_the_table_and_each_sample_its_labels() -> None:
    world = MeteredLeader({**FAIR, "admissionFairSharing": {"usageHalfLifeTime": "1h"}})
    drive_everything(world)
    text = await world.text()
    shown = {_in_table(family): family for family in text_string_to_metric_families(text)}
    for metric in TABLE.values():
        if metric.absent:
            assert metric.name not in shown
            continue
        family = shown[metric.name]
        assert (family.type, family.documentation) == (metric.kind, metric.text)
        assert family.samples, f"{metric.name} has no sample"
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels), metric.name
    assert {name for name in shown if not name.startswith("gangline_")} <= TABLE.keys()
    assert text.count("# TYPE kueue_pending_workloads gauge\n") == 1


def _in_table(family: Family) -> str:
    """The parser removes the ending of counters."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def drive_everything(world: MeteredLeader) -> None:
    """Let every metric have a series."""
    kueue = world.metrics.kueue
    world.workload("waits", queue="b")
    first = world.workload("runs")
    reserved = world.workload("runs", RESERVED)
    kueue.reserved(altered(first, status={"admissionChecks": [{}]}), "a", 10, admitted=True)
    world.workload("runs", RESERVED, ADMITTED)
    world.workload("runs", RESERVED, ADMITTED, READY)
    evictions = [{"reason": "Preempted", "underlyingCause": "", "count": 1}]
    evicted = world.workload(
        "runs",
        RESERVED,
        ADMITTED,
        READY,
        ("Evicted", True, "Preempted", 90),
        status={"schedulingStats": {"evictions": evictions}},
    )
    kueue.evicted(evicted, "Preempted")
    kueue.preempted(reserved, "InClusterQueue")
    world.workload("runs", ("QuotaReserved", False, "Pending", 100), ("Evicted", True, "Preempted", 90))
    ended = world.workload("ends", RESERVED, ADMITTED)
    world.workload("ends", RESERVED, ADMITTED, ("Finished", True, "Succeeded", 100))
    kueue.attempted(success=True, seconds=0.1)
    kueue.workload_created("Job", ended, ended)
    kueue.slice_replaced(ended, "a")
    kueue.dispatched("a", "east")
    kueue.admitted_on_other_cluster("a", "east")
    kueue.gate_removed("kueue.x-k8s.io/topology", ended, millis(40))
    world.engine.preemption_skips["a"] = 1  # type: ignore[index]
    world.engine.recomputations["a", "skipped"] = 2  # type: ignore[index]
    world.workload("ends", RESERVED, ADMITTED)


# --- gauges ---------------------------------------------------------------------------------------------------------------


async def test_gauges_are_read_off_the_ledger() -> None:
    world = MeteredLeader(FAIR)
    world.workload("runs", RESERVED, ADMITTED)
    world.workload("checked", RESERVED)
    world.workload("waits", queue="b")
    world.workload("ended", ("Finished", True, "Succeeded", 5))
    assert await world.value("kueue_pending_workloads", cluster_queue="b", status="active") == 1
    assert await world.value("kueue_pending_workloads", cluster_queue="b", status="inadmissible") == 0
    assert await world.value("kueue_reserving_active_workloads", cluster_queue="a") == 2
    assert await world.value("kueue_admitted_active_workloads", cluster_queue="a") == 1
    assert await world.value("kueue_finished_workloads", cluster_queue="a") == 1
    assert await world.value("kueue_pending_scheduling_hashes", cluster_queue="b", status="active") == 1
    cpu = {"cluster_queue": "a", "flavor": "f", "resource": "cpu"}
    assert await world.value("kueue_cluster_queue_resource_reservation", **cpu, cohort="team") == 3
    assert await world.value("kueue_cluster_queue_resource_usage", **cpu) == 1.5
    assert await world.value("kueue_cluster_queue_nominal_quota", **cpu) == 4
    assert await world.value("kueue_cluster_queue_borrowing_limit", **cpu) == 2
    assert await world.value("kueue_cluster_queue_lending_limit", **cpu) == math.inf
    assert await world.value("kueue_cluster_queue_resource_pending", cluster_queue="b", resource="cpu") == 1.5
    assert await world.value("kueue_cluster_queue_resource_pending", cluster_queue="b", resource="gpu") == 0
    assert await world.value("kueue_cluster_queue_weighted_share", cluster_queue="a", cohort="team") == 0
    place = {"cluster_queue": "a", "parent_cohort": "team", "root_cohort": "all"}
    assert await world.value("kueue_cluster_queue_info", **place) == 1
    assert await world.value("kueue_cohort_info", cohort="all", parent_cohort="", root_cohort="all") == 1
    assert await world.value("kueue_cohort_subtree_quota", cohort="all", resource="cpu") == 8
    assert await world.value("kueue_cohort_subtree_quota", cohort="all", resource="gpu") == 6, "what is lent"
    assert await world.value("kueue_cohort_subtree_resource_reservations", cohort="all", resource="cpu") == 3
    assert await world.value("kueue_cohort_subtree_resource_reservations", cohort="all", resource="gpu") is None
    assert await world.value("kueue_cohort_subtree_admitted_active_workloads", cohort="all") == 1
    assert await world.value("kueue_cohort_weighted_share", cohort="team") == 0
    assert await world.value("kueue_cohort_weighted_share", cohort="all") is None, "there is no such object"
    own = {"name": "lq-a", "namespace": "ns"}
    assert await world.value("kueue_local_queue_reserving_active_workloads", **own) == 2
    assert await world.value("kueue_local_queue_admitted_active_workloads", **own) == 1
    assert await world.value("kueue_local_queue_resource_usage", **own, resource="cpu") == 1.5
    assert await world.value("kueue_local_queue_status", **own, active="True") == 1
    assert await world.value("kueue_local_queue_pending_workloads", name="lq-b", status="active") == 1


async def test_nothing_of_a_stopped_queue_is_active() -> None:
    world = MeteredLeader()
    world.workload("waits")
    queue = world.controller.mirror.objects[kube.CLUSTER_QUEUES]["a"]
    world.show(kube.CLUSTER_QUEUES, "a", **queue["spec"], stopPolicy="Hold")
    for name in ("kueue_pending_workloads", "kueue_local_queue_pending_workloads", "kueue_pending_scheduling_hashes"):
        mine = {"name": "lq-a"} if "local" in name else {"cluster_queue": "a"}
        assert await world.value(name, **mine, status="active") == 0, name
        assert await world.value(name, **mine, status="inadmissible") == 1, name
    assert await world.value("kueue_cluster_queue_status", cluster_queue="a", status="pending") == 1
    assert await world.value("kueue_local_queue_status", name="lq-a", active="False") == 1


async def test_workloads_that_are_not_admitted_are_counted_by_their_reasons() -> None:
    world = MeteredLeader()
    world.workload("new")
    world.workload("waits", ("QuotaReserved", False, "WaitingForQuota", 5))
    world.workload("checked", RESERVED, ("Admitted", False, "UnsatisfiedChecks", 5))
    why = {"cluster_queue": "a"}
    pending = {**why, "reason": "NoReservation"}
    assert await world.value("kueue_unadmitted_workloads", **pending, underlying_cause="PendingEvaluation") == 1
    assert await world.value("kueue_unadmitted_workloads", **pending, underlying_cause="WaitingForQuota") == 1
    checks = {**why, "reason": "UnsatisfiedChecks", "underlying_cause": ""}
    assert await world.value("kueue_local_queue_unadmitted_workloads", **checks, name="lq-a") == 1
    world.remove(kube.WORKLOADS, "ns/waits")
    world.workload("checked", RESERVED, ADMITTED)
    assert [value for _, value in samples(await world.text(), "kueue_unadmitted_workloads")] == [1]


async def test_a_restart_shows_what_there_is_and_counts_from_zero() -> None:
    world = MeteredLeader()
    world.workload("ended", RESERVED, ADMITTED, ("Finished", True, "Succeeded", 50))
    assert await world.value("kueue_finished_workloads", cluster_queue="a") == 1
    assert await world.value("kueue_finished_workloads_total", cluster_queue="a") is None
    world.workload("ended", RESERVED, ADMITTED, ("Finished", True, "Succeeded", 50))
    assert await world.value("kueue_finished_workloads", cluster_queue="a") == 1, "a relist is no news"
    world.remove(kube.WORKLOADS, "ns/ended")
    assert await world.value("kueue_finished_workloads", cluster_queue="a") == 0


async def test_a_scrape_goes_on_while_queues_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    from gangline.control.metrics import operator_metrics

    world = MeteredLeader()
    monkeypatch.setattr(operator_metrics, "SLICE", -1.0)
    for number in range(20):
        world.show(kube.CLUSTER_QUEUES, f"more-{number}", namespaceSelector={}, cohortName=f"c-{number}")
        world.metrics.kueue.reserved(WorkloadObject({"metadata": {}}), f"more-{number}", 1, admitted=True)

    async def change() -> None:
        for number in range(20):
            world.remove(kube.CLUSTER_QUEUES, f"more-{number}")
            await asyncio.sleep(0)

    text, _ = await asyncio.gather(world.text(), change())
    assert list(text_string_to_metric_families(text))
    assert "more-" not in await world.text()


# --- counters -------------------------------------------------------------------------------------------------------------


async def test_transitions_are_counted_once_with_their_times() -> None:
    world = MeteredLeader()
    mine = {"cluster_queue": "a", "priority_class": "high"}
    world.now = millis(60)
    world.workload("w")
    world.workload("w", RESERVED, ADMITTED)
    world.workload("w", RESERVED, ADMITTED, READY)
    world.workload("w", RESERVED, ADMITTED, READY)
    assert await world.value("kueue_ready_wait_time_seconds_sum", **mine) == 60
    assert await world.value("kueue_admitted_until_ready_wait_time_seconds_sum", **mine) == 20
    assert await world.value("kueue_local_queue_ready_wait_time_seconds_count", name="lq-a") == 1
    world.workload("w", RESERVED, ADMITTED, ("PodsReady", True, "Recovered", 60))
    assert await world.value("kueue_ready_wait_time_seconds_count", **mine) == 1, "it was ready before"
    world.now = millis(100)
    world.workload("w", ("QuotaReserved", False, "Pending", 95), ("Evicted", True, "Preempted", 90))
    assert await world.value("kueue_workload_eviction_latency_seconds_sum", cluster_queue="a", reason="Preempted") == 10
    world.workload("w", RESERVED, ADMITTED, status={"accumulatedPastExecutionTimeSeconds": 500})
    finished = ("Finished", True, "Succeeded", 130)
    world.workload("w", RESERVED, ADMITTED, finished, status={"accumulatedPastExecutionTimeSeconds": 500})
    assert await world.value("kueue_finished_workloads_total", **mine) == 1
    assert await world.value("kueue_execution_time_seconds_sum", **mine) == 600
    assert await world.value("kueue_local_queue_execution_time_seconds_count", namespace="ns") == 1


async def test_a_standby_counts_what_it_sees_under_its_role() -> None:
    world = MeteredLeader()
    world.metrics.kueue.role = FOLLOWER
    world.workload("w", RESERVED, ADMITTED)
    world.workload("w", RESERVED, ADMITTED, READY)
    world.workload("w", RESERVED, ADMITTED, READY, ("Finished", True, "Failed", 60))
    assert await world.value("kueue_ready_wait_time_seconds_count") is None, "only a leader reports readiness"
    assert await world.value("kueue_finished_workloads_total", replica_role="follower") == 1
    assert await world.value("kueue_finished_workloads", replica_role="follower", cluster_queue="a") == 1


async def test_a_deleted_cohort_that_another_cohort_names_again_is_shown() -> None:
    """A tree that named it only as `parentName` was not shown any more."""
    world = MeteredLeader()
    world.show(kube.COHORTS, "all")
    world.remove(kube.COHORTS, "all")
    assert await world.value("kueue_cohort_subtree_quota", cohort="all", resource="cpu") is None, "as in Kueue"
    world.generation += 1
    world.show(kube.COHORTS, "team", parentName="all", fairSharing={"weight": "2"})
    assert await world.value("kueue_cohort_subtree_quota", cohort="all", resource="cpu") == 8


async def test_a_cohort_without_an_object_takes_its_counts_with_it() -> None:
    world, metric = MeteredLeader(), "kueue_cohort_subtree_admitted_workloads_total"
    world.metrics.kueue.reserved(world.workload("w", RESERVED), "a", 1, admitted=True)
    assert await world.value(metric, cohort="all") == 1
    world.show(kube.COHORTS, "team")
    await world.value(metric, cohort="all")
    assert await world.value(metric, cohort="all") is None
    assert await world.value(metric, cohort="team") == 1


async def test_also_where_nobody_has_looked_before_it_is_named_again() -> None:
    world, metric = MeteredLeader(), "kueue_cohort_subtree_admitted_workloads_total"
    [tally] = (part for part in world.controller.parts if part.name == "metrics")
    world.metrics.kueue.reserved(world.workload("w", RESERVED), "a", 1, admitted=True)
    for parent in ("", "all"):
        world.show(kube.COHORTS, "team", **({"parentName": parent} if parent else {}))
        tally.act(0)
    assert await world.value(metric, cohort="all") is None
    assert await world.value(metric, cohort="team") == 1


async def test_admission_is_counted_for_queue_local_queue_and_cohorts() -> None:
    world = MeteredLeader()
    workload = world.workload("w", RESERVED)
    world.metrics.kueue.reserved(workload, "a", 10, admitted=False)
    assert await world.value("kueue_admission_wait_time_seconds_count") is None
    world.metrics.kueue.admitted(workload, "a", 30, 20)
    for name, seconds in (("quota_reserved", 10), ("admission", 30), ("admission_checks", 20)):
        for queue in ("", "local_queue_"):
            metric = f"kueue_{queue}{name}_wait_time_seconds"
            assert await world.value(f"{metric}_sum", priority_class="high", replica_role="standalone") == seconds
    for cohort in ("team", "all"):
        assert await world.value("kueue_cohort_subtree_admitted_workloads_total", cohort=cohort) == 1
    unchecked = world.workload("other")
    world.metrics.kueue.reserved(unchecked, "a", 1, admitted=True)
    assert await world.value("kueue_admission_wait_time_seconds_count") == 2
    assert await world.value("kueue_admission_checks_wait_time_seconds_count") == 1, "it has no checks"


async def test_an_eviction_counts_once_per_reason_and_cause() -> None:
    world = MeteredLeader()
    for count in (1, 2, 3):
        rows = [
            {"reason": "Deactivated", "underlyingCause": "RequeuingLimitExceeded", "count": 1},
            {"reason": "Preempted", "count": count},
        ]
        evicted = ("Evicted", True, "Preempted", 80)
        stats = {"schedulingStats": {"evictions": rows}}
        workload = world.workload("w", RESERVED, ADMITTED, READY, evicted, status=stats)
        world.metrics.kueue.evicted(workload, "Preempted")
    why = {"cluster_queue": "a", "reason": "Preempted", "underlying_cause": ""}
    assert await world.value("kueue_evicted_workloads_total", **why, priority_class="high") == 3
    assert await world.value("kueue_evicted_workloads_once_total", **why) == 1
    assert await world.value("kueue_local_queue_evicted_workloads_total", name="lq-a") == 3
    assert await world.value("kueue_pods_ready_to_evicted_time_seconds_sum", **why) == 90


async def test_an_eviction_that_releases_at_once_counts_for_the_queue_that_it_leaves() -> None:
    world = MeteredLeader()
    held = world.workload("w", RESERVED, ADMITTED, READY)
    released = ("PodsReady", False, "WaitForStart", 80), ("Evicted", True, "Preempted", 80)
    gone = world.workload("w", ("QuotaReserved", False, "Pending", 80), *released)
    world.metrics.kueue.evicted(gone, "Preempted", held=held)
    assert await world.value("kueue_evicted_workloads_total", cluster_queue="a", reason="Preempted") == 1
    assert await world.value("kueue_pods_ready_to_evicted_time_seconds_sum", cluster_queue="a") == 30


async def test_only_new_jobs_have_a_time_until_their_workload() -> None:
    world = MeteredLeader()
    workload = world.workload("w")
    job = an_object(kube.JOBS, "j")
    job["metadata"]["creationTimestamp"] = "2025-12-31T23:59:58Z"
    world.metrics.kueue.workload_created("Job", job, workload)
    job["metadata"]["generation"] = 2
    world.metrics.kueue.workload_created("Job", job, workload)
    assert await world.value("kueue_workload_creation_latency_seconds_sum", job_kind="Job") == 2
    assert await world.value("kueue_workload_creation_latency_seconds_count") == 1


# --- which series there are -----------------------------------------------------------------------------------------------


async def test_the_series_of_deleted_queues_and_cohorts_are_removed() -> None:
    world = MeteredLeader(FAIR)
    drive_everything(world)
    world.metrics.recovered("a", {"total": 1.0})
    for resource, key, gone in (
        (kube.LOCAL_QUEUES, "ns/lq-a", 'name="lq-a"'),
        (kube.CLUSTER_QUEUES, "a", 'cluster_queue="a"'),
        (kube.COHORTS, "team", 'kueue_cohort_subtree_admitted_workloads_total{cohort="team"'),
    ):
        assert gone in await world.text()
        world.remove(resource, key)
        assert gone not in await world.text()
    assert 'cluster_queue="b"' in await world.text()


async def test_the_quota_of_a_deleted_cohort_is_shown_again_when_a_queue_of_it_changes() -> None:
    """As in Kueue: the queues that name it share their quota without it, and its series go until then."""
    world = MeteredLeader(FAIR)
    quota = {"cohort": "team", "resource": "cpu"}
    assert await world.value("kueue_cohort_subtree_quota", **quota) == 8
    world.remove(kube.COHORTS, "team")
    assert await world.value("kueue_cohort_subtree_quota", **quota) is None
    assert await world.value("kueue_cohort_subtree_admitted_active_workloads", cohort="team") is None
    assert await world.value("kueue_cohort_info", cohort="team") == 1
    spec = world.controller.mirror.objects[kube.CLUSTER_QUEUES]["a"]["spec"]
    world.show(kube.CLUSTER_QUEUES, "a", status={"pendingWorkloads": 1}, **spec)
    assert await world.value("kueue_cohort_subtree_quota", **quota) is None, "its status says nothing"
    world.generation = 2
    world.show(kube.CLUSTER_QUEUES, "a", **spec)
    assert await world.value("kueue_cohort_subtree_quota", **quota) == 8


async def test_names_that_others_write_make_no_series() -> None:
    world = MeteredLeader()
    for number in range(100):
        ref = {"name": f"made-up-{number}"}
        workload = world.workload("w", RESERVED, ADMITTED, queue=f"made-up-{number}", priorityClassRef=ref)
        world.metrics.kueue.evicted(workload, "Preempted")
        world.metrics.kueue.reserved(workload, f"made-up-{number}", 1, admitted=True)
        world.metrics.recovered(f"made-up-{number}", {"total": 1.0})
    assert "made-up" not in await world.text()
    lost = world.workload("lost", priorityClassRef={"name": "no-such-class"})
    world.metrics.kueue.evicted(lost, "Preempted")
    assert await world.value("kueue_evicted_workloads_total", cluster_queue="", priority_class="") == 1


def test_an_object_has_a_bounded_number_of_series() -> None:
    metrics = KueueMetrics()
    tally = WorkloadTally(metrics, lambda: millis(0))
    body = an_object(kube.WORKLOADS, "w", spec={"queueName": "lq"})
    held = {"conditions": [{"type": "QuotaReserved", "status": "True"}], "admission": {"clusterQueue": "a"}}
    for number in range(MOST_OF_OWNER + 10):
        evicted = [{"type": "Evicted", "status": "True", "reason": f"Reason{number}"}]
        for status in (held, {"conditions": evicted}):
            tally.observe(kube.WORKLOADS, Upsert(altered(body, status=status)))
    shown = [text for text in metrics.text() if text.startswith(b"kueue_workload_eviction_latency_seconds_bucket")]
    assert len(shown) == 10


async def test_local_queues_have_metrics_as_they_are_selected() -> None:
    selector = {"matchLabels": {"team": "x"}, "matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}
    world = MeteredLeader({"metrics": {"localQueueMetrics": {"enable": True, "localQueueSelector": selector}}})
    world.show(kube.LOCAL_QUEUES, "lq-b", labels={"team": "x"}, clusterQueue="b")
    for queue in ("a", "b"):
        world.metrics.kueue.reserved(world.workload(f"w-{queue}", queue=queue), queue, 1, admitted=True)
    text = await world.text()
    assert 'name="lq-b"' in text
    assert 'name="lq-a"' not in text
    for off in ({"metrics": {"localQueueMetrics": {}}}, {"featureGates": {"LocalQueueMetrics": False}}):
        world = MeteredLeader(off)
        world.metrics.kueue.reserved(world.workload("w"), "a", 1, admitted=True)
        assert "kueue_local_queue" not in await world.text()


def labelled(*rows: Json) -> Configured:
    return {"featureGates": {"CustomMetricLabels": True}, "metrics": {"customLabels": list(rows)}}


async def test_added_labels_show_what_the_objects_say() -> None:
    world = MeteredLeader(
        labelled(
            {"name": "team"},
            {"name": "note", "sourceKind": "LocalQueue", "sourceLabelKey": "x.io/note", "trackedValues": ["known"]},
            {"name": "size", "sourceKind": "Workload", "trackedValues": ["big"]},
            {"name": "site", "sourceKind": "Cohort"},
        )
    )
    queue = world.controller.mirror.objects[kube.CLUSTER_QUEUES]["a"]["spec"]
    world.show(kube.CLUSTER_QUEUES, "a", labels={"team": 'crimson "1"'}, **queue)
    world.show(kube.LOCAL_QUEUES, "lq-a", labels={"x.io/note": "else"}, clusterQueue="a")
    world.show(kube.COHORTS, "team", labels={"site": "north"}, parentName="all")
    runs = world.workload("runs", RESERVED, ADMITTED, labels={"size": "big"})
    world.workload("waits", labels={"size": "small"})
    world.metrics.kueue.reserved(runs, "a", 1, admitted=True)
    untracked = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
    mine = {"cluster_queue": "a", "custom_team": 'crimson "1"'}
    assert await world.value("kueue_pending_workloads", **mine, status="active", custom_size=untracked) == 1
    assert await world.value("kueue_admitted_active_workloads", **mine, custom_size="big") == 1
    assert await world.value("kueue_admitted_workloads_total", **mine) == 1
    own = {"name": "lq-a", "custom_note": untracked}
    assert await world.value("kueue_local_queue_admitted_workloads_total", **own, custom_size="big") == 1
    assert await world.value("kueue_local_queue_quota_reserved_workloads_total", **own) == 1
    north = {"cohort": "team", "custom_site": "north"}
    assert await world.value("kueue_cohort_subtree_admitted_workloads_total", **north) == 1
    assert await world.value("kueue_cohort_subtree_admitted_active_workloads", cohort="team", custom_team="") == 0
    assert (
        await world.value("kueue_cohort_subtree_admitted_active_workloads", custom_team='crimson "1"', cohort="team")
        == 1
    )
    world.show(kube.CLUSTER_QUEUES, "a", labels={"team": "blue"}, **queue)
    assert "crimson" not in await world.text(), "other labels begin other series"
    assert await world.value("kueue_admitted_active_workloads", cluster_queue="a", custom_team="blue") == 1
    assert await world.value("kueue_admitted_workloads_total", cluster_queue="a") is None
    world.show(kube.COHORTS, "team", labels={"site": "south"}, parentName="all")
    assert await world.value("kueue_cohort_info", cohort="team", custom_site="south") == 1
    assert await world.value("kueue_cohort_info", **north) is None
    assert await world.value("kueue_cohort_subtree_admitted_workloads_total", **north) == 1
