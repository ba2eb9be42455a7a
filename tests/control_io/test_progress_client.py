"""The helper in users' training scripts: it sends what is newest, in a thread, and harms nobody."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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


def test_it_needs_nothing_but_the_standard_library() -> None:
    ran = subprocess.run([sys.executable, "-I", "-S", progress.__file__], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
