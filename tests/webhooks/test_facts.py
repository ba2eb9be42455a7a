"""What rules ask of the cluster: answered once, remembered for a moment, and never in the way."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from tests.jobs.foreign import CASES, Case

from gangline import jobs
from gangline.api import admission, jobkinds, names
from gangline.api.admission import AdmissionFacts
from gangline.api.admission.multikueue import CONTROLLER
from gangline.api.jobkinds import others
from gangline.api.jobkinds.declaration import at, put
from gangline.api.read.configuration import ManagedJobs
from gangline.engine import model
from gangline.jobs.workload import name_for
from gangline.kube.client import NotFound, Resource, Unavailable
from gangline.kube.errors import Forbidden
from gangline.kube.resources import TRAINING_RUNTIMES
from gangline_webhooks import facts
from gangline_webhooks.facts import Facts

Json = dict[str, Any]


class Cluster:
    """Objects by plural and name; counts reads."""

    def __init__(self, **objects: Json) -> None:
        self.objects = objects
        self.reads: list[str] = []
        self.down = False

    async def get(self, resource: Resource, namespace: str | None, name: str, *, within: float | None = None) -> Json:
        assert within is not None
        assert within <= 1.0
        self.reads.append(f"{resource.plural}/{name}")
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable(0, "Refused", "nobody there")
        key = f"{resource.plural}_{name}"
        if "/" in f"{namespace or ''}{name}":  # a subresource, to which the webhooks have no right
            raise Forbidden(403, "Forbidden", "may not get it")
        if key not in self.objects:
            raise NotFound(404)
        return self.objects[key]

    async def create(
        self, resource: Resource, namespace: str | None, body: Json, *, within: float | None = None
    ) -> Json:
        raise NotFound(404)  # no operator answers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asks_for_queue(context: AdmissionFacts) -> bool:
    return context.local_queue_exists("team", "default")


def asks_for_owner(context: AdmissionFacts) -> bool:
    return context.owner_is_queued("team", reference("GPUJob", "a"), CHILD)


async def test_answers_are_remembered_and_forgotten():
    cluster, clock = Cluster(gpujobs_a=owner("GPUJob", "a", queue="main")), Clock()
    known = Facts(cluster, clock)
    assert await known.run(asks_for_owner) is True
    assert await known.run(asks_for_owner) is True
    assert len(cluster.reads) == 1
    clock.now += facts.YES_LASTS
    assert await known.run(asks_for_owner) is True
    assert len(cluster.reads) == 2


async def test_a_no_is_soon_doubted():
    cluster, clock = Cluster(), Clock()
    known = Facts(cluster, clock)
    assert await known.run(asks_for_owner) is False
    cluster.objects["gpujobs_a"] = owner("GPUJob", "a", queue="main")
    assert await known.run(asks_for_owner) is False
    clock.now += facts.NO_LASTS
    assert await known.run(asks_for_owner) is True


async def test_a_new_queue_counts_and_a_deleted_one_no_longer_does_after_a_moment():
    cluster, clock = Cluster(), Clock()
    known = Facts(cluster, clock)
    assert await known.run(asks_for_queue) is False
    cluster.objects["localqueues_default"] = {}
    clock.now += 0.3
    assert await known.run(asks_for_queue) is True
    assert await known.run(asks_for_queue) is True
    assert len(cluster.reads) == 2
    del cluster.objects["localqueues_default"]
    clock.now += 0.3
    assert await known.run(asks_for_queue) is False


async def test_what_is_missing_is_only_said_when_it_is_certain():
    cluster = a_cluster()
    facts = Facts(cluster)
    assert await facts.run(lambda context: context.local_queue_is_missing("ns", "none"))
    assert not await facts.run(lambda context: context.local_queue_is_missing("ns", "default"))
    assert await facts.run(lambda context: context.priority_class_is_missing("none"))
    assert not await Facts(None).run(lambda context: context.local_queue_is_missing("ns", "none"))
    reads = len(cluster.reads)
    assert not await facts.run(lambda context: context.local_queue_is_missing("ns", "default"))
    assert len(cluster.reads) == reads, "asked once in ten seconds"


async def test_rules_know_the_time_and_which_cluster_queue_is_missing() -> None:
    cluster = Cluster(clusterqueues_a={})
    facts = Facts(cluster, Clock(), wall=lambda: 1_700_000_000.5)
    assert await facts.run(lambda context: context.now) == 1_700_000_000_500
    for name, missing in (("a", False), ("b", True), ("", False)):
        assert await facts.run(lambda context, name=name: context.cluster_queue_is_missing(name)) is missing
    silent = Facts(None, Clock())
    assert not await silent.run(lambda context: context.cluster_queue_is_missing("b")), "only what is certain is said"


async def test_what_describes_a_job_is_read_anew_and_is_unknown_where_it_cannot_be_read():
    cluster, clock = Cluster(trainingruntimes_own={"spec": 1}), Clock()
    known = Facts(cluster, clock)

    async def seen(name: str) -> Json | None:
        return await known.run(lambda context: context.look((TRAINING_RUNTIMES, name)))

    assert await seen("team/own") == {"spec": 1}
    cluster.objects["trainingruntimes_own"] = {"spec": 2}
    assert await seen("team/own") == {"spec": 2}
    assert await seen("team/other") is None
    cluster.down = True
    reads = len(cluster.reads)
    assert await seen("team/own") is None
    assert await seen("team/own") is None
    assert len(cluster.reads) == reads + 1, "an API server that does not answer is not asked again at once"
    clock.now += facts.FAILURE_LASTS
    cluster.down = False
    assert await seen("team/own") == {"spec": 2}
    assert await Facts(None).run(lambda context: context.look((TRAINING_RUNTIMES, "team/own"))) is None


async def test_many_askers_make_one_read():
    cluster = Cluster(localqueues_default={})
    known = Facts(cluster)
    assert all(await asyncio.gather(*(known.run(asks_for_queue) for _ in range(50))))
    assert len(cluster.reads) == 1


async def test_a_rule_may_ask_several_things():
    known = Facts(Cluster(localqueues_default={}, workloadpriorityclasses_default={}))

    def rule(context: AdmissionFacts) -> tuple[bool, bool, bool]:
        return (
            context.local_queue_exists("team", "default"),
            context.priority_class_exists("default"),
            context.priority_class_exists("other"),
        )

    assert await known.run(rule) == (True, True, False)


def owner(kind: str, name: str, *, queue: str = "", parent: Json | None = None) -> Json:
    meta: Json = {"name": name, "uid": f"uid-{name}"}
    if queue:
        meta["labels"] = {names.QUEUE_NAME: queue}
    if parent:
        meta["ownerReferences"] = [parent]
    return {"kind": kind, "metadata": meta}


#: of a kind of which nothing is known but who owns it
CHILD: Json = {"kind": "Job", "metadata": {"name": "c"}}


def reference(kind: str, name: str, version: str = "gangline.io/v1alpha1") -> Json:
    return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}


@pytest.mark.parametrize(
    ("objects", "queued"),
    [
        ({"gpujobs_a": owner("GPUJob", "a", queue="main")}, True),
        ({"gpujobs_a": owner("GPUJob", "a")}, False),
        ({}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), "metadata": {"uid": "another"}}}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), "metadata": None}}, False),
        (
            {
                "gpujobs_a": owner("GPUJob", "a", parent=reference("JobSet", "b", "jobset.x-k8s.io/v1alpha2")),
                "jobsets_b": owner("JobSet", "b", queue="main"),
            },
            True,
        ),
        ({"gpujobs_a": owner("GPUJob", "a", parent=reference("GPUJob", "a"))}, False),  # its own ancestor
    ],
)
async def test_owners_are_followed_up(objects: dict[str, Json], queued: bool):
    cluster = Cluster(**objects)
    assert (
        await Facts(cluster).run(lambda context: context.owner_is_queued("team", reference("GPUJob", "a"), CHILD))
        is queued
    )
    assert len(cluster.reads) <= facts.MAX_DEPTH


def a_pod(**labels: str) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": labels}}


@pytest.mark.parametrize(
    ("pod", "queued"),
    [(a_pod(uid="u", other="x"), True), (a_pod(uid="w"), False), (a_pod(), False)],
)
async def test_a_pod_belongs_to_the_queued_job_that_selects_it(pod: Json, queued: bool):
    """Any user can write an owner reference: a pod that its Job does not select would run without quota."""
    job = {
        **owner("Job", "j", queue="main"),
        "apiVersion": "batch/v1",
        "spec": {"selector": {"matchLabels": {"uid": "u"}}},
    }
    asked = Facts(Cluster(jobs_j=job)).run(
        lambda context: context.owner_is_queued("team", reference("Job", "j", "batch/v1"), pod)
    )
    assert await asked is queued


async def test_a_pod_of_an_owner_that_is_queued_by_its_pods_waits_itself():
    stateful = {**owner("StatefulSet", "s", queue="main"), "apiVersion": "apps/v1"}
    about = ("team", reference("StatefulSet", "s", "apps/v1"))
    unlisted = Facts(Cluster(statefulsets_s=stateful))
    known = Facts(Cluster(statefulsets_s=stateful), managed=ManagedJobs(unlisted=frozenset()))
    for facts_of in (known, unlisted):
        for child in (a_pod(), CHILD):  # it makes no Jobs
            assert await facts_of.run(lambda context, child=child: context.owner_is_queued(*about, child)) is False


WAITING: Json = {"apiVersion": "gangline.io/v1alpha1", "spec": {"suspend": True}}
RUNS: Json = {"apiVersion": "gangline.io/v1alpha1", "spec": {"suspend": False}}
THE_WORKLOAD = f"workloads_{name_for('GPUJob', 'gangline.io', 'a', 'uid-a')}"


def conditioned(**conditions: str) -> Json:
    return {"status": {"conditions": [{"type": kind, "status": status} for kind, status in conditions.items()]}}


@pytest.mark.parametrize(
    ("objects", "waits"),
    [
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), **WAITING}}, True),
        ({"gpujobs_a": {**owner("GPUJob", "a"), **WAITING}}, True),
        ({"gpujobs_a": {**owner("GPUJob", "a"), **RUNS}}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), **RUNS}}, True),  # unsuspended, and not admitted
        (
            {"gpujobs_a": {**owner("GPUJob", "a", queue="main"), **RUNS}, THE_WORKLOAD: conditioned(Admitted="False")},
            True,
        ),
        (
            {"gpujobs_a": {**owner("GPUJob", "a", queue="main"), **RUNS}, THE_WORKLOAD: conditioned(Admitted="True")},
            False,
        ),
        ({}, False),
        ({"gpujobs_a": {**owner("GPUJob", "a", queue="main"), "metadata": {"uid": "another"}, **WAITING}}, False),
    ],
)
async def test_a_child_waits_with_the_owner_that_waits_for_quota(objects: dict[str, Json], waits: bool):
    asked = Facts(Cluster(**objects)).run(lambda context: context.owner_waits("team", reference("GPUJob", "a")))
    assert await asked is waits


async def test_whether_an_owner_waits_is_never_remembered():
    """Its controller creates children right after the start."""
    cluster = Cluster(gpujobs_a={**owner("GPUJob", "a"), **WAITING})
    known = Facts(cluster)
    assert await known.run(lambda context: context.owner_waits("team", reference("GPUJob", "a"))) is True
    cluster.objects["gpujobs_a"] = {**owner("GPUJob", "a"), **RUNS}
    assert await known.run(lambda context: context.owner_waits("team", reference("GPUJob", "a"))) is False
    cluster.down = True
    assert await known.run(lambda context: context.owner_waits("team", reference("GPUJob", "a"))) is False


async def test_an_executor_of_spark_belongs_to_its_driver_and_that_to_the_application():
    labels = {"sparkoperator.k8s.io/app-name": "pi"}
    meta: Json = {"name": "pi-driver", "uid": "uid-pi-driver", "labels": labels}
    meta["ownerReferences"] = [reference("SparkApplication", "pi", "sparkoperator.k8s.io/v1beta2")]
    driver = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    app = {**owner("SparkApplication", "pi", queue="main"), "apiVersion": "sparkoperator.k8s.io/v1beta2"}
    about = ("team", reference("Pod", "pi-driver", "v1"), a_pod())
    listed = ManagedJobs()
    known = Facts(Cluster(**{"sparkapplications_pi": app, "pods_pi-driver": driver}), managed=listed)
    assert await known.run(lambda context: context.owner_is_queued(*about)) is True
    alone = {**driver, "metadata": {**meta, "ownerReferences": []}}
    known = Facts(Cluster(**{"pods_pi-driver": alone, "sparkapplications_pi": app}), managed=listed)
    assert await known.run(lambda context: context.owner_is_queued(*about)) is False


@pytest.mark.parametrize("child", ["job", "pod"])
async def test_an_owner_of_an_external_kind_is_asked_for(child: str):
    box = others.kind("Box.v1.agents.example.com")
    known = Cluster(boxs_b={**owner("Box", "b", queue="main"), "apiVersion": "agents.example.com/v1"})
    about = ("team", reference("Box", "b", "agents.example.com/v1"), CHILD if child == "job" else a_pod())
    for external, queued in (([box], True), ([], False)):
        jobs.declare([], external)
        assert await Facts(known).run(lambda context: context.owner_is_queued(*about)) is queued


async def test_without_an_api_server_jobs_stay_as_they_are_and_nobody_waits():
    cluster, clock = Cluster(localqueues_default={}), Clock()
    known = Facts(cluster, clock)
    cluster.down = True
    assert await known.run(asks_for_queue) is False
    assert await known.run(lambda context: context.owner_is_queued("team", reference("GPUJob", "a"), CHILD)) is True
    assert len(cluster.reads) == 1  # the second question was not even tried
    cluster.down = False
    clock.now += facts.FAILURE_LASTS
    assert await known.run(asks_for_queue) is True


@pytest.mark.parametrize("looked", [True, False], ids=["an object", "a fact"])
async def test_a_question_that_the_api_server_refuses_costs_only_who_asks_it(
    looked: bool, caplog: pytest.LogCaptureFixture
):
    """A tenant chooses the names of owners. While the API server counts as not answering, nothing is known for anybody."""
    cluster, clock = Cluster(localqueues_default={}), Clock()
    known = Facts(cluster, clock)
    for number in range(10):
        if looked:
            assert await known.run(lambda context, n=number: context.look((TRAINING_RUNTIMES, f"team/{n}/x"))) is None
        else:
            await known.run(lambda c, n=number: c.owner_is_queued("team", reference("GPUJob", f"{n}/status"), CHILD))
        assert await known.run(asks_for_queue) is True
    assert len(caplog.records) == 1


async def test_no_namespace_no_question():
    cluster = Cluster()
    assert await Facts(cluster).run(lambda context: context.local_queue_exists("", "default")) is False
    assert cluster.reads == []


# --- which jobs are managed -------------------------------------------------------------------------------------------

SELECTED = model.LabelSelector((model.Expression("gpus", "In", ("managed",)),))
EVERY_JOB = ManagedJobs(without_queue=True, selector=SELECTED)


def a_job(queue: str = "", **meta: Any) -> Json:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": labels, **meta},
        "spec": {"template": {}},
    }


def a_cluster(**labels: str) -> Cluster:
    return Cluster(
        localqueues_default={}, workloadpriorityclasses_default={}, namespaces_team={"metadata": {"labels": labels}}
    )


async def defaulted(known: Facts, job: Json) -> tuple[bool, Json]:
    """Whether it is suspended, and its labels."""
    result = (await known.run(lambda context: admission.default(job, None, context))).obj
    return result["spec"].get("suspend", False), result["metadata"]["labels"]


@pytest.mark.parametrize("queue", ["", "main"])
async def test_only_jobs_in_selected_namespaces_are_held_and_given_a_queue(queue: str):
    inside, outside = a_cluster(gpus="managed"), a_cluster(gpus="free")
    held, labels = await defaulted(Facts(inside, managed=EVERY_JOB), a_job(queue))
    assert held
    assert labels == {"kueue.x-k8s.io/queue-name": queue or "default", "kueue.x-k8s.io/priority-class": "default"}
    assert await defaulted(Facts(outside, managed=EVERY_JOB), a_job(queue)) == (
        False,
        a_job(queue)["metadata"]["labels"],
    )


async def test_a_job_without_a_queue_is_held_where_all_jobs_are_managed():
    without_default = Cluster(namespaces_team={"metadata": {"labels": {"gpus": "managed"}}})
    assert await defaulted(Facts(without_default, managed=EVERY_JOB), a_job()) == (True, {})
    assert await defaulted(Facts(without_default, managed=ManagedJobs(selector=SELECTED)), a_job()) == (False, {})
    without_default.down = True  # the operator corrects it
    assert await defaulted(Facts(without_default, managed=EVERY_JOB), a_job()) == (False, {})


async def test_where_nothing_is_selected_no_namespace_is_read():
    cluster = a_cluster()
    held, labels = await defaulted(Facts(cluster, managed=ManagedJobs(priority_by_default=False)), a_job())
    assert held
    assert labels == {"kueue.x-k8s.io/queue-name": "default"}
    assert cluster.reads == ["localqueues/default"] * 2, "whether it is there, and whether its jobs run elsewhere"
    assert await defaulted(Facts(cluster, managed=ManagedJobs(queue_by_default=False)), a_job()) == (False, {})


async def test_the_selector_of_older_versions_leaves_queued_jobs_to_their_queue():
    older = ManagedJobs(without_queue=True, selector=SELECTED, selector_holds_for_queued=False)
    held, _ = await defaulted(Facts(a_cluster(gpus="free"), managed=older), a_job("main"))
    assert held
    held, _ = await defaulted(Facts(a_cluster(gpus="free"), managed=older), a_job())
    assert not held


async def test_an_owner_that_names_no_queue_is_managed_where_all_are():
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "u", "controller": True}
    child = a_job(ownerReferences=[owner])
    child["metadata"]["name"] = "set-workers-0"
    row = {"name": "workers", "replicas": 1, "template": {"spec": {}}}
    cluster = Cluster(
        jobsets_set={**owner, "metadata": {"uid": "u", "name": "set"}, "spec": {"replicatedJobs": [row]}},
        namespaces_team={"metadata": {"labels": {"gpus": "managed"}}},
    )
    assert (await defaulted(Facts(cluster, managed=EVERY_JOB), child))[0] is False
    unlisted = ManagedJobs(without_queue=True, selector=SELECTED, unlisted=frozenset({("jobset.x-k8s.io", "JobSet")}))
    assert (await defaulted(Facts(cluster, managed=unlisted), child))[0] is True


@pytest.mark.parametrize(
    ("given", "controller", "expected"),
    [
        (None, "kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/multikueue"),
        ("kubernetes.io/job-controller", "kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/multikueue"),
        ("example.com/own", "kueue.x-k8s.io/multikueue", "example.com/own"),
        (None, "kueue.x-k8s.io/provisioning-request", None),
    ],
)
async def test_a_job_of_a_queue_that_sends_them_elsewhere_is_managed_there(
    given: str | None, controller: str, expected: str | None
):
    strategy = {"admissionChecks": [{"name": "missing"}, {"name": "check"}]}
    cluster = Cluster(
        localqueues_lq={"spec": {"clusterQueue": "cq"}},
        clusterqueues_cq={"spec": {"admissionChecksStrategy": strategy}},
        admissionchecks_check={"spec": {"controllerName": controller}},
    )
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": {names.QUEUE_NAME: "lq"}},
        "spec": {"managedBy": given} if given else {},
    }
    result = await Facts(cluster).run(lambda context: admission.default(job, None, context))
    assert result.obj["spec"].get("managedBy") == expected


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_jobs_of_every_kind_that_names_its_controller_run_elsewhere(case: Case):
    strategy = {"admissionChecks": [{"name": "check"}]}
    cluster = Cluster(
        localqueues_main={"spec": {"clusterQueue": "cq"}},
        clusterqueues_cq={"spec": {"admissionChecksStrategy": strategy}},
        admissionchecks_check={"spec": {"controllerName": CONTROLLER}},
    )
    declared = jobkinds.declaration_of(case.job["apiVersion"].partition("/")[0], case.name)
    assert declared is not None
    if not declared.managed_by:
        pytest.skip("it has no such field")
    assert declared.controller
    for given, expected in ((None, CONTROLLER), (declared.controller, CONTROLLER), ("mine", "mine")):
        job = copy.deepcopy(case.job)
        if given is not None:
            put(job, declared.managed_by, given)
        result = await Facts(cluster).run(lambda context, job=job: admission.default(job, None, context))
        assert at(result.obj, declared.managed_by) == expected


async def test_a_rule_that_asks_without_end_is_stopped():
    asked: list[str] = []

    def endless(context: AdmissionFacts) -> bool:
        asked.append("")
        return all(context.priority_class_is_missing(f"c{number}") for number in range(10**6))

    with pytest.raises(RuntimeError, match="more than 16 facts"):
        await Facts(Cluster()).run(endless)
    assert len(asked) == facts.MAX_QUESTIONS + 1


# --- what the operator says of plans ----------------------------------------------------------------------------------

PLAN = {"kind": "Reservation", "metadata": {"name": "weekly"}, "spec": {"nodes": {}}}


NOT_HONOURED = ["Not honoured: x"]


class Operator(Cluster):
    """Answers questions about plans, after some time on its clock."""

    def __init__(self, clock: Clock, answer: Any = NOT_HONOURED, takes: float = 0.0) -> None:
        super().__init__(clusterqueues_a={})
        self.clock, self.answer, self.takes = clock, answer, takes
        self.asked: list[Json] = []

    async def create(
        self, resource: Resource, namespace: str | None, body: Json, *, within: float | None = None
    ) -> Json:
        assert (resource.plural, namespace) == ("planchecks", None) and within is not None and within <= 1.0
        self.asked.append(body["spec"])
        self.clock.now += self.takes
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is None:
            await asyncio.sleep(60)
        return {"status": {"warnings": self.answer}}


def asks_for_plan(context: AdmissionFacts) -> tuple[str, ...]:
    return context.warnings_of_plan(PLAN)


async def test_what_the_operator_says_of_a_plan_is_passed_on_within_bounds() -> None:
    clock = Clock()
    operator = Operator(clock)
    assert await Facts(operator, clock).run(asks_for_plan) == ("Not honoured: x",)
    assert operator.asked == [{"kind": "Reservation", "name": "weekly", "spec": {"nodes": {}}}]
    assert await Facts(None).run(asks_for_plan) == ()
    many = Operator(clock, [7, "", *("y" * 5000 for _ in range(50))])
    found = await Facts(many, clock).run(asks_for_plan)
    assert len(found) == facts.MAX_WARNINGS - 2 and {len(each) for each in found} == {facts.LONGEST_WARNING}
    assert await Facts(Operator(clock, "no list"), clock).run(asks_for_plan) == ()


@pytest.mark.parametrize(
    "trouble", [Unavailable(503, "Unavailable", "nobody leads"), NotFound(404), Forbidden(403, "Forbidden", "no"), None]
)
async def test_an_operator_that_does_not_answer_costs_a_warning_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception | None
) -> None:
    monkeypatch.setattr(facts, "READ_TIMEOUT", 0.05)
    clock = Clock()
    known = Facts(Operator(clock, trouble), clock)
    assert await known.run(asks_for_plan) == ()
    assert await known.run(lambda context: context.cluster_queue_is_missing("none")), "the API server is still asked"


async def test_a_slow_operator_gets_a_fifth_of_its_time_in_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = Clock(), list[float]()

    async def sleep(seconds: float, *_: Any) -> None:
        if seconds > 0:
            waited.append(seconds)
            clock.now += seconds

    monkeypatch.setattr(facts.asyncio, "sleep", sleep)
    operator = Operator(clock, takes=0.1)
    known = Facts(operator, clock)
    for _ in range(3):
        assert await known.run(asks_for_plan)
    assert waited == pytest.approx([0.4, 0.4])
    operator.takes = 0.9
    assert await known.run(asks_for_plan)
    assert await known.run(asks_for_plan) == (), "it would wait too long"
    assert len(operator.asked) == 4
    clock.now += 3.7
    assert await known.run(asks_for_plan)
