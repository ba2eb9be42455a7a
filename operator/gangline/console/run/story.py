"""The story of a run on a terminal, beside its tables: what happened, and who waited and ran when. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gangline.console.output.layout import clipped, shortened
from gangline.console.views import table
from gangline.control.answers.workloads.snapshot import FINISHED, HOLDING, State, WorkloadView
from gangline.control.answers.workloads.words import age

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
    if view.state is State.STOPPING:
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
