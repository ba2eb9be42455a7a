"""The audit record: what is written can be read and decided again, and what was tampered with shows."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from tests.builders.engine import GPU, START, EngineWorld, cluster_queue, gang, group
from tests.controlplane import eventually

from gangline import files
from gangline.console.commands.admin.audit import command
from gangline.control.audit import audit_check, audit_log, decision_index, fact_codec
from gangline.control.audit.audit_check import AuditResult
from gangline.control.audit.audit_log import AuditLog, Begin, Gap, RecordedEngine, Round, from_line, to_line
from gangline.engine import model
from gangline.engine.model import Backfill, Flavor, Put, RuntimeForecast
from gangline.engine.queues.cluster_queue import ClusterQueueState


def _json(value: object) -> object:
    return orjson.loads(orjson.dumps(fact_codec.written(value)))


def made_up(kind: Any, chance: random.Random) -> Any:
    """Any value of a type of the engine's model."""
    arguments, origin = typing.get_args(kind), typing.get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        wanted = [f for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING or chance.random() < 0.7]
        return kind(**{field.name: made_up(hints[field.name], chance) for field in wanted})
    if origin is typing.Literal:
        return chance.choice(arguments)
    if type(None) in arguments:
        (other,) = [argument for argument in arguments if argument is not type(None)]
        return made_up(other, chance) if chance.random() < 0.7 else None
    if origin is tuple and Ellipsis in arguments:
        return tuple(made_up(arguments[0], chance) for _ in range(chance.randrange(3)))
    if origin is tuple:
        return tuple(made_up(argument, chance) for argument in arguments)
    if origin is frozenset:
        return frozenset(made_up(arguments[0], chance) for _ in range(chance.randrange(3)))
    if origin is not None:
        return {made_up(arguments[0], chance): made_up(arguments[1], chance) for _ in range(chance.randrange(3))}
    simple = {str: f"ü{chance.randrange(99)}", int: chance.choice([0, -1, 2**63 - 1]), float: chance.random()}
    return bool(chance.randrange(2)) if kind is bool else simple[kind]


@pytest.mark.parametrize("kind", typing.get_args(model.Item))
def test_every_fact_reads_back_as_it_was(kind: type) -> None:
    for seed in range(30):
        change = Put(made_up(kind, random.Random(seed)))
        line = orjson.dumps(fact_codec.change_to_json(change))
        assert fact_codec.change_from_json(orjson.loads(line)) == change


@pytest.mark.parametrize("kind", typing.get_args(model.Decision))
def test_every_decision_reads_back_as_it_was(kind: type) -> None:
    for seed in range(30):
        decision = made_up(kind, random.Random(seed))
        line = orjson.dumps(fact_codec.decision_to_json(decision))
        assert fact_codec.decision_from_json(orjson.loads(line)) == decision


def test_what_says_nothing_new_is_not_written() -> None:
    assert _json(model.LocalQueue("ns", "lq", "cq")) == {
        "namespace": "ns",
        "name": "lq",
        "cluster_queue": "cq",
    }


#: as version 0.1 wrote them; what wrote them then was no library
OLD_LINES = [
    (
        b'{"fact":["+","ClusterQueue",{"name":"q","cohort":"co","groups":[{"covered":["cpu"],"flavors":[{"name":"f",'
        b'"resources":{"cpu":{"nominal":5,"borrowing_limit":1,"lending_limit":0}}}]}],"weight":0.5,"fixes":["a","b"],'
        b'"backfill":{"revoke":"Any"}}]}\n',
        Put(
            model.ClusterQueue(
                "q",
                "co",
                groups=(model.ResourceGroup(("cpu",), (model.FlavorQuotas("f", {"cpu": model.Quota(5, 1, 0)}),)),),
                weight=0.5,
                fixes=frozenset({"b", "a"}),
                backfill=model.Backfill(revoke="Any"),
            )
        ),
    ),
    (b'{"fact":["-","Node","n"]}\n', model.Gone(model.Node, "n")),
    (
        b'{"now":5,"room":null,"decided":[["Admit",{"workload":"ns/w","uid":"u","admission":{"cluster_queue":"q","pod_sets":'
        b'[{"name":"main","count":2,"flavors":{"cpu":"f"},"usage":{"cpu":2000},"topology":{"levels":["rack"],"domains":'
        b'[{"values":["r1"],"count":2}]}}]},"admitted":true,"at":5}]]}\n',
        Round(
            5,
            (
                model.Admit(
                    "ns/w",
                    "u",
                    model.Admission(
                        "q",
                        (
                            model.PodSetAssignment(
                                "main",
                                2,
                                {"cpu": "f"},
                                {"cpu": 2000},
                                model.TopologyAssignment(("rack",), (model.Domain(("r1",), 2),)),
                            ),
                        ),
                    ),
                    True,
                    5,
                ),
            ),
        ),
    ),
]


