"""The stand-in for JobSet: what it makes of a JobSet, step by step, without a cluster."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest

from gangline.devcluster.jobset import children, controller
from gangline.devcluster.jobset.children import EXCLUSIVE, JOB_KEY, Child
from gangline.devcluster.jobset.reconcile import CreateChildJob, DeleteChildJob, PatchChildJob, Reconciled, reconcile

Json = dict[str, Any]
POOL = "cloud.google.com/gke-nodepool"


def job_set(*, suspend: bool = False, replicas: int = 2, exclusive: bool = False, **spec: Any) -> Json:
    container = {"name": "main", "image": "x", "resources": {"limits": {"google.com/tpu": 4}}}
    pods = {
        "metadata": {"labels": {"mine": "yes"}},
        "spec": {"nodeSelector": {"kind": "v6e"}, "containers": [container]},
    }
    group = {
        "name": "slice",
        "replicas": replicas,
        "template": {"spec": {"completions": 4, "parallelism": 4, "backoffLimit": 0, "template": pods}},
    }
    meta: Json = {"name": "jax", "namespace": "team", "uid": "uid", "resourceVersion": "1"}
    if exclusive:
        meta["annotations"] = {EXCLUSIVE: POOL}
    body = {"suspend": suspend, "replicatedJobs": [group], **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": body}


def anywhere(child: Child, other_than: Any) -> str:
    return next(name for name in ("pool0", "pool1", "pool2") if name not in other_than)


def nowhere(child: Child, other_than: Any) -> str:
    return ""


def turn(job: Json, jobs: list[Json], choose: Any = anywhere) -> Reconciled:
    return reconcile(job, jobs, {"jax"}, choose)


def made(outcome: Reconciled) -> list[Json]:
    """The Jobs that the outcome creates, as they come back."""
    created = [copy.deepcopy(step.body) for step in outcome.steps if isinstance(step, CreateChildJob)]
    for position, job in enumerate(created):
        job["metadata"] |= {"uid": f"u{position}", "resourceVersion": "1"}
    return created


def ended(job: Json, kind: str = "Complete", when: str = "2026-01-01T00:00:01Z") -> Json:
    return {**job, "status": {"conditions": [{"type": kind, "status": "True", "lastTransitionTime": when}]}}


def condition(outcome: Reconciled, kind: str) -> Json:
    return next((row for row in outcome.status.get("conditions", []) if row["type"] == kind), {})


# --- the child Jobs ---------------------------------------------------------------------------------------------------


def test_children_carry_the_marks_of_jobset():
    first, second = made(turn(job_set(), []))
    assert [first["metadata"]["name"], second["metadata"]["name"]] == ["jax-slice-0", "jax-slice-1"]
    marks = {
        "jobset.sigs.k8s.io/jobset-name": "jax",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
        "jobset.sigs.k8s.io/global-replicas": "2",
        "jobset.sigs.k8s.io/job-index": "1",
        "jobset.sigs.k8s.io/job-global-index": "1",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
    template = second["spec"]["template"]
    for metadata in (second["metadata"], template["metadata"]):
        for name, value in marks.items():
            assert metadata["labels"][name] == metadata["annotations"][name] == value
    assert len(second["metadata"]["labels"][JOB_KEY]) == 40
    assert first["metadata"]["labels"][JOB_KEY] != second["metadata"]["labels"][JOB_KEY]
    assert template["metadata"]["labels"]["mine"] == "yes"
    assert template["spec"]["subdomain"] == "jax"
    assert template["spec"]["restartPolicy"] == "OnFailure"
    assert second["spec"]["completionMode"] == "Indexed"
    assert second["metadata"]["ownerReferences"][0]["uid"] == "uid"


def test_a_headless_service_unless_it_is_not_wanted():
    [*_, service] = [step.body for step in reconcile(job_set(replicas=0), [], set(), anywhere).steps]  # type: ignore[union-attr]
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": "jax"}
    quiet = job_set(network={"enableDNSHostnames": False})
    assert {step.body["kind"] for step in reconcile(quiet, [], set(), anywhere).steps} == {"Job"}  # type: ignore[union-attr]
    assert "subdomain" not in made(turn(quiet, []))[0]["spec"]["template"]["spec"]


def test_a_suspended_jobset_has_suspended_jobs():
    outcome = turn(job_set(suspend=True), [])
    assert [job["spec"]["suspend"] for job in made(outcome)] == [True, True]
    assert condition(outcome, "Suspended")["status"] == "True"
    assert turn({**job_set(suspend=True), "status": outcome.status}, made(outcome)).steps == []


def test_suspending_suspends_what_runs_and_resuming_brings_the_new_template():
    running = made(turn(job_set(), []))
    outcome = turn(job_set(suspend=True), running)
    assert [step.body for step in outcome.steps] == [{"spec": {"suspend": True}}] * 2  # type: ignore[union-attr]

    held = [{**job, "spec": {**job["spec"], "suspend": True}, "status": {"active": 4}} for job in running]
    later = job_set()
    pods = later["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    pods["spec"] |= {"nodeSelector": {"pool": "b"}, "tolerations": [{"key": "tpu", "operator": "Exists"}]}
    assert turn(later, held).steps == [], "pods of the last run are not gone"
    for job in held:
        job["status"] = {"startTime": "2026-01-01T00:00:00Z"}
    steps = turn(later, held).steps
    assert [(step.body, step.subresource) for step in steps if isinstance(step, PatchChildJob)] == [
        ({"status": {"startTime": None}}, "status")
    ] * 2
    for job in held:
        job["status"] = {}
    held[0]["spec"]["template"]["metadata"]["labels"]["job-name"] = "jax-slice-0"
    [first, _] = [step for step in turn(later, held).steps if isinstance(step, PatchChildJob)]
    assert first.body["spec"]["suspend"] is False
    assert first.body["spec"]["template"]["spec"] == {
        "nodeSelector": {"kind": "v6e", "pool": "b"},  # JobSet adds, and takes nothing away
        "tolerations": [{"key": "tpu", "operator": "Exists"}],
    }
    assert first.body["spec"]["template"]["metadata"]["labels"]["job-name"] == "jax-slice-0"


# --- how it ends ------------------------------------------------------------------------------------------------------


def test_status_counts_jobs():
    jobs = made(turn(job_set(replicas=3), []))
    jobs[0] |= {"status": {"active": 4, "ready": 3, "succeeded": 1}}
    jobs[1] |= {"status": {"active": 4, "ready": 3}}
    jobs[2] = ended(jobs[2])
    [row] = turn(job_set(replicas=3), jobs).status["replicatedJobsStatus"]
    assert row == {"name": "slice", "ready": 1, "succeeded": 1, "failed": 0, "active": 2, "suspended": 0}


def test_complete_when_all_jobs_are():
    jobs = made(turn(job_set(), []))
    assert condition(turn(job_set(), [ended(jobs[0]), jobs[1]]), "Completed") == {}
    outcome = turn(job_set(), [ended(job) for job in jobs])
    assert condition(outcome, "Completed")["message"] == "jobset completed successfully"
    assert outcome.status["terminalState"] == "Completed"


def test_one_job_is_enough_where_the_policy_says_so():
    relaxed = job_set(successPolicy={"operator": "Any", "targetReplicatedJobs": ["slice"]})
    jobs = made(turn(relaxed, []))
    done = turn(relaxed, [ended(jobs[0]), jobs[1]])
    assert condition(done, "Completed")["status"] == "True"
    assert turn({**relaxed, "status": done.status}, [ended(jobs[0]), jobs[1]]).steps == [DeleteChildJob(jobs[1])]


def test_without_a_policy_a_failed_job_is_the_end():
    jobs = made(turn(job_set(), []))
    late, early = ended(jobs[0], "Failed", "2026-01-01T00:00:09Z"), ended(jobs[1], "Failed")
    outcome = turn(job_set(), [late, early])
    assert outcome.status["terminalState"] == "Failed"
    assert condition(outcome, "Failed")["message"] == (
        "jobset failed due to one or more job failures (first failed job: jax-slice-1)"
    )


@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
def test_a_failed_job_restarts_all_until_the_restarts_are_used_up(strategy: str):
    policy = {"failurePolicy": {"maxRestarts": 1, "restartStrategy": strategy}}
    first = made(turn(job_set(**policy), []))
    outcome = turn(job_set(**policy), [ended(first[0], "Failed"), first[1]])
    assert (outcome.status["restarts"], outcome.status["restartsCountTowardsMax"]) == (1, 1)

    again = {**job_set(**policy), "status": outcome.status}
    steps = turn(again, first).steps
    assert [step.job["metadata"]["name"] for step in steps if isinstance(step, DeleteChildJob)] == [
        "jax-slice-0",
        "jax-slice-1",
    ]
    assert not [step for step in steps if isinstance(step, CreateChildJob)], "their names are still in use"
    leaving = {**first[1], "metadata": {**first[1]["metadata"], "deletionTimestamp": "2026-01-01T00:00:02Z"}}
    created = made(turn(again, [leaving]))
    assert [job["metadata"]["name"] for job in created] == ([] if strategy == "BlockingRecreate" else ["jax-slice-0"])
    second = made(turn(again, []))
    assert second[0]["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"

    last = turn(again, [ended(second[0], "Failed"), second[1]])
    assert condition(last, "Failed")["reason"] == "ReachedMaxRestarts"


# --- exclusive topology -----------------------------------------------------------------------------------------------


def node(name: str, pool: str, *, ready: bool = True, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {POOL: pool, "kind": "v6e"}},
        "spec": spec,
        "status": {
            "allocatable": {"google.com/tpu": "4"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def nodes(**pools: int) -> list[Json]:
    return [node(f"{pool}-{index}", pool) for pool, count in pools.items() for index in range(count)]


def pod(name: str, where: str, key: str = "", tpus: int = 4, phase: str = "Running") -> Json:
    container = {"name": "main", "resources": {"requests": {"google.com/tpu": str(tpus)}}}
    labels = {JOB_KEY: key} if key else {}
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels},
        "spec": {"nodeName": where, "containers": [container]},
        "status": {"phase": phase},
    }


CHILD = next(children.wanted(job_set(exclusive=True)))


def test_each_job_gets_a_domain_of_its_own():
    first, second = made(turn(job_set(exclusive=True), []))
    selectors = [job["spec"]["template"]["spec"]["nodeSelector"] for job in (first, second)]
    assert selectors == [{"kind": "v6e", POOL: "pool0"}, {"kind": "v6e", POOL: "pool1"}]
    assert first["metadata"]["annotations"][EXCLUSIVE] == POOL
    assert EXCLUSIVE not in first["metadata"]["labels"]


def test_without_a_free_domain_a_job_waits_suspended():
    outcome = turn(job_set(exclusive=True), [], nowhere)
    assert outcome.waits
    waiting = made(outcome)
    assert [job["spec"]["suspend"] for job in waiting] == [True, True]
    assert turn(job_set(exclusive=True), waiting, nowhere).steps == []
    resumed = turn(job_set(exclusive=True), waiting)
    assert not resumed.waits
    assert [step.body["spec"]["template"]["spec"]["nodeSelector"][POOL] for step in resumed.steps] == ["pool0", "pool1"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (node("pool0-3", "pool0", ready=False), "not ready"),
        (node("pool0-3", "pool0", unschedulable=True), "cordoned"),
        (node("pool0-3", "pool0", taints=[{"key": "x", "effect": "NoSchedule"}]), "tainted"),
        (node("other", "pool9"), "too small"),
    ],
)
def test_a_domain_must_hold_all_pods_on_healthy_nodes(broken: Json, why: str):
    healthy = nodes(pool0=3, pool1=4)
    assert controller.choose(CHILD, [*healthy, broken], [], []) == "pool1", why
    assert controller.choose(CHILD, [*healthy, node("pool0-3", "pool0")], [], []) == "pool0"
    assert controller.choose(CHILD, nodes(pool0=3), [], []) == ""


def test_a_domain_with_pods_of_another_job_is_taken_until_they_are_gone():
    pools = nodes(pool0=5, pool1=4)
    assert controller.choose(CHILD, pools, [pod("a", "pool0-4", "other")], []) == "pool1"
    assert controller.choose(CHILD, pools, [pod("a", "pool0-4", "other", phase="Succeeded")], []) == "pool0"
    assert controller.choose(CHILD, pools, [pod("a", "pool0-4", CHILD.key)], []) == "pool0"
    assert controller.choose(CHILD, pools, [pod("a", "pool0-0"), pod("b", "pool0-1")], []) == "pool1", "no room"


def test_a_domain_is_taken_by_a_job_whose_pods_do_not_exist_yet():
    pools = nodes(pool0=4, pool1=4)
    theirs = CHILD.job(suspend=False, domain="pool0")
    assert controller.choose(CHILD, pools, [], [theirs]) == "pool0", "its own"
    theirs["metadata"]["labels"][JOB_KEY] = "other"
    assert controller.choose(CHILD, pools, [], [theirs]) == "pool1"
    assert controller.choose(CHILD, pools, [], [ended(theirs)]) == "pool0"
    theirs["spec"]["suspend"] = True
    assert controller.choose(CHILD, pools, [], [theirs]) == "pool0"
    assert controller.choose(CHILD, pools, [], [{**theirs, "status": {"active": 1}}]) == "pool1"


# --- the recipe -------------------------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[2] / "examples" / "gke-hotswap"


@pytest.mark.parametrize(
    ("files", "digest"),
    [
        (["kueue/kueue.yaml"], "e2c533c1fb7621cb"),
        (["hotswap/hotswap.yaml"], "d086f769e680cbca"),
        (
            ["10-priority-classes.yaml", "20-queues.yaml", "30-low-jax-trillium.yaml", "40-high-jax-trillium.yaml"],
            "04c0fa949faa7762",
        ),
    ],
)
def test_the_recipes_manifests_are_as_published(files: list[str], digest: str):
    text = "---\n".join((EXAMPLE / name).read_text() for name in files)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest
