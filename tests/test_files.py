"""What the operator writes to disk is for its own user alone, and what it reads is bounded."""

from __future__ import annotations

import ast
import gzip
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.forecast.generator import make_runs

import gangline
import gangline_webhooks
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


# --- reading within bounds --------------------------------------------------------------------------------------------


def test_a_file_has_at_most_so_many_bytes_however_small_it_is_packed(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed.gz"
    plain.write_bytes(b"x" * 1001)
    packed.write_bytes(gzip.compress(b"x" * 10_000_000))
    assert files.read_bytes(plain, most=1001) == b"x" * 1001
    for path in (plain, packed):
        with pytest.raises(OSError, match="it has more than 1000 bytes") as caught:
            files.read_bytes(path, most=1000, unpack=True)
        assert caught.value.filename == str(path)
    assert len(files.read_bytes(packed)) < 20_000, "not asked to, it unpacks nothing"
    assert files.read_beginning(packed, 5) == b"xxxxx"
    assert files.read_tail(plain, 3) == b"xxx"


def test_lines_are_bounded_one_by_one_and_in_sum(tmp_path: Path) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n" + b"y" * 100_000_000))
    found: list[bytes] = []
    with pytest.raises(OSError, match="line 3 has more than 1000 bytes"):
        found.extend(files.read_lines(path, longest=1000, most=10**9))
    path.write_bytes(gzip.compress(b"12345678\n" * 1000))
    with pytest.raises(OSError, match="up to line 12 it has more than 100 bytes"):
        list(files.read_lines(path, longest=1000, most=100))


@pytest.mark.parametrize("broken", [b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03nothing"])
def test_a_damaged_file_is_an_ordinary_error(tmp_path: Path, broken: bytes) -> None:
    path = tmp_path / "f.gz"
    path.write_bytes(broken)
    if broken:
        with pytest.raises(OSError, match="damaged"):
            list(files.read_lines(path, longest=10, most=10))
    else:
        assert list(files.read_lines(path, longest=10, most=10)) == []


#: modules whose files nobody else writes: of development clusters and images, the kernel's, or from one process to its child
OWN_FILES = {
    "gangline.debian",
    "gangline.devcluster",
    "gangline.image",
    "gangline.console.doctor.machine",  # /proc/meminfo
    "gangline.console.stack.own_image",  # the sources of this installation
    "gangline.console.run.local_needs",
    "gangline.console.commands.admin.crds",  # compares what it wrote
    "gangline.install.manifests.chart",
    "gangline.api.selecting.child",  # asked by its parent, which bounds what it asks
    "gangline.control.floor.floor_process",
    "gangline.control.forecasting.simulation_process",
    "gangline.forecast.learning.worker",
    "gangline.record.advice.tuning",
    "gangline.replay.side_by_side",
    "gangline.control.checks.multikueue.workloads.local_jobs",  # unpacks what the same process packed
    "gangline.jobs.pods.member",
    "gangline.kube.oidc",  # the answer of kubectl's plugin, to a child
    "gangline.files",
}
#: calls that read all of a file, a line however long, or what is packed however much it is
UNBOUNDED = {"read_text", "read_bytes", "readline", "readlines", "decompress", "GzipFile", "load"}


def unbounded(source: str) -> list[int]:
    """The lines with calls that read a file without a bound."""
    found: list[int] = []
    tree = ast.parse(source)
    awaited = {node.value for node in ast.walk(tree) if isinstance(node, ast.Await)}  # of no file
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node in awaited:
            continue
        name, of = node.func.attr, ast.unparse(node.func.value)
        asked = name in UNBOUNDED and of != "files" and (name != "load" or of in ("json", "pickle", "tomllib"))
        asked = asked or (name == "open" and of in ("gzip", "bz2", "lzma", "tarfile", "zipfile"))
        asked = asked or (name == "read" and not node.args)
        if asked or (name == "open" and of not in ("os", "self") and _reading(node)):
            found.append(node.lineno)
    return found


def _reading(call: ast.Call) -> bool:
    modes = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "mode")]
    return not modes or any(isinstance(mode, ast.Constant) and "r" in str(mode.value) for mode in modes)


#: opens a file to look whether its last byte ends a line; sends requests, opens no file; streams of the answers to requests
EXCEPTED = {"gangline.record.folder", "gangline.progress", "gangline.kube.transport"}


def test_every_reader_of_files_is_bounded() -> None:
    found: list[str] = []
    for package in (gangline, gangline_webhooks):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            module = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            parts = module.split(".")
            if {".".join(parts[: i + 1]) for i in range(len(parts))} & (OWN_FILES | EXCEPTED):
                continue
            found += [f"{module}:{line}" for line in unbounded(path.read_text())]
    assert found == [], "gangline.files has bounded readers"


@pytest.mark.parametrize(
    "call",
    [
        "path.read_text()",
        "gzip.open(path)",
        "path.open()",
        "path.open('rb')",
        "file.readline()",
        "json.load(file)",
        "file.read()",
    ],
)
def test_an_unbounded_reader_is_found(call: str) -> None:
    assert unbounded(f"x = {call}") == [1]
