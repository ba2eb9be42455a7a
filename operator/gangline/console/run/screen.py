"""Output of a run: tables, a timeline and events on a terminal; lines and a periodic table in a pipe."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gangline.console.output import terminal
from gangline.console.output.layout import plain
from gangline.console.run.frame import Frame
from gangline.console.run.story import END, RunStory, StoryPage
from gangline.console.views import table
from gangline.control.answers.workloads.snapshot import Snapshot, WorkloadView

TABLE_EVERY = 15.0  # seconds between two tables in a pipe
_SAID = 50  # sentences that a redrawn terminal repeats
#: what an arrow, a function key or a key with Alt sends, and what begins like it and has not come as a whole
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.?|[^\[O]|$)", re.DOTALL)


class Screen(Protocol):
    def say(self, text: str) -> None:
        """Print one line that stays on the screen."""
        ...

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        """Show the snapshot and the workloads that changed."""
        ...

    def conclude(self, seen: Snapshot) -> None:
        """Show the queues a last time."""
        ...


class LinesScreen:
    """One line per change, and the queues every TABLE_EVERY seconds. For logs: nothing is redrawn."""

    def __init__(self) -> None:
        self._next_table = TABLE_EVERY

    def say(self, text: str) -> None:
        terminal.say(text)

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        for view in news:
            self.say(table.change_line(view, elapsed))
        if elapsed >= self._next_table:
            self._next_table = elapsed + TABLE_EVERY
            self.say(f"\n{table.counts_line(seen, elapsed)}\n{plain(table.queue_rows(seen))}\n")

    def conclude(self, seen: Snapshot) -> None:
        self.say(f"\n{plain(table.queue_rows(seen))}\n")


class LiveScreen:
    """Queues, and below them jobs, a timeline or events, redrawn in place; keys choose. What is said stays above, in sight."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._story = RunStory()
        self._page = StoryPage.JOBS
        self._shown: tuple[Snapshot, float] | None = None
        self._said: deque[Text] = deque(maxlen=_SAID)
        self._keys = False
        self._ending = False

    def say(self, text: str) -> None:
        line = Text(terminal.clean(text))
        self._said.append(line)
        self._draw()  # makes room for it
        self._console.print(line)

    def show(self, seen: Snapshot, news: list[WorkloadView], elapsed: float) -> None:
        self._story.note(seen.workloads, news, elapsed)
        self._shown = seen, elapsed
        self._draw()

    def conclude(self, seen: Snapshot) -> None:
        """Does nothing: the last picture stays."""

    def press(self, key: str) -> None:
        """Handle a key: it shows another page, or ends the run as Ctrl-C does. Other keys mean nothing."""
        if key == END and not self._ending:
            self._ending = True  # a second one would break off what ends the run in order
            os.kill(os.getpid(), signal.SIGINT)
        elif key in {page.value for page in StoryPage}:
            self._page = StoryPage(key)
            self._draw()

    def redraw(self) -> None:
        """Draw everything anew, since nobody knows what a terminal of another size has made of the last picture."""
        self._console.clear()
        self._draw()
        for line in self._said:
            self._console.print(line)

    def _draw(self) -> None:
        if self._shown is None:
            return
        seen, elapsed = self._shown
        width, height = self._console.size
        above = sum(len(line.wrap(self._console, width)) for line in self._said)
        frame = Frame(seen, self._story, self._page, elapsed, time.time(), self._keys)
        self._live.update(Group(*frame.lines(width, height - min(above, height // 2))), refresh=True)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the terminal's size while the block runs; where the terminal is ours to read, read keys."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self.redraw)
        try:
            with self._reading(loop):
                yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    @contextmanager
    def _reading(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        fd = sys.stdin.fileno() if sys.stdin.isatty() else -1
        if fd < 0 or not _is_ours(fd):
            yield
            return
        before = termios.tcgetattr(fd)

        def read() -> None:
            try:
                typed = os.read(fd, 64).decode(errors="replace")
            except OSError:
                typed = ""
            if not typed:  # the terminal is gone
                loop.remove_reader(fd)
            for key in _ESCAPE_SEQUENCE.sub("", typed):
                self.press(key)

        def suspend() -> None:
            """Suspend the run at Ctrl-Z: the terminal is the shell's, as it was; it is ours again when the run goes on."""
            termios.tcsetattr(fd, termios.TCSANOW, before)
            self._console.show_cursor(True)
            self._console.file.write("\n")
            self._console.file.flush()
            loop.remove_signal_handler(signal.SIGTSTP)
            os.kill(os.getpid(), signal.SIGTSTP)
            resume()

        def resume() -> None:
            tty.setcbreak(fd, termios.TCSANOW)
            loop.add_signal_handler(signal.SIGTSTP, suspend)
            self._console.show_cursor(False)
            self.redraw()

        self._keys = True
        tty.setcbreak(fd, termios.TCSANOW)
        loop.add_signal_handler(signal.SIGTSTP, suspend)
        loop.add_reader(fd, read)
        try:
            yield
        finally:
            loop.remove_reader(fd)
            loop.remove_signal_handler(signal.SIGTSTP)
            termios.tcsetattr(fd, termios.TCSANOW, before)


def _is_ours(fd: int) -> bool:
    """Whether keys of this terminal are meant for us, and not for whoever runs in the foreground."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal without jobs
        return True


@contextmanager
def screen() -> Iterator[Screen]:
    """The screen for stdout: a LiveScreen on a terminal, else a LinesScreen. To be used within an event loop."""
    console = terminal.console()
    if not sys.stdout.isatty() or not console.is_terminal or console.is_dumb_terminal:
        yield LinesScreen()
        return
    with Live(console=console, auto_refresh=False, transient=False) as live:
        shown = LiveScreen(console, live)
        with shown.attached():
            yield shown
