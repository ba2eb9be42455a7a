"""Jobs that name a queue and are not queued: they are shown, with the reason, wherever people look for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import GPU, NOW
from tests.objects import PodObject, WorkloadObject

from gangline.api.jobkinds.others import others
from gangline.api.read import conditions
from gangline.api.read.conditions import timestamp
from gangline.control.answers.desk import Wish
from gangline.control.answers.explanation import needs
from gangline.control.answers.refusals import NoSuchJobError
from gangline.control.answers.sight import Everybody, Sight
from gangline.control.answers.workloads import words
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, JobState, workload_view
from gangline.control.feed import watched_kinds
from gangline.control.writes.events import Warned
from gangline.kube import resources as kube

Json = dict[str, Any]
DEPLOYMENTS = next(each for each in others(()) if each.kind == "Deployment")
QUEUED = {"kueue.x-k8s.io/queue-name": "a"}


def meta(name: str, labels: Json | None = None, **more: Any) -> Json:
    at = timestamp((NOW - 180) * 1000)
    return {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "labels": QUEUED if labels is None else labels,
        "creationTimestamp": at,
        **more,
    }


def template(gpus: int) -> Json:
    return {"spec": {"containers": [{"name": "main", "resources": {"requests": {GPU: gpus}}}]}}


def daemon_set(name: str) -> clusters.Entry:
    resource = next(each for each in others(()) if each.kind == "DaemonSet")
    return resource, {"kind": "DaemonSet", "metadata": meta(name), "spec": {"template": template(1)}}


def deployment(name: str, **more: Any) -> clusters.Entry:
    body = {"kind": "Deployment", "metadata": meta(name, **more), "spec": {"replicas": 2, "template": template(4)}}
    return DEPLOYMENTS, body


def job(name: str, labels: Json | None = None, **spec: Any) -> clusters.Entry:
    made = {"parallelism": 1, "completions": 1, "suspend": True, "template": template(1), **spec}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(name, labels), "spec": made, "status": {}}
    return kube.JOBS, body


def here(*entries: clusters.Entry) -> Any:
    return clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32), *entries).answers()


async def shown(answers: Any, **wish: Any) -> dict[str, Json]:
    return {item["jobName"]: item for item in (await answers.jobs(Everybody(), Wish("ml", **wish))).items}


async def why(answers: Any, name: str, kind: str = "") -> dict[str, str]:
    _, lines = await answers.why(Everybody(), "ml", kind, name)
    return {line.label: line.text for line in lines}


async def test_a_deployment_with_a_queue_label_is_shown_as_not_managed() -> None:
    answers = here(deployment("serving"))
    item = (await shown(answers))["serving"]
    assert (item["state"], item["gpus"], item["pods"], item["clusterQueue"]) == ("Not managed", 8, 2, "a")
    assert item["why"].startswith('KindNotEnabled: Deployment is not managed: "deployment" is not listed in')
    lines = await why(answers, "serving")
    assert lines["state"] == "Not managed for 3m in ClusterQueue a" and "is not listed" in lines["because"]
    assert (await why(answers, "serving", "deployment"))["because"] == lines["because"]
    job = await answers.job(Everybody(), "ml", "", "serving")
    assert job["state"] == "Not managed"
    assert "serving" in await shown(answers, cluster_queue="a")
    assert "serving" not in {i["jobName"] for i in (await answers.jobs(Everybody(), Wish("other"))).items}


async def test_a_daemon_set_with_a_queue_label_is_shown_as_of_a_kind_that_is_not_queued() -> None:
    answers = here(daemon_set("agent"))
    item = (await shown(answers))["agent"]
    assert item["why"] == "KindNotSupported: Gangline does not queue a DaemonSet: its pods start without quota"
    assert "Job, a JobSet or a GPUJob" in (await why(answers, "agent"))["needs"]


async def test_what_a_shown_object_has_made_is_not_shown_again() -> None:
    owned = {"ownerReferences": [{"kind": "Deployment", "name": "serving", "uid": "uid-serving", "controller": True}]}
    resource = next(each for each in others(()) if each.kind == "ReplicaSet")
    made = {"kind": "ReplicaSet", "metadata": meta("serving-1a", **owned), "spec": {"replicas": 2}}
    assert list(await shown(here(deployment("serving"), (resource, made)))) == ["serving"]


async def test_of_another_team_it_is_reduced_like_any_job() -> None:
    class Stranger:
        async def sight(self, namespaces: Any, queues: Any) -> Sight:
            return Sight()

    (item,) = (await here(deployment("serving")).jobs(Stranger(), Wish("ml"))).items
    assert item["hidden"] and item["message"] == "" and item["gpus"] == 8 and "serving" not in str(item)


async def test_a_kind_that_is_not_enabled_says_which_name_is_not_listed() -> None:
    world = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32))
    ray = next(each for each in watched_kinds.JOB_KINDS if each.kind == "RayJob")
    body = {"apiVersion": ray.api_version, "kind": "RayJob", "metadata": meta("ray"), "spec": {}, "status": {}}
    body["metadata"]["resourceVersion"] = "9"
    world.mirror.upsert(ray, body)
    assert not world.mirror.managed.kind(ray.api_version, "RayJob")
    item = (await shown(world.answers()))["ray"]
    assert item["state"] == "Not managed" and item["reason"] == "KindNotEnabled"
    assert '"ray.io/rayjob" is not listed in integrations.frameworks' in item["message"]


async def test_a_pod_that_names_a_queue_where_pods_are_not_queued() -> None:
    world = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32))
    spec = {"nodeName": "n1", **template(1)["spec"]}
    world.pods.upsert(PodObject({"metadata": meta("alone"), "spec": spec, "status": {"phase": "Running"}}))
    world.pods.upsert(PodObject({"metadata": meta("other", {}), "spec": spec, "status": {"phase": "Running"}}))
    item = await shown(world.answers())
    assert list(item) == ["alone"] and item["alone"]["jobKind"] == "Pod"
    assert (await why(world.answers(), "alone", "pod"))["because"].startswith("KindNotEnabled: Pod is not managed")
    assert '"pod" is not listed in integrations.frameworks' in item["alone"]["message"]


async def test_a_missing_priority_class_is_told_as_what_keeps_the_job_from_its_queue() -> None:
    labels = QUEUED | {"kueue.x-k8s.io/priority-class": "gold"}
    answers = here(job("early", labels))
    item = (await shown(answers))["early"]
    assert (item["state"], item["reason"]) == ("Not queued", "CannotBeQueued")
    assert "gold" in item["message"] and "create what is missing" in (await why(answers, "early"))["needs"]


async def test_a_job_with_too_many_fields_says_so() -> None:
    answers = here(job("large", template={**template(1), "unknown": [[] for _ in range(40_000)]}))
    item = (await shown(answers))["large"]
    said = "spec.template.unknown: the object has more than 30,000 fields and list entries"
    assert item["why"].endswith(said)
    assert said in (await why(answers, "large"))["because"]


async def test_a_gpujob_without_a_queue_is_said_to_run_outside_of_any() -> None:
    body = clusters.gpujob("free", 1, "1h")
    body["metadata"] |= {"labels": {}, "uid": "uid-free"}
    answers = here((kube.GPU_JOBS, body))
    item = (await shown(answers))["free"]
    assert (item["state"], item["reason"], item["gpus"]) == ("Not managed", "NoQueue", 8)
    assert "Gangline runs it at once, outside any queue" in item["message"]
    lines = await why(answers, "free")
    assert lines["needs"].startswith("kubectl label gpujob free -n ml kueue.x-k8s.io/queue-name=")


async def test_a_job_without_a_queue_is_explained_and_not_listed() -> None:
    answers = here(job("free", {}))
    assert await shown(answers) == {}
    assert "names no queue" in (await why(answers, "free"))["because"]
    ended = {"conditions": [{"type": "Complete", "status": "True"}]}
    resource, body = job("ended", {})
    with pytest.raises(NoSuchJobError):
        await why(here((resource, body | {"status": ended})), "ended")


async def test_a_job_whose_workload_is_about_to_be_made_waits_for_it() -> None:
    item = (await shown(here(job("new"))))["new"]
    assert (item["state"], item["reason"]) == (JobState.NOT_QUEUED, "NoWorkloadYet")


def warning_of(answers: Any, uid: str, reason: str, note: str, ago: float = 12.0) -> Any:
    """The answers of an operator that recorded this event."""
    answers.source = replace(answers.source, warnings=lambda: {uid: [Warned(reason, note, NOW - ago)]})
    return answers


async def test_what_else_keeps_a_job_without_a_workload_is_what_the_operators_events_say() -> None:
    note = 'Workload job-new: admission webhook "deny.example.com" denied the request'
    answers = warning_of(here(job("new")), "uid-new", "WriteRefused", note)
    item = (await shown(answers))["new"]
    assert (item["state"], item["reason"], item["message"]) == (JobState.NOT_QUEUED, "WriteRefused", note)
    assert (await why(answers, "new"))["because"] == f"WriteRefused: {note}"
    other = warning_of(here(job("new")), "uid-other", "WriteRefused", note)
    assert (await shown(other))["new"]["reason"] == "NoWorkloadYet"


async def test_an_admitted_job_that_another_controller_keeps_from_starting_says_so() -> None:
    world = clusters.busy()
    key, raw = next(
        (key, raw)
        for key, raw in world.mirror.objects[kube.WORKLOADS].items()
        if conditions.is_true(raw["status"].get("conditions"), "Admitted")
        and not conditions.is_true(raw["status"].get("conditions"), "Finished")
    )
    raw["status"]["conditions"] = [row for row in raw["status"]["conditions"] if row["type"] != "PodsReady"]
    answers, name = world.answers(), key.partition("/")[2]
    uid, note = raw["metadata"]["uid"], "Pod runs-0: the removal of its scheduling gate is refused by another webhook"
    lines = await why(warning_of(answers, uid, "WriteRefused", note), name, "workload")
    assert lines["state"].startswith("Starting") and note in lines["because"] and note in lines["warning"]
    assert lines["warning"].startswith("WriteRefused, 12s ago: ")
    before_that = await why(warning_of(answers, uid, "WriteRefused", note, ago=10**6), name, "workload")
    assert note not in before_that["because"], "what was said before it was admitted is over"


async def test_a_serving_group_that_waits_for_replacements_says_so() -> None:
    message = "Waiting for the pods of the group that are missing"
    row = {"type": "WaitingForReplacementPods", "status": "True", "reason": "PodsMissing", "message": message}
    rows = [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}, row]
    metadata = {"name": "w", "namespace": "ml", "uid": "w"}
    raw = WorkloadObject({"metadata": metadata, "spec": {"podSets": []}, "status": {"conditions": rows}})
    view = workload_view(raw, {})
    assert view.state is JobState.STARTING
    assert words.why(view) == f"admitted; WaitingForReplacementPods: {message}"


async def test_a_held_job_that_names_no_queue_is_told_to_name_one() -> None:
    raw = {"metadata": {"name": "w", "namespace": "ml", "uid": "w"}, "spec": {"podSets": []}, "status": {}}
    assert needs(workload_view(WorkloadObject(raw), {}), AnswerSnapshot((), ())).startswith(
        "to name a LocalQueue of namespace ml"
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Deactivated", "a user deactivated it: spec.active of its Workload is false"),
        (
            "DeactivatedDueToRequeuingLimitExceeded",
            "Gangline deactivated it: its pods were not ready in time too often",
        ),
    ],
)
async def test_an_inactive_job_says_who_did_it_and_how_it_is_queued_again(reason: str, words: str) -> None:
    entries = clusters.submitted("off", 1, "1h", ago=60)
    workload = entries[1][1]
    workload["spec"]["active"] = False
    row = {"type": "Evicted", "status": "True", "reason": reason, "message": ""}
    workload["status"] = {"conditions": [row | {"lastTransitionTime": timestamp((NOW - 60) * 1000)}]}
    lines = await why(here(*entries), "off")
    assert lines["because"].startswith(words)
    assert lines["needs"].startswith(f"kubectl patch workload {workload['metadata']['name']} -n ml --type merge")


async def test_a_hint_that_is_no_duration_is_told_of_where_people_look() -> None:
    entries = clusters.submitted("mine", 1, "1h", ago=60)
    entries[0][1]["metadata"]["annotations"] = {"gangline.io/expected-runtime": "banana"}
    entries[1][1]["metadata"]["ownerReferences"][0]["uid"] = entries[0][1]["metadata"]["uid"]
    answers = here(*entries)
    assert "'banana' is ignored" in (await why(answers, "mine"))["warning"]
    assert "'banana' is ignored" in (await shown(answers))["mine"]["warnings"][0]
