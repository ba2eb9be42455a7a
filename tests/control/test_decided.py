"""Recorded decisions as answers: who sees what of them, in which words, and that none is left out."""

from __future__ import annotations

import random
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.builders import clusters
from tests.builders.clusters import GPU, NOW, SECRET, key_of
from tests.control.test_answers import Reader
from tests.control.test_audit import made_up
from tests.controlplane import eventually

import gangline
from gangline.control.answers.answers import Answers
from gangline.control.answers.refusals import NoSuchDecisionError, NoSuchQueueError, NotReadableError
from gangline.control.answers.sight import ALL, Asker, Everybody, Sight
from gangline.control.answers.usage import decided
from gangline.control.answers.usage.happenings import EventSubject, Log
from gangline.control.audit import audit_log
from gangline.control.audit.audit_log import AuditLog, RecordedEngine, Round
from gangline.control.audit.audit_reader import AuditReader
from gangline.control.audit.decision_index import RecordedDecision
from gangline.engine import model
from gangline.engine.model import Admit, Evict, Explanation, Preempt, ReportPending, Warn

Json = dict[str, Any]
AT = NOW * 1000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.002)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    made = AuditLog(tmp_path / "audit")
    yield made
    made.close()


def answers(here: Any, log: AuditLog, kept: Log | None = None) -> Answers:
    """The answers of an operator that records its decisions."""
    assert eventually(lambda: not log.backlog)
    log.index.follow()
    made = here.answers()
    made.source = replace(made.source, record=AuditReader(log.index, lambda: AT))
    made.log = kept
    return made


async def rows(made: Answers, asker: Asker | None = None, namespace: str = "", **more: Any) -> list[Json]:
    return (await made.decisions(asker or Everybody(), namespace, **more)).items


def admitted(key: str, queue: str = "a", gpus: int = 16, **fields: Any) -> Admit:
    pod_sets = (model.PodSetAssignment("worker", 2, {GPU: "h100"}, {GPU: gpus}),)
    return Admit(key, f"uid-{key}", model.Admission(queue, pod_sets), True, AT, **fields)


def shared_record(log: AuditLog) -> Any:
    """Decisions about our jobs and those of a team that must not be named."""
    here = clusters.shared()
    ours, theirs = key_of(here, "runs"), key_of(here, f"{SECRET}-waits")
    message = f"Workload would delay {theirs}, which is reserved to start later"
    log.add(Round(AT - 60_000, (admitted(ours), admitted(theirs, f"{SECRET}-queue", 8, backfilled=True))))
    log.add(Round(AT - 50_000, (Preempt(ours, "u", "InCohortReclamation", f"for {theirs}", theirs, "uid"),)))
    log.add(Round(AT - 50_000, (Preempt(theirs, "u", "InClusterQueue", f"for {ours}", ours, "uid"),)))
    log.add(Round(AT - 40_000, (ReportPending(ours, "u", Explanation("HeldBack", message)),)))
    log.add(Round(AT - 30_000, (Evict(theirs, "u", "PodsReadyTimeout", f"{SECRET} was too slow"),)))
    log.add(Round(AT - 30_000, (Warn("Node", f"{SECRET}-node", "NodeLost", f"Node {SECRET}-node counts as lost"),)))
    log.add(Round(AT - 20_000, (Warn("ClusterQueue", "a", "RecoveryPaused", f"Too much for {theirs} is lost"),)))
    return here


