"""Inputs of decisions, and checks of a record that is still written: what a replay says is what was known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.engine import GPU, START, cluster_queue, gang
from tests.control.test_audit import Recorded
from tests.control.test_decision_index import agrees, listed
from tests.controlplane import eventually
from tests.fuzz.operator_http import Cluster

from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.answers.sight import Everybody
from gangline.control.audit import audit_log, decision_inputs, hindsight, replay_process
from gangline.control.audit.audit_check import AuditResult, read_part
from gangline.control.audit.audit_log import AuditLog, Round, from_line, to_line
from gangline.control.audit.audit_reader import EVERY, AuditReader
from gangline.control.audit.decision_index import DecisionIndex, PreemptedSpan, RecordedDecision, RecordPart
from gangline.control.audit.decision_inputs import NotRepeatableError
from gangline.control.audit.hindsight import Hindsight
from gangline.control.process.operator_process import Operator, OperatorOptions
from gangline.engine import model
from gangline.engine.model import Admit, Backfill, Flavor, Node, Preempt, PreemptionPolicy, RuntimeForecast

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.002)


def inputs_here(decision: RecordedDecision, part: RecordPart | None) -> Json:
    """What the other process answers, without one."""
    assert part is not None
    return replay_process.answer_to(
        "inputs", [(part.file.descriptor, part.begin, part.end)], [[decision.number - decision.round]]
    )


def of_kind(index: DecisionIndex, kind: type, workload: str) -> tuple[RecordedDecision, RecordPart | None]:
    """The last decision of this kind about a workload."""
    *_, number = [each.number for each in listed(index) if (each.kind, each.workload) == (kind.__name__, workload)]
    found = index.find(number)
    assert found is not None
    return found


class Contended(Recorded):
    """A queue in which a high priority preempts, with nodes, forecasts and a reserved head."""

    def __init__(self, path: Path, **options: Any) -> None:
        super().__init__(path, **options)
        policy = PreemptionPolicy(within_cluster_queue="LowerPriority")
        self.put(cluster_queue("q", 8, "lab", preemption=policy, backfill=Backfill(revoke="Never", candidate=0.5)))
        self.put(cluster_queue("lent", 4, "lab"))

    def lives(self) -> None:
        self.forecast("low1", 4000)
        self.put(gang("low1", 8, checkpoint_seconds=60.0), gang("waits2", 10))
        self.decide()
        self.now += 600_000
        self.put(gang("high3", 8, priority=9))
        self.decide()
        self.complete_evictions()
        self.decide()

    def forecast(self, name: str, seconds: int) -> None:
        self.put(RuntimeForecast(f"team/{name}", ((0.5, seconds * 1000), (0.9, seconds * 2000)), "Model", 9))

    def knows(self) -> Json:
        """What a test reads off the engine, as inputs should say it."""
        engine = self.engine
        head = engine.heads().get("q", "")
        return {
            "waiting": engine.pending("q"),
            "used": engine.usage("q").get("a100", {}).get(GPU, 0),
            "head": head,
            "start": engine.reservations().get(head),
            "states": {key: engine.state_of(key) for key in self.workloads},
        }


def test_inputs_are_what_the_engine_knew_just_before(tmp_path: Path) -> None:
    world = Contended(tmp_path / "audit")
    world.forecast("low1", 4000)
    world.put(gang("low1", 8, checkpoint_seconds=60.0), gang("waits2", 10))
    world.decide()
    world.now += 600_000
    world.put(gang("high3", 8, priority=9))
    before = world.knows()
    decided = world.decide()
    assert [each.workload for each in decided if isinstance(each, Preempt)] == ["team/low1"]
    world.log.close()
    decision, part = of_kind(world.log.index, Preempt, "team/low1")
    assert decision.decision in decided
    inputs = inputs_here(decision, part)
    assert inputs["same"] and inputs["recorded"] == inputs["repeated"] and "Preempt team/low1" in inputs["recorded"]
    known = inputs["inputs"]
    workload, queue, by = known["workload"], known["queue"], known["by"]
    assert workload == {
        "workload": "team/low1",
        "priority": 0,
        "created": START / 1000 + 1,
        "queue": "q",
        "position": None,
        "gpus": 8,
        "amounts": {GPU: 8},
        "state": before["states"]["team/low1"],
        "forecast": {"p50": 4000.0, "p90": 8000.0},
        "saved": 600.0,
    }
    assert (by["workload"], by["priority"], by["forecast"]) == ("team/high3", 9, None)
    assert by["position"] == before["waiting"].index("team/high3") and by["state"] == before["states"]["team/high3"]
    (quota,) = queue["quotas"]
    assert (queue["name"], queue["cohorts"], queue["waiting"]) == ("q", ["lab"], len(before["waiting"]))
    assert (quota["flavor"], quota["nominal"], quota["used"], quota["borrowed"]) == ("a100", 8, before["used"], 0)
    assert quota["available"] == 4, "what the cohort lends"
    assert queue["head"] == before["head"] and queue["reservedUntil"] == (before["start"] or 0) / 1000 > 0


def test_a_preemption_that_would_have_lost_less_with_another_victim_says_so(tmp_path: Path) -> None:
    world = Contended(tmp_path / "audit")
    world.put(gang("saves1", 4, checkpoint_seconds=60.0))
    world.decide()
    world.now += 600_000
    world.put(gang("loses2", 4))  # started last, so that it is preempted first
    world.decide()
    world.now += 630_000
    world.put(gang("high3", 8, priority=9))
    decided = world.decide()
    assert [each.workload for each in decided if isinstance(each, Preempt)] == ["team/loses2"]
    world.log.close()
    cheaper = inputs_here(*of_kind(world.log.index, Preempt, "team/loses2"))["inputs"]["cheaper"]
    assert cheaper["chosen"] == {"workloads": 1, "lostGpuHours": pytest.approx(4 * 630 / 3600, abs=0.01)}
    assert cheaper["instead"] == {"workloads": 1, "lostGpuHours": pytest.approx(4 * 30 / 3600, abs=0.01)}
    assert cheaper["spared"]


def test_inputs_are_those_of_each_decision_of_a_busy_record(tmp_path: Path) -> None:
    """Every tenth decision of a record over several files, with what the engine knew before it."""
    path = tmp_path / "audit"
    world = Recorded(path, max_bytes=4000, kept=50)
    known: dict[int, list[str]] = {}
    decide = world.engine.decide

    def noted(now: int, room: int | None = None) -> list[model.Decision]:
        known[now] = world.engine.pending("q")
        return decide(now, room)

    world.engine.decide = noted  # type: ignore[method-assign]
    world.live_on(times=5)
    found = agrees(world.log.index, path)
    for each in found[::10]:
        inputs = inputs_here(*(world.log.index.find(each.number) or pytest.fail(str(each))))
        assert inputs["same"], each
        waiting = known[each.at]
        assert inputs["inputs"]["queue"]["waiting"] == len(waiting)
        position = waiting.index(each.workload) if each.workload in waiting else None
        assert inputs["inputs"]["workload"]["position"] == position


def test_free_nodes_are_counted(tmp_path: Path) -> None:
    world = Recorded(tmp_path / "audit")
    world.put(Flavor("a100", node_labels={"gpu": "a100"}))
    world.put(*(Node(f"n{number}", {"gpu": "a100"}, {GPU: 4}) for number in range(3)))
    world.put(gang("w1", 3))
    world.decide()
    world.put(gang("w2", 4))
    world.decide()
    world.log.close()
    inputs = inputs_here(*of_kind(world.log.index, Admit, "team/w2"))
    assert inputs["inputs"]["nodes"] == {"free": [{"gpus": 4, "nodes": 2}, {"gpus": 1, "nodes": 1}]}


def altered(path: Path, kind: bytes) -> None:
    """Takes the first decision of this kind out of its round."""
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if line.startswith(b'{"now":') and kind in line)
    entry = from_line(lines[at])
    assert isinstance(entry, Round)
    lines[at] = to_line(
        replace(entry, decisions=tuple(d for d in entry.decisions if type(d).__name__ != kind.decode()))
    )
    path.write_bytes(b"".join(lines))


def test_an_altered_decision_shows_in_the_inputs_of_its_round(tmp_path: Path) -> None:
    world = Contended(tmp_path / "audit")
    world.lives()
    world.log.close()
    altered(tmp_path / "audit", b"Preempt")
    index = DecisionIndex(tmp_path / "audit")
    index.follow()
    pending = next(each for each in listed(index) if each.kind == "ReportPending" and each.workload == "team/high3")
    inputs = inputs_here(*(index.find(pending.number) or pytest.fail()))
    assert not inputs["same"] and "Preempt team/low1" in set(inputs["repeated"]) - set(inputs["recorded"])


def test_what_the_record_does_not_say_is_no_input(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Contended(path)
    world.lives()
    world.log.close()
    text = path.read_bytes()
    path.write_bytes(text.replace(b'{"fact":["+","RuntimeForecast"', b'{"fact":["+","Prophecy"', 1))
    index = DecisionIndex(path)
    index.follow()
    inputs = inputs_here(*of_kind(index, Preempt, "team/low1"))
    assert "a gap before the decision" in inputs["notRepeatable"] and "Prophecy" in inputs["notRepeatable"]
    path.write_bytes(b"".join(text.splitlines(keepends=True)[5:]))
    index = DecisionIndex(path)
    index.follow()
    _, part = of_kind(index, Preempt, "team/low1")
    assert part is None, "the beginning of the run is not there"


# --- in another process -----------------------------------------------------------------------------------------------


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Contended]:
    made = Contended(tmp_path / "audit")
    made.lives()
    assert eventually(lambda: not made.log.backlog and listed(made.log.index))
    yield made
    made.log.close()


async def settled(reader: AuditReader) -> Json:
    while (check := reader.check())["running"]:
        await asyncio.sleep(0.02)
    return check


async def test_another_process_says_the_same_also_after_a_rotation(world: Contended) -> None:
    reader = AuditReader(world.log.index, lambda: world.now)
    decision, part = of_kind(world.log.index, Preempt, "team/low1")
    assert part is not None
    audit_log.rotate(world.log._path, 4)
    inputs = await reader.inputs(decision, part)
    assert inputs == inputs_here(decision, part) and inputs["same"]


async def test_a_check_is_made_on_request_once_at_a_time_and_at_most_every_ten_minutes(world: Contended) -> None:
    now = [START]
    reader = AuditReader(world.log.index, lambda: now[0])
    first = reader.check()
    assert first["running"] and first["at"] is None, "nobody waits for it"
    task = reader._check
    assert reader.check()["running"] and reader._check is task
    done = await settled(reader)
    rounds = len({each.round for each in listed(world.log.index)})
    assert (done["differing"], done["runs"], done["error"], done["missed"]) == (0, 1, "", 0)
    assert done["rounds"] >= rounds and done["decisions"] == len(listed(world.log.index)) and done["at"] == START / 1000
    now[0] += EVERY - 1
    assert reader.check() == done and reader._check is None
    now[0] += 1
    assert reader.check()["running"] and reader.check()["at"] == done["at"], "the last result stays meanwhile"
    assert (await settled(reader))["at"] == now[0] / 1000


async def test_a_check_reports_an_altered_decision(tmp_path: Path) -> None:
    world = Contended(tmp_path / "audit")
    world.lives()
    world.log.close()
    altered(tmp_path / "audit", b"Preempt")
    log = AuditLog(tmp_path / "audit")
    log.add(model.Gone(Flavor, "x"))
    assert eventually(lambda: not log.backlog and listed(log.index))
    reader = AuditReader(log.index, lambda: START)
    reader.check()
    check = await settled(reader)
    assert check["differing"] >= 1 and "Preempt team/low1" in check["differences"][0]["repeated"]
    assert check["differences"][0]["at"] > START / 1000
    log.close()


async def test_a_check_that_fails_or_takes_too_long_says_so_and_keeps_the_last_result(
    world: Contended, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [START]
    reader = AuditReader(world.log.index, lambda: now[0])
    reader.check()
    done = await settled(reader)
    monkeypatch.setattr(replay_process, "CHECK_WITHIN", 0.001)
    now[0] += EVERY
    reader.check()
    check = await settled(reader)
    assert check == {**done, "error": "the replay took more than 0.001 s"}
    monkeypatch.setattr(replay_process.sys, "executable", "/nonexistent")
    monkeypatch.setattr(replay_process, "CHECK_WITHIN", 60.0)
    now[0] += EVERY
    reader.check()
    assert "could not be replayed" in (await settled(reader))["error"]


async def test_a_check_ends_with_its_operator(world: Contended, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[asyncio.subprocess.Process] = []
    create = asyncio.create_subprocess_exec

    async def noted(*command: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await create(*command, **options))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    reader = AuditReader(world.log.index, lambda: START)
    reader.check()
    while not started:
        await asyncio.sleep(0.01)
    await reader.close()
    assert started[0].returncode is not None and reader._check is None


async def test_what_cannot_be_repeated_is_an_error_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Contended(path)
    world.lives()
    world.log.close()
    path.write_bytes(path.read_bytes().replace(b'{"fact":["+","RuntimeForecast"', b'{"fact":["+","Prophecy"', 1))
    index = DecisionIndex(path)
    index.follow()
    decision, part = of_kind(index, Preempt, "team/low1")
    assert part is not None
    with pytest.raises(NotRepeatableError, match="Prophecy"):
        await AuditReader(index, lambda: START).inputs(decision, part)
    reader = AuditReader(index, lambda: START)
    reader.check()
    check = await settled(reader)
    assert check["error"].startswith("The record has 1 gaps") and check["rounds"] == 0


# --- whether preemptions could have lost less ---------------------------------------------------------------------------


class Regretted(Contended):
    """A queue in which the wrong gang is preempted, and then, where there is one alone, the right one."""

    def lives(self) -> None:
        self.put(gang("saves1", 4, checkpoint_seconds=60.0))
        self.decide()
        self.now += 600_000
        self.put(gang("loses2", 4))
        self.decide()
        self.now += 630_000
        self.put(gang("high3", 8, priority=8))
        self.decide()
        self.complete_evictions()
        self.decide()
        self.now += 60_000
        self.put(gang("higher4", 8, priority=9))
        self.decide()

    def spans(self, *workloads: str) -> list[PreemptedSpan]:
        return [PreemptedSpan(f"team/{each}", START, self.now + 1000) for each in workloads]


@pytest.fixture
def regretted(tmp_path: Path) -> Iterator[Regretted]:
    made = Regretted(tmp_path / "audit")
    made.lives()
    assert eventually(lambda: not made.log.backlog and listed(made.log.index))
    yield made
    made.log.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine may take longer than somebody who asks waits."""
    monkeypatch.setattr(hindsight, "PATIENCE", 120.0)
    monkeypatch.setattr(replay_process, "CHEAPER_WITHIN", 120.0)


