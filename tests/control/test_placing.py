"""Scorers that users installed, each guarded by itself; and the extender of kube-scheduler, over HTTP."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.objects import Stored, altered

from gangline import bounded
from gangline.api import names
from gangline.api.read import policy_reader
from gangline.control.feed.mirror import Mirror
from gangline.control.nodes.placing.extender import LONGEST, MOST_NODES, Extender
from gangline.control.nodes.placing.plugins import GROUP, PAUSE, Guarded, Plugins
from gangline.control.writes.status import policy_status
from gangline.engine import Engine, OwnScorers, model
from gangline.kube import resources as kube
from gangline.tls.apps import new_app

POD, NODE = {"requests": {"cpu": 1}}, {"name": "n0", "labels": {}}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


# --- scorers of users ---------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A tiny installed package with a scorer, and one whose module is broken."""
    (tmp_path / "acme_scorer.py").write_text("def score(pod, node):\n    return 100 if node['name'] == 'n1' else 0\n")
    info = tmp_path / "acme_scorer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-scorer\nVersion: 1.0\n")
    entries = "acme = acme_scorer:score\nbroken = acme_nowhere:score\nBad_Name = acme_scorer:score\n"
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}")
    sys.path.insert(0, str(tmp_path))
    try:
        yield tmp_path
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("acme_scorer", None)


def test_an_installed_package_is_found_and_one_that_is_broken_costs_itself_alone(installed: Path) -> None:
    del installed
    scorers = OwnScorers()
    plugins = Plugins(scorers)
    plugins.load(metadata.entry_points(group=GROUP))
    assert scorers.names() == {"acme"}
    assert plugins.trouble("acme") == "" and plugins.trouble("other") == "is not installed"
    assert "acme_nowhere" in plugins.trouble("broken") and set(plugins.troubles()) == {"broken"}
    assert plugins.failures() == {("acme",): 0.0, ("broken",): 1.0}
    plugins.forget()
    assert scorers.names() == frozenset()


def _raises(pod: object, node: object) -> float:
    raise KeyError("nothing")


def _sleeps(pod: object, node: object) -> float:
    time.sleep(5)
    return 1


@pytest.mark.parametrize(
    ("score", "said"),
    [
        (_raises, "KeyError"),
        (_sleeps, "took more than 0.1 s"),
        (lambda pod, node: "high", "returned 'high'"),
        (lambda pod, node: 101, "returned 101"),
        (lambda pod, node: float("nan"), "returned nan"),
        (lambda pod, node: True, "returned True"),
        (lambda pod: 1, "TypeError"),
    ],
)
def test_a_scorer_that_fails_is_not_asked_for_a_while(score: Callable[..., Any], said: str) -> None:
    clock = Clock()
    guarded = Guarded("acme", score, clock)
    assert guarded(POD, NODE) is None and said in guarded.trouble and guarded.failures == 1
    assert guarded(POD, NODE) is None and guarded.failures == 1, "it is not asked again so soon"
    clock.now = PAUSE + 1
    assert guarded(POD, NODE) is None and guarded.failures == 2


def test_a_scorer_that_is_well_again_has_a_say_and_many_slow_answers_cost_it_a_minute() -> None:
    clock, answers = Clock(), [500.0, 12.5, 7.0]

    def score(pod: object, node: object) -> float:
        clock.now += 4.0
        return answers.pop(0)

    guarded = Guarded("acme", score, clock)
    assert guarded(POD, NODE) is None
    clock.now = PAUSE + 10
    assert guarded(POD, NODE) == 125_000 and guarded.trouble == ""
    assert guarded(POD, NODE) is None and "within a minute" in guarded.trouble


def policy(name: str = "p", **placement: Any) -> Stored:
    spec = {"clusterQueues": {"names": ["q"]}, "placement": placement}
    return Stored({"metadata": {"name": name, "generation": 1}, "spec": spec})


def test_a_policy_says_which_of_its_scorers_has_no_say() -> None:
    obj = policy(scores=[{"name": "Plugin", "plugin": "acme"}, {"name": "Pack"}])
    chosen = policy_status.Selection(("q",))
    for trouble, wanted in (("is not installed", "False"), ("", "True")):
        rows = policy_status.status(obj, chosen, now=0, trouble_of=lambda name, said=trouble: said)["conditions"]
        (found,) = [row for row in rows if row["type"] == names.SCORERS_READY]
        assert found["status"] == wanted and (not trouble or f"acme: {trouble}" in found["message"])
    plain = policy_status.status(policy(profile="Pack"), chosen, now=0, trouble_of=lambda name: "bad")
    assert [row["type"] for row in plain["conditions"]] == [names.ACTIVE]


