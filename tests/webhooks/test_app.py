"""The HTTP face: reviews in, reviews out, and a plain sentence for everything else."""

from __future__ import annotations

import asyncio
import base64
import copy
import uuid
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from tests.builders.written import Json, cluster_queue, gpujob, job, recipe
from tests.cluster.serving import deployment, stateful_set
from tests.webhooks.patching import apply

from gangline.api import names
from gangline.api.admission import DefaultedObject
from gangline.api.read.configuration import ManagedJobs
from gangline.api.read.configuration.managed_jobs import FRAMEWORKS
from gangline.kube.client import NotFound, Resource
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(Facts(None), Readiness()))


def review(obj: Json | None, old: Json | None = None, **more: Any) -> Json:
    request = {
        "uid": str(uuid.uuid4()),
        "operation": "UPDATE" if old else "CREATE",
        "object": obj,
        "oldObject": old,
        "namespace": "team",
        **more,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def post(client: TestClient, path: str, sent: Json) -> Json:
    answer = client.post(path, json=sent)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["apiVersion"] == sent["apiVersion"]
    assert body["kind"] == sent["kind"]
    assert body["response"]["uid"] == sent["request"]["uid"]
    return body["response"]


def test_a_queued_job_comes_back_with_a_patch(client: TestClient):
    obj = job(annotations={names.QUEUE_NAME: "main"})
    response = post(client, "/mutate", review(obj))
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    assert "warnings" not in response
    operations = orjson.loads(base64.b64decode(response["patch"]))
    assert operations == [
        {"op": "add", "path": "/metadata/labels", "value": {names.QUEUE_NAME: "main"}},
        {"op": "add", "path": "/spec/suspend", "value": True},
    ]


def test_nothing_to_do_is_no_patch(client: TestClient):
    response = post(client, "/mutate", review(job()))
    assert response == {"uid": response["uid"], "allowed": True}


def test_the_recipe_comes_back_with_a_warning(client: TestClient):
    response = post(client, "/mutate", review(recipe()))
    [warning] = response["warnings"]
    assert warning.startswith("legacy ClusterQueue form completed: ")
    completed = apply(recipe(), orjson.loads(base64.b64decode(response["patch"])))
    assert post(client, "/validate", review(completed))["allowed"] is True


def test_a_refusal_names_the_fields(client: TestClient):
    queue = cluster_queue()
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "-1"
    queue["spec"]["namespaceSelector"] = {"matchLabels": {"a": "b c"}}
    response = post(client, "/validate", review(queue))
    assert response["allowed"] is False
    status = response["status"]
    path = "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"].startswith(f'{path}: Invalid value: "-1": must be greater than or equal to 0; spec.names')
    details = status["details"]
    assert (details["group"], details["kind"], details["name"]) == (names.GROUP, "ClusterQueue", "team")
    assert details["causes"][0] == {
        "reason": "FieldValueInvalid",
        "field": path,
        "message": 'Invalid value: "-1": must be greater than or equal to 0',
    }
    assert details["causes"][1]["field"] == "spec.namespaceSelector.matchLabels"


def test_a_thousand_faults_make_a_readable_answer(client: TestClient):
    groups = [{"coveredResources": ["cpu"] * 1000, "flavors": []}]
    status = post(client, "/validate", review(cluster_queue(resourceGroups=groups)))["status"]
    assert len(status["details"]["causes"]) == 32
    assert status["message"].endswith("and 968 more")


def test_half_a_character_in_the_json_of_an_annotation_is_refused_in_words(client: TestClient):
    """`json` reads "\\ud800", and no answer can say it."""
    obj = job(queue="main")
    layers = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
    obj["spec"]["template"]["metadata"] = {"annotations": {layers: '[{"topology": "\\ud800", "size": 8}]'}}
    response = post(client, "/validate", review(obj))
    assert response["status"]["code"] == 403
    assert layers in response["status"]["message"]


def test_an_answer_that_can_not_be_written_costs_that_object_alone():
    class Unspeakable(Facts):
        async def run(self, ask: object) -> Any:  # pyright: ignore
            return DefaultedObject(job(), ("\ud800",))

    client = TestClient(create_app(Unspeakable(None), Readiness()))
    assert post(client, "/mutate", review(job()))["status"]["reason"] == "InternalError"


def test_updates_are_judged_by_what_was(client: TestClient):
    old, new = (job(queue=queue, suspend=False) for queue in ("main", "other"))
    response = post(client, "/validate", review(new, old))
    assert response["status"]["details"]["causes"][0]["field"] == f"metadata.labels[{names.QUEUE_NAME}]"
    assert post(client, "/validate", review(new))["allowed"] is True