@pytest.mark.usefixtures("patient")
async def test_preemptions_are_told_with_what_another_choice_would_have_lost(regretted: Regretted) -> None:
    reader = AuditReader(regretted.log.index, lambda: regretted.now)
    late = PreemptedSpan("team/loses2", regretted.now, regretted.now + 1000)
    avoidable, unavoidable, never, later = await reader.hindsight([*regretted.spans("loses2", "high3", "saves1"), late])
    assert avoidable.cheaper == inputs_here(*of_kind(regretted.log.index, Preempt, "team/loses2"))["inputs"]["cheaper"]
    assert avoidable.cheaper is not None and avoidable.cheaper["spared"]
    assert unavoidable == Hindsight(), "there was no other victim"
    assert "has not this preemption" in never.unknown and later == never
    assert await reader.hindsight([]) == []


@pytest.mark.usefixtures("patient")
async def test_one_replay_answers_many_who_ask_and_is_not_repeated(
    regretted: Regretted, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays: list[int] = []
    replayed = replay_process.cheaper

    async def noted(parts: Any, places: Any) -> Any:
        replays.append(sum(map(len, places)))
        return await replayed(parts, places)

    monkeypatch.setattr(replay_process, "cheaper", noted)
    reader = AuditReader(regretted.log.index, lambda: regretted.now)
    spans = regretted.spans("loses2", "high3")
    answers = await asyncio.gather(*(reader.hindsight(spans) for _ in range(5)))
    assert replays == [2] and all(each == answers[0] for each in answers) and answers[0][0].cheaper is not None
    assert await reader.hindsight(spans) == answers[0] and replays == [2]


async def test_who_does_not_want_to_wait_is_told_later_and_a_failed_replay_pauses(
    regretted: Regretted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight, "PATIENCE", 0.0)
    reader = AuditReader(regretted.log.index, lambda: regretted.now)
    spans = regretted.spans("loses2")
    (first,) = await reader.hindsight(spans)
    assert "ask again" in first.unknown
    while (verdict := (await reader.hindsight(spans))[0]).unknown:
        assert verdict == first
        await asyncio.sleep(0.02)
    assert verdict.cheaper is not None
    monkeypatch.setattr(hindsight, "PATIENCE", 30.0)
    monkeypatch.setattr(replay_process, "CHEAPER_WITHIN", 0.001)
    hasty = AuditReader(regretted.log.index, lambda: regretted.now)
    (failed,) = await hasty.hindsight(spans)
    assert failed.unknown == "the replay took more than 0.001 s"
    monkeypatch.setattr(replay_process, "CHEAPER_WITHIN", 60.0)
    assert (await hasty.hindsight(spans)) == [failed], "it is not tried again at once"
    await reader.close()
    await hasty.close()


async def test_a_replay_that_is_late_tells_what_it_has(regretted: Regretted) -> None:
    found = [regretted.log.index.preemptions(regretted.spans(each))[0] for each in ("loses2", "high3")]
    (first, part), (second, last) = found
    assert part is not None and last is not None
    parts = [(part.file.descriptor, part.begin, part.end), (last.file.descriptor, part.end, last.end)]
    places = [[each.number - each.round] for each in (first, second)]
    assert replay_process.answer_to("cheaper", parts, places, -1.0) == []
    whole = replay_process.answer_to("cheaper", parts, places, 60.0)
    assert whole[0][0]["cheaper"]["spared"] and whole[1] == [{"cheaper": None}]
    entries = [list(read_part(*each, AuditResult())) for each in parts]
    times = iter([False] * len(entries[0]) + [True])
    assert decision_inputs.cheaper(entries, places, lambda: next(times)) == whole[:1]
    assert "notRepeatable" in decision_inputs.cheaper([entries[1]], places[1:], lambda: False)[0][0]


async def test_a_preemption_whose_beginning_is_gone_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Regretted(path)
    world.lives()
    world.log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"run":')))
    index = DecisionIndex(path)
    index.follow()
    (verdict,) = await AuditReader(index, lambda: world.now).hindsight(world.spans("loses2"))
    assert "what was known before this preemption" in verdict.unknown


# --- in the operator --------------------------------------------------------------------------------------------------


async def test_the_operator_answers_from_the_record_that_it_writes(tmp_path: Path) -> None:
    cluster: Any = Cluster()
    api = AggregatedApiOptions(("127.0.0.1", 0), "localhost")
    operator = Operator(OperatorOptions(audit=tmp_path / "audit", visibility=api), cluster)
    assert operator.audit is not None and operator.aggregated is not None
    for item in (Flavor("a100"), cluster_queue("q", 8), model.LocalQueue("team", "q", "q"), gang("w1", 8)):
        operator.engine.observe(model.Put(item))
    operator.engine.decide(START)
    operator.audit.close()
    answer = await operator.aggregated._answers._answers.decisions(Everybody(), "")
    assert answer.recorded and [(row["decision"], row["workload"]) for row in answer.items] == [("Admit", "w1")]
    assert operator.record is not None and operator.record.check()["running"]
    await operator.record.close()
    await operator.aggregated.close()
    without = Operator(OperatorOptions(visibility=api), cluster)
    assert without.aggregated is not None and without.record is None
    assert not (await without.aggregated._answers._answers.decisions(Everybody(), "")).recorded
    await without.aggregated.close()