# --- what the reader makes of a policy ------------------------------------------------------------------------------------


def test_a_policy_is_read_with_its_filters_and_the_defaults_of_its_scorers() -> None:
    found = policy_reader.placement(
        policy(
            filters=[{"name": "NodeMetric", "annotation": "a/temp", "most": 85}, {"name": "RDMA"}],
            scores=[{"name": "Standalone"}, {"name": "TargetLoad", "annotation": "a/load", "target": 60}],
            dryRun=True,
        )
    )
    assert found == model.PlacementPolicy(
        scores=(
            model.PlacementScore("ClassAffinity"),
            model.PlacementScore("TargetLoad", annotation="a/load", target=60),
        ),
        filters=(model.PlacementFilter("NodeMetric", annotation="a/temp", most=85), model.PlacementFilter("RDMA")),
        dry_run=True,
    )


def test_images_are_read_only_while_a_policy_looks_at_them() -> None:
    facts: list[model.Change] = []
    mirror = Mirror(facts.append)
    node = {
        "metadata": {"name": "n0", "uid": "1", "resourceVersion": "1"},
        "status": {"images": [{"names": ["docker.io/library/a:1"], "sizeBytes": 7}, "?", {"names": 3}]},
    }
    mirror.objects[kube.NODES]["n0"] = node
    for obj, wanted in ((policy(profile="Pack"), {}), (policy(profile="Edge"), {"docker.io/library/a:1": 7})):
        mirror.objects[kube.QUEUE_POLICIES]["p"] = obj
        mirror._look_at_images()
        mirror._read(kube.NODES, "n0", node)
        put = facts[-1]
        assert isinstance(put, model.Put) and isinstance(put.item, model.Node) and dict(put.item.images) == wanted


# --- the extender ---------------------------------------------------------------------------------------------------------


def post(path: str, body: Any, *policies: dict[str, Any], raw: bytes | None = None) -> tuple[int, Any]:
    """One request to an operator with three nodes."""
    engine, mirror = Engine(), Mirror(lambda change: None)
    for name, free in (("n0", 8), ("n1", 8), ("n2", 2)):
        labels = {"zone": "a"} if name != "n0" else {}
        node = model.Node(name, labels, {"cpu": 8000, "nvidia.com/gpu": 8, "pods": 10})
        engine.observe(model.Put(node))
        engine.observe(model.Put(model.ForeignPod(f"x/{name}", name, {"nvidia.com/gpu": 8 - free})))
    for obj in policies:
        mirror.objects[kube.QUEUE_POLICIES][obj["metadata"]["name"]] = obj

    app = new_app()
    Extender(mirror, engine).add_to(app)
    answer = TestClient(app).post(path, content=raw if raw is not None else json.dumps(body))
    return answer.status_code, answer.json() if answer.status_code == 200 else answer.text


CONTAINER = {"name": "c", "image": "a", "resources": {"requests": {"nvidia.com/gpu": "2"}}}
WANTED = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
ZONED = policy(profile="Pack", filters=[{"name": "NodeLabel", "label": "zone", "values": ["a"]}])


