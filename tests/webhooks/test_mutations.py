"""Reviews of objects in which anything may be anything: each is answered, and none by an internal error."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from tests.api import accepted
from tests.api.admission.builders import Json, gpujob, job, recipe

from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts

TIMES = int(os.environ.get("GANGLINE_EXAMPLES", "1"))
#: what takes the place of any value
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        2**31,
        2**63 - 1,
        -(2**63),
        1.5,
        1e300,
        "",
        "x",
        "-1",
        "9" * 5000,
        "9" * 100_000,
        "٣",
        "\U0001f600",
    ),
    *("0-99999999999", "a,b,,c", "1h" * 500, "{" * 300, [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, ["x"] * 50),
    {"name": {"name": 1}},
    *("\n", " ", "../..", "a/b/c", "%s%n", "$(x)", "2026-99-99T00:00:00Z", "1e400", "1Ei"),
)


def jobset() -> Json:
    body = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "js", "namespace": "team", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": body}}]},
    }


def annotated(body: Json) -> Json:
    """With everything in its metadata that a job may say."""
    meta = body.setdefault("metadata", {})
    meta.setdefault("annotations", {}).update(
        {
            "gangline.io/expected-runtime": "1h",
            "gangline.io/checkpoint-interval": "10m",
            "gangline.io/attempt": "1",
            "kueue.x-k8s.io/job-min-parallelism": "1",
            "kueue.x-k8s.io/priority-boost": "1",
        }
    )
    meta.setdefault("labels", {}).update(
        {"kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/max-exec-time-seconds": "60"}
    )
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "u", "controller": True}
    meta.setdefault("ownerReferences", [owner])
    return body


def objects() -> list[Json]:
    """One of each kind that is reviewed, in every version, with all of its fields."""
    jobs = [annotated(each) for each in (job(), jobset(), gpujob(), recipe())]
    made = [
        {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": "a", "namespace": "team"}, **body}
        for kind, group, version, schema in accepted.schemas()
        for body in (accepted.fullest(schema), accepted.smallest(schema))
    ]
    return jobs + [each for each in made if each["kind"] != "WorkloadPriorityClass"]


def mutated(obj: Json, draw: random.Random) -> Json:
    """A copy with one to three places changed: another value, a field less, an entry more."""
    body = copy.deepcopy(obj)
    for _ in range(draw.randint(1, 3)):
        places = [place for place in _places(body) if place[1] not in ("apiVersion", "kind") or place[0] is not body]
        if not places:
            break
        parent, key = draw.choice(places)
        match draw.randrange(4):
            case 0 | 1:
                parent[key] = copy.deepcopy(draw.choice(ODD))
            case 2 if isinstance(parent, list):
                parent.append(copy.deepcopy(parent[key]))
            case 2:
                parent[str(draw.choice(ODD))[:300]] = parent[key]
            case _:
                del parent[key]
    return body


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield value, key
            yield from _places(inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield value, number
            yield from _places(inner)


def review(obj: Any, old: Any) -> bytes:
    request = {"uid": "u", "operation": "UPDATE" if old is not None else "CREATE", "object": obj, "oldObject": old}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {**request, "namespace": "team"}}
    return orjson.dumps(body)


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(create_app(Facts(None), Readiness()), raise_server_exceptions=False)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("seed", range(4))
def test_every_mutated_review_is_answered_in_words(client: TestClient, path: str, seed: int) -> None:
    draw, whole = random.Random(seed), objects()
    for _ in range(500 * TIMES):
        obj = draw.choice(whole)
        new = mutated(obj, draw)
        old = draw.choice((None, None, obj, mutated(obj, draw)))
        answer = client.post(path, content=review(new, old))
        said = (path, obj["kind"], answer.text[:300])
        assert answer.status_code in (200, 400), said
        if answer.status_code == 200:
            response = answer.json()["response"]
            assert response["uid"] == "u"
            assert len(answer.content) < 2_000_000
            assert response["allowed"] or response["status"]["reason"] != "InternalError", said


@pytest.mark.parametrize("seed", range(4))
def test_every_mutated_conversion_is_answered_in_words(client: TestClient, seed: int) -> None:
    draw = random.Random(seed)
    whole = [each for each in objects() if "kueue.x-k8s.io/v1beta" in each["apiVersion"]]
    for _ in range(300 * TIMES):
        objs = [mutated(draw.choice(whole), draw) for _ in range(draw.randint(1, 3))]
        wanted = draw.choice(("kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2", *map(str, ODD[:20])))
        request = {"uid": "u", "desiredAPIVersion": wanted, "objects": objs}
        body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
        answer = client.post("/convert", content=orjson.dumps(body))
        assert answer.status_code in (200, 400), answer.text[:300]
        if answer.status_code == 200:
            result = answer.json()["response"]["result"]
            assert result["status"] == "Success" or len(result["message"]) < 1000


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/convert"])
@pytest.mark.parametrize("levels", [101, 900, 1024, 1025, 100_000])
def test_deep_json_is_refused_in_words(client: TestClient, path: str, levels: int) -> None:
    kind = '"ConversionReview"' if path == "/convert" else '"AdmissionReview"'
    deep = '{"kind": ' + kind + ', "a": ' + "[" * levels + "]" * levels + "}"
    answer = client.post(path, content=deep)
    assert answer.status_code == 400
    assert "JSON" in answer.text and len(answer.text) < 300
