"""`gangline status`: the cluster on one screen, from the operator's answers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.console.objects import NOW
from tests.console.test_verbs import answered

from gangline.console import cli
from gangline.console.commands.see import status
from gangline.console.views import access, asking

Json = dict[str, Any]


def node(name: str, used: int, trouble: str = "", flavor: str = "h100") -> Json:
    gpu = "nvidia.com/gpu"
    return {
        "metadata": {"name": name},
        "flavors": [flavor],
        "trouble": trouble,
        "capacity": {gpu: "8", "cpu": "64"},
        "used": {gpu: str(used)},
    }


def test_gpus_of_nodes_that_take_no_work_are_neither_free_nor_used() -> None:
    nodes = [node("a", 6), node("b", 2, "Cordoned"), node("c", 0, "NotReady"), node("d", 8, flavor="a100")]
    nodes.append({**node("cpu", 0), "capacity": {"cpu": "64"}, "used": {}})
    found = status.summary(nodes, [], [], NOW)
    assert found["flavors"] == [
        {"flavor": "a100", "total": 8, "used": 8, "free": 0, "away": 0},
        {"flavor": "h100", "total": 24, "used": 8, "free": 2, "away": 14},
    ]
    assert found["needs"] == ["node b: Cordoned", "node c: NotReady"]
    assert found["next"] is None and found["waiting"] == {"jobs": 0, "gpus": 0, "oldest": None}


def job(name: str, created: float, **more: Any) -> Json:
    made = {"state": "Pending", "jobKind": "Job", "jobName": name, "hidden": False, "gpus": 4, "created": created}
    return {**made, "neverFits": False, "warnings": [], "why": "", "expectedStart": None, **more}


def test_what_waits_starts_next_and_needs_a_person() -> None:
    soon = {"p50": NOW + 60, "p90": NOW + 120}
    jobs = [
        job("old", NOW - 7200),
        job("soon", NOW - 60, expectedStart=soon),
        job("never", NOW - 30, neverFits=True, why="16 GPUs of 8"),
        job("warned", NOW - 20, warnings=["its hint is none"], expectedStart={"p50": NOW + 600, "p90": None}),
        job("hidden-1", NOW - 10, hidden=True, gpus=8),
        job("runs", NOW - 9000, state="Running"),
    ]
    found = status.summary([], [], jobs, NOW)
    assert found["running"] == 1
    assert found["waiting"] == {"jobs": 5, "gpus": 24, "oldest": {"job": "job/old", "since": NOW - 7200}}
    assert found["next"] == {"job": "job/soon", "gpus": 4, **soon}
    assert found["needs"] == ["job/never can never start as it is: 16 GPUs of 8", "job/warned: its hint is none"]
    text = "\n".join(status.lines(found, NOW))
    assert "waiting  5 jobs for 24 GPUs, the oldest for 120m" in text and "job/soon (4 GPUs)" in text
    many = status.summary([node(f"n{n}", 0, "NotReady") for n in range(20)], [], [], NOW)
    assert "and 8 more" in "\n".join(status.lines(many, NOW))


@pytest.fixture
async def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found = await answered()

    async def listed(api: Any, path: str, query: Any = None) -> list[Json]:
        if api.denied and not path.startswith("/namespaces/"):
            raise asking.NotAllowedError("you may not")
        return found[path.rpartition("/")[2]]

    monkeypatch.setattr(asking, "listed", listed)
    return found


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str, denied: bool = False) -> Any:
    api = SimpleNamespace(login=SimpleNamespace(namespace="ml"), denied=denied)

    class Client:
        async def __aenter__(self) -> Any:
            return api

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(access, "client", lambda *_: Client())
    return CliRunner().invoke(cli.main, ["status", *arguments])


def test_the_screen_and_its_document(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch)
    assert shown.exit_code == 0, shown.output
    assert "FLAVOR" in shown.output and "QUEUE" in shown.output and "waiting" in shown.output
    document = json.loads(run(monkeypatch, "-A", "-o", "json").output)
    assert {row["clusterQueue"] for row in document["queues"]} == {
        row["clusterQueue"] for row in answers["queueshares"] if row["level"] == "ClusterQueue"
    }
    assert document["at"].endswith("Z") and document["waiting"]["oldest"]["since"].endswith("Z")


def test_who_may_not_see_all_is_shown_her_namespace(answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = run(monkeypatch, "-A", denied=True)
    assert shown.exit_code == 0 and "this is namespace ml" in shown.output
