"""Progress on stderr for actions that take more than two seconds; nothing for quick ones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

QUIET_SECONDS = 2.0
LINE_EVERY_SECONDS = 30.0  # without a terminal: one line from time to time, so that a log stays readable
REDRAW_EVERY_SECONDS = 0.25


@contextmanager
def narrate(
    text: str, detail: Callable[[], str] | None = None, *, stream: TextIO | None = None, quiet: float = QUIET_SECONDS
) -> Iterator[None]:
    """Show `text`, `detail()` and the elapsed time within the block, if it runs for more than `quiet` seconds."""
    out = stream if stream is not None else sys.stderr
    finished = threading.Event()
    teller = threading.Thread(target=_tell, args=(text, detail, out, quiet, finished), daemon=True)
    teller.start()
    outcome = "failed"
    started = time.monotonic()
    try:
        yield
        outcome = "done"
    finally:
        finished.set()
        teller.join()
        if time.monotonic() - started >= quiet:
            _write(out, f"{_line_start(out)}{text}: {outcome} after {_elapsed(started)}\n")


def _tell(text: str, detail: Callable[[], str] | None, out: TextIO, quiet: float, finished: threading.Event) -> None:
    started = time.monotonic()
    pause = quiet
    while not finished.wait(pause):
        more = f" ({detail()})" if detail is not None and detail() else ""
        pause = REDRAW_EVERY_SECONDS if out.isatty() else LINE_EVERY_SECONDS
        _write(out, f"{_line_start(out)}{text} … {_elapsed(started)}{more}{'' if out.isatty() else chr(10)}")


def _line_start(out: TextIO) -> str:
    return "\r\x1b[K" if out.isatty() else ""


def _elapsed(started: float) -> str:
    seconds = int(time.monotonic() - started)
    return f"{seconds // 60} min {seconds % 60:02d} s" if seconds >= 60 else f"{seconds} s"


def _write(out: TextIO, text: str) -> None:
    out.write(text)
    out.flush()
