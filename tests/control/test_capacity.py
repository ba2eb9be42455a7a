"""What the cluster is planned to have at a time: quotas, open windows, and usable nodes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import clusters
from tests.control.test_whatif import at, plan

from gangline.api import names
from gangline.api.schedules import DAYS
from gangline.control.answers.ahead.capacity import WrongTimeError
from gangline.control.answers.sight import Everybody, Sight
from gangline.kube import resources as kube

Json = dict[str, Any]
NODES = ("n1", "n2", "n3")


def node(name: str, *, cordoned: bool = False, ours: bool = False) -> clusters.Entry:
    meta = {"name": name, "labels": {"gpu": "h100"}, "annotations": {names.CORDONED_FOR: "upkeep"} if ours else {}}
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": {"nvidia.com/gpu": "8", "cpu": "64", "pods": "110"}, "conditions": [ready]}
    return kube.NODES, {"kind": "Node", "metadata": meta, "spec": {"unschedulable": cordoned or ours}, "status": status}


def reservation(name: str, nodes: list[str], begin: float, end: float, whom: Json | None = None) -> clusters.Entry:
    spec = {"window": {"start": at(begin), "end": at(end)}, "nodes": {"names": nodes}, "for": whom}
    meta = {"name": name, "uid": name, "creationTimestamp": at(-1)}
    return kube.RESERVATIONS, {"kind": "Reservation", "metadata": meta, "spec": {k: v for k, v in spec.items() if v}}


async def rows(
    *entries: clusters.Entry, hours: float | None, asker: Any = None, namespace: str = ""
) -> dict[str, Json]:
    """The rows of a cluster with queue a by their names, so many hours from now; None: without a time."""
    here = clusters.world_of(clusters.flavor("h100"), *clusters.queue("a", 32), *entries)
    here.engine.decide(here.now)  # which judges the nodes
    time = None if hours is None else clusters.NOW + hours * 3600
    found = await here.answers().capacity(asker or Everybody(), namespace, time)
    return {row["name"]: row for row in found.items}


def gpus(row: Json) -> Json:
    (found,) = row["amounts"]
    return {
        field: int(found[field]) for field in ("total", "usable", "usableNow", "reserved", "maintenance", "unusable")
    }


@pytest.mark.parametrize(
    ("hours", "nominal", "overrides"), [(None, "32", []), (0.5, "32", []), (1, "8", ["night"]), (20, "32", [])]
)
async def test_quotas_are_those_of_the_time(hours: float | None, nominal: str, overrides: list[str]) -> None:
    row = (await rows(plan(gpus=8), hours=hours))["a"]
    (quota,) = row["quotas"]
    assert (quota["nominal"], quota["nominalNow"]) == (nominal, "32")
    assert (row["plan"], row["overrides"], row["knownUntil"]) == ("p", overrides, None)


async def test_a_queue_without_a_plan_keeps_its_quota() -> None:
    row = (await rows(hours=24))["a"]
    assert row["quotas"][0]["nominal"] == "32" and row["plan"] == ""


async def test_it_is_said_from_when_on_changes_are_not_known() -> None:
    daily = {"schedule": {"days": list(DAYS), "time": "08:00", "duration": "1h"}}
    assert (await rows(plan(8, daily), hours=24))["a"]["knownUntil"] is None
    assert 0 < (await rows(plan(8, daily), hours=240))["a"]["knownUntil"] < clusters.NOW + 240 * 3600


async def test_windows_and_nodes_are_those_of_the_time() -> None:
    upkeep = reservation("upkeep", ["n1"], 2, 4)
    demo = reservation("demo", ["n1", "n2"], 3, 5, {"clusterQueues": ["a"], "users": ["ada"]})
    cluster = [*map(node, NODES), upkeep, demo]
    now, then, later = [await rows(*cluster, hours=hours) for hours in (0, 3.5, 4.5)]
    assert "upkeep" not in now and gpus(now["h100"])["usable"] == 24
    assert (then["upkeep"]["owners"], then["upkeep"]["nodeNames"]) == ([], ["n1"])
    assert then["demo"]["owners"] == ["ClusterQueue a", "user ada"] and then["demo"]["to"] == clusters.NOW + 5 * 3600
    assert gpus(then["h100"]) == {
        "total": 24, "usable": 8, "usableNow": 24, "reserved": 8, "maintenance": 8, "unusable": 0
    }  # fmt: skip
    assert then["h100"]["nodes"] == 3 and then["h100"]["usableNodes"] == 1
    assert "upkeep" not in later and gpus(later["h100"])["reserved"] == 16


async def test_a_node_that_a_maintenance_cordoned_is_back_after_it_and_another_one_is_not() -> None:
    cluster = [node("n1", ours=True), node("n2", cordoned=True), node("n3"), reservation("upkeep", ["n1"], -1, 2)]
    now, later = (await rows(*cluster, hours=0))["h100"], (await rows(*cluster, hours=3))["h100"]
    assert (gpus(now)["usable"], gpus(now)["maintenance"], gpus(now)["unusable"]) == (8, 8, 8)
    assert (gpus(later)["usable"], gpus(later)["usableNow"], gpus(later)["unusable"]) == (16, 8, 8)


async def test_users_and_queues_of_others_are_not_named() -> None:
    class Jane:
        async def sight(self, namespaces: Any, queues: Any) -> Sight:
            return Sight(namespaces=frozenset({"ml"}), queues=frozenset(queues))

    whom = {
        "clusterQueues": ["a", "secret"],
        "localQueues": [{"namespace": "theirs", "name": "secret"}],
        "users": ["secret"],
    }
    for namespace in ("ml", ""):
        found = await rows(
            *clusters.queue("secret", 8, namespace="theirs"),
            node("n1"),
            reservation("demo", ["n1"], 1, 3, whom),
            hours=2,
            asker=Jane(),
            namespace=namespace,
        )
        assert "secret" not in str(found) and "demo" in found


@pytest.mark.parametrize("hours", [-1, 14 * 24 + 1, 1e9])
async def test_a_time_that_is_past_or_too_far_is_refused(hours: float) -> None:
    with pytest.raises(WrongTimeError, match="within the 14 days to come"):
        await rows(hours=hours)
