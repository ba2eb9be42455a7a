"""Output of a run: tables, a timeline and events on a terminal; lines and a periodic table in a pipe."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gangline.console.output.layout import plain
from gangline.console.run.story import END, Page, Story, key_line
from gangline.console.views import jobs, table
from gangline.control.answers.workloads.snapshot import Snapshot, WorkloadView

TABLE_EVERY = 15.0  # seconds between two tables in a pipe
EVENTS = 5  # the last events, below the jobs


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
            self.say(f"\n{table.counts_line(seen, elapsed)}\n{plain(table.queue_rows(seen))}\n")


class LiveScreen:
    """Queues, and below them jobs, a timeline or events, redrawn in place; keys choose."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._story = Story()
        self._page = Page.JOBS
        self._shown: tuple[Snapshot, float] | None = None
        self._keys = False

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        self._story.note(seen.workloads, news, elapsed)
        self._shown = seen, elapsed
        self._draw()

    def press(self, key: str) -> None:
        """A key: shows another page, or ends the run as Ctrl-C does. Others mean nothing."""
        if key == END:
            os.kill(os.getpid(), signal.SIGINT)
        elif key in {page.value for page in Page}:
            self._page = Page(key)
            self._draw()

    def _draw(self) -> None:
        if self._shown is None:
            return
        seen, elapsed = self._shown
        width, height = self._console.size
        queues = table.queue_rows(seen)
        room = max(5, height - len(queues.cells) - 9)
        parts = [table.draw(queues, width)]
        story = self._story
        if self._page is Page.JOBS:
            few = story.last_events(min(EVENTS, room // 3), width)
            parts.append(table.draw(jobs.rows(seen.workloads, time.time()), width, limit=max(3, room - len(few) - 1)))
            parts += [Text(line, style="dim", no_wrap=True) for line in few]
        elif self._page is Page.TIMELINE:
            parts += [Text(line, no_wrap=True) for line in story.timeline(room, width, elapsed)]
        else:
            parts += [Text(line, no_wrap=True) for line in story.last_events(room, width)]
        parts.append(Text(table.counts_line(seen, elapsed).strip(), style="bold", no_wrap=True))
        if self._keys:
            parts.append(Text(key_line(self._page, width), style="dim", no_wrap=True))
        self._live.update(Group(*parts), refresh=True)

    @contextmanager
    def keys(self) -> Iterator[None]:
        """Read keys while the block runs, where the terminal is ours to read."""
        fd = sys.stdin.fileno() if sys.stdin.isatty() else -1
        if fd < 0 or os.tcgetpgrp(fd) != os.getpgrp():
            yield
            return
        before, loop = termios.tcgetattr(fd), asyncio.get_running_loop()
        tty.setcbreak(fd, termios.TCSANOW)
        self._keys = True

        def read() -> None:
            for key in os.read(fd, 64).decode(errors="replace"):
                self.press(key)

        loop.add_reader(fd, read)
        try:
            yield
        finally:
            loop.remove_reader(fd)
            termios.tcsetattr(fd, termios.TCSANOW, before)


@contextmanager
def screen() -> Iterator[Screen]:
    """The screen for stdout: a LiveScreen on a terminal, else a LinesScreen. To be used within an event loop."""
    if not sys.stdout.isatty():
        yield LinesScreen()
        return
    console = Console()
    with Live(console=console, auto_refresh=False, transient=False) as live:
        shown = LiveScreen(console, live)
        with shown.keys():
            yield shown