def test_filter_says_whom_the_policy_excludes_and_why() -> None:
    body = {"Pod": WANTED, "Nodes": None, "NodeNames": ["n0", "n1", "n2", "elsewhere"]}
    status, found = post("/extender/p/filter", body, ZONED)
    assert status == 200 and found == {
        "Nodes": None,
        "NodeNames": ["n1", "n2", "elsewhere"],
        "FailedNodes": {"n0": "no label zone=a"},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


def test_whole_nodes_come_back_as_they_were_sent() -> None:
    nodes = [{"metadata": {"name": name, "labels": {"x": "1"}}} for name in ("n0", "n1")]
    status, found = post("/extender/p/filter", {"pod": WANTED, "nodes": {"items": nodes}}, ZONED)
    assert status == 200 and found["Nodes"] == {"items": nodes[1:]} and found["NodeNames"] is None


def test_prioritize_orders_as_the_engine_does() -> None:
    """E2: pack takes the fullest node, spread an empty one; the order is the pipeline's."""
    for profile, wanted in (("Pack", {"n0": 5, "n1": 5, "n2": 10}), ("Spread", {"n0": 10, "n1": 10, "n2": 5})):
        status, found = post(
            "/extender/p/prioritize", {"Pod": WANTED, "NodeNames": ["n0", "n1", "n2"]}, policy(profile=profile)
        )
        assert status == 200 and {each["Host"]: each["Score"] for each in found} == wanted


def test_pods_of_gangs_are_allowed_everywhere() -> None:
    pod = {**WANTED, "metadata": {"name": "p", "annotations": {names.WORKLOAD_ANNOTATION: "w"}}}
    _, found = post("/extender/p/filter", {"Pod": pod, "NodeNames": ["n0", "n1"]}, ZONED)
    assert found["NodeNames"] == ["n0", "n1"] and found["FailedNodes"] == {}


@pytest.mark.parametrize(
    ("path", "body", "raw", "status"),
    [
        ("/extender/other/filter", {"Pod": WANTED, "NodeNames": ["n0"]}, None, 404),
        ("/extender/bare/filter", {"Pod": WANTED, "NodeNames": ["n0"]}, None, 404),
        ("/extender/p/bind", {"Pod": WANTED, "NodeNames": ["n0"]}, None, 404),
        ("/extender/p/filter", {"NodeNames": ["n0"]}, None, 400),
        ("/extender/p/filter", {"Pod": WANTED}, None, 400),
        ("/extender/p/filter", {"Pod": WANTED, "NodeNames": [f"n{n}" for n in range(MOST_NODES + 1)]}, None, 400),
        ("/extender/p/filter", {"Pod": {"metadata": {}, "spec": {"containers": 3}}, "NodeNames": ["n0"]}, None, 400),
        ("/extender/p/filter", None, b"[" * 100_000, 400),
        ("/extender/p/filter", None, b"{", 400),
        ("/extender/p/filter", None, b"3", 400),
    ],
)
def test_hostile_requests_are_refused(path: str, body: Any, raw: bytes | None, status: int) -> None:
    bare = Stored({"metadata": {"name": "bare"}, "spec": {"clusterQueues": {"names": ["q"]}}})
    assert post(path, body, ZONED, bare, raw=raw)[0] == status


@pytest.mark.parametrize("row", ["[],", "{},", "0,", '"",', '{"a":0},', "[" * 50 + "]" * 50 + ","])
def test_no_request_becomes_more_objects_than_a_large_cluster_needs(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four requests of 31 MiB of nested lists once kept the leader busy until it lost its lease."""
    monkeypatch.setattr(bounded.orjson, "loads", lambda _: pytest.fail("it was decoded"))
    raw = f'{{"Pod": {{"metadata": {{}}, "spec": {{"unknown": [{row * (2**20 // len(row))}0]}}}}}}'.encode()
    status, said = post("/extender/p/filter", None, ZONED, raw=raw)
    assert (status, "nodeCacheCapable: true" in said) == (400, True), said


def test_a_request_without_a_policy_is_not_read() -> None:
    assert post("/extender/p/filter", None, raw=b"[" * 2 * LONGEST)[0] == 404


def test_a_request_that_is_too_long_says_what_to_do() -> None:
    status, said = post("/extender/p/filter", None, ZONED, raw=b" " * (LONGEST + 1))
    assert status == 413 and "nodeCacheCapable: true" in said


def test_the_names_of_a_large_cluster_and_a_large_pod_are_read() -> None:
    body = {"Pod": {**WANTED, "status": {"x": [[]] * 10_000}}, "NodeNames": [f"{n:0>253}" for n in range(MOST_NODES)]}
    status, found = post("/extender/p/filter", body, ZONED)
    assert status == 200 and len(found["NodeNames"]) == MOST_NODES


@pytest.mark.parametrize(
    ("path", "annotated", "status"),
    [
        ("/extender/p/filter", None, 200),
        ("/extender/p/filter", hashlib.sha256(b"secret").hexdigest(), 403),
        ("/extender/p/guess/filter", hashlib.sha256(b"secret").hexdigest(), 403),
        ("/extender/p/secret/filter", hashlib.sha256(b"secret").hexdigest(), 200),
        ("/extender/p/secret/prioritize", hashlib.sha256(b"secret").hexdigest().upper(), 200),
        ("/extender/p/secret/filter", "secret", 403),
        ("/extender/p/secret/filter", 3, 403),
        ("/extender/p/secret/filter", None, 403),
        ("/extender/other/secret/filter", hashlib.sha256(b"secret").hexdigest(), 404),
    ],
)
def test_a_policy_with_a_key_answers_whoever_has_it(path: str, annotated: Any, status: int) -> None:
    annotations = {} if annotated is None else {names.EXTENDER_KEY: annotated}
    keyed = altered(ZONED, metadata={**ZONED.metadata, "annotations": annotations})
    assert post(path, {"Pod": WANTED, "NodeNames": ["n0"]}, keyed)[0] == status
