"""A run on a terminal: a program on a pseudo-terminal, what it draws there, what keys do, and in which state it leaves it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.console import feed
from tests.console.terminal import Picture, Terminal

from gangline.console.output import terminal as output

ROOT = Path(__file__).parents[2]
LAST = "2 running, 10 waiting, 1 finished"
#: before a program of ours draws anything, it is imported
FEED = (sys.executable, "-m", "tests.console.feed", "0.15", "10")


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    paths = [str(ROOT), str(ROOT / "operator"), str(ROOT / "webhooks")]
    return kept | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(paths), **more}


@contextmanager
def running(columns: int, lines: int, *command: str, **more: str) -> Iterator[Terminal]:
    """The course of `feed` on such a terminal, from its first picture on."""
    with Terminal(columns, lines, command or FEED, environment(**more)) as terminal:
        terminal.until(lambda text: "unning" in text, "there is no picture")
        yield terminal


def is_sane(terminal: Terminal) -> bool:
    """Whether the terminal is as the shell had it."""
    return (
        terminal.modes() == terminal.modes_before
        and terminal.picture.cursor_shown
        and not terminal.picture.alternate
        and terminal.echoes()
    )


@pytest.mark.parametrize("columns", [80, 120])
def test_a_run_tells_its_story(columns: int) -> None:
    with running(columns, 24) as terminal:
        at_first = terminal.until(lambda text: "job/bert" in text, "no events")
        assert "resnet" in at_first and "QUEUE" in at_first and "never" not in at_first
        text = terminal.until(lambda text: LAST in text, "it is not drawn again")

        # one picture, redrawn: nothing is left of those before, nothing has scrolled off
        assert text.count("USED/NOMINAL") == 1 and text.count("waiting") == 1 and "1 running" not in text
        assert terminal.picture.scrolled == []
        rows = terminal.picture.rows
        assert all(len(row) <= columns for row in rows)
        assert any("bert" in row.split()[:2] and "Running" in row for row in rows)
        assert any("Succeeded" in row and "job/resnet" in row for row in rows), "no events below the jobs"
        assert "[t] timeline" in text and not terminal.picture.cursor_shown and not terminal.echoes()

        terminal.until(lambda text: text.splitlines()[0] == feed.SAID, "what is said is not in sight, as it was said")

        terminal.press("t")
        text = terminal.until(lambda text: "[j] jobs  timeline  [e] events  [q] end" in text, "t shows no timeline")
        bars = dict(row.split(maxsplit=1) for row in terminal.picture.rows if row.startswith("job/"))
        assert len(bars) == 13 and set(bars["job/resnet"]) == {"█"} and set(bars["job/sweep-00"]) == {"·"}
        assert bars["job/bert"].lstrip("·").strip("█") == "" and bars["job/bert"].startswith("·")

        terminal.press("e")
        text = terminal.until(lambda text: "events  [q]" in text and "[e]" not in text, "e shows no events")
        assert "█" not in text and "job/late" in text and "priority 0" in text

        for nothing in ("x", "\x1b[A", "\x1bOq"):  # a letter, an arrow, a key of the numeric keypad
            terminal.press(nothing)
            terminal.look(0.3)
        terminal.press("j")
        terminal.until(lambda text: "\njobs  [t] timeline" in text, "j shows no jobs")
        terminal.press("\x1b[Ax\x1bOq\x1b[24~\x1bje")  # a slow program reads many keys at once
        terminal.until(lambda text: "events  [q]" in text and "[e]" not in text, "e among other keys shows no events")
        terminal.press("\x1b[1;5Aj\x1b")
        terminal.until(lambda text: "\njobs  [t] timeline" in text, "j among other keys shows no jobs")

        terminal.press("qq")
        assert terminal.ended() == 0 and "interrupted" in terminal.picture.text
        assert is_sane(terminal)
        assert LAST in terminal.picture.text, "the last picture stays"
        assert feed.SAID in (*terminal.picture.scrolled, *terminal.picture.rows)


@pytest.mark.parametrize("how", ["\x03", "SIGTERM"])
def test_who_ends_it_gets_the_terminal_back(how: str) -> None:
    with running(80, 24) as terminal:
        terminal.press("t")
        if how == "SIGTERM":
            terminal.signal(signal.SIGTERM)
        else:
            terminal.press(how)
        assert terminal.ended() == 0 and "interrupted" in terminal.picture.text and is_sane(terminal)


def test_a_window_of_another_size_gets_a_picture_of_its_own() -> None:
    with running(120, 30) as terminal:
        terminal.until(lambda text: feed.SAID in text, "nothing is said")
        for columns, lines in ((60, 16), (100, 40), (80, 24)):
            terminal.resize(columns, lines)

            def is_fitting(text: str, columns: int = columns) -> bool:
                rows = text.splitlines()
                once = all(text.count(word) == 1 for word in ("USED/NOMINAL", "waiting", "of 3 jobs"))
                return once and rows[0] == feed.SAID[:columns] and "[q] end" in rows[-1] and "GPUs in" in rows[-2]

            # at once, and not only as soon as something changes
            terminal.until(is_fitting, "the picture is not drawn anew")


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (20, 2), (1, 1), (400, 3)])
def test_a_tiny_terminal_shows_what_it_can(columns: int, lines: int) -> None:
    with Terminal(columns, lines, FEED, environment()) as terminal:
        terminal.until(lambda text: "2 run"[:columns] in text, "there is no picture")
        for key in "tejx":
            terminal.press(key)
            terminal.look(0.1)
        if columns == 20 and lines == 5:
            terminal.until(lambda text: "jobs  [t] timeline" in text, "no keys")
            terminal.until(lambda text: "2 running, 10" in text, "no counts")
        terminal.resize(80, 24)
        terminal.until(lambda text: "USED/NOMINAL" in text and "[q] end" in text, "no picture for the larger window")
        terminal.press("q")
        assert terminal.ended() == 0 and is_sane(terminal)


def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back() -> None:
    """In a shell with job control, as people have it."""
    script = (
        'set -m; "$@"; echo "the shell: $(stty -a | tr " " "\\n" | grep -cx echo)"; read -r word; fg; echo "after: $?"'
    )
    with running(80, 24, "bash", "-c", script, "shell", *FEED) as terminal:
        terminal.until(lambda text: "[q] end" in text, "there are no keys")
        terminal.press("\x1a")
        terminal.until(lambda text: "the shell: 1" in text, "Ctrl-Z does not stop it with the terminal as it was")
        assert terminal.picture.cursor_shown and terminal.echoes()
        terminal.press("again\n")
        text = terminal.until(lambda text: LAST in text and "the shell" not in text, "fg does not draw it again")
        assert "[q] end" in text and not terminal.echoes()
        terminal.press("q")
        terminal.ended()
        assert "after: 0" in terminal.picture.text and is_sane(terminal)


def test_a_terminal_that_can_only_print_gets_lines() -> None:
    with running(80, 24, TERM="dumb") as terminal:
        terminal.until(lambda text: feed.SAID in text, "nothing is said")
        assert "\x1b" not in terminal.raw and "0.0s  Running" in terminal.raw and "gone" not in terminal.raw
        terminal.press("\x03")
        assert terminal.ended() == 0 and is_sane(terminal)


def test_a_pipe_gets_lines_without_any_control_character() -> None:
    """Whatever others write, and whatever the environment says of colours."""
    with subprocess.Popen(
        FEED, cwd=ROOT, env=environment(FORCE_COLOR="1"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if lines[-1] == feed.SAID:
                process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert all(line.isprintable() for line in lines)
    assert any("Running" in line and "job/bert" in line for line in lines) and lines[-1] == "interrupted"


def test_keys_belong_to_whoever_is_in_the_foreground() -> None:
    """In the background it draws, and does not touch the terminal's modes."""
    script = 'set -m; "$@" & read -r word; kill -INT $!; wait; echo "word: $word"'
    with running(80, 24, "bash", "-c", script, "shell", *FEED) as terminal:
        terminal.until(lambda text: LAST in text, "it does not draw")
        assert "[q] end" not in terminal.picture.text and terminal.echoes()
        terminal.press("q\n")
        terminal.ended()
        assert "word: q" in terminal.picture.text


