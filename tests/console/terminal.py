"""A terminal as a program sees it: a pseudo-terminal with a picture, keys, a size that changes and modes that can be asked for.

The picture understands the control sequences that most terminals do. One that it does not know is an error.
"""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

_SEQUENCE: Final = re.compile(r"\x1b\[(?P<private>\??)(?P<numbers>[\d;]*)(?P<what>[A-Za-z])")
_UNFINISHED: Final = re.compile(r"\x1b(\[[?\d;]*)?$")
PATIENCE: Final = 120.0


class Picture:
    """What is on a screen of `columns` × `lines`, and what has scrolled off its top."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self.scrolled: list[str] = []
        self.cursor_shown = True
        self.alternate = False
        self._cells = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0
        self._rest = ""

    @property
    def rows(self) -> list[str]:
        return ["".join(cells).rstrip() for cells in self._cells]

    @property
    def text(self) -> str:
        return "\n".join(self.rows).rstrip()

    def resize(self, columns: int, lines: int) -> None:
        """As most terminals do: what is too wide now breaks into lines, and the top scrolls off where there is no room."""
        broken: list[list[str]] = []
        for number, cells in enumerate(self._cells):
            length = len("".join(cells).rstrip())
            broken += [cells[at : at + columns] for at in range(0, max(1, length), columns)]
            if number == self._row:
                row = len(broken) - 1
        while row >= lines:
            self.scrolled.append("".join(broken.pop(0)).rstrip())
            row -= 1
        blank = [[" "] * columns for _ in range(max(0, lines - len(broken)))]
        self._cells = [(cells + [" "] * columns)[:columns] for cells in broken[:lines]] + blank
        self.columns, self.lines, self._row = columns, lines, row
        self._column = min(self._column, columns - 1)

    def feed(self, text: str) -> None:
        text, at = self._rest + text, 0
        self._rest = found[0] if (found := _UNFINISHED.search(text)) else ""
        text = text[: len(text) - len(self._rest)]
        while at < len(text):
            if text[at] == "\x1b":
                found = _SEQUENCE.match(text, at)
                assert found is not None, f"unknown: {text[at : at + 20]!r}"
                self._control(found["private"], found["numbers"], found["what"])
                at = found.end()
            else:
                self._character(text[at])
                at += 1

    def _character(self, char: str) -> None:
        if char == "\r":
            self._column = 0
        elif char == "\n":
            self._line_feed()
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char != "\x07":
            assert char.isprintable(), f"unknown: {char!r}"
            if self._column == self.columns:
                self._column = 0
                self._line_feed()
            self._cells[self._row][self._column] = char
            self._column += 1

    def _line_feed(self) -> None:
        if self._row == self.lines - 1:
            self._scroll()
        else:
            self._row += 1

    def _scroll(self) -> None:
        self.scrolled.append("".join(self._cells.pop(0)).rstrip())
        self._cells.append([" "] * self.columns)

    def _control(self, private: str, numbers: str, what: str) -> None:
        first, second = ([int(each or 0) for each in numbers.split(";")] + [0, 0])[:2]
        match private, what:
            case "?", "h" | "l" if numbers == "25":
                self.cursor_shown = what == "h"
            case "?", "h" | "l" if numbers == "1049":
                self.alternate = what == "h"
            case "", "m":
                pass
            case "", "A":
                self._row = max(0, self._row - max(1, first))
            case "", "B":
                self._row = min(self.lines - 1, self._row + max(1, first))
            case "", "H":
                self._row = min(self.lines, max(1, first)) - 1
                self._column = min(self.columns, max(1, second)) - 1
            case "", "J" if first in (0, 2):
                if first == 0:
                    self._erase(self._row, self._column)
                for row in range(self._row + 1 if first == 0 else 0, self.lines):
                    self._erase(row, 0)
            case "", "K" if first in (0, 2):
                self._erase(self._row, self._column if first == 0 else 0)
            case _:
                raise AssertionError(f"unknown: ESC [ {private}{numbers}{what}")

    def _erase(self, row: int, since: int) -> None:
        self._cells[row][since:] = [" "] * (self.columns - since)


def _of_session(session: int) -> list[int]:
    """Ids of the processes of a session, whoever leads it."""
    found: list[int] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                found.append(int(stat.parent.name))
    return found


class Terminal:
    """A program whose standard streams, and controlling terminal, are a pseudo-terminal. Ends the program with the block."""

    def __init__(self, columns: int, lines: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.picture = Picture(columns, lines)
        self.raw = ""
        self.status: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        # the size is there before the program is
        self._terminal, inside = pty.openpty()
        self._size(columns, lines)
        self.modes_before = termios.tcgetattr(inside)
        self._inside = inside
        self._pid = os.fork()
        if self._pid == 0:  # nothing of Python's own may run here that another thread could hold a lock of
            try:
                os.login_tty(inside)
                os.execvpe(command[0], list(command), dict(environment))
            finally:
                os._exit(127)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.status is None:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGTERM)
            with suppress(AssertionError):
                self.ended()
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        for process in _of_session(self._pid):  # what a shell has left in the background
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os.close(self._terminal)
        os.close(self._inside)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self.look()
        self.picture.resize(columns, lines)
        self._size(columns, lines)  # the kernel tells the program with SIGWINCH

    def modes(self) -> list[object]:
        """As termios has them."""
        return termios.tcgetattr(self._inside)

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._inside)[3] & termios.ECHO)

    def signal(self, number: int) -> None:
        os.kill(self._pid, number)

    def look(self, seconds: float = 0.0) -> str:
        """Read what was written so far, waiting for a first piece so long; the picture as text."""
        while select.select([self._terminal], [], [], seconds)[0]:
            text = self._decoder.decode(os.read(self._terminal, 65536))
            self.raw += text
            self.picture.feed(text)
            seconds = 0.0
        return self.picture.text

    def until(self, true: Callable[[str], object], what: str, seconds: float = PATIENCE) -> str:
        """The picture as soon as this is true of it."""
        deadline = time.monotonic() + seconds
        while not true(text := self.look(0.05)):
            assert time.monotonic() < deadline, f"{what}:\n{text}"
        return text

    def ended(self, seconds: float = PATIENCE) -> int:
        """The exit status, once the program has ended."""
        deadline = time.monotonic() + seconds
        while self.status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            self.look(0.02)
            assert self.status is not None or time.monotonic() < deadline, f"it goes on:\n{self.picture.text}"
        self.look()
        return self.status

    def _size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