def test_what_only_the_job_kind_knows_is_said_at_creation(client: TestClient):
    long = gpujob()
    long["metadata"]["name"] = "a" * 60
    response = post(client, "/validate", review(long))
    [cause] = response["status"]["details"]["causes"]
    assert cause["field"] == "metadata.name"
    assert "63 characters" in cause["message"]
    assert post(client, "/validate", review(long, long))["allowed"] is True  # it is there: let it be changed and go
    grown = copy.deepcopy(long)
    grown["spec"]["suspend"] = True
    assert post(client, "/validate", review(grown, long))["allowed"] is False


REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is not JSON"),
        (b"{", "the body is not JSON"),
        (b"[]", "the body is no AdmissionReview"),
        (b"null", "the body is no AdmissionReview"),
        (orjson.dumps({**REVIEW, "apiVersion": "admission.k8s.io/v1beta1"}), "apiVersion must be"),
        (orjson.dumps(REVIEW), "request is missing"),
        (orjson.dumps({**REVIEW, "request": {}}), "request.uid is missing"),
        (orjson.dumps(review(job(), operation="DELETE")), 'must be CREATE or UPDATE, is "DELETE"'),
        (orjson.dumps(review(None)), "request.object is missing"),
        (orjson.dumps(review(job(), operation="UPDATE")), "request.oldObject is missing"),
        (orjson.dumps(review({"apiVersion": "v1", "kind": "Secret"})), "no admission rules for Secret of 'v1'"),
    ],
)
def test_what_is_no_review_gets_a_sentence(client: TestClient, path: str, body: bytes, said: str):
    answer = client.post(path, content=body)
    assert answer.status_code == 400
    assert said in answer.text
    assert len(answer.text.splitlines()) == 1


def test_too_large_a_body_is_not_read(client: TestClient):
    answer = client.post("/mutate", content=b" " * (17 * 2**20))
    assert answer.status_code == 413


def test_a_bug_shows_no_stack_trace():
    def broken(*_: object) -> Json:
        raise RuntimeError("secret detail")

    class BrokenFacts(Facts):
        run = broken  # pyright: ignore

    client = TestClient(create_app(BrokenFacts(None), Readiness()))
    response = post(client, "/mutate", review(job()))
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (500, "InternalError")
    assert "RuntimeError" in response["status"]["message"] and "secret" not in response["status"]["message"]


def test_probes():
    readiness = Readiness(["certificates", "registration"])
    client = TestClient(create_app(Facts(None), readiness))
    assert client.get("/healthz").text == "ok"
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "waiting for certificates, registration\n")
    readiness.done("certificates")
    readiness.done("registration")
    assert client.get("/readyz").status_code == 200
    assert "connection" not in client.get("/readyz").headers
    readiness.ending = True
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text, answer.headers["connection"]) == (503, "ending\n", "close")
    assert client.post("/validate", json=review(job())).headers["connection"] == "close"


# --- conversion -------------------------------------------------------------------------------------------------------


def conversion(*objects: Any, to: str = names.V1BETA2) -> Json:
    request = {"uid": "u", "desiredAPIVersion": to, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def test_objects_are_converted_in_order(client: TestClient):
    sent = [cluster_queue("v1beta1", cohort="a"), cluster_queue("v1beta1", cohort="b")]
    response = post(client, "/convert", conversion(*sent))
    assert response["result"] == {"status": "Success"}
    assert [queue["spec"]["cohortName"] for queue in response["convertedObjects"]] == ["a", "b"]
    back = post(client, "/convert", conversion(*response["convertedObjects"], to=names.V1BETA1))
    assert back["convertedObjects"] == sent


def test_an_object_that_can_not_be_converted_is_named(client: TestClient):
    wrong = {"apiVersion": "example.com/v1", "kind": "Cat", "metadata": {"name": "tom"}}
    response = post(client, "/convert", conversion(cluster_queue("v1beta1"), wrong))
    assert response["convertedObjects"] == []
    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith("Cat tom: can't be converted to kueue.x-k8s.io/v1beta2: ")


def test_a_scribbled_note_fails_no_list(client: TestClient):
    annotations = {names.V1BETA1_FIELDS: '{"flavors": ["\\ud800"]}'}
    queue = {"apiVersion": names.V1BETA2, "kind": "LocalQueue", "metadata": {"name": "q", "annotations": annotations}}
    response = post(client, "/convert", conversion(queue, to=names.V1BETA1))
    assert "status" not in response["convertedObjects"][0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "Cat"}, "no ConversionReview"),
        ({"apiVersion": "v1"}, "apiVersion must be"),
        ({"request": None}, "request is missing"),
        ({"request": {}}, "request.uid is missing"),
        ({"request": {"uid": "u"}}, "request.desiredAPIVersion is missing"),
        ({"request": {"uid": "u", "desiredAPIVersion": "v"}}, "request.objects is missing"),
    ],
)
def test_what_is_no_conversion_gets_a_sentence(client: TestClient, change: Json, said: str):
    answer = client.post("/convert", json={**conversion(), **change})
    assert answer.status_code == 400
    assert said in answer.text