def test_the_picture_is_what_a_terminal_would_show() -> None:
    """Of the terminal of these tests itself."""
    picture = Picture(5, 2)
    picture.feed("abcdefg\r\nx\x1b[")
    assert picture.rows == ["fg", "x"] and picture.scrolled == ["abcde"]
    picture.feed("A\x1b[2Kz\x1b[?25l\x1b[1;31m")
    assert picture.rows == [" z", "x"] and not picture.cursor_shown
    picture.feed("\x1b[2J\x1b[H1234")
    assert picture.text == "1234"
    picture.resize(2, 3)
    assert picture.rows == ["12", "34", ""]
    with pytest.raises(AssertionError):
        picture.feed("\x1b]0;title\x07")


def test_a_stream_without_a_buffer_gets_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under PYTHONUNBUFFERED Python drops the rest of a write that a signal cut short."""
    raw = io.FileIO(tmp_path / "out", "w")
    unbuffered = io.TextIOWrapper(raw, "utf-8", write_through=True)  # type: ignore[arg-type]
    for name in ("stdout", "__stdout__"):
        monkeypatch.setattr(sys, name, unbuffered)
    output.write_in_full()
    assert isinstance(sys.stdout.buffer, io.BufferedWriter)
    sys.stdout.write("█ first\n")
    assert (tmp_path / "out").read_text() == "█ first\n", "each line is there at once"
    kept = sys.stdout
    output.write_in_full()
    assert sys.stdout is kept, "one that has a buffer is left alone"