async def test_every_decision_is_a_row_in_its_order(log: AuditLog) -> None:
    here = shared_record(log)
    found = await rows(answers(here, log))
    assert [(row["decision"], row["jobName"]) for row in found] == [
        ("Admit", "runs"),
        ("Admit", f"{SECRET}-waits"),
        ("Preempt", "runs"),
        ("Preempt", f"{SECRET}-waits"),
        ("ReportPending", "runs"),
        ("Evict", f"{SECRET}-waits"),
        ("Warn", ""),
        ("Warn", ""),
    ]
    first, second, preempted = found[:3]
    assert first["metadata"] == {"name": str(first["number"]), "namespace": "ml"}
    assert (first["number"], first["round"], first["at"]) == ((AT - 60_000) * 1000, first["number"], NOW - 60)
    assert second["number"] == first["number"] + 1 and second["round"] == first["round"]
    assert (first["gpus"], first["flavors"], first["clusterQueue"], first["jobKind"]) == (16, ["h100"], "a", "GPUJob")
    assert first["text"] == "The job starts on h100." and not first["backfilled"]
    assert second["text"] == "The job starts on h100, before its turn, since that delays no reserved start."
    assert second["backfilled"] and second["clusterQueue"] == f"{SECRET}-queue"
    assert (preempted["reason"], preempted["by"]) == ("InCohortReclamation", f"gpujob/{SECRET}-waits")
    assert preempted["text"] == (
        f"The job is preempted for {SECRET}-waits, which takes back quota of its ClusterQueue that was borrowed."
    )
    assert preempted["queue"] == "a" and preempted["gpus"] == 16


async def test_who_may_not_see_a_namespace_gets_its_names_in_no_byte(log: AuditLog) -> None:
    here = shared_record(log)
    made, asker = answers(here, log), Reader("ml")
    for namespace, queue in (("", ""), ("ml", ""), ("ml", "a"), ("", "a")):
        answer = await made.decisions(asker, namespace, queue)
        assert answer.items and SECRET not in orjson.dumps(answer.items).decode(), (namespace, queue)
    everything = await rows(made, asker)
    assert len(everything) == 8
    theirs = everything[1]
    assert theirs["hidden"] and theirs["jobName"] == theirs["workload"] == Sight().label(
        key_of(here, f"{SECRET}-waits")
    )
    assert theirs["clusterQueue"].startswith("queue-") and theirs["gpus"] == 8, "its size is seen"
    assert [theirs[name] for name in ("namespace", "user", "queue", "text", "reason", "nodes", "by")] == [
        *("", "", "", "", ""), [], ""
    ]  # fmt: skip
    assert everything[2]["by"] == theirs["jobName"] and theirs["jobName"] in everything[2]["text"]
    assert theirs["jobName"] in everything[4]["text"], "in others' words, too"


async def test_a_namespace_has_its_own_decisions_and_a_queue_those_of_all(log: AuditLog) -> None:
    here = shared_record(log)
    made = answers(here, log)
    assert {row["namespace"] for row in await rows(made, namespace="ml")} == {"ml"}
    of_queue = await rows(made, namespace="ml", cluster_queue="a")
    assert {row["clusterQueue"] for row in of_queue} == {"a"}
    assert {row["jobName"] for row in of_queue} == {"runs", f"{SECRET}-waits", ""}, "by the queue of each job"
    with pytest.raises(NoSuchQueueError):
        await rows(made, namespace="ml", cluster_queue="nowhere")


async def test_pages_go_on_where_they_ended_whatever_is_wanted(log: AuditLog) -> None:
    here = shared_record(log)
    made = answers(here, log)
    for wanted in ({}, {"namespace": "ml"}, {"cluster_queue": "a"}):
        whole = await rows(made, **wanted)
        found: list[Json] = []
        after: int | None = -1
        while after is not None:
            answer = await made.decisions(
                Everybody(), wanted.get("namespace", ""), wanted.get("cluster_queue", ""), after, 1
            )
            found, after = found + answer.items, answer.last
        assert found == whole
    window = {"since": NOW - 50.0, "until": NOW - 30.0}
    assert [row["at"] for row in await rows(made, **window)] == [NOW - 50, NOW - 50, NOW - 40, NOW - 30, NOW - 30]
    assert (await made.decisions(Everybody(), "")).covered_from == NOW - 60


