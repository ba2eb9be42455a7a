"""Reviews of objects in which anything may be anything: each is answered, and none by an internal error."""

from __future__ import annotations

import copy
import os
import random

import orjson
import pytest
from fastapi.testclient import TestClient
from tests.cluster.serving import deployment, leader_worker_set, stateful_set
from tests.fuzz.objects import ODD, Json, objects, places, review

from gangline.api.read.configuration.managed_jobs import ManagedJobs
from gangline_webhooks.app import Readiness, create_app
from gangline_webhooks.facts import Facts

TIMES = int(os.environ.get("GANGLINE_EXAMPLES", "1"))


def mutated(obj: Json, draw: random.Random) -> Json:
    """A copy with one to three places changed: another value, a field less, an entry more."""
    body = copy.deepcopy(obj)
    for _ in range(draw.randint(1, 3)):
        found = [place for place in places(body) if place[1] not in ("apiVersion", "kind") or place[0] is not body]
        if not found:
            break
        parent, key = draw.choice(found)
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


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("seed", range(2))
def test_every_mutated_review_of_what_serves_is_answered_in_words(path: str, seed: int) -> None:
    managed = ManagedJobs(unlisted=frozenset())
    everything = TestClient(create_app(Facts(None, managed=managed), Readiness()), raise_server_exceptions=False)
    draw = random.Random(seed)
    whole = (deployment("d", "lq", 1), stateful_set("s", "lq", 2), leader_worker_set("l", "lq", 2, 2, priority="low"))
    for each in whole:
        each["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "a.example/b"}
        each["status"] = {"readyReplicas": 1, "replicas": 1}
    for _ in range(500 * TIMES):
        obj = draw.choice(whole)
        answer = everything.post(path, content=review(mutated(obj, draw), draw.choice((None, obj, mutated(obj, draw)))))
        assert answer.status_code in (200, 400), answer.text[:300]
        if answer.status_code == 200:
            response = answer.json()["response"]
            assert response["allowed"] or response["status"]["reason"] != "InternalError", answer.text[:300]


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
    assert answer.status_code == 413
    assert "JSON" in answer.text and len(answer.text) < 300
