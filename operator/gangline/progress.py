"""Tell Gangline how a training run comes along, from inside it, and ask by when it should save its work. One file, the standard
library only: copy it if you like.

    from gangline import progress

    for step, batch in enumerate(loader):
        train(batch)
        progress.report(step=step, total=len(loader))

or `for batch in progress.steps(loader): train(batch)`. A run that reports is not taken for stalled while it only looks idle, and
its remaining time is known from its own pace.

Before nodes are kept for others, Gangline tells the runs on them by when to save. `if progress.save_due(60): save()` between two
steps saves in time, and as late as it can: once, at most 60 seconds before the run is stopped. `save_by` is that time. Both read
a file of the downward API: `metadata.annotations['gangline.io/save-by']` as `/etc/gangline/save-by`, or as what
`GANGLINE_SAVE_BY_FILE` names. Without this file nothing is ever due.

`report` costs microseconds and never raises or waits: a thread of its own sends the newest report at most every
`GANGLINE_PROGRESS_INTERVAL` seconds (10), tries again when that fails, and gives up quietly. Where to comes from
`GANGLINE_PROGRESS_URL`, which Gangline puts into the pods of a GPUJob; without it nothing happens. For other kinds, take it
from the downward API: `metadata.annotations['gangline.io/progress-url']`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final, TypeVar

__all__ = ["report", "save_by", "save_due", "steps"]

_T = TypeVar("_T")

#: seconds: one try to send, the pauses before the next ones, and what the end of the program waits for the last report
TIMEOUT: Final = 3.0
PAUSES: Final = (1.0, 3.0)
FAREWELL: Final = 1.0
#: where the downward API writes by when to save, and how often it is read, in seconds
SAVE_BY_FILE: Final = "/etc/gangline/save-by"
LOOK_EVERY: Final = 1.0


def report(
    step: int | None = None, total: int | None = None, *, phase: str | None = None, metric: float | None = None
) -> None:
    """A sign of life. Without `step` it only says "alive"; with it, the run counts as stuck while the step stays the same.

    `total` is the number of all steps. `phase` says what the run does outside of training: "startup", "evaluation" and
    "checkpoint" have no steps. `metric` is any number that should change, such as the loss: its phases follow from it
    (docs/runaway.md).
    """
    with contextlib.suppress(Exception):  # no error here may harm the run
        _reporter.put({"step": step, "total": total, "phase": phase, "metric": metric})


def steps(iterable: Iterable[_T], total: int | None = None, *, start: int = 0) -> Iterator[_T]:
    """The items of `iterable`, each reported as a step once it is done. `total` is its length, where it has one."""
    if total is None:
        with contextlib.suppress(TypeError):
            total = start + len(iterable)  # type: ignore[arg-type]
    for step, item in enumerate(iterable, start + 1):
        yield item
        report(step, total)


def save_by() -> datetime | None:
    """The time by which the run should have saved its work, since it is stopped then; None while nothing is announced."""
    with contextlib.suppress(Exception):
        return _deadline.look()
    return None


def save_due(within: float = 60.0) -> bool:
    """Whether to save now: True once for each time that is announced, from so many seconds before it. Ask between steps.

    `within` is what a save and the step before it take at most. Where several ranks train together, one of them asks and tells
    the others: they read the file at different times.
    """
    with contextlib.suppress(Exception):
        return _deadline.due(within)
    return False


class _Deadline:
    """The time in the file, as it was read last."""

    def __init__(self) -> None:
        self._looked = float("-inf")
        self._save_by: datetime | None = None
        self._answered: datetime | None = None

    def look(self) -> datetime | None:
        now = time.monotonic()
        if now - self._looked >= LOOK_EVERY:
            self._looked, self._save_by = now, None
            with Path(os.environ.get("GANGLINE_SAVE_BY_FILE") or SAVE_BY_FILE).open(encoding="ascii") as file:
                found = datetime.fromisoformat(file.read(64).strip().replace("Z", "+00:00"))
            self._save_by = found if found.tzinfo is not None else None
        return self._save_by

    def due(self, within: float) -> bool:
        deadline = self.look()
        if deadline is None or deadline == self._answered:
            return False
        if (deadline - datetime.now(timezone.utc)).total_seconds() > within:  # noqa: UP017
            return False
        self._answered = deadline
        return True


class _Reporter:
    """Keeps the newest report and a thread that sends it."""

    def __init__(self) -> None:
        self._closing = False
        self._news = threading.Condition()
        self._waiting: dict[str, Any] | None = None
        self._sending = False
        self._thread: threading.Thread | None = None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is in the cluster

    def put(self, report_body: dict[str, Any]) -> None:
        if not os.environ.get("GANGLINE_PROGRESS_URL"):
            return
        with self._news:
            self._waiting = report_body
            self._news.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gangline-progress", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """The end of the program: wait a moment for the last report to be sent."""
        with self._news:
            self._closing = True
            self._news.notify_all()
            self._news.wait_for(lambda: self._waiting is None and not self._sending, FAREWELL)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting is not None)
                report_body, self._waiting, self._sending = self._waiting, None, True
            with contextlib.suppress(Exception):
                self._send(report_body or {})
            with self._news:
                self._sending = False
                self._news.notify_all()
                self._news.wait_for(lambda: self._closing, _interval())

    def _send(self, report_body: dict[str, Any]) -> None:
        body = {key: value for key, value in report_body.items() if value is not None}
        body["pod"] = os.environ.get("GANGLINE_POD") or socket.gethostname()
        request = urllib.request.Request(
            os.environ["GANGLINE_PROGRESS_URL"],
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Connection": "close"},
        )
        for pause in (*PAUSES, None):
            try:
                with self._opener.open(request, timeout=TIMEOUT):
                    return
            except OSError:
                if pause is None or self._closing:
                    return
                time.sleep(pause)


def _interval() -> float:
    try:
        return max(0.0, float(os.environ.get("GANGLINE_PROGRESS_INTERVAL", "10")))
    except ValueError:
        return 10.0


def _anew() -> None:
    """Make a new reporter in a forked child (a data loader's worker), where the thread does not exist."""
    global _reporter  # noqa: PLW0603
    _reporter = _Reporter()


def _farewell() -> None:
    _reporter.close()


_deadline = _Deadline()
_reporter = _Reporter()
atexit.register(_farewell)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_anew)
