"""The history beside the loop: nothing is lost while the database is away, and nothing is written twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gangline.control.forecasting import history_store as module
from gangline.control.forecasting.history_store import History
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run


def run(uid: str, seconds: float = 60.0) -> Run:
    return Run(uid=uid, submit=1e9, start=1e9 + 1, finish=1e9 + 1 + seconds)


async def test_runs_are_written_and_recalled(tmp_path: Path) -> None:
    history = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    history.put(run("a"))
    history.put(run("b"))
    history.put(run("a", 90.0))
    assert await history.flush()
    assert (history.written, history.waiting) == (2, 0)
    await history.close(5)
    again = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    assert {r.uid: r.seconds for r in await again.recall()} == {"a": 90.0, "b": 60.0}
    await again.close(5)


async def test_what_has_not_ended_is_not_recalled(tmp_path: Path) -> None:
    with HistoryStore(str(tmp_path / "h.db")) as store:
        store.put([run("done"), Run(uid="open", submit=1e9, start=1e9)])
    history = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    assert [r.uid for r in await history.recall()] == ["done"]
    await history.close(5)


async def test_a_database_that_is_away_costs_nothing_but_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "RETRY", 0.0)
    blocked = tmp_path / "taken"
    blocked.write_text("a file where a directory should be")
    history = History(str(blocked / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    assert await history.recall() == []
    history.put(run("a"))
    assert not await history.flush()
    assert not await history.flush()
    assert history.waiting == 1 and history.error
    assert caplog.text.count("the history is not available") == 1
    blocked.unlink()
    assert await history.flush()
    assert (history.written, history.waiting, history.error) == (1, 0, "")
    await history.close(5)


async def test_closing_writes_what_is_left(tmp_path: Path) -> None:
    history = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    history.put(run("last"))
    await history.close(5)
    await history.close(5)
    with HistoryStore(str(tmp_path / "h.db")) as store:
        assert [r.uid for r in store.runs()] == ["last"]


async def test_the_oldest_give_way_when_too_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WAITING", 2)
    history = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    for uid in "abc":
        history.put(run(uid))
    assert (history.waiting, history.dropped) == (2, 1)
    await history.close(5)


async def test_too_little_history_trains_no_model(tmp_path: Path) -> None:
    history = History(str(tmp_path / "h.db"), tmp_path / "model.gz", wall=lambda: 1e9 + 100)
    history.put(run("a"))
    await history.flush()
    assert not await history.train()
    assert await history.model() is None
    (tmp_path / "model.gz").write_text("no model")
    assert await history.model() is None
    await history.close(5)


def test_an_operator_without_a_model_does_without_numpy() -> None:
    """It would cost every operator 47 MB, and most forecast nothing."""
    code = "import sys, gangline.control.forecasting.forecasting; sys.exit('numpy' in sys.modules or 'lightgbm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
