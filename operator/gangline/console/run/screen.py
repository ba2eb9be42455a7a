"""Output of a run: a live table on a terminal; lines and a periodic table in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gangline.console.views import table
from gangline.control.answers.snapshot import Snapshot, WorkloadView

TABLE_EVERY = 15.0  # seconds between two tables in a pipe
WIDE = 120  # terminal width in columns from which all columns are shown
_NARROW_QUEUES = frozenset({"COHORT", "RESOURCE"})
_NARROW_WORKLOADS = frozenset({"NAMESPACE", "KIND", "AGE"})


class Screen(Protocol):
    def say(self, text: str) -> None:
        """Print one line that stays on the screen."""
        ...

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        """Show the snapshot and the workloads that changed."""
        ...


class LinesScreen:
    """One line per change, and the queues every TABLE_EVERY seconds. For logs: nothing is redrawn."""

    def __init__(self) -> None:
        self._next_table = TABLE_EVERY

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        for view in news:
            self.say(table.change_line(view, elapsed))
        if elapsed >= self._next_table:
            self._next_table = elapsed + TABLE_EVERY
            self.say(f"\n{table.counts_line(seen, elapsed)}\n{table.plain(table.queue_rows(seen))}\n")


class LiveScreen:
    """Two tables that are redrawn in place."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        width, height = self._console.size
        narrow = width < WIDE
        queues = table.queue_rows(seen)
        room = max(5, height - len(queues.cells) - 10)
        workloads = table.workload_rows(seen.workloads, time.time())
        self._live.update(
            Group(
                table.draw(queues, width, without=_NARROW_QUEUES if narrow else frozenset()),
                table.draw(workloads, width, limit=room, without=_NARROW_WORKLOADS if narrow else frozenset()),
                Text(table.counts_line(seen, elapsed).strip(), style="bold"),
            ),
            refresh=True,
        )


@contextmanager
def screen() -> Iterator[Screen]:
    """The screen for stdout: a LiveScreen on a terminal, else a LinesScreen."""
    if not sys.stdout.isatty():
        yield LinesScreen()
        return
    console = Console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        yield LiveScreen(console, live)