async def test_an_operator_without_a_record_says_so_and_fails_nothing() -> None:
    answer = await clusters.busy().answers().decisions(Everybody(), "ml")
    assert (answer.items, answer.last, answer.covered_from, answer.recorded) == ([], None, None, False)
    assert await clusters.busy().answers().record_check(Everybody()) is None
    with pytest.raises(NoSuchDecisionError, match="keeps no record of its decisions"):
        await clusters.busy().answers().decision(Everybody(), "ml", 1)


async def test_a_job_that_is_gone_is_named_as_it_was_last_seen(log: AuditLog) -> None:
    here = clusters.busy()
    log.add(Round(AT, (admitted("ml/gone-1"), Preempt("ml/gone-2", "u", "InClusterQueue", "", "ml/gone-1", "v"))))
    kept = Log(lambda: AT)
    kept.add("Deleted", EventSubject("ml", "gone-1", "Job", "train", "mira", "a", "a", 16, 2, ("h100",)))
    first, second = await rows(answers(here, log, kept))
    assert (first["jobKind"], first["jobName"], first["user"], first["workload"]) == ("Job", "train", "mira", "gone-1")
    assert second["by"] == "job/train" and "preempted for train," in second["text"]
    assert (second["jobKind"], second["jobName"], second["gpus"], second["clusterQueue"]) == ("", "gone-2", None, "")
    (unknown, _) = await rows(answers(here, log))
    assert (unknown["jobName"], unknown["gpus"], unknown["clusterQueue"]) == ("gone-1", 16, "a"), "as the decision says"


@pytest.mark.parametrize("kind", typing.get_args(model.Decision))
def test_every_decision_has_a_sentence_and_a_row(kind: type) -> None:
    for seed in range(20):
        decision = made_up(kind, random.Random(seed))
        about = "" if isinstance(decision, Warn) else decision.workload
        each = RecordedDecision(5, 5, AT, kind.__name__, about, decision)
        row = decided.row(each, {}, ALL, {})
        assert row["decision"] == kind.__name__ and row["text"].endswith((".", "!", "?")) and "None" not in row["text"]
        hidden = decided.row(each, {}, Sight(), {})
        assert hidden["hidden"] and hidden["text"] == hidden["reason"] == hidden["by"] == "" and hidden["nodes"] == []


def test_a_topologys_hosts_are_the_nodes_of_a_row_and_are_bounded() -> None:
    hosts = tuple(model.Domain(("rack", f"n{number:03}"), 1) for number in range(200))
    placed = model.TopologyAssignment(("rack", "kubernetes.io/hostname"), hosts)
    pod_set = model.PodSetAssignment("worker", 200, {GPU: "h100"}, {GPU: 200}, placed)
    decision = Admit("ml/w", "u", model.Admission("a", (pod_set,)), True, AT)
    row = decided.row(RecordedDecision(5, 5, AT, "Admit", "ml/w", decision), {}, ALL, {})
    assert row["nodes"] == [f"n{number:03}" for number in range(decided.MOST_NODES)]


def test_hostile_texts_are_bounded_and_name_nobody() -> None:
    texts = [
        "x" * 200_000,
        f"{SECRET}/job " * 2000,
        f"{'x' * 1005} {SECRET}/job",
        f"<script>{SECRET}/job</script>",
        f"for {SECRET}/job.",
        "\ud800",
    ]
    for text in texts:
        decision = ReportPending("ml/w", "u", Explanation("r", text))
        row = decided.row(
            RecordedDecision(5, 5, AT, "ReportPending", "ml/w", decision), {}, Sight(namespaces=frozenset({"ml"})), {}
        )
        assert len(row["text"]) <= 1024 and SECRET[:6] not in row["text"], "nor a part of a name"


# --- inputs and checks ------------------------------------------------------------------------------------------------


