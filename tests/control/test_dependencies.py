"""Jobs that wait for others: how these stand, what is recorded, what the engine gets, and what a failure leads to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import clusters
from tests.context import a_context
from tests.control.test_answers import Reader
from tests.control.test_answers import jobs as jobs_of
from tests.control.test_plan import NOW, a_job, a_workload, admitted
from tests.control.test_workload_parts import WorkloadPartsWorld, row
from tests.examples import examples
from tests.fuzz import operator_loop
from tests.objects import JobObject, WorkloadObject, as_stored

from gangline.api import dependencies, names
from gangline.api.read import conditions
from gangline.console.views.own_answers import ClusterInstant
from gangline.control.answers.sight import Everybody
from gangline.control.answers.workloads.snapshot import workload_view
from gangline.control.answers.workloads.words import to_do, why
from gangline.control.controller import Controller
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.kinds.dependencies import Dependencies, JobStandings
from gangline.control.writes.status import run_changes
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource

COMPLETE = {"conditions": [{"type": "Complete", "status": "True", "reason": "CompletionsReached", "message": "done"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no"}]}


def ready(status: Json, now: int) -> None:
    conditions.put(status["conditions"], names.PODS_READY, True, "Started", "ready", now=now)


class Jobs(WorkloadPartsWorld):
    """Jobs with their Workloads, and the part under test. Patches of annotations are done at once."""

    def __init__(self) -> None:
        super().__init__()
        self.facts: dict[str, model.Dependencies] = {}
        self.version = 10
        context = a_context(mirror=self.mirror, writes=self, recorder=self, quarantine=Quarantine(lambda *_: None))
        self.part = Dependencies(context, self.observe)  # type: ignore[arg-type]
        self.looked_at: list[str] = []

    def observe(self, change: model.Change) -> None:
        if isinstance(change, model.Put) and isinstance(change.item, model.Dependencies):
            self.facts[change.item.workload] = change.item
        elif isinstance(change, model.Gone):
            self.facts.pop(change.key, None)

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any = None, **_: Any) -> None:
        self.patched.append(body)
        found = self.mirror.get(key.resource, key.text)
        assert found is not None
        assert body["metadata"].pop("resourceVersion") == found.resource_version
        meta = {**found["metadata"], "annotations": {**found.annotations, **body["metadata"]["annotations"]}}
        answer = WorkloadObject({**found, "metadata": meta})
        self._upsert(kube.WORKLOADS, answer)
        if done is not None:
            done(answer)

    def _upsert(self, resource: Any, obj: Any) -> None:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.mirror.upsert(resource, obj)

    def job(
        self,
        name: str,
        status: Json | None = None,
        *,
        after: dict[str, str] | None = None,
        queued: bool = True,
        uid: str = "",
    ) -> None:
        made = a_job(status=status, name=name, uid=uid or f"uid-{name}", annotations=after or {})
        self.part.observe(kube.JOBS, Upsert(JobObject(made)))
        self._upsert(kube.JOBS, made)
        if queued and f"ns/{name}" not in self.mirror.workloads:
            self.workload(name, uid=uid)

    def workload(self, name: str, *changes: Any, uid: str = "") -> WorkloadObject:
        job = self.mirror.objects[kube.JOBS][f"ns/{name}"]
        old = self.mirror.workloads.get(f"ns/{name}")
        made = a_workload(job, **{str(number): change for number, change in enumerate(changes)})
        made["metadata"] |= {"name": name, "uid": f"w-{uid or name}", "annotations": {**job.annotations}}
        if old is not None:
            made["metadata"]["annotations"] |= old.annotations
        made["metadata"]["labels"] = {}
        self._upsert(kube.WORKLOADS, made)
        return made

    def delete(self, name: str) -> None:
        old = self.mirror.objects[kube.JOBS][f"ns/{name}"]
        self.part.observe(kube.JOBS, Removed(f"ns/{name}", old.uid, old))
        self.mirror.remove(kube.JOBS, f"ns/{name}")
        self.mirror.remove(kube.WORKLOADS, f"ns/{name}")

    def act(self, most: int = 400) -> None:
        """Round after round, each of which has a bounded time, until nothing is left."""
        self.part.act(NOW)
        rounds = 0
        while self.part._changed and (rounds := rounds + 1) < most:
            self.part.act(NOW)
        assert rounds < most

    def reason(self, name: str) -> str:
        self.act()
        found = self.facts.get(f"ns/{name}")
        return found.message if found is not None else ""

    def met(self, name: str) -> str | None:
        self.act()
        return self.mirror.workloads[f"ns/{name}"].annotations.get(names.AFTER_MET)

    def restart(self) -> None:
        self.facts.clear()
        context = a_context(mirror=self.mirror, writes=self, recorder=self, quarantine=Quarantine(lambda *_: None))
        self.part = Dependencies(context, self.observe)  # type: ignore[arg-type]
        self.part.lead()


def waits(after: str, **more: str) -> dict[str, str]:
    return {names.AFTER: after, **more}


def cancels(after: str) -> dict[str, str]:
    return waits(after, **{names.AFTER_FAILED: "Cancel"})


def test_it_is_said_how_the_job_stands_that_it_waits_for() -> None:
    jobs = Jobs()
    jobs.job("b", after=waits("job/a=Succeeded"))
    assert jobs.reason("b") == "Waits for job a to succeed: it does not exist yet"
    jobs.job("a", queued=False)
    assert jobs.reason("b") == "Waits for job a to succeed: it is not queued yet"
    jobs.workload("a")
    assert jobs.reason("b") == "Waits for job a to succeed: it waits in its queue"
    jobs.workload("a", admitted)
    assert jobs.reason("b") == "Waits for job a to succeed: it starts"
    jobs.workload("a", admitted, ready)
    assert jobs.reason("b") == "Waits for job a to succeed: it runs since 2023-11-14T22:13:20Z"
    fact = jobs.facts["ns/b"]
    assert fact.needs == "job a has to succeed." and fact.awaited == (model.Awaited("ns/a", runs=False),)
    assert not jobs.patched, "nothing has come true"


def test_what_has_come_true_is_recorded_once_and_outlives_the_other_job_and_the_operator() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Succeeded,job/c=Running"))
    jobs.job("a", COMPLETE)
    assert jobs.met("b") == "job/a=Succeeded"
    assert jobs.reason("b") == "Waits for job c to run: it does not exist yet"
    jobs.delete("a")
    jobs.restart()
    assert jobs.reason("b") == "Waits for job c to run: it does not exist yet"
    jobs.job("c")
    jobs.workload("c", admitted, ready)
    assert jobs.met("b") == "job/a=Succeeded,job/c=Running"
    assert jobs.reason("b") == "" and len(jobs.patched) == 2
    assert [event[2] for event in jobs.events] == ["DependenciesMet", "DependenciesMet"]


def test_a_workload_that_is_made_anew_for_the_job_does_not_wait_again() -> None:
    """As when the job is changed while it waits for quota; the other one may be gone by then."""
    jobs = Jobs()
    jobs.job("a", COMPLETE)
    jobs.job("b", after=waits("job/a=Succeeded"))
    assert jobs.met("b")
    jobs.delete("a")
    jobs.restart()
    jobs.act()
    jobs.mirror.remove(kube.WORKLOADS, "ns/b")
    jobs.act()
    jobs.workload("b")
    assert jobs.met("b") == "job/a=Succeeded" and jobs.reason("b") == ""
    jobs.delete("b")
    jobs.act()
    assert not jobs.part._met_before
    jobs.job("b", after=waits("job/a=Succeeded"), uid="another")
    assert jobs.reason("b") == "Waits for job a to succeed: it does not exist yet"


def test_a_job_that_is_deleted_as_it_ends_has_ended_as_it_did() -> None:
    """`ttlSecondsAfterFinished: 0`: both events come before the next round."""
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Succeeded"))
    jobs.act()
    jobs.job("a", COMPLETE)
    jobs.delete("a")
    assert jobs.met("b") == "job/a=Succeeded"


def test_what_can_not_come_true_any_more_is_said_with_the_ways_to_go_on() -> None:
    jobs = Jobs()
    jobs.job("a", FAILED)
    jobs.job("b", after=waits("job/a=Succeeded"))
    assert jobs.reason("b") == "job a can't succeed any more: it has failed"
    fact = jobs.facts["ns/b"]
    assert fact.never and "Run such a job again under the same name" in fact.needs and names.AFTER in fact.needs
    assert jobs.mirror.workloads["ns/b"].active and not jobs.mirror.workloads["ns/b"].conditions, "it is held"
    jobs.delete("a")
    jobs.job("a", uid="again")
    assert jobs.reason("b") == "Waits for job a to succeed: it waits in its queue"
    jobs.job("a", COMPLETE, uid="again")
    assert jobs.met("b") == "job/a=Succeeded"


def test_each_state() -> None:
    ends = {"Succeeded": (True, False), "Failed": (False, True), "Finished": (True, True), "Running": (True, False)}
    for state, (by_success, by_failure) in ends.items():
        for status, comes_true in ((COMPLETE, by_success), (FAILED, by_failure)):
            jobs = Jobs()
            jobs.job("a", status)
            jobs.job("b", after=waits(f"job/a={state}"))
            assert (jobs.met("b") == f"job/a={state}") == comes_true, (state, status)
            assert bool(jobs.facts) != comes_true and all(fact.never for fact in jobs.facts.values())


def test_a_deleted_job_has_ended_without_success() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Succeeded"))
    jobs.job("c", after=waits("job/a=Finished"))
    jobs.job("d", after=cancels("job/a=Running"))
    jobs.act()
    jobs.delete("a")
    assert jobs.reason("b") == "job a can't succeed any more: it was deleted"
    assert jobs.met("c") == "job/a=Finished"
    assert jobs.reason("d") == "job a can't run any more: it was deleted"


def test_the_deletion_is_noticed_by_the_next_operator_too_where_something_follows_from_it() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Finished"))
    jobs.job("c", after=cancels("job/a=Succeeded"))
    jobs.job("d", after=waits("job/a=Succeeded"))
    jobs.act()
    assert jobs.mirror.workloads["ns/b"].annotations[names.AFTER_SEEN] == "job/a"
    assert names.AFTER_SEEN not in jobs.mirror.workloads["ns/d"].annotations, "a write for nothing"
    jobs.delete("a")
    jobs.restart()
    assert jobs.met("b") == "job/a=Finished"
    assert jobs.reason("c") == "job a can't succeed any more: it was deleted"
    assert jobs.reason("d") == "Waits for job a to succeed: it does not exist yet"


def test_a_job_that_is_to_be_cancelled_is_deactivated_for_that_cause_and_those_behind_it_as_well() -> None:
    jobs = Jobs()
    jobs.job("a", FAILED)
    jobs.job("b", after=cancels("job/a=Succeeded"))
    jobs.job("c", after=cancels("job/b=Succeeded"))
    jobs.act()
    waiting = jobs.mirror.workloads["ns/b"]
    message = "job a can't succeed any more: it has failed"
    assert row(waiting, names.DEACTIVATION_TARGET) == ("True", "DependencyNeverSatisfied", message)
    assert jobs.reason("c") == "Waits for job b to succeed: it waits itself for job a to succeed"

    def deactivated(status: Json, now: int) -> None:
        rows = status.setdefault("conditions", [])
        conditions.put(rows, names.EVICTED, True, "DeactivatedDueToDependencyNeverSatisfied", message, now=now)

    stopped = jobs.workload("b", deactivated)
    stopped["spec"]["active"] = False
    cause = "job b can't succeed any more: it was stopped for good (DeactivatedDueToDependencyNeverSatisfied)"
    assert jobs.reason("c") == cause
    assert row(jobs.mirror.workloads["ns/c"], names.DEACTIVATION_TARGET)[2] == cause


def test_jobs_that_wait_for_each_other_say_so_until_one_of_them_waits_no_more() -> None:
    jobs = Jobs()
    jobs.job("a", after=waits("job/c=Succeeded"))
    jobs.job("b", after=waits("job/a=Succeeded"))
    jobs.job("c", after=waits("job/b=Running"))
    jobs.job("outside", after=waits("job/a=Succeeded"))
    assert jobs.reason("a") == "The jobs wait for each other: job a → job c → job b → job a"
    assert jobs.reason("b") == "The jobs wait for each other: job b → job a → job c → job b"
    assert jobs.facts["ns/c"].never and "Remove the annotation" in jobs.facts["ns/c"].needs
    assert jobs.reason("outside") == "Waits for job a to succeed: it waits itself for job c to succeed"
    jobs.mirror.workloads["ns/c"].annotations.pop(names.AFTER)
    jobs.mirror.changes.workloads.add("ns/c")
    assert jobs.reason("c") == ""
    assert jobs.reason("b") == "Waits for job a to succeed: it waits itself for job c to succeed"


def test_a_change_costs_those_that_wait_for_the_job_and_no_others() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("z")
    for number in range(20):
        jobs.job(f"of-a-{number}", after=waits("job/a=Succeeded"))
        jobs.job(f"of-z-{number}", after=waits("job/z=Succeeded"))
    jobs.act()
    looked_at: list[str] = []
    reconcile = jobs.part._reconcile

    def counted(key: str, now: int) -> None:
        looked_at.append(key)
        reconcile(key, now)

    jobs.part._reconcile = counted  # type: ignore[method-assign]
    jobs.workload("a", admitted)
    jobs.act()
    assert set(looked_at) == {f"ns/of-a-{number}" for number in range(20)} and len(looked_at) < 100


def test_a_long_chain_costs_bounded_steps_for_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()
    jobs.job("n0")
    for number in range(1, 300):
        jobs.job(f"n{number}", after=waits(f"job/n{number - 1}=Succeeded"))
    assert jobs.reason("n299") == "Waits for job n298 to succeed: it waits itself for job n297 to succeed"
    judged: list[str] = []
    of = JobStandings.of
    monkeypatch.setattr(JobStandings, "of", lambda self, *args: judged.append(str(args)) or of(self, *args))
    jobs.mirror.changes.workloads.add("ns/n299")
    jobs.act()
    assert len(judged) == 1, "the job before it is looked at, and no other"
    jobs.job("n0", COMPLETE)
    assert jobs.met("n1") == "job/n0=Succeeded" and jobs.met("n2") is None


def test_the_condition_of_a_workload_that_need_not_wait_any_more_is_corrected() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Succeeded"))

    def set_reason(status: Json, now: int) -> None:
        rows = status.setdefault("conditions", [])
        conditions.put(rows, names.QUOTA_RESERVED, False, "WaitingForDependencies", "Waits", now=now)

    jobs.workload("b", set_reason)
    jobs.act()
    assert row(jobs.mirror.workloads["ns/b"], names.QUOTA_RESERVED)[1] == "WaitingForDependencies"
    jobs.job("a", COMPLETE)
    jobs.act()
    assert row(jobs.mirror.workloads["ns/b"], names.QUOTA_RESERVED)[1] == "PendingEvaluation"


def test_an_annotation_that_no_webhook_has_checked_holds_the_job_and_says_what_is_wrong() -> None:
    jobs = Jobs()
    jobs.job("b", after=waits("job/a"))
    assert "must be KIND/NAME=STATE" in jobs.reason("b") and jobs.facts["ns/b"].never


def test_nothing_is_kept_of_workloads_that_are_gone() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.job("b", after=waits("job/a=Succeeded"))
    jobs.job("c", after=waits("job/c2"))
    jobs.job("d", after=waits("job/d2=Running"))
    jobs.job("d2", after=waits("job/d=Running"))
    assert jobs.reason("b") and jobs.reason("c") and jobs.reason("d") and jobs.reason("d2")
    for name in ("b", "c", "d", "d2"):
        jobs.delete(name)
    jobs.act()
    assert not jobs.facts and not jobs.part._engine_has and not jobs.part._waits_for and not jobs.part._dependents
    assert not jobs.part._last and not jobs.part._in_circles and not jobs.part._names and not jobs.part._named


def test_an_elastic_job_that_grows_runs() -> None:
    jobs = Jobs()
    jobs.job("a")
    jobs.workload("a", admitted, ready)
    larger = a_workload(jobs.mirror.objects[kube.JOBS]["ns/a"])
    larger["metadata"] |= {"name": "a-2", "uid": "w-a-2", "annotations": {names.REPLACEMENT_FOR: "ns/a"}, "labels": {}}
    jobs._upsert(kube.WORKLOADS, larger)
    jobs.job("b", after=waits("job/a=Running"))
    assert jobs.met("b") == "job/a=Running"


def test_what_runs_or_has_ended_waits_for_nothing() -> None:
    jobs = Jobs()
    jobs.job("b", after=waits("job/a=Succeeded"))
    assert jobs.reason("b")
    jobs.workload("b", admitted)
    assert jobs.reason("b") == ""
    jobs.workload("b", admitted, run_changes.finish(True, "done"))
    assert jobs.reason("b") == ""


def test_a_group_of_pods_and_what_serves_can_be_waited_for() -> None:
    jobs = Jobs()
    jobs.job("b", after=waits("podgroup/g=Running,leaderworkerset/s=Running"))
    assert "podgroup g to run: it does not exist yet" in jobs.reason("b")
    marked = {names.IS_GROUP_WORKLOAD: "true"}
    served = {names.JOB_OWNER_NAME: "s", names.JOB_OWNER_GVK: "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"}
    for name, written in (("g", marked), ("s-0", marked | served), ("s-1", marked | served)):
        made = a_workload(a_job(), admitted=admitted, **({} if name == "s-1" else {"ready": ready}))
        made["metadata"] |= {"name": name, "uid": f"w-{name}", "annotations": written, "ownerReferences": []}
        jobs._upsert(kube.WORKLOADS, made)
    assert jobs.reason("b") == "Waits for leaderworkerset s to run: it starts"
    assert jobs.facts["ns/b"].awaited == (model.Awaited("ns/s-0", runs=True), model.Awaited("ns/s-1", runs=True))
    assert jobs.met("b") == "podgroup/g=Running"


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[tuple[int, str]]], list[bool], list[bool]]:
    """What each of some jobs waits for, by their numbers, whether it succeeds once it runs, and when the operator restarts."""
    count = draw(st.integers(1, 7))
    states = st.sampled_from(["Succeeded", "Failed", "Finished"])
    others = [
        draw(st.lists(st.tuples(st.integers(0, count - 1).filter(lambda n, own=own: n != own), states), max_size=3))
        if count > 1
        else []
        for own in range(count)
    ]
    return (
        others,
        draw(st.lists(st.booleans(), min_size=count, max_size=count)),
        draw(st.lists(st.booleans(), max_size=9)),
    )


@given(graphs())
@examples(60)
def test_exactly_those_run_whose_dependencies_came_true_whatever_the_graph(
    graph: tuple[list[list[tuple[int, str]]], list[bool], list[bool]],
) -> None:
    others, succeeds, restarts = graph
    jobs = Jobs()
    for own, wanted in enumerate(others):
        entries = ",".join(dict.fromkeys(f"job/j{n}={state}" for n, state in wanted))
        jobs.job(f"j{own}", after=waits(entries) if entries else None)
    ended: dict[int, bool] = {}
    for round_ in range(len(others) + 1):
        if round_ < len(restarts) and restarts[round_]:
            jobs.restart()
        jobs.act()
        free = [
            own
            for own in range(len(others))
            if own not in ended and not dependencies.unmet(jobs.mirror.workloads[f"ns/j{own}"].annotations)
        ]
        for own in free:
            ended[own] = succeeds[own]
            jobs.job(
                f"j{own}",
                COMPLETE if succeeds[own] else FAILED,
                after=jobs.mirror.objects[kube.JOBS][f"ns/j{own}"].annotations,
            )
    expected: dict[int, bool] = {}
    holds = {"Succeeded": lambda won: won, "Failed": lambda won: not won, "Finished": lambda won: True}
    for _ in others:
        for own, wanted in enumerate(others):
            if all(n in expected and holds[state](expected[n]) for n, state in wanted):
                expected[own] = succeeds[own]
    assert ended == expected
    for own in range(len(others)):
        fact = jobs.facts.get(f"ns/j{own}")
        assert (fact is None) == (own in ended), "the fact names what is waited for"
        if fact is not None:
            assert fact.message.startswith("Waits for ") == (not fact.never)


class Whole:
    """A whole operator, with a job and its Workload that wait for others. What it writes comes back as the test says."""

    def __init__(self, controller: Controller, after: dict[str, str]) -> None:
        self.controller = controller
        self.meta = {"namespace": operator_loop.NAMESPACE, "labels": {names.QUEUE_NAME: operator_loop.QUEUE}}
        job = a_job(**self.meta, name="b", uid="uid-b", annotations=after)
        job["spec"]["template"]["spec"] |= operator_loop.ON_NODES
        self.show(kube.JOBS, job)
        [created] = self.written("create", "job-b")
        more = {"uid": "w-b", "resourceVersion": "5", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.workload: Json = {**created, "metadata": {**created["metadata"], **more}, "status": {}}
        self.key = f"{operator_loop.NAMESPACE}/{created['metadata']['name']}"
        self.show(kube.WORKLOADS, self.workload)

    def show(self, resource: Resource, obj: Json) -> None:
        self.controller.sink(resource)(Upsert(as_stored(obj)))
        self.controller.absorb()
        self.controller.act()

    def show_ended(self, name: str, status: Json) -> None:
        self.show(kube.JOBS, a_job(**self.meta, name=name, uid=f"uid-{name}", status=status))

    def written(self, verb: str, key: str) -> list[Json]:
        """The writes of this verb that wait for the API server, which never gets them."""
        lanes = self.controller.writes._writer._lanes.values()
        waiting = [item.write for lane in lanes for item in lane.waiting.values()]
        found = [write.render() for write in waiting if write.verb == verb and key in write.key.text]
        return [body for body in found if isinstance(body, dict)]


async def test_the_operator_as_a_whole_holds_and_releases_it() -> None:
    whole = Whole(await operator_loop._leader(), waits("job/a=Succeeded"))
    controller, key = whole.controller, whole.key
    assert whole.workload["metadata"]["annotations"][names.AFTER] == "job/a=Succeeded"
    explanation = controller.engine.explain(key)
    assert explanation is not None and explanation.message == "Waits for job a to succeed: it does not exist yet"
    assert controller.engine.state_of(key) == "Unqueued"
    whole.show_ended("a", COMPLETE)
    [patch] = whole.written("patch", key)
    assert patch["metadata"]["annotations"] == {names.AFTER_MET: "job/a=Succeeded"}
    meta = whole.workload["metadata"]
    annotations = {**meta["annotations"], **patch["metadata"]["annotations"]}
    whole.show(
        kube.WORKLOADS, {**whole.workload, "metadata": {**meta, "annotations": annotations, "resourceVersion": "6"}}
    )
    assert controller.engine.state_of(key) == "Admitted"
    assert not controller.quarantine.failures


async def test_the_operator_as_a_whole_deactivates_what_is_to_be_cancelled() -> None:
    whole = Whole(await operator_loop._leader(), cancels("job/a=Succeeded"))
    whole.show_ended("a", FAILED)
    [patch] = whole.written("status", whole.key)
    wanted = conditions.find(patch["status"]["conditions"], names.DEACTIVATION_TARGET)
    assert wanted is not None and wanted["reason"] == "DependencyNeverSatisfied"
    meta = {**whole.workload["metadata"], "resourceVersion": "6"}
    whole.show(kube.WORKLOADS, {**whole.workload, "metadata": meta, "status": {"conditions": [wanted]}})
    assert [body.get("spec") for body in whole.written("patch", whole.key)] == [{"active": False}]
    assert not whole.controller.quarantine.failures


# --- what users see ---------------------------------------------------------------------------------------------------


def a_chain() -> ClusterInstant:
    """16 of 32 GPUs are free, but the second job waits for the first, which runs for 40 more minutes, and the third for it."""
    return clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 32),
        *clusters.submitted("first", 2, "1h", ago=1300, started=1200),
        *clusters.submitted("second", 1, "2h", ago=600, after="gpujob/first=Succeeded"),
        *clusters.submitted("third", 1, "30m", ago=300, after="gpujob/second=Finished"),
        *clusters.submitted("never", 1, "30m", ago=300, after="gpujob/none=Succeeded"),
    )


async def test_why_names_whom_a_job_waits_for_and_when_that_one_ends() -> None:
    _, lines = await a_chain().answers().why(Reader("ml"), "ml", "", "second")
    texts = {line.label: line.text for line in lines}
    assert texts["because"] == "WaitingForDependencies: Waits for gpujob first to succeed: it starts"
    assert texts["needs"] == "gpujob first has to succeed."
    assert texts["after"].startswith("first, which is expected to end in ")
    _, lines = await a_chain().answers().why(Reader("ml"), "ml", "", "never")
    assert any("Waits for gpujob none to succeed: it does not exist yet" in line.text for line in lines)


async def test_why_says_who_has_cancelled_a_job_and_what_to_do_first() -> None:
    def cancelled(status: Json, now: int) -> None:
        reason, message = "DeactivatedDueToDependencyNeverSatisfied", "job a can't succeed any more: it has failed"
        conditions.put(status.setdefault("conditions", []), names.EVICTED, True, reason, message, now=now)

    workload = a_workload(a_job(annotations=waits("job/a=Succeeded")), cancelled=cancelled)
    workload["spec"]["active"] = False
    view = workload_view(workload, {})
    assert why(view) == (
        "Gangline deactivated it: it waited in vain for other jobs (job a can't succeed any more: it has failed)"
    )
    assert to_do(view).startswith(
        "to correct or remove the annotation gangline.io/after of the job, then kubectl patch "
    )


async def test_the_expected_start_of_a_chain_is_that_of_the_jobs_before_it() -> None:
    answer = await jobs_of(a_chain(), namespace="ml", times=True)
    second, third = (answer[name]["expectedStart"]["p50"] - clusters.NOW for name in ("second", "third"))
    assert 1200 < second < 3600 and 3600 < third - second < 3 * 3600, "their forecasts are an hour and two"
    assert (answer["second"]["because"], answer["third"]["because"]) == ("after first ends", "after second ends")
    assert answer["never"]["expectedStart"] is None
    assert all(answer[name]["position"] is None for name in ("second", "third", "never")), "they are in no queue"


async def test_what_if_knows_whom_the_job_would_wait_for() -> None:
    job = clusters.gpujob("mine", 1, "1h")
    job["metadata"]["annotations"] = {names.AFTER: "gpujob/second=Running"}
    answer = await a_chain().answers().what_if(Everybody(), "ml", job)
    assert 1200 < answer["startsInSeconds"]["p50"] < 3600
    job["metadata"]["annotations"] = {names.AFTER: "gpujob/none=Running"}
    answer = await a_chain().answers().what_if(Everybody(), "ml", job)
    assert answer["startsInSeconds"] is None
    assert answer["obstacle"] == "Waits for gpujob none to run: it does not exist yet"