def test_a_ray_job_in_an_existing_cluster_passes(client: TestClient):
    body = {"suspend": False, "entrypoint": "x", "clusterSelector": {"ray.io/cluster": "shared"}}
    labels = {names.QUEUE_NAME: "main"}
    obj = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "a", "labels": labels}, "spec": body}
    assert post(client, "/validate", review(obj))["allowed"] is True


def test_a_kind_that_is_not_listed_is_left_alone():
    unlisted = ManagedJobs(unlisted=frozenset({("batch", "Job")}))
    client = TestClient(create_app(Facts(None, managed=unlisted), Readiness()))
    obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "NOT a name"}},
        "spec": {},
    }
    request = {"uid": "u", "operation": "CREATE", "object": obj}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answers = [client.post(path, json=body).json()["response"] for path in ("/mutate", "/validate")]
    assert answers[1] == {"uid": "u", "allowed": True}
    [warning] = answers[0].pop("warnings")
    assert answers[0] == answers[1]
    assert warning.endswith('"batch/job" is not listed in integrations.frameworks')
    listed = TestClient(create_app(Facts(None), Readiness())).post("/validate", json=body).json()["response"]
    assert not listed["allowed"]


def test_what_serves_and_is_not_listed_is_left_alone_with_a_warning():
    unlisted = ManagedJobs(unlisted=frozenset(FRAMEWORKS.values()) - {FRAMEWORKS["statefulset"]})
    client = TestClient(create_app(Facts(None, managed=unlisted), Readiness()))

    def answered(obj: Json) -> Json:
        request = {"uid": "u", "operation": "CREATE", "object": obj}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        return client.post("/mutate", json=body).json()["response"]

    answer = answered(deployment("d", "main", 1))
    assert "patch" not in answer
    [warning] = answer["warnings"]
    assert warning.startswith("this Deployment names a queue and is not queued")
    assert warning.endswith('"deployment" is not listed in integrations.frameworks')
    assert "patch" in answered(stateful_set("s", "main", 1))
    # of pods only those that wait for an owner of a listed kind
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}, "spec": {}}
    for parent, waits in (("statefulset", True), ("deployment", False), ("x", False)):
        pod["metadata"]["annotations"] = {names.SUSPENDED_BY_PARENT: parent}
        assert ("patch" in answered(pod)) is waits
    pod["metadata"] = {"name": "p", "namespace": "team", "labels": {names.QUEUE_NAME: "main"}}
    assert "patch" not in answered(pod)


def test_a_kubeflow_job_that_names_no_pods_is_taken_with_a_warning():
    client = TestClient(create_app(Facts(None, managed=ManagedJobs(unlisted=frozenset())), Readiness()))
    labels = {names.QUEUE_NAME: "main"}
    spec: Json = {"runPolicy": {"suspend": True}, "mpiReplicaSpecs": {}}
    obj = {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "m", "labels": labels},
        "spec": spec,
    }
    response = post(client, "/validate", review(obj))
    assert response["allowed"] is True
    [warning] = response["warnings"]
    assert "is not queued: spec.mpiReplicaSpecs" in warning


def test_warnings_that_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline_webhooks.app.WARNINGS_WITHIN", 0.05)
    window = {"start": "2030-12-01T08:00:00Z", "end": "2030-12-01T10:00:00Z"}
    meta = {"name": "weekly"}
    spec = {"window": window, "nodes": {"names": ["n1"]}, "for": {"clusterQueues": ["none"]}}
    body = {"apiVersion": "gangline.io/v1alpha1", "kind": "Reservation", "metadata": meta, "spec": spec}
    for slow in (False, True):
        client = TestClient(create_app(Facts(SlowServer(60.0 if slow else 0.0)), Readiness()))
        response = post(client, "/validate", review(body))
        assert response["allowed"] is True
        told = ["spec.for.clusterQueues: there is no ClusterQueue none yet", "Not honoured: x"]
        assert response.get("warnings", []) == ([] if slow else told)


class SlowServer:
    """There is nothing in the cluster, which it says after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def get(self, resource: Resource, *_: Any, **__: Any) -> Json:
        await asyncio.sleep(self.seconds)
        raise NotFound(404)

    async def create(self, *_: Any, **__: Any) -> Json:
        return {"status": {"warnings": ["Not honoured: x"]}}