def decided_by_an_engine(log: AuditLog) -> Any:
    """The shared cluster, decided on by an engine that records: our job waits for what the other team holds."""
    here = clusters.shared()
    engine = RecordedEngine(here.engine.settings, log, at=AT)
    for fact in here.engine.facts():
        engine.observe(fact)
    engine.decide(AT)
    return here


async def numbered(made: Answers, which: Callable[[Json], bool]) -> int:
    (number, *_) = [row["number"] for row in await rows(made) if which(row)]
    return number


async def test_inputs_name_nobody_whom_the_asker_may_not_see(log: AuditLog) -> None:
    here = decided_by_an_engine(log)
    made, asker = answers(here, log), Reader("ml")
    ours = await numbered(made, lambda row: row["namespace"] == "ml")
    theirs = await numbered(made, lambda row: row["namespace"] == SECRET)
    answer = await made.decision(asker, "ml", ours)
    assert answer["version"] == gangline.__version__
    assert answer["same"] and answer["decision"]["number"] == ours and SECRET not in orjson.dumps(answer).decode()
    assert len(answer["recorded"]) >= 2 and answer["recorded"] == answer["repeated"]
    known = answer["inputs"]["workload"]
    assert known["job"] == f"gpujob/{answer['decision']['jobName']}" and not known["hidden"]
    assert answer["inputs"]["queue"]["name"] == "a" and answer["inputs"]["queue"]["cohorts"] == ["lab"]
    everything = await made.decision(Everybody(), "", ours)
    assert SECRET in orjson.dumps(everything).decode()
    with pytest.raises(NoSuchDecisionError, match="about a Workload of namespace ml"):
        await made.decision(asker, "ml", theirs)
    with pytest.raises(NotReadableError, match="you may not list"):
        await made.decision(asker, "", theirs)
    with pytest.raises(NoSuchDecisionError, match="has no decision 7"):
        await made.decision(asker, "", 7)


def test_a_hidden_preemptors_inputs_are_its_size_and_its_place() -> None:
    key = f"{SECRET}/job"
    known = {
        "workload": key,
        "priority": 9,
        "created": 5.0,
        "queue": SECRET,
        "position": 1,
        "gpus": 8,
        "amounts": {GPU: 8},
    }
    known |= {"state": "Pending", "forecast": {"p50": 1.0, "p90": 2.0}, "saved": 3.0}
    queue = {"name": SECRET, "cohorts": [], "quotas": [], "waiting": 1, "head": key, "reservedUntil": None}
    answer: Json = {"version": "1", "same": False, "recorded": [f"Preempt {key}"], "repeated": [f"Warn {SECRET}"]}
    answer["inputs"] = {"workload": known, "queue": queue, "by": known, "nodes": {"free": []}}
    seen = decided.inputs_seen(answer, {}, Sight(namespaces=frozenset({"ml"})))
    assert SECRET not in orjson.dumps(seen).decode() and not seen["same"]
    by = seen["inputs"]["by"]
    assert (by["hidden"], by["gpus"], by["state"], by["position"]) == (True, 8, "Pending", 1)
    assert (by["priority"], by["created"], by["queue"], by["forecast"], by["saved"]) == (None, None, "", None, None)
    assert decided.keys_in(answer) == {key}


async def test_a_check_names_nobody_whom_the_asker_may_not_see(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    made = answers(clusters.shared(), log)
    record = made.source.record
    assert record is not None
    differences = [{"at": 1.0, "recorded": [f"Admit {SECRET}/w", "Admit ml/w"], "repeated": [f"Warn {SECRET}-node"]}]
    monkeypatch.setattr(record, "check", lambda: {"differing": 1, "differences": differences})
    answer = await made.record_check(Reader("ml"))
    assert answer is not None and SECRET not in orjson.dumps(answer).decode()
    assert answer["differences"][0]["recorded"][1] == "Admit ml/w"
    assert (await made.record_check(Everybody())) == {"differing": 1, "differences": differences}
