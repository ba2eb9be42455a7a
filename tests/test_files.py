"""What the operator writes to disk is for its own user alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forecast.generator import make_runs

from gangline import files
from gangline.control.audit.audit_log import AuditLog, Begin
from gangline.engine import model
from gangline.forecast.history.run_store import HistoryStore


@pytest.fixture(autouse=True)
def _careless() -> Iterator[None]:
    """A umask that lets everybody read."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_private_from_the_start(tmp_path: Path) -> None:
    with files.append(tmp_path / "made" / "a") as file:
        file.write(b"x")
    files.write(tmp_path / "made" / "b", "text")
    assert [mode(tmp_path / "made" / name) for name in "ab"] == [0o600, 0o600]
    assert mode(tmp_path / "made") == 0o700
    assert (tmp_path / "made" / "b").read_text() == "text"


def test_a_file_that_others_could_read_becomes_private(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    assert mode(tmp_path / "a") == 0o666
    files.append(tmp_path / "a").close()
    assert mode(tmp_path / "a") == 0o600
    assert (tmp_path / "a").read_text() == "old"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(tmp_path / "a", "old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write(tmp_path / "a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_the_audit_record_is_private_also_after_it_was_put_aside(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    log.add(Begin("run", 0, 1, model.Settings()))
    log.begin_anew([Begin("run", 1, 1, model.Settings())])
    log.close()
    assert {path.name: mode(path) for path in tmp_path.iterdir()} == {"audit.jsonl": 0o600, "audit.jsonl.1": 0o600}


def test_the_history_is_private_with_all_that_sqlite_puts_beside_it(tmp_path: Path) -> None:
    with HistoryStore(str(tmp_path / "history.db")) as store:
        store.put(make_runs(5))
        assert {mode(path) for path in tmp_path.iterdir()} == {0o600}
