"""How checks are made, whatever they meet, and what is read from the operator's metrics. Without a cluster."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.api.test_autoscalers import NOW, YAML, a_pool, status

from gangline.console.doctor import node_growth
from gangline.console.doctor.cluster import ClusterReads, failure, ok, short, some
from gangline.console.doctor.examination import Check, Examination, Findings
from gangline.console.doctor.installation import kinds, leadership, processes, webhooks
from gangline.kube import resources as kube
from gangline.kube.errors import Forbidden, TooManyRequests, Unavailable
from gangline.kube.resources import Resource

WORDS: Any = {"ok": "fine", "warning": "look", "failure": "broken", "unknown": "unclear"}
NOBODY = cast(ClusterReads, None)


async def good(_: ClusterReads) -> Findings:
    yield ok("all is well")


async def slow(_: ClusterReads) -> Findings:
    yield ok("begun")
    await asyncio.sleep(60)


async def forbidden(_: ClusterReads) -> Findings:
    raise Forbidden(403, "Forbidden", "User x cannot list y")
    yield ok("")


async def silent(_: ClusterReads) -> Findings:
    raise Unavailable(0, "Timeout", "no answer")
    yield ok("")


async def odd(_: ClusterReads) -> Findings:
    yield failure("found before", "repair it")
    yield ok({"metadata": {}}["metadata"]["name"])  # type: ignore[typeddict-item]


async def test_a_check_that_fails_costs_only_itself() -> None:
    checks = (Check("a", slow, 0.05), Check("b", forbidden), Check("c", silent), Check("d", odd), Check("e", good))
    examination = Examination(checks, WORDS)
    found = await examination.of(NOBODY)
    assert [(row.check, row.verdict) for row in found] == [
        ("a", "ok"),
        ("a", "unknown"),
        ("b", "unknown"),
        ("c", "unknown"),
        ("d", "failure"),
        ("d", "unknown"),
        ("e", "ok"),
    ]
    assert "within 0.05 s" in found[1].detail
    assert "User x cannot list y" in found[2].detail
    assert "KeyError" in found[5].detail
    answer = examination.as_json(found)
    assert answer["ok"] is False
    assert answer["findings"][4]["verdict"] == "broken"
    text = examination.rendered(found)
    assert text.splitlines()[0] == "✓ a  begun"
    assert "     → repair it" in text
    assert text.endswith("1 broken, 4 unclear, 2 fine.")


async def test_a_check_is_made_again_where_the_api_server_sheds_load() -> None:
    asked: list[int] = []

    async def busy(_: ClusterReads) -> Findings:
        asked.append(1)
        yield ok("begun")
        if len(asked) < 3:
            raise TooManyRequests(429, "TooManyRequests", "again", retry_after=0.001)
        yield ok("done")

    found = await Examination((Check("busy", busy),), WORDS).of(NOBODY)
    assert [row.detail for row in found] == ["begun", "done"]
    assert len(asked) == 3


async def test_what_is_urgent_comes_first_where_findings_are_grouped() -> None:
    examination = Examination((Check("good", good), Check("odd", odd)), WORDS, grouped=True)
    found = await examination.of(NOBODY)
    assert [row.verdict for row in found] == ["failure", "unknown", "ok"]
    assert [line for line in examination.rendered(found).splitlines() if line.endswith(":")] == [
        "broken:",
        "unclear:",
        "fine:",
    ]


def test_texts_of_the_cluster_are_one_line_of_printable_characters() -> None:
    assert short("a\n\x1b[31mb\t c") == "a [31mb c"
    assert len(short("x" * 10**6)) == 400
    assert some(["d", "c", "b", "a"]) == "a, b, c and 1 more"


METRICS = """# HELP gangline_leader 1 while this process leads.
# TYPE gangline_leader gauge
gangline_leader 1.0
gangline_waiting_writes 4000.0
gangline_quarantined_objects{kind="Workload"} 2.0
gangline_recovery_paused{cluster_queue="cq",flavor="a100"} 1.0
kueue_pending_workloads{cluster_queue="cq",status="active"} 7.0
"""


def test_what_the_leader_lags_behind_with() -> None:
    found = [(row.verdict, row.detail) for row in leadership._lag(leadership.read(METRICS))]
    assert [verdict for verdict, _ in found] == ["warning"] * 3
    assert "4000 writes wait" in found[0][1]
    assert "2 Workload" in found[1][1]
    assert "ClusterQueue cq" in found[2][1]
    standby = leadership._lag(leadership.read("gangline_leader 0.0\n"))
    assert [row.verdict for row in standby] == ["failure"]


@pytest.mark.parametrize(
    ("image", "tag"),
    [("gangline:1.2", "1.2"), ("host:5000/a/gangline:v1", "v1"), ("host:5000/gangline", ""), ("g:1@sha256:0", "1")],
)
def test_the_version_of_an_image(image: str, tag: str) -> None:
    assert processes._tag(image) == tag


def test_fields_that_differ_are_named() -> None:
    ours = {"properties": {"spec": {"properties": {"a": {"type": "string"}, "b": {"items": {"type": "string"}}}}}}
    theirs = {
        "properties": {
            "spec": {"properties": {"a": {"type": "string", "description": "x"}, "b": {"items": {}}, "c": {}}}
        }
    }
    assert list(kinds.differences(ours, theirs)) == ["spec.b[]", "spec.c"]


def test_a_bundle_that_is_no_certificate() -> None:
    with pytest.raises(ValueError, match="padding"):
        webhooks._decoded("LS0")


# --- flavors that can grow --------------------------------------------------------------------------------------------


class Nodes:
    """In place of the cluster: flavors, nodes, and what an autoscaler publishes."""

    def __init__(self, **published: Any) -> None:
        self.published = published

    async def server_clock(self) -> tuple[int, float]:
        return NOW, 0.0

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Any:
        return self.published.get("status")

    async def list(self, resource: Resource) -> list[Any]:
        def node(name: str, **labels: str) -> Any:
            return {
                "metadata": {"name": name, "labels": {key.replace("__", "/"): value for key, value in labels.items()}}
            }

        def flavor(name: str, **annotations: str) -> Any:
            return {"metadata": {"name": name, "annotations": annotations}, "spec": {"nodeLabels": {"pool": name}}}

        if resource == kube.RESOURCE_FLAVORS:
            declared = flavor("said", **{"gangline.io/autoscaled": "true"})
            return [flavor("gpu"), flavor("racks"), flavor("none"), declared]
        if resource == kube.NODES:
            managed = {"pool": "gpu", "cloud.google.com__gke-nodepool": "gpu"}
            return [node("gke-prod-gpu-1a2b3c4d-x9z8", **managed), node("r1", pool="racks")]
        return self.published.get("pools", [])


async def grows(**published: Any) -> dict[str, tuple[str, str]]:
    """Finding by its first word: verdict and text."""
    found = [each async for each in node_growth.flavors(cast(ClusterReads, Nodes(**published)))]
    return {each.detail.partition(" ")[0].rstrip(":"): (each.verdict, each.detail) for each in found}


async def test_flavors_that_only_look_as_if_they_could_grow_are_named() -> None:
    found = await grows()
    verdict, text = found["gpu"]
    assert verdict == "warning" and "managed pools (cloud.google.com/gke-nodepool=gpu)" in text
    assert found["racks"] == ("ok", "racks: the nodes that there are bound it, besides quota")
    assert found["said"] == ("ok", "said: gangline.io/autoscaled says true: quota bounds it")
    assert "none" not in found


async def test_flavors_that_can_grow_are_named_with_what_grows_them() -> None:
    found = await grows(status=status(YAML))
    assert found["gpu"] == (
        "ok",
        "gpu: nodes come by node group gke-prod-gpu-1a2b3c4d of the cluster autoscaler (3 of 10 nodes), so quota bounds it",
    )
    found = await grows(pools=[a_pool([], pool="racks")])
    assert found["racks"] == ("ok", "racks: nodes come by NodePool gpu of Karpenter, so quota bounds it")
