"""What a run on a terminal tells: events, a timeline and keys, in terminals of 80, 120 and 200 columns."""

from __future__ import annotations

import asyncio
import os
import pty
import sys
import termios
from io import StringIO
from typing import Any

import pytest
from rich.console import Console
from rich.live import Live
from tests.console.objects import cluster_queue, condition, flavor, local_queue, pending, running, workload

from gangline.console.run import screen
from gangline.console.run.screen import Frame, LiveScreen, RunStory, StoryPage, key_line
from gangline.console.views.watch import changes
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, snapshot

QUEUES = [cluster_queue("vision", flavor("a100", 64))]


def see(*objects: Any) -> AnswerSnapshot:
    return snapshot(objects, QUEUES, [local_queue()])


def done(name: str) -> Any:
    return workload(name, condition("Finished", True, "Succeeded", "Job finished"))


#: at 0, 10, 20 and 40 seconds: a runs and b waits, a ends, b runs, b ends
COURSE = [
    (0.0, [running("a"), pending("b", "WaitingForQuota", "")]),
    (10.0, [done("a"), pending("b", "WaitingForQuota", "")]),
    (20.0, [done("a"), running("b")]),
    (40.0, [done("a"), done("b")]),
]


def story_of_course() -> RunStory:
    story, before = RunStory(), None
    for at, objects in COURSE:
        seen = see(*objects)
        story.note(seen.workloads, changes(before, seen), at)
        before = seen
    return story


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_timeline_shows_who_waited_and_ran(width: int) -> None:
    head, first, second = story_of_course().timeline(10, width, 40.0)
    assert head.endswith("40s") and all(len(line) <= width for line in (head, first, second))
    bars = {line.split()[0]: line[line.index("  ") + 2 :] for line in (first, second)}
    columns = len(head) - head.index("0")
    a, b = bars["job/a"], bars["job/b"]
    assert set(a) == {"█"} and abs(len(a) - columns / 4) <= 1
    assert (
        b.strip("█").strip("·") == "" and abs(b.count("·") - columns / 2) <= 1 and abs(b.count("█") - columns / 2) <= 1
    )


def test_only_as_many_lines_as_there_is_room_for() -> None:
    story = story_of_course()
    assert story.timeline(1, 80, 40.0) == [] and RunStory().timeline(10, 80, 0.0) == []
    lines = story.timeline(2, 80, 40.0)
    assert len(lines) == 2 and "job/b" in lines[1] and lines[0].startswith("(1 earl")
    assert len(story.last_events(2, 80)) == 2 and story.last_events(0, 80) == []
    assert all(len(line) <= 30 for line in story.last_events(9, 30))


def drawn(width: int, *keys: str) -> str:
    console = Console(file=StringIO(), width=width, height=24, force_terminal=True, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        shown, before = LiveScreen(console, live), None
        shown._keys = True
        for at, objects in COURSE[:3]:
            seen = see(*objects)
            shown.show(seen, changes(before, seen), at)
            before = seen
        for key in keys:
            console.file = StringIO()
            shown.press(key)
        return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_keys_choose_what_is_shown(width: int) -> None:
    timeline, events, jobs = drawn(width, "t"), drawn(width, "t", "e"), drawn(width, "e", "x", "j")
    assert "█" in timeline and "[j] jobs  timeline  [e] events  [q] end" in timeline
    assert "Succeeded" in events and "█" not in events
    assert "job/b" in jobs and "jobs  [t] timeline" in jobs
    for picture in (timeline, events, jobs):
        assert "QUEUE" in picture and "1 finished" in picture
        assert max(len(line) for line in picture.splitlines() if "\x1b" not in line) <= width


def test_the_keys_fit_into_any_terminal() -> None:
    assert len(key_line(StoryPage.JOBS, 20)) <= 20


@pytest.mark.parametrize("page", StoryPage)
@pytest.mark.parametrize("keys", [True, False])
def test_a_picture_fits_into_any_terminal(page: StoryPage, keys: bool) -> None:
    long = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 8 more needed"
    waiting = [pending(f"mixtral-8x22b-finetune-{number}", "WaitingForQuota", long) for number in range(20)]
    many = [cluster_queue(f"team-{number}", flavor("a100", 8), flavor("h100", 8)) for number in range(20)]
    seen = snapshot([running("a"), *waiting], many, [local_queue()])
    story = RunStory()
    story.note(seen.workloads, changes(None, seen), 0.0)
    frame = Frame(seen, story, page, 10.0, 0.0, keys)
    for width in (1, 20, 80, 120, 200):
        for height in range(60):
            lines = [line.plain for line in frame.lines(width, height)]
            assert len(lines) <= height
            if height:
                assert any("1 running, 20 waiting" in line for line in lines)
            if height > 1 and keys and width >= 80:
                assert lines[-1].endswith("[q] end")
            if height >= 24:
                assert sum("team-" in line for line in lines) >= 4, "the queues have their half"
                assert len(lines) >= height - 3, "and the page has the rest"


def test_a_bar_has_no_gap() -> None:
    story = RunStory()
    seen = see(running("a"))
    story.note(seen.workloads, [], 6.0)
    for columns in range(40, 120):
        *_, bar = story.timeline(9, columns, 8.3)
        assert " " not in bar.removeprefix("job/a").strip()


async def test_keys_are_read_from_the_terminal_which_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    parent, child = pty.openpty()
    before = termios.tcgetattr(child)
    pressed: list[str] = []
    with os.fdopen(child) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(os, "tcgetpgrp", lambda fd: os.getpgrp())
        monkeypatch.setattr(screen.LiveScreen, "press", lambda self, key: pressed.append(key))
        console = Console(file=StringIO())
        with Live(console=console, auto_refresh=False) as live, LiveScreen(console, live).attached():
            os.write(parent, b"tq")
            async with asyncio.timeout(30):
                while pressed != ["t", "q"]:
                    await asyncio.sleep(0.01)
        assert termios.tcgetattr(child) == before
    os.close(parent)


def test_the_end_key_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        drawn(80, "q")
