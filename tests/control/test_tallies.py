"""How right forecasts were is counted on by the next process."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.control.forecasting.expected_starts import Accuracy
from gangline.control.forecasting.group_coverage import Coverage, CoveredGroup
from gangline.control.forecasting.history_store import History
from gangline.control.forecasting.runtime_facts import EstimateRecord
from gangline.control.forecasting.tallies import Tallies
from gangline.engine import ExpectedStart
from gangline.engine.model import Change, Put, ReservedHead, SlowedRun
from gangline.forecast.history.run_store import HistoryStore

START = 1_700_000_000_000


def tallies(directory: Path, cluster: str = "c", now: int = START, judged: list[list[float]] | None = None) -> Tallies:
    history = History(str(directory / "h.db"), directory / "model.gz")
    return Tallies(history, {}, Accuracy(), cluster=lambda: cluster, now=lambda: now, judged=lambda: judged or [])


async def counted(directory: Path) -> Tallies:
    made = tallies(directory, judged=[[1.7e9, 60, 120.0, 90.0]])
    assert await made.load()
    made.records["Hint"] = EstimateRecord(4, {0.1: 0, 0.5: 2, 0.8: 3, 0.9: 4, 0.95: 4}, 1.5)
    made.groups.counts[CoveredGroup("size", ">8")] = Coverage(300, 270)
    made.accuracy.came_true(ExpectedStart("ml/w", 10_000, 20_000), 14_000)
    await made.save()
    await made.history.close(5)
    return made


async def test_the_next_process_goes_on(tmp_path: Path) -> None:
    first = await counted(tmp_path)
    again = tallies(tmp_path, now=START + 86_400_000)
    again.records["Limit"] = EstimateRecord(1)  # counted while another led, who has counted it as well
    assert await again.load()
    assert (again.records, again.accuracy) == (first.records, first.accuracy)
    assert again.groups.counts == {CoveredGroup("size", ">8"): Coverage(300, 270)}
    assert (again.since, again.judgement) == (START / 1000, [[1.7e9, 60, 120.0, 90.0]])
    again.accuracy.came_true(ExpectedStart("ml/v", 10_000, None), 9_000)
    await again.save()
    third = tallies(tmp_path)
    assert await third.load()
    assert third.accuracy.as_json() == {"starts": 2, "withinP50": 0.5, "withinP90": 0.5, "medianErrorSeconds": 2.5}
    assert third.judgement == [[1.7e9, 60, 120.0, 90.0]], "kept until a model is judged by it"
    for made in (again, third):
        await made.history.close(5)


async def test_what_was_promised_and_lost_to_company_is_a_fact_for_the_next_process(tmp_path: Path) -> None:
    ended = ReservedHead("ml/a", "q", "u1", 1, START, START + 10, START + 20, START + 15, "forecast", "Easy")
    waits = ReservedHead("ml/b", "q", "u2", 0, START, START + 10)
    first, again = tallies(tmp_path), tallies(tmp_path)
    slowed = SlowedRun("ml/c", "u3", START + 30, 12)
    first.promised, first.slowed = lambda: (ended, waits), lambda: (slowed,)
    assert await first.load()
    await first.save()
    observed: list[Change] = []
    again.observe = observed.append
    assert await again.load()
    assert observed == [Put(ended), Put(waits), Put(slowed)]
    for made in (first, again):
        await made.history.close(5)


async def test_clusters_that_share_a_database_count_for_themselves(tmp_path: Path) -> None:
    await counted(tmp_path)
    other = tallies(tmp_path, cluster="d")
    assert await other.load()
    assert (other.records, other.accuracy.starts, other.since) == ({}, 0, START / 1000)
    await other.history.close(5)


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        "{}",
        '{"shape": 1, "runtimes": {}, "starts": {}, "groups": [["size", "1", "many", 2]]}',
        '{"shape": 2}',
        '{"shape": 1, "runtimes": {"Hint": {"below": [1]}}}',
    ],
)
async def test_what_cannot_be_read_is_begun_anew(tmp_path: Path, text: str) -> None:
    with HistoryStore(str(tmp_path / "h.db")) as store:
        store.keep("accuracy/c", text)
    made = tallies(tmp_path)
    assert await made.load()
    assert made.records == {} and made.accuracy.starts == 0
    await made.history.close(5)


async def test_nothing_is_kept_in_place_of_what_could_not_be_read(tmp_path: Path) -> None:
    await counted(tmp_path)
    database, away = tmp_path / "h.db", tmp_path / "away.db"
    database.rename(away)
    database.mkdir()
    made = tallies(tmp_path)
    assert not await made.load()
    await made.save()
    database.rmdir()
    away.rename(database)
    assert await made.load() and made.accuracy.starts == 1
    await made.history.close(5)
    made.accuracy.clear()
    await made.save()  # the loop may turn once more after the end
    assert not made._kept