@pytest.mark.parametrize(("line", "entry"), OLD_LINES)
def test_the_format_is_as_it_was(line: bytes, entry: Any) -> None:
    assert from_line(line) == entry
    assert to_line(entry) == line


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"fact": ["+", "Rocket", {}]}', "unknown kind 'Rocket'"),
        (b'{"fact": ["+", "Flavor", {"name": "f", "colour": "red"}]}', "Flavor has no field 'colour'"),
        (b'{"fact": ["+", "Flavor", {}]}', "Flavor: .*name"),
        (b'{"fact": ["+", "Workload", {"pod_sets": 7}]}', "Workload.pod_sets"),
        (b'{"fact": ["+", "Workload", {"uid": "u", "name": "w", "pod_set": []}]}', "Workload has no field 'pod_set'"),
        (
            b'{"fact": ["+", "ClusterQueue", {"name": "q", "groups": [{"covered": []}]}]}',
            r"groups\[0\]: flavors is missing",
        ),
        (b"[1]", "not a line of an audit record"),
        (b"{", "not JSON"),
    ],
)
def test_a_line_that_cannot_be_read_says_what_is_wrong(line: bytes, complaint: str) -> None:
    with pytest.raises(fact_codec.FactError, match=complaint):
        from_line(line)


class Recorded(EngineWorld):
    """A world whose engine is recorded."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.log = AuditLog(path, **options)
        self.engine = RecordedEngine(model.Settings(pods_ready=None), self.log, at=START)
        self.workloads = {}
        self.now = START + 1_000_000
        self.put(Flavor("a100"), cluster_queue("q", 8, backfill=Backfill(revoke="Overdue")))

    def live(self, seed: int, jobs: int) -> None:
        """Jobs of any size come and go."""
        chance = random.Random(seed)
        for number in range(jobs):
            workload = replace(gang(f"j{seed}x{number}", chance.choice([1, 2, 8])), created=self.now)
            minutes = chance.randint(1, 30)
            quantiles = ((0.5, minutes * 60_000), (0.9, minutes * 120_000))
            self.put(RuntimeForecast(workload.key, quantiles), workload)
            self.now += 30_000
            self.decide()
            for name in self.running():
                if chance.random() < 0.3:
                    self.finish(name)
            self.complete_evictions()
        self.decide()

    def live_on(self, times: int) -> None:
        """Each time all is written before it goes on, so that files are put aside as they would be."""
        for seed in range(times):
            self.live(seed=seed, jobs=5)
            assert eventually(lambda: not self.log.backlog)
        self.log.close()


def checked(path: Path) -> AuditResult:
    outcome = AuditResult()
    return audit_check.check(audit_check.read(decision_index.files(path), outcome), outcome)


def test_the_same_facts_lead_to_the_same_decisions(tmp_path: Path) -> None:
    world = Recorded(tmp_path / "audit")
    world.live(seed=1, jobs=60)
    world.log.close()
    outcome = checked(tmp_path / "audit")
    assert outcome.holds and not outcome.differences
    assert outcome.decisions["Admit"] >= 20 and outcome.early
    assert outcome.rounds == 61 and outcome.runs == 1 and not outcome.partial


class OnSeveralFlavors(Recorded):
    """The same with a second flavor, on which everything takes three times as long."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        groups = (group({"a100": {GPU: 4}, "slow": {GPU: 8}}),)
        self.put(Flavor("slow"), cluster_queue("q", groups=groups, backfill=Backfill(revoke="Overdue")))

    def put(self, *items: Any) -> None:
        for item in items:
            if isinstance(item, RuntimeForecast):
                slow = tuple((level, 3 * millis) for level, millis in item.quantiles)
                item = replace(item, by_flavor={"a100": item.quantiles, "slow": slow})
            super().put(item)


