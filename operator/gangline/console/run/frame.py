"""The picture of a run on a terminal of any size, line by line: queues, a page below them, counts and keys. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.text import Text

from gangline.console.run.story import RunStory, StoryPage, key_line
from gangline.console.views import jobs, table
from gangline.control.answers.workloads.snapshot import Snapshot

#: the last events, below the jobs
_EVENTS: Final = 5
#: lines that jobs have before events get any
_JOBS: Final = 5


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of one picture. `elapsed`: seconds since the run began; `now`: Unix seconds; `keys`: whether some are read."""

    seen: Snapshot
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
