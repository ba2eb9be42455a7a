"""`gangline preemptions`: what is asked of the operator, and the sums by rule, by pair of queues and by job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.console import screens

from gangline.console.cli import main
from gangline.console.views import access, asking

Json = dict[str, Any]
OWN = "/namespaces/ml/jobattempts"
WEEK = 7 * 86_400


class Operator:
    """An operator with these preemptions; what it was asked."""

    def __init__(self) -> None:
        self.rows = screens.preempted()
        self.asked: list[tuple[str, Json]] = []

    async def get(self, api: Any, path: str, query: Any = None) -> Json:
        asked = {name: value for name, value in query.items() if value and name != "limit"}
        self.asked.append((path, asked))
        if path.endswith("/attempts"):
            raise asking.NoAnswerError("no job trian in namespace ml", missing=True)
        if path.endswith("/queuedjobs"):
            return {"items": [{"jobName": "train"}], "metadata": {}}
        return {"items": self.rows, "metadata": {}}


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    found = Operator()

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(login=SimpleNamespace(namespace="ml"))

    monkeypatch.setattr(asking, "get", found.get)
    monkeypatch.setattr(access, "client", client)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["preemptions", *words])


@pytest.mark.parametrize(
    ("words", "path", "query"),
    [
        ([], OWN, {"sinceSeconds": WEEK}),
        (["train"], OWN, {"sinceSeconds": WEEK, "job": "train"}),
        (["gpujob/train", "--caused"], OWN, {"sinceSeconds": WEEK, "job": "train", "kind": "gpujob", "caused": True}),
        (["-q", "vision", "--since", "30d"], "/jobattempts", {"sinceSeconds": 30 * 86_400, "clusterQueue": "vision"}),
        (["-q", "vision", "-n", "ml"], OWN, {"sinceSeconds": WEEK, "clusterQueue": "vision"}),
        (["-A", "--caused"], "/jobattempts", {"sinceSeconds": WEEK, "caused": True}),
    ],
)
def test_what_is_asked(operator: Operator, words: list[str], path: str, query: Json) -> None:
    assert run(*words).exit_code == 0
    assert operator.asked == [(path, {"endedAs": "Preempted", "cheaper": True, **query})]


def test_a_document_has_sums_by_rule_by_queues_and_by_job(operator: Operator) -> None:
    found = json.loads(run("-o", "json").stdout)
    assert len(found["items"]) == 3
    lost = sum(row["lostGpuHours"] for row in found["items"])
    for name in ("byRule", "byQueues", "byJob"):
        assert sum(each["preemptions"] for each in found[name]) == found["total"]["preemptions"] == 3
        assert sum(each["lostGpuHours"] for each in found[name]) == pytest.approx(lost)
    first = found["byRule"][0]
    assert (first["reason"], first["preemptions"]) == ("InCohortReclamation", 1)
    assert first["rule"] == "which takes back quota of its ClusterQueue that was borrowed"
    pairs = {(each["clusterQueue"], each["byClusterQueue"]) for each in found["byQueues"]}
    assert pairs == {
        ("language-models", "vision"),
        ("language-models", "language-models"),
        ("vision", "language-models"),
    }
    assert [each["preemptions"] for each in found["byJob"]] == [2, 1]


def test_sums_are_of_what_the_filters_leave(operator: Operator) -> None:
    found = json.loads(run("-o", "json", "--queue", "vision").stdout)
    assert found["total"]["preemptions"] == len(found["items"]) == 1


def test_the_table_says_how_often_and_what_was_lost(operator: Operator) -> None:
    said = run().stdout
    assert "3 preemptions of 2 jobs, 30.7 GPU-hours lost" in said
    assert "1 (26.7 GPU-hours): for a job which takes back quota of its ClusterQueue that was borrowed" in said
    assert "language-models for vision: 1 (26.7 GPU-hours)" in said and "secret" not in said
    operator.rows = []
    assert "Nobody was preempted in this time" in run().stderr


def test_whether_a_preemption_could_have_been_avoided_is_said(operator: Operator) -> None:
    said = " ".join(run("-o", "wide").stdout.split())
    assert " -25.2h " in said and " no " in said and " ? " in said
    assert "1 of 2 could have lost less with another choice of victims" in said
    assert "not known of 1: it is not recorded" in said
    of_job = " ".join(run("train").stdout.split())
    assert (
        "attempt 2: 2 jobs with 26.8 GPU-hours lost; with `preemption.victims: LeastLostWork` in the QueuePolicy of the "
        "other job's queue 1 job with 1.5 GPU-hours, and it would have been spared" in of_job
    )
    assert "attempt 1: no other choice of victims would have lost less" in of_job
    assert "it is not known whether it could have been avoided: it is not recorded" in of_job
    for row in operator.rows:
        row.pop("hindsight")
    assert "not known of 3: you may not see what was decided" in run().stdout


def test_a_job_that_does_not_exist_is_said_with_what_may_be_meant(operator: Operator) -> None:
    operator.rows = []
    result = run("trian")
    assert result.exit_code == 1 and "no job trian in namespace ml. Did you mean 'train'?" in result.output


def test_a_job_is_one_of_a_namespace(operator: Operator) -> None:
    for words in (["train", "-A"], ["train", "-q", "vision"]):
        result = run(*words)
        assert result.exit_code == 2 and "JOB is one of a namespace" in result.output


def test_a_hostile_name_does_nothing_to_a_terminal(operator: Operator) -> None:
    operator.rows[1] |= {"jobName": "\x1b[2Jgone", "by": "\x1b]0;x\x07", "rule": "\u202erule"}
    said = click.unstyle(run().stdout)
    assert "\x1b" not in said and "\x07" not in said and "\u202e" not in said
