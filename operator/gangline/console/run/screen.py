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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gangline.console.output import terminal
from gangline.console.output.layout import clipped, plain, shortened
from gangline.console.views import jobs, table
from gangline.control.answers.workloads.snapshot import FINISHED, HOLDING, AnswerSnapshot, JobState, WorkloadView
from gangline.control.answers.workloads.words import age

# --- the story of a run on a terminal, beside its tables: what happened, and who waited and ran when. Pure ------------


#: characters of a bar: waits, holds quota, is being stopped
WAITS, RUNS, STOPS = "·", "█", "▒"
#: events that are kept, and jobs in the timeline
MOST: Final = 500
_LEAST_BAR: Final = 20


class StoryPage(Enum):
    """The pages that can be shown below the queues; the value is the key that shows one."""

    JOBS = "j"
    TIMELINE = "t"
    EVENTS = "e"


#: the key that ends the run, as Ctrl-C does
END: Final = "q"


def key_line(page: StoryPage, width: int) -> str:
    keys = (f"[{each.value}] {each.name.lower()}" if each is not page else f"{each.name.lower()}" for each in StoryPage)
    return clipped("  ".join((*keys, f"[{END}] end")), width)


@dataclass(slots=True)
class _Course:
    """A job: when it changed between waiting, running and stopping; "" once it has ended. Seconds since the run began."""

    name: str
    changes: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])


