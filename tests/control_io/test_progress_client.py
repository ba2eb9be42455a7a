"""The helper in users' training scripts: it sends what is newest, in a thread, and harms nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gangline import progress


class Receiver:
    """An HTTP server that keeps what is posted; the first `refuse` posts are refused."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.refuse = 0
        self.arrived = threading.Condition()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver.arrived:
                    refused, receiver.refuse = receiver.refuse > 0, max(0, receiver.refuse - 1)
                    if not refused:
                        receiver.bodies.append(body)
                    receiver.arrived.notify_all()
                self.send_response(503 if refused else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/progress/ns/w/uid"

    def wait(self, count: int) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.bodies) >= count, 20)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.server.shutdown()
    started.server.server_close()


@pytest.fixture
def client(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("GANGLINE_PROGRESS_URL", receiver.url)
    monkeypatch.setenv("GANGLINE_PROGRESS_INTERVAL", "0")
    monkeypatch.setenv("GANGLINE_POD", "train-0")
    monkeypatch.setattr(progress, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(progress, "FAREWELL", 20.0)
    monkeypatch.setattr(progress, "_reporter", progress._Reporter())
    return progress


def test_a_report_arrives(client: ModuleType, receiver: Receiver) -> None:
    client.report(step=3, total=9, phase="training", metric=0.5)
    receiver.wait(1)
    assert receiver.bodies == [{"step": 3, "total": 9, "phase": "training", "metric": 0.5, "pod": "train-0"}]


def test_a_refused_report_is_tried_again(client: ModuleType, receiver: Receiver) -> None:
    receiver.refuse = 2
    client.report(step=1)
    receiver.wait(1)
    assert receiver.bodies[0]["step"] == 1


def test_only_the_newest_is_sent(client: ModuleType, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_PROGRESS_INTERVAL", "60")
    for step in range(1000):
        client.report(step)
    receiver.wait(1)
    client._reporter.close()
    assert len(receiver.bodies) <= 2
    assert receiver.bodies[-1]["step"] == 999, "the end of the program does not wait for the interval"


def test_steps_reports_each_item(client: ModuleType, receiver: Receiver) -> None:
    assert list(client.steps("abc")) == ["a", "b", "c"]
    client._reporter.close()
    receiver.wait(1)
    assert receiver.bodies[-1] == {"step": 3, "total": 3, "pod": "train-0"}
    assert list(client.steps(iter("ab"), start=7)) == ["a", "b"], "of unknown length"


def test_nothing_is_ever_raised(client: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLINE_PROGRESS_URL", "http://127.0.0.1:1/nobody")
    client.report(step=1)
    client.report(step=object())  # type: ignore[arg-type]
    monkeypatch.setenv("GANGLINE_PROGRESS_URL", "no URL at all")
    monkeypatch.setenv("GANGLINE_PROGRESS_INTERVAL", "never")
    client.report(step=2)
    monkeypatch.setattr(client, "_reporter", None)
    client.report(step=3)


def test_without_an_address_no_thread_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GANGLINE_PROGRESS_URL", raising=False)
    monkeypatch.setattr(progress, "_reporter", progress._Reporter())
    progress.report(step=1)
    assert progress._reporter._thread is None


class Clock:
    """A clock that this test turns, and the file in which a pod reads by when to save."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.now, self.reads = path, 1_800_000_000.0, 0
        clock = self

        class Now(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> datetime:
                return datetime.fromtimestamp(clock.now, tz)

        monkeypatch.setenv("GANGLINE_SAVE_BY_FILE", str(path))
        monkeypatch.setattr(progress, "datetime", Now)
        monkeypatch.setattr(progress.time, "monotonic", lambda: clock.now)
        monkeypatch.setattr(progress, "_deadline", progress._Deadline())

    def tell(self, seconds: float | None) -> datetime | None:
        """Announce a time so many seconds from now; None: none any more. It is seen a second later."""
        self.now += 1
        if seconds is None:
            self.path.write_text("")
            return None
        save_by = datetime.fromtimestamp(self.now + seconds, UTC)
        self.path.write_text(save_by.isoformat().replace("+00:00", "Z"))
        return save_by


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tmp_path / "save-by", monkeypatch)


def test_a_save_is_due_once_for_each_time_that_is_announced_as_late_as_is_wanted(clock: Clock) -> None:
    assert progress.save_by() is None and not progress.save_due(), "there is no such file"
    clock.tell(None)
    assert progress.save_by() is None and not progress.save_due(1e9)
    save_by = clock.tell(600)
    assert progress.save_by() == save_by and not progress.save_due(60)
    clock.now += 539
    assert not progress.save_due(60)
    clock.now += 1
    assert progress.save_due(60) and not progress.save_due(60), "once"
    clock.now += 3600
    assert not progress.save_due(60)
    later = clock.tell(30)
    assert progress.save_due(60) and progress.save_by() == later
    clock.tell(None)
    assert progress.save_by() is None and not progress.save_due(60)
    clock.tell(-5)
    assert progress.save_due(60), "late, and all the same better than never"


def test_the_file_is_read_once_a_second_at_most_and_what_is_in_it_harms_nobody(clock: Clock) -> None:
    save_by = clock.tell(30)
    assert progress.save_by() == save_by
    clock.path.unlink()
    clock.now += 0.9
    assert progress.save_by() == save_by
    clock.now += 0.1
    assert progress.save_by() is None
    for text in ("soon", "2026-12-01T08:00:00", "9" * 1_000_000, "\x00", "2026-13-45T99:99:99Z", "é"):
        clock.now += 1
        clock.path.write_text(text)
        assert progress.save_by() is None and progress.save_due(1e12) is False, text[:20]
    clock.tell(30)
    assert progress.save_due("many") is False, "no number"  # type: ignore[arg-type]
    assert progress.save_due(60)


def test_it_needs_nothing_but_the_standard_library() -> None:
    ran = subprocess.run([sys.executable, "-I", "-S", progress.__file__], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