def test_lengths_by_flavor_are_in_the_record(tmp_path: Path) -> None:
    world = OnSeveralFlavors(tmp_path / "audit")
    world.live(seed=1, jobs=60)
    world.log.close()
    assert b'"by_flavor":{"a100":' in b"".join(file.read_bytes() for file in decision_index.files(tmp_path / "audit"))
    outcome = checked(tmp_path / "audit")
    assert outcome.holds and not outcome.differences
    assert outcome.decisions["Admit"] >= 20 and outcome.early


def test_a_record_from_before_there_were_lengths_by_flavor_is_read_as_it_was() -> None:
    line = b'{"fact": ["+", "RuntimeForecast", {"workload": "team/a", "quantiles": [[0.5, 60000]]}]}'
    known = RuntimeForecast("team/a", ((0.5, 60_000),))
    assert fact_codec.change_from_json(orjson.loads(line)["fact"]) == Put(known)
    assert _json(known) == {"workload": "team/a", "quantiles": [[0.5, 60_000]]}


def test_a_start_that_was_missed_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that forgets to wake those who wait for quota: after a restart they would start."""
    world = Recorded(tmp_path / "audit")
    world.put(cluster_queue("plain", 8))
    world.put(*(gang(f"w{number}", 6, "plain") for number in range(30)))
    for _ in range(30):
        world.now += 60_000
        world.decide()
        for name in world.running():
            world.finish(name)
    world.log.close()
    assert checked(tmp_path / "audit").missed == []
    monkeypatch.setattr(ClusterQueueState, "release", _released_in_silence)
    found = checked(tmp_path / "audit")
    assert not found.holds and found.missed and found.as_json()["startsMissed"] == len(found.missed)


def _released_in_silence(queue: ClusterQueueState, gang: Any, release: Any = ClusterQueueState.release) -> None:
    release(queue, gang)
    queue.freed.clear()


def test_a_decision_that_does_not_follow_shows(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Recorded(path)
    world.live(seed=2, jobs=10)
    world.log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if b'"Admit"' in line)
    first = from_line(lines[at])
    assert isinstance(first, Round)
    lines[at] = to_line(Round(first.now, ()))
    path.write_bytes(b"".join(lines))
    outcome = checked(path)
    assert not outcome.holds
    assert [name for name in outcome.differences[0].repeated if name.startswith("Admit")]


def test_a_fact_that_is_taken_away_shows(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Recorded(path)
    world.live(seed=3, jobs=20)
    world.log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"name":"j3x3"' not in line))
    assert checked(path).differing > 0


def test_files_are_put_aside_and_read_as_one(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Recorded(path, max_bytes=4000, kept=50)
    world.live_on(times=4)
    assert len(decision_index.files(path)) > 2
    outcome = checked(path)
    assert outcome.holds and outcome.runs == 1 and not outcome.partial
    assert outcome.rounds == 24


def test_without_the_first_files_the_rest_still_agrees(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Recorded(path, max_bytes=4000, kept=2)
    world.live_on(times=6)
    assert len(decision_index.files(path)) == 3
    outcome = checked(path)
    assert outcome.partial and outcome.rounds < 36
    assert outcome.holds, outcome.differences


def test_known_facts_that_fill_a_file_alone_do_not_begin_one_with_each_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.01)
    path = tmp_path / "audit"
    world = Recorded(path, max_bytes=4000, kept=100)
    world.put(*(gang(f"waits{number}", 64) for number in range(50)))  # 10 kB of facts
    for _ in range(60):
        world.decide()
        assert eventually(lambda: not world.log.backlog)
    assert len(decision_index.files(path)) <= 3
    for number in range(200):  # other facts fill files as before
        world.put(gang(f"comes{number}", 64))
    world.decide()
    world.decide()
    world.log.close()
    assert len(decision_index.files(path)) <= 5
    assert checked(path).holds
    shares = re.findall(r"(\d+) % of it is about Workloads of namespace", caplog.text)
    assert shares and all(0 < int(share) <= 100 for share in shares)


def test_a_process_that_was_killed_within_a_line_spoils_only_that(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for _ in range(2):
        world = Recorded(path)
        world.live(seed=5, jobs=10)
        world.log.close()
        with path.open("ab") as file:
            file.write(b'{"fact":["+","Workl')
    outcome = checked(path)
    assert outcome.holds and outcome.runs == 2 and outcome.unreadable == 2


def test_what_stands_before_the_first_beginning_is_passed_over() -> None:
    outcome = audit_check.check([Put(Flavor("x")), Round(START, ())], AuditResult())
    assert (outcome.rounds, outcome.facts, outcome.runs) == (0, 0, 0)
    outcome = audit_check.check([Begin("r", 0, START, model.Settings()), Round(START, ())], AuditResult())
    assert (outcome.rounds, outcome.runs, outcome.holds) == (1, 1, True)


def test_the_command_says_so_in_words_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    world = Recorded(path)
    world.live(seed=1, jobs=30)
    world.log.close()
    done = CliRunner().invoke(command, [str(path)])
    assert done.exit_code == 0, done.output
    assert "✓ every decision equals the recorded one" in done.output
    document = json.loads(done.output.splitlines()[-1])
    assert document["holds"] and document["roundsThatDiffer"] == 0 and document["revoke"] == {"q": "Overdue"}

    text = path.read_text().replace('"now":', '"now":1', 1)
    path.write_text(text)
    done = CliRunner().invoke(command, [str(path), "-o", "json"])
    assert done.exit_code == 1 and not json.loads(done.output)["holds"]


def test_a_file_that_is_no_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    path.write_text("hello}\n")
    done = CliRunner().invoke(command, [str(path)])
    assert done.exit_code == 1 and f"{path}, line 1: not JSON" in done.output
    path.write_text("\n")
    done = CliRunner().invoke(command, [str(path)])
    assert done.exit_code == 1 and "no start of an operator run" in done.output


def test_what_cannot_be_written_costs_that_entry_alone(tmp_path: Path) -> None:
    """An integer of 60 digits has no room in 64 bits: the thread goes on, and the check says that a piece is missing."""
    path, settings = tmp_path / "audit.jsonl", model.Settings(pods_ready=None)
    record = AuditLog(path)
    engine = RecordedEngine(settings, record, at=START)
    engine.observe(Put(model.BoundPod("p", "main", "n", index=int("9" * 60))))  # type: ignore[arg-type]
    engine.observe(Put(Flavor("a100")))
    engine.decide(START)
    record.close()
    assert record.lost == 1
    outcome = audit_check.check(audit_check.read([path], AuditResult()), AuditResult())
    assert (outcome.gaps, outcome.rounds, outcome.holds) == (1, 0, True)
    assert b"Flavor" in path.read_bytes()


def test_a_full_disk_costs_entries_and_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "append", lambda path: Path("/dev/full").open("ab"))  # noqa: SIM115
    record = AuditLog(tmp_path / "record")
    for _ in range(2):
        for number in range(1000):
            record.add(model.Gone(Flavor, f"n{number}"))
        assert eventually(lambda: record.backlog == 0, 10)
    record.close()
    assert record.lost >= 2


def test_a_record_goes_on_where_it_can_be_written_again(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.mkdir()  # no file can be written there
    record = AuditLog(path)
    record.add(model.Gone(Flavor, "lost"))
    assert eventually(lambda: record.lost > 0, 10)
    path.rmdir()
    record.add(model.Gone(Flavor, "kept"))
    record.close()
    gap, entry = (from_line(line) for line in path.read_bytes().splitlines())
    assert isinstance(gap, Gap) and "directory" in gap.why
    assert entry == model.Gone(Flavor, "kept")


def test_a_workload_that_is_left_out_begins_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gangline.engine.cycle import tree_cycle

    nominate = tree_cycle.TreeCycle._nominate

    def broken(self: Any, subject: Any) -> Any:
        if subject.key == "team/bad":
            raise KeyError("spec")
        return nominate(self, subject)

    path = tmp_path / "audit.jsonl"
    record = AuditLog(path)
    world = EngineWorld()
    world.engine = RecordedEngine(model.Settings(pods_ready=None), record, at=START)
    world.put(Flavor("a100"), cluster_queue("q", 8), gang("w1"), gang("bad"))
    with monkeypatch.context() as patch:
        patch.setattr(tree_cycle.TreeCycle, "_nominate", broken)
        world.decide()
    world.put(gang("w2"))
    world.decide()
    record.close()
    outcome = AuditResult()
    audit_check.check(audit_check.read(decision_index.files(path), outcome), outcome)
    assert outcome.holds, outcome.differences
    assert outcome.decisions["Admit"] == 2
