"""The index of an audit record: what it lists is what the files say, whatever happens to them meanwhile."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.builders.engine import START, cluster_queue, gang
from tests.control.test_audit import Recorded
from tests.controlplane import eventually

from gangline.control.audit import audit_log, decision_index
from gangline.control.audit.audit_check import AuditResult, read
from gangline.control.audit.audit_log import AuditLog, Begin, Round, to_line
from gangline.control.audit.decision_index import DecisionIndex, RecordedDecision, files
from gangline.engine import model
from gangline.engine.model import Evict, Flavor, Put, Warn


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_EVERY", 0.002)


def listed(index: DecisionIndex, most: int = 10_000, **window: Any) -> list[RecordedDecision]:
    """All decisions, page by page."""
    found: list[RecordedDecision] = []
    after, more = -1, True
    while more:
        page = index.page(after, most, **window)
        assert len(page.decisions) <= most and (page.last > after or not page.more), "each page goes on"
        found += page.decisions
        after, more = page.last, page.more
    return found


def written(path: Path) -> list[tuple[int, model.Decision]]:
    """What a reader of all files finds."""
    rounds = [entry for entry in read(files(path), AuditResult()) if isinstance(entry, Round)]
    return [(entry.now, decision) for entry in rounds for decision in entry.decisions]


def agrees(index: DecisionIndex, path: Path, most: int = 10_000) -> list[RecordedDecision]:
    """The listed decisions, which are those of the files, each with a number above the one before."""
    index.follow()
    found = listed(index, most)
    assert [(each.at, each.decision) for each in found] == written(path)
    numbers = [each.number for each in found]
    assert numbers == sorted(set(numbers))
    for each in found[:: 1 + len(found) // 50]:
        (again, _) = index.find(each.number) or pytest.fail(f"{each.number} is listed, and not found")
        assert again == each
    return found


def evicted(name: str, text: str = "") -> Evict:
    return Evict(f"team/{name}", f"uid-{name}", "PodsReadyTimeout", text or "It took too long")


def test_what_is_listed_is_what_the_files_say_over_rotations_and_restarts(tmp_path: Path) -> None:
    path, numbers, found = tmp_path / "audit", dict[int, RecordedDecision](), list[RecordedDecision]()
    for life in range(4):
        world = Recorded(path, max_bytes=4000, kept=3)
        for seed in range(3):
            world.live(seed=10 * life + seed, jobs=5)
            assert eventually(lambda log=world.log: not log.backlog)
        world.log.close()
        found = agrees(world.log.index, path, most=7)
        for each in found:  # of those that are still there, each has the number that it had
            assert numbers.setdefault(each.number, each) == each
        with path.open("ab") as file:
            file.write(b'{"now":17,"room":null,"decided":[["Admit",{"workl')
    assert len(files(path)) == 4 and any(each.kind == "Admit" for each in numbers.values())
    assert agrees(AuditLog(path).index, path) == found


def test_random_writes_are_listed_as_they_were_written(tmp_path: Path) -> None:
    """Rounds of any size, at equal times and with a clock that goes back, gaps, rotations and restarts."""
    for seed in range(8):
        chance, path, now, serial = random.Random(seed), tmp_path / f"audit{seed}", START, 0
        log = AuditLog(path, kept=3)
        for number in range(120):
            now += chance.choice([0, 0, 1, 5, -3000 if chance.random() < 0.05 else 40])
            match chance.randrange(12):
                case 0:
                    log.begin_anew([Begin("r", serial := serial + 1, now, model.Settings())])
                case 1:
                    log.close()
                    if chance.random() < 0.5:
                        with path.open("ab") as file:
                            file.write(b'{"fact":["+","Fla')
                    log = AuditLog(path, kept=3)
                case 2:
                    log.add(Put(model.BoundPod("p", "main", "n", index=int("9" * 60))))  # type: ignore[arg-type]
                case 3:
                    log.add(Round(now, ()))
                case 4:
                    log.add(Round(now, (Warn("Node", f"n{number}", "Soaking", 'a "quoted" ]} text\n'),)))
                case _:
                    size = chance.choice([1, 2, 7, 1500 if chance.random() < 0.1 else 3])
                    log.add(Round(now, tuple(evicted(f"w{number}-{place}") for place in range(size))))
            if chance.random() < 0.2:
                assert eventually(lambda log=log: not log.backlog)
        log.close()
        agrees(log.index, path, most=chance.choice([1, 3, 1000]))
        agrees(DecisionIndex(path), path)


def test_rounds_of_one_instant_and_of_more_decisions_than_a_millisecond_has_numbers_do_not_collide(
    tmp_path: Path,
) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path)
    for name, size in (("a", 2500), ("b", 1), ("c", 1)):
        log.add(Round(START, tuple(evicted(f"{name}{number}") for number in range(size))))
    log.close()
    found = agrees(log.index, path)
    assert [found[0].number, found[2500].number, found[2501].number] == [START * 1000 + n for n in (0, 2500, 2501)]
    again = DecisionIndex(path)
    assert agrees(again, path) == found
    assert again.number(START, 1) == START * 1000 + 2502, "the next process goes on above all that were given"


def test_records_of_versions_without_numbers_are_listed_too(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    old = (Round(START, (evicted("a"), evicted("b"))), Round(START, (evicted("c"),)), Round(START + 1, ()))
    path.write_bytes(b"".join(map(to_line, old)))
    assert b"number" not in path.read_bytes()
    log = AuditLog(path)
    log.add(Round(START, (evicted("d"),)))
    log.close()
    assert [each.number - START * 1000 for each in agrees(log.index, path)] == [0, 1, 2, 3]


def test_a_decision_with_fields_of_another_version_is_listed_by_its_kind(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    body = {"now": START, "number": START * 1000, "count": 2, "room": None}
    decided = [["Evict", {"workload": "team/a", "colour": "red"}], ["Rocket", {"workload": "team/b"}], 7]
    path.write_bytes(orjson.dumps({**body, "count": 3, "decided": decided}) + b"\n")
    index = DecisionIndex(path)
    index.follow()
    found = [(each.kind, each.workload, each.decision) for each in listed(index)]
    assert found == [("Evict", "team/a", None), ("Rocket", "team/b", None), ("", "", None)]


def test_lines_that_were_cut_off_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    whole = to_line(Round(START, (evicted("a"),), number=START * 1000))
    looks_whole = b'{"now":5,"number":5000,"count":1,"room":null,"decided":[["Evict",{"x":[1]}\n'
    path.write_bytes(whole[:-20] + b"\n" + looks_whole + whole + whole[:-5])
    index = DecisionIndex(path)
    index.follow()
    assert [each.workload for each in listed(index)] == ["team/a"]
    with path.open("ab") as file:
        file.write(whole[-5:])
    index.follow()
    assert [each.number - START * 1000 for each in listed(index)] == [0, 1], "complete now, and of a number of its own"


def test_times_namespaces_and_pages(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path)
    for number in range(20):
        other = Evict(f"other/w{number}", "u", "Preempted", "team/w1 took its place")
        log.add(Round(START + number * 1000, (evicted(f"w{number}"), other)))
    log.close()
    own = listed(log.index, most=3, namespace="team", since=START + 5000, until=START + 9000)
    assert [each.workload for each in own] == [f"team/w{number}" for number in range(5, 10)]
    first = log.index.page(-1, 3)
    assert [each.workload for each in first.decisions] == ["team/w0", "other/w0", "team/w1"] and first.more
    assert log.index.page(log.index.page(-1, 99).last, 9).decisions == ()
    assert log.index.covered_from == START


def test_what_one_page_reads_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path)
    for number in range(30):
        log.add(Round(START + number, (evicted(f"w{number}", "x" * 2000),)))
    log.close()
    monkeypatch.setattr(decision_index, "MOST_READ", 5000)
    page = log.index.page(-1, 1000, namespace="nobody")
    assert page.decisions == () and page.more and page.last == (START + 1) * 1000
    assert len(agrees(log.index, path)) == 30
    monkeypatch.setattr(decision_index, "MOST_LOOKED_AT", 4)
    assert len(log.index.page(-1, 1000).decisions) <= 4 and len(agrees(log.index, path)) == 30


def test_only_the_newest_rounds_are_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path)
    log.index._most = 10
    for serial in range(1, 6):
        log.begin_anew([Begin("r", serial, START + serial, model.Settings())])
        for number in range(4):
            log.add(Round(START + 1000 * serial + number, (evicted(f"w{serial}-{number}"),)))
    log.close()
    found = listed(log.index)
    assert [each.workload for each in found] == [
        f"team/w{serial}-{number}" for serial, number in ((3, 2), (3, 3), *((s, n) for s in (4, 5) for n in range(4)))
    ]
    assert log.index.covered_from == found[0].at


def test_a_reader_reads_on_while_files_are_renamed_and_deleted(tmp_path: Path) -> None:
    path, troubles, done = tmp_path / "audit", list[str](), threading.Event()
    log = AuditLog(path, kept=2)

    def read_all() -> None:
        while not done.is_set():
            try:
                found = listed(log.index, most=20)
                wrong = [each for each in found if each.decision != evicted(f"w{each.at - START}")]
                if wrong:
                    troubles.append(f"{wrong[0]}")
            except Exception as error:
                troubles.append(repr(error))

    reader = threading.Thread(target=read_all)
    reader.start()
    for number in range(300):
        if number % 10 == 9:
            log.begin_anew([Begin("r", number, START + number, model.Settings())])
        log.add(Round(START + number, (evicted(f"w{number}"),)))
        if number % 5 == 0:
            assert eventually(lambda: not log.backlog)
    done.set()
    reader.join()
    log.close()
    assert troubles == []
    agrees(log.index, path)


def test_files_that_cannot_be_read_cost_the_index_and_not_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit"

    def refused(*_: Any) -> Any:
        raise PermissionError("no")

    with monkeypatch.context() as patch:
        patch.setattr(decision_index.os, "pread", refused)
        log = AuditLog(path)
        for number in range(3):
            log.add(Round(START + number, (evicted(f"w{number}"),)))
            assert eventually(lambda: not log.backlog)
        log.close()
    assert caplog.text.count("decisions of the audit record are not listed: no") == 1 and log.lost == 0
    assert len(agrees(log.index, path)) == 3


def test_the_part_of_a_decision_begins_where_its_run_does(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    for name in ("a", "b"):
        log = AuditLog(path)
        log.add(Begin(name, 0, START, model.Settings()))
        log.add(Put(Flavor(name)))
        log.add(Round(START, (evicted(name),)))
        log.close()
    *_, last = listed(log.index)
    found = log.index.find(last.number)
    assert found is not None and found[1] is not None
    lines = path.read_bytes()[found[1].begin : found[1].end].splitlines()
    assert len(lines) == 3 and b'"run":"b"' in lines[0] and b"team/b" in lines[2]
    assert log.index.find(last.number + 1) is None and log.index.find(5) is None


def test_the_world_of_the_audit_tests_is_in_the_index(tmp_path: Path) -> None:
    """The operator's own engine, not lines made by hand."""
    world = Recorded(tmp_path / "audit")
    world.put(cluster_queue("plain", 8), gang("w1", 8, "plain"), gang("w2", 8, "plain"))
    world.decide()
    world.log.close()
    kinds = {each.workload: each.kind for each in agrees(world.log.index, tmp_path / "audit")}
    assert kinds == {"team/w1": "Admit", "team/w2": "ReportPending"}
