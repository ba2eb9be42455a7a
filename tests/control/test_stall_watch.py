"""Running gangs of queues with a policy: reports and readings in, conditions, restarts and notices out."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.context import a_context
from tests.control.test_forecasts import ForecastWorld
from tests.jobs.gangs import KIND, gpu_job
from tests.objects import PodObject

from gangline.api.read import conditions
from gangline.control.answers.of_jobs import _pod_as_json
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.pod import read_pod
from gangline.control.feed.pod_index import PodIndex
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.nodes.stall import progress_reports
from gangline.control.nodes.stall.progress_reports import BadReportError
from gangline.control.nodes.stall.stall_watch import SHARED, STALE, PodTelemetry, StallWatch
from gangline.control.parts.messages import GpusMeasured, Messages, OwnPaceEnded
from gangline.control.writes.notify.notices import Notices
from gangline.control.writes.status import run_changes, status_changes
from gangline.control.writes.status.change import Change
from gangline.engine import model
from gangline.jobs import workload as workloads
from gangline.kube import resources as kube
from gangline.telemetry import Reading, SourceError

Json = dict[str, Any]
START = 1_700_000_000_000
MINUTE = 60_000
KEY = "team/gpujob-llama"


class FakeWrites:
    """Applies status changes at once, and keeps the others."""

    def __init__(self, mirror: Mirror, now: Callable[[], int]) -> None:
        self._mirror, self._now = mirror, now
        self.sent: list[tuple[Any, ...]] = []
        self.changes = 0

    def in_doubt(self, *_: object) -> bool:
        return False

    def change(self, key: str, slot: str, change: Change, *, done: Any = None, **_: Any) -> None:
        raw = copy.deepcopy(self._mirror.get(kube.WORKLOADS, key))
        assert raw is not None
        change(raw["status"], self._now())
        self.changes += 1
        raw["metadata"]["resourceVersion"] = f"w{self.changes}"
        self._mirror.upsert(kube.WORKLOADS, raw)
        if done is not None:
            done(raw)

    def send(self, *arguments: Any, **_: Any) -> None:
        self.sent.append(arguments)


class FakeSource:
    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.fails = False
        self.asked = 0

    async def read(self) -> list[Reading]:
        self.asked += 1
        if self.fails:
            raise SourceError("down")
        return self.readings

    async def close(self) -> None:
        pass


class Place:
    """One GPUJob of two pods that runs in a queue whose policy is `stall`."""

    def __init__(self, stall: Json | None, **job: Any) -> None:
        self.now = START
        self.facts: list[model.Change] = []
        self.events: list[tuple[str, str]] = []
        self.notices: list[str] = []
        self.withdrawn: list[str] = []
        self.messages = Messages()
        self.messages.subscribe(OwnPaceEnded, lambda message: self.withdrawn.append(message.workload))
        self.mirror = Mirror(observe=lambda change: None)
        self.writes = FakeWrites(self.mirror, lambda: self.now)
        self.pods = PodIndex(observe=lambda change: None, counts=lambda workload: {}, messages=self.messages)
        self.metrics = Metrics()
        self.source = FakeSource()
        self.watch = StallWatch(
            a_context(
                mirror=self.mirror,
                writes=self.writes,
                pods=self.pods,
                recorder=self,
                metrics=self.metrics,
                notices=Notices(
                    self.mirror, lambda receiver, terms, notice: self.notices.append(notice.kind), now=lambda: self.now
                ),
                messages=self.messages,
                now=lambda: self.now,
                quarantine=Quarantine(lambda subject, obj, what: None),
            ),
            self.facts.append,
            source=self.source,
        )
        self.put(kube.CLUSTER_QUEUES, {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {}})
        notify = [{"secretRef": {"name": "s"}, "events": ["Stalled", "Idle"]}]
        spec = {"clusterQueues": {"names": ["cq"]}, "notify": notify} | ({"stall": stall} if stall else {})
        self.put(kube.QUEUE_POLICIES, {"kind": "QueuePolicy", "metadata": {"name": "p"}, "spec": spec})
        self.job = gpu_job(suspend=False, **job)
        self.job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
        self.put(kube.GPU_JOBS, self.job)
        body = workloads.build(KIND, self.job, KIND.pod_sets(self.job), queue="lq", priority=0)
        body["metadata"] |= {"uid": "wuid", "name": "gpujob-llama"}
        body["status"] = {}
        pod_sets = (model.PodSetAssignment("worker", 2, {"nvidia.com/gpu": "f"}, {"nvidia.com/gpu": 16}),)
        admit = model.Admit(KEY, "wuid", model.Admission("cq", pod_sets), True, START)
        status_changes.admit(admit)(body["status"], START)
        run_changes.pods_ready(True)(body["status"], START)
        self.put(kube.WORKLOADS, body)
        for index in range(2):
            self.pod(index)

    def put(self, resource: Any, obj: Json) -> None:
        obj["metadata"].setdefault("resourceVersion", "1")
        obj["metadata"].setdefault("uid", obj["metadata"]["name"])
        self.mirror.upsert(resource, obj)

    def pod(self, index: int, **annotations: str) -> None:
        said = {"kueue.x-k8s.io/workload": "gpujob-llama", **annotations}
        meta = {"namespace": "team", "name": f"llama-worker-{index}", "uid": f"p{index}", "annotations": said}
        pod = PodObject({"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}})
        self.pods.upsert(pod)

    def annotate(self, **annotations: str) -> None:
        job = copy.deepcopy(self.job)
        job["metadata"]["annotations"] = {f"gangline.io/{name}": text for name, text in annotations.items()}
        job["metadata"]["resourceVersion"] = str(self.now)
        self.put(kube.GPU_JOBS, job)

    def record(self, obj: Json, kind: str, reason: str, note: str) -> None:
        self.events.append((reason, note))

    def condition(self) -> tuple[str, str]:
        raw = self.mirror.get(kube.WORKLOADS, KEY)
        row = conditions.find((raw or {})["status"]["conditions"], "Stalled") or {"status": "", "reason": ""}
        return row["status"], row["reason"]

    def count(self, action: str) -> float:
        return self.metrics.registry.get_sample_value("gangline_stalled_total", {"action": action}) or 0.0

    def pass_time(self, minutes: int, **reading: float) -> None:
        """Minute by minute; `reading` is what telemetry says of both pods meanwhile."""
        for _ in range(minutes):
            self.now += MINUTE
            if reading:
                pods = [f"llama-worker-{index}" for index in range(2)]
                self.watch.take_readings([Reading("team", pod, self.now / 1000, **reading) for pod in pods])  # type: ignore[arg-type]
            self.watch.look(self.watch.policies(), [KEY])

    def report(self, **body: Any) -> None:
        self.watch.report("team", "gpujob-llama", "wuid", body)


IDLE = {"gpu": 0.0, "log_bytes": 512.0}


def test_an_idle_silent_gang_is_queued_again_by_policy() -> None:
    place = Place({"action": "Requeue"})
    place.pass_time(20, **IDLE)
    assert place.condition() == ("", ""), "suspected, in its grace"
    place.pass_time(1, **IDLE)
    assert place.condition() == ("True", "Requeue")
    value = place.mirror.workload_value(KEY)
    assert value is not None
    assert value.stalled == "Requeue", "which the engine acts on"
    assert place.events[-1] == (
        "Stalled",
        "The workload hangs: the GPUs of all 2 pods idle for 20m, "
        "nothing in the logs for 20m; the workload is stopped and queued again",
    )
    assert place.notices[-1] == "Stalled"
    assert place.count("Requeue") == 1
    place.pass_time(60, **IDLE)
    assert place.count("Requeue") == 1


def test_without_a_policy_nothing_is_looked_at_or_written() -> None:
    place = Place(None)
    assert place.watch.policies() == {}
    place.pass_time(600, **IDLE)
    assert place.writes.changes == 0
    assert not Place({"action": "None"}).watch.policies()


def test_reports_keep_an_idle_looking_gang_alive_and_it_is_told_once() -> None:
    place = Place({"action": "Requeue"})
    for step in range(60):
        place.report(step=step)
        place.pass_time(1, **IDLE)
    assert place.condition() == ("False", "Idle")
    assert place.notices == ["Idle"]
    assert place.writes.changes == 1


def test_what_a_job_promised_is_held_against_it() -> None:
    place = Place({"action": "Notify", "after": "1h"}, progress={"heartbeat": "12m"})
    place.report(step=1)
    place.pass_time(16)
    assert place.condition() == ("", "")
    place.pass_time(1)
    assert place.condition() == ("True", "Notify")
    place.report(step=2)
    place.pass_time(1)
    assert place.condition() == ("False", "Recovered")


def test_a_restart_where_it_is_and_a_requeue_when_that_is_used_up() -> None:
    place = Place({"action": "Restart"}, restart={"maxRestarts": 1})
    place.pass_time(22, **IDLE)
    assert place.condition() == ("True", "Restart")
    ((key, verb, body),) = place.writes.sent
    assert (key.name, verb, body["status"]["restarts"]) == ("llama", "status", 1)
    assert body["metadata"]["resourceVersion"], "on the version that it was decided on"

    used_up = Place({"action": "Restart"}, restart={"maxRestarts": 0})
    used_up.pass_time(22, **IDLE)
    assert used_up.condition() == ("True", "Requeue")


def test_a_gang_that_hangs_again_after_its_restart_is_restarted_again() -> None:
    place = Place({"action": "Restart"})
    place.pass_time(22, **IDLE)
    for ready in (False, True):
        place.now += MINUTE
        place.writes.change(KEY, "pods-ready", run_changes.pods_ready(ready))
    place.pass_time(1, **IDLE)
    assert place.condition() == ("False", "Restarted")
    place.pass_time(9, **IDLE)
    assert len(place.writes.sent) == 1, "it has its time to start up"
    place.pass_time(20, **IDLE)
    assert place.condition() == ("True", "Restart")
    assert len(place.writes.sent) == 2


def test_after_so_many_actions_it_is_only_told() -> None:
    place = Place({"action": "Requeue", "maxActions": 2})
    raw = copy.deepcopy(place.mirror.get(kube.WORKLOADS, KEY)) or {}
    raw["metadata"]["resourceVersion"] = "9"
    raw["status"]["schedulingStats"] = {"evictions": [{"reason": "Stalled", "underlyingCause": "", "count": 2}]}
    place.put(kube.WORKLOADS, raw)
    place.pass_time(22, **IDLE)
    assert place.condition() == ("True", "Notify")


def test_a_job_may_opt_out() -> None:
    place = Place({"action": "Requeue"})
    place.annotate(stall="off")
    place.pass_time(60, **IDLE)
    assert place.writes.changes == 0


def test_a_new_process_does_not_say_again_what_stands_in_the_condition() -> None:
    place = Place({"action": "Notify"})
    place.pass_time(22, **IDLE)
    place.notices.clear()
    place.watch._runs.clear()
    place.pass_time(60, **IDLE)
    assert place.notices == []


def test_annotations_of_job_and_pods_are_reports() -> None:
    place = Place({"action": "Notify"}, progress={"heartbeat": "12m"})
    for step in range(30):
        place.annotate(progress=f"step={step}")
        place.pass_time(1)
    for step in range(30, 60):
        place.pod(1, **{"gangline.io/progress": f"step={step}"})
        place.pass_time(1)
    assert place.condition() == ("", "")
    for _ in range(17):
        place.pod(1, **{"gangline.io/progress": "step=59"})
        place.pass_time(1)
    assert place.condition() == ("True", "Notify"), "the same text again is no news"


def test_what_is_kept_of_the_reports_of_pods_is_bounded() -> None:
    place = Place({"action": "Notify"})
    for number in range(5000):  # one after the other, each deleted by its tenant
        place.pod(number, **{"gangline.io/progress": f"step={number} " + "x" * 100_000})
        place.pods.remove(f"team/llama-worker-{number}")
    (run,) = place.watch._runs.values()
    assert len(run.read) == progress_reports.MOST_PODS
    assert {type(kept) for kept in run.read.values()} == {int}
    assert len(read_pod(pod_with("x" * 100_000), KEY).progress) == progress_reports.LONGEST + 1


def pod_with(progress: str) -> PodObject:
    meta = {"namespace": "team", "name": "w", "uid": "p", "annotations": {"gangline.io/progress": progress}}
    return PodObject({"metadata": meta, "spec": {}, "status": {}})


def test_who_does_not_know_the_workload_can_not_report_for_it() -> None:
    place = Place({"action": "Notify"})
    with pytest.raises(LookupError):
        place.watch.report("team", "gpujob-llama", "another", {})
    with pytest.raises(LookupError):
        place.watch.report("team", "nobody", "wuid", {})
    with pytest.raises(BadReportError):
        place.report(step="one")


def test_its_own_pace_becomes_the_forecast_until_the_run_ends() -> None:
    place = Place({"action": "Notify"})
    for step in range(20):
        place.report(step=step, total=100)
        place.pass_time(1)
    items = [change.item for change in place.facts if isinstance(change, model.Put)]
    assert [fact.source for fact in items if isinstance(fact, model.RuntimeForecast)] == ["Progress"], "it hardly moved"
    assert place.watch.knows_better(KEY)
    place.mirror.remove(kube.WORKLOADS, KEY)
    place.watch._forget_ended()
    assert place.facts[-1] == model.Gone(model.RuntimeForecast, KEY)
    assert place.withdrawn == [KEY]
    assert not place.watch.knows_better(KEY)


async def test_a_source_that_fails_is_no_evidence_and_stops_nothing() -> None:
    place = Place({"action": "Requeue"})
    place.pass_time(14, **IDLE)
    place.source.fails = True
    assert await place.watch._readings() == []
    place.pass_time(60)
    assert place.condition() == ("", "")


def test_the_forecaster_says_nothing_of_a_run_that_knows_better_and_speaks_again_after_it() -> None:
    knowing = {"ml/job-a"}
    world = ForecastWorld(knows_better=knowing.__contains__)
    world.policy()
    world.workload("job-a", started=START // 1000)

    def forecasts_sent() -> int:
        while world.forecasts.work(1.0):
            pass
        world.forecasts.tell()
        return sum(isinstance(change, model.Put) for change in world.told)

    assert forecasts_sent() == 0
    knowing.clear()
    world.forecasts.tell_again("ml/job-a")
    assert forecasts_sent() == 1
    world.forecasts.tell_again("ml/job-a")
    assert forecasts_sent() == 2, "whatever it had said before"
    world.forecasts.tell_again("ml/nobody")


async def test_who_asks_for_the_use_of_gpus_gets_a_reading_that_is_not_old() -> None:
    place = Place(None)
    reading = Reading("team", "p", START / 1000, gpu=0.0, gpu_memory=2.0**30)
    place.source.readings = [reading]
    assert place.watch.of_pod("team/p") is None
    await asyncio.gather(*(place.watch.refresh() for _ in range(50)))
    found = place.watch.of_pod("team/p")
    assert place.source.asked == 1, "one for all who ask"
    assert found is not None and (found.gpu, found.gpu_memory, found.idle_since) == (0.0, 2.0**30, START)
    place.now += SHARED
    place.source.readings = [replace(reading, at=place.now / 1000, gpu=0.5)]
    await place.watch.refresh()
    assert place.source.asked == 2 and (found.gpu, found.idle_since) == (0.5, None)
    place.now += STALE
    assert place.watch.of_pod("team/p") is None, "what is old is not shown"


def test_the_answer_about_a_pod_has_what_is_measured_of_it() -> None:
    pod, measured = read_pod(pod_with(""), KEY), PodTelemetry()
    measured.take(Reading("team", "w", START / 1000, gpu=0.0, gpu_memory=2.0**30))
    fields = ("gpuUse", "gpuMemoryBytes", "idleSince", "measuredAt")
    shown, unknown = _pod_as_json(pod, measured), _pod_as_json(pod, None)
    assert [shown[name] for name in fields] == [0.0, 2.0**30, START / 1000, START / 1000]
    assert [unknown[name] for name in fields] == [None] * 4


async def test_where_a_policy_has_telemetry_read_nobody_else_reads_it() -> None:
    place = Place({"after": "10m"})
    await place.watch.refresh()
    assert place.source.asked == 0


def test_what_telemetry_measures_is_passed_on_but_for_gaps() -> None:
    place = Place({"after": "10m"})
    seen: list[tuple[str, float, bool]] = []
    place.messages.subscribe(GpusMeasured, lambda each: seen.append((each.pod, each.seconds, each.idle)))
    for at, gpu in ((0, 0.0), (30, 0.0), (30, 0.0), (60, 0.9), (90, None), (1000, 0.0), (1030, 0.005)):
        place.watch.take_readings([Reading("team", "p", START / 1000 + at, gpu=gpu)])
    assert seen == [("team/p", 30.0, True), ("team/p", 30.0, False), ("team/p", 30.0, True)]


# --- phases -----------------------------------------------------------------------------------------------------------


def phase_of(place: Place) -> tuple[str, str]:
    raw = place.mirror.get(kube.WORKLOADS, KEY)
    row = conditions.find((raw or {})["status"]["conditions"], "Converged") or {"status": "", "reason": ""}
    return row["status"], row["reason"]


def reporting(place: Place, *losses: float, begin: int = 1) -> None:
    for step, loss in enumerate(losses, begin):
        place.now += MINUTE
        place.report(step=step, metric=loss)


def with_phases() -> Place:
    place = Place(None)
    spec = {"clusterQueues": {"names": ["cq"]}, "phases": {}}
    meta = {"name": "p", "resourceVersion": "2"}
    place.put(kube.QUEUE_POLICIES, {"kind": "QueuePolicy", "metadata": meta, "spec": spec})
    return place


LOSSES = (2.0, 1.5, 1.4999, 1.4998, 1.4997, 1.4997)


def test_g6_a_converged_training_is_recorded_and_nothing_is_done_to_it() -> None:
    place = with_phases()
    reporting(place, *LOSSES)
    assert phase_of(place) == ("True", "Converged")
    assert place.watch.phases() == {"Converged": 1}
    assert place.writes.changes == 2, "Watching, then Converged: reports between write nothing"
    assert not place.writes.sent and not place.events


def test_without_phases_in_the_policy_metrics_say_nothing() -> None:
    place = Place(None)
    reporting(place, *LOSSES)
    assert phase_of(place) == ("", "") and not place.watch.phases()


def test_another_operator_goes_on_with_the_phase_that_was_recorded() -> None:
    place = with_phases()
    reporting(place, *LOSSES)
    place.watch._runs.clear()
    reporting(place, 1.4996, 1.4996, 1.4995, 1.4995, begin=7)
    assert phase_of(place) == ("True", "Converged")
    assert place.watch.phases() == {"Converged": 1}


def test_metrics_of_an_evaluation_are_of_another_kind() -> None:
    place = with_phases()
    for step, loss in enumerate(LOSSES, 1):
        place.now += MINUTE
        place.report(step=step, phase="evaluation", metric=loss)
    assert phase_of(place) == ("", "")


def test_who_is_stopped_is_progressing_when_it_starts_again() -> None:
    place = with_phases()
    reporting(place, *LOSSES)
    place.writes.change(KEY, "x", status_changes.release)
    status, reason = phase_of(place)
    assert (status, reason) == ("False", "Progressing")