@dataclass(slots=True)
class RunStory:
    """The events of a run as lines, and the courses of its jobs."""

    events: deque[str] = field(default_factory=lambda: deque[str](maxlen=MOST))
    _courses: dict[str, _Course] = field(default_factory=dict[str, _Course])

    def note(self, seen: Iterable[WorkloadView], news: Sequence[WorkloadView], elapsed: float) -> None:
        self.events.extend(table.change_line(view, elapsed) for view in news)
        for view in seen:
            course = self._courses.get(view.uid)
            if course is None:
                if len(self._courses) >= MOST or view.state in FINISHED:
                    continue
                course = self._courses[view.uid] = _Course(view.job)
            mark = _mark(view)
            if not course.changes or course.changes[-1][1] != mark:
                course.changes.append((elapsed, mark))

    def last_events(self, most: int, width: int) -> list[str]:
        """The last events, one line each."""
        return [clipped(line, width) for line in list(self.events)[-most:]] if most > 0 else []

    def timeline(self, most: int, width: int, elapsed: float) -> list[str]:
        """One line per job, in the order in which they came: the last ones, where there is no room for all."""
        courses = list(self._courses.values())
        shown = courses[-max(0, most - 1) :] if most > 1 else []
        if not shown:
            return []
        room = min(max(len(each.name) for each in shown), max(10, width // 3))
        columns = max(_LEAST_BAR, width - room - 2)
        head = f"{'':{room}}  0{age(elapsed):>{columns - 1}}"
        lines = [clipped(head, width)]
        for each in shown:
            lines.append(clipped(f"{shortened(each.name, room):{room}}  {_bar(each, elapsed, columns)}", width))
        if (left := len(courses) - len(shown)) > 0:
            lines[0] = clipped(f"{f'({left} earlier)':{room}}{lines[0][room:]}", width)
        return lines


def _mark(view: WorkloadView) -> str:
    if view.state is JobState.STOPPING:
        return STOPS
    if view.state in HOLDING:
        return RUNS
    return "" if view.state in FINISHED else WAITS


def _bar(course: _Course, elapsed: float, columns: int) -> str:
    return "".join(_cells(course, max(elapsed, 1e-9), columns)).rstrip()


def _cells(course: _Course, elapsed: float, columns: int) -> Iterator[str]:
    """The characters of a bar: each is the job's state at the middle of the cell's time. A state shorter than a cell is shown
    where it began.
    """
    begun = {min(int(at / elapsed * columns), columns - 1): mark for at, mark in course.changes if mark}
    for cell in range(columns):
        at = (cell + 0.5) / columns * elapsed
        mark = next((mark for since, mark in reversed(course.changes) if since <= at), " ")
        yield begun.get(cell, mark or " ")


# --- frame ------------------------------------------------------------------------------------------------------------
#
# The picture of a run on a terminal of any size, line by line: queues, a page below them, counts and keys. Pure.


#: the last events, below the jobs
_EVENTS: Final = 5
#: lines that jobs have before events get any
_JOBS: Final = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of one picture. `elapsed`: seconds since the run began; `now`: Unix seconds; `keys`: whether some are read."""

    seen: AnswerSnapshot
    story: RunStory
    page: StoryPage
    elapsed: float
    now: float
    keys: bool = False

    def lines(self, width: int, height: int) -> list[Text]:
        """The picture in at most `height` lines. The counts and the keys are there in the smallest terminal; the page gets half
        of the rest, or what the queues leave; these get what the page leaves.
        """
        foot = self._foot(width)[: max(0, height)]
        room = height - len(foot)
        rows = table.queue_rows(self.seen)
        queues = table.draw(rows, width, (room - 1) // 2)
        page = self._page(width, room - len(queues) - bool(queues))
        if queues:
            queues = [*table.draw(rows, width, room - len(page) - 1), Text()]
        return [*queues, *page, *foot]

    def _page(self, width: int, room: int) -> list[Text]:
        if room <= 0:
            return []
        if self.page is StoryPage.TIMELINE:
            return [_line(text) for text in self.story.timeline(room, width, self.elapsed)]
        if self.page is StoryPage.EVENTS:
            return [_line(text) for text in self.story.last_events(room, width)]
        few = [_line(text, "dim") for text in self.story.last_events(min(_EVENTS, (room - _JOBS) // 3), width)]
        table_of_jobs = table.draw(jobs.rows(self.seen.workloads, self.now), width, room - len(few) - bool(few))
        return [*table_of_jobs, Text(), *few] if few else table_of_jobs

    def _foot(self, width: int) -> list[Text]:
        counts = _line(table.counts_line(self.seen, self.elapsed).strip(), "bold")
        return [counts, _line(key_line(self.page, width), "dim")] if self.keys else [counts]


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True)


TABLE_EVERY = 15.0  # seconds between two tables in a pipe
_SAID = 50  # sentences that a redrawn terminal repeats
#: what an arrow, a function key or a key with Alt sends, and what begins like it and has not come as a whole
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|O.?|[^\[O]|$)", re.DOTALL)


class Screen(Protocol):
    def say(self, text: str) -> None:
        """Print one line that stays on the screen."""
        ...

    def show(self, seen: AnswerSnapshot, news: list[WorkloadView], elapsed: float) -> None:
        """Show the snapshot and the workloads that changed."""
        ...

    def conclude(self, seen: AnswerSnapshot) -> None:
        """Show the queues a last time."""
        ...


class LinesScreen:
    """One line per change, and the queues every TABLE_EVERY seconds. For logs: nothing is redrawn."""

    def __init__(self) -> None:
        self._next_table = TABLE_EVERY

    def say(self, text: str) -> None:
        terminal.say(text)

    def show(self, seen: AnswerSnapshot, news: list[WorkloadView], elapsed: float) -> None:
        for view in news:
            self.say(table.change_line(view, elapsed))
        if elapsed >= self._next_table:
            self._next_table = elapsed + TABLE_EVERY
            self.say(f"\n{table.counts_line(seen, elapsed)}\n{plain(table.queue_rows(seen))}\n")

    def conclude(self, seen: AnswerSnapshot) -> None:
        self.say(f"\n{plain(table.queue_rows(seen))}\n")


class LiveScreen:
    """Queues, and below them jobs, a timeline or events, redrawn in place; keys choose. What is said stays above, in sight."""

    def __init__(self, console: Console, live: Live) -> None:
        self._console = console
        self._live = live
        self._story = RunStory()
        self._page = StoryPage.JOBS
        self._shown: tuple[AnswerSnapshot, float] | None = None
        self._said: deque[Text] = deque(maxlen=_SAID)
        self._keys = False
        self._ending = False

    def say(self, text: str) -> None:
        line = Text(terminal.clean(text))
        self._said.append(line)
        self._draw()  # makes room for it
        self._console.print(line)

    def show(self, seen: AnswerSnapshot, news: list[WorkloadView], elapsed: float) -> None:
        self._story.note(seen.workloads, news, elapsed)
        self._shown = seen, elapsed
        self._draw()

    def conclude(self, seen: AnswerSnapshot) -> None:
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
