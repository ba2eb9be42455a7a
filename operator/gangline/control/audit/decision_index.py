"""Where the rounds that decided anything stand in an audit record, and reads of these lines alone.

The thread that writes the record calls `follow` after each write: it looks at the files as they are on the disk and notes the
rounds in what is new. Readers are other threads and other processes. Each file is kept open, so that a rotation, which renames
files and deletes one, changes nothing for who reads.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import sys
import threading
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from gangline.control.audit import fact_codec
from gangline.control.audit.fact_codec import FactError
from gangline.engine import model

log = logging.getLogger(__name__)

#: rounds that are indexed, the newest; each takes 40 bytes
MOST_ROUNDS: Final = 50_000
#: bytes of a line, as long as a file may be, and bytes that are read at once
LONGEST_LINE: Final = 64 * 2**20
_PART: Final = 2**20
#: bytes of lines that one answer reads, unless its first line alone is longer, and rounds that it looks at
MOST_READ: Final = 8 * 2**20
MOST_LOOKED_AT: Final = 5_000
#: numbers per millisecond: those of a round of more decisions go on into the following milliseconds
PER_MILLISECOND: Final = 1000

#: how the lines begin that are looked at; the numbers are missing in records of older versions
ROUND: Final = b'{"now":'
BEGIN: Final = b'{"run":'
_NOTHING_DECIDED: Final = b'"decided":[]}'
#: how a preemption begins in the line of its round
_PREEMPT: Final = b'["Preempt",'
_NUMBERED: Final = re.compile(rb'\{"now":(-?\d{1,18}),"number":(\d{1,18}),"count":(\d{1,9}),')
_BEGAN: Final = re.compile(rb'\{"run":"[^"\\]{0,100}","serial":\d{1,18},"at":(-?\d{1,18}),')
#: numbers of one entry of the index: the number of the first decision, the time of the round, where its line begins, its length,
#: and whether it may have preemptions
_WIDTH: Final = 5


def files(path: Path) -> list[Path]:
    """The record's file and its rotated predecessors, oldest first."""
    aside = [p for p in path.parent.glob(f"{path.name}.*") if p.suffix[1:].isdigit()]
    return [*sorted(aside, key=lambda p: -int(p.suffix[1:])), path]


def lines(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a file between two places, each with where it begins and without its end. Raises OSError."""
    at, rest = begin, b""
    while at + len(rest) < end:
        part = os.pread(descriptor, min(_PART, end - at - len(rest)), at + len(rest))
        if not part:
            return
        rest += part
        first = 0
        while (last := rest.find(b"\n", first)) >= 0:
            yield at + first, rest[first:last]
            first = last + 1
        at, rest = at + first, rest[first:]
        if len(rest) > LONGEST_LINE:
            raise OSError(f"a line at byte {at} is longer than {LONGEST_LINE} bytes")


@dataclass(frozen=True, slots=True)
class RecordedDecision:
    """One decision of a record. `number` is unique and grows; `round`: the number of the first decision of its round.

    `decision`: None where it was recorded by another version of Gangline, whose fields this one does not know.
    """

    number: int
    round: int
    at: model.Millis
    kind: str
    workload: str  # "namespace/name"; "" for what is about no Workload
    decision: model.Decision | None

    @property
    def namespace(self) -> str:
        return self.workload.partition("/")[0]


@dataclass(frozen=True, slots=True)
class PreemptedSpan:
    """A span of time in which a workload was preempted."""

    workload: str
    since: model.Millis
    until: model.Millis


@dataclass(frozen=True, slots=True)
class DecisionPage:
    """Decisions in their order. `last`: the number of the last one that was looked at; `more`: others may follow."""

    decisions: tuple[RecordedDecision, ...]
    last: int
    more: bool


class RecordFile:
    """One file of the record, open for reading for as long as anybody refers to it."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self.descriptor)
        self.identity = identity(os.fstat(self.descriptor))
        self.read = 0  # bytes of complete lines that were looked at
        self.began: model.Millis | None = None  # the time of the first Begin entry
        self.begins: list[int] = []  # where its Begin entries stand
        self.rounds = array("q")
        self.dropped = 0  # numbers at the front of `rounds` that are forgotten

    @property
    def count(self) -> int:
        return (len(self.rounds) - self.dropped) // _WIDTH

    def entry(self, place: int) -> tuple[int, int, int, int, int]:
        at = self.dropped + place * _WIDTH
        number, now, offset, length, preempts = self.rounds[at : at + _WIDTH]
        return number, now, offset, length, preempts

    def drop(self, rounds: int) -> None:
        """Forget the oldest rounds."""
        self.dropped += rounds * _WIDTH
        if self.dropped > len(self.rounds) // 2:
            del self.rounds[: self.dropped]
            self.dropped = 0

    def up_to(self, number: int) -> int:
        """The place of the last round that began at or before this number; -1 if there is none."""
        return bisect_right(range(self.count), number, key=lambda place: self.entry(place)[0]) - 1


@dataclass(frozen=True, slots=True)
class RecordPart:
    """A part of a file of the record, from one of its bytes to another."""

    file: RecordFile
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Line:
    """Where the line of a round stands."""

    file: RecordFile
    number: int
    now: model.Millis
    offset: int
    length: int
    preempts: int  # 1 = it may have preemptions

    @property
    def part(self) -> RecordPart | None:
        """The part of the record from the beginning of its run to its end; None where the file has no such beginning."""
        beginning = bisect_right(self.file.begins, self.offset) - 1
        if beginning < 0:
            return None
        return RecordPart(self.file, self.file.begins[beginning], self.offset + self.length + 1)

    def decided(self) -> list[Any]:
        """The decisions in the line, as JSON; none where it was cut off or is no JSON. Raises OSError."""
        try:
            decided = orjson.loads(os.pread(self.file.descriptor, self.length, self.offset))["decided"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return []
        return decided if isinstance(decided, list) else []  # pyright: ignore[reportUnknownVariableType]


class DecisionIndex:
    """The index of a record that is being written."""

    def __init__(self, path: Path, *, most: int = MOST_ROUNDS) -> None:
        self._path = path
        self._most = most
        self._files: list[RecordFile] = []  # oldest first
        self._forgot = False  # rounds of the present files were dropped
        self._next = 0  # above all numbers that were noted, and above all that were given
        self._given = 0
        self._trouble = ""
        self._lock = threading.Lock()
        self._looking = threading.Lock()  # who looks at the files: whoever comes meanwhile waits

    # --- writing ------------------------------------------------------------------------------------------------------

    def number(self, now: model.Millis, decisions: int) -> int:
        """The number of a round's first decision, to be written with the round."""
        found = max(now * PER_MILLISECOND, self._given, self._next)
        self._given = found + decisions
        return found

    def follow(self) -> None:
        """Take in what is new on the disk. A trouble costs the index, never the record; it is logged once."""
        try:
            self.look()
            self._trouble = ""
        except OSError as error:
            if not self._trouble:
                log.warning("decisions of the audit record are not listed: %s", error)
            self._trouble = str(error)

    def look(self) -> None:
        """Take in what is new on the disk. Raises OSError."""
        with self._looking:
            self._look()

    def _look(self) -> None:
        known = {file.identity: file for file in self._files}
        present: list[RecordFile] = []
        for path in files(self._path):
            try:
                stat = path.stat()
                present.append(known.get(identity(stat)) or RecordFile(path))
            except FileNotFoundError:
                continue
        if present != self._files:
            with self._lock:
                self._files = present
        for file in present:
            self._look_at(file)

    def _look_at(self, file: RecordFile) -> None:
        size = os.fstat(file.descriptor).st_size
        if size < file.read:  # somebody has cut it off
            with self._lock:
                file.rounds, file.dropped, file.begins, file.read = array("q"), 0, [], 0
        for offset, line in lines(file.descriptor, file.read, size):
            if line.startswith(ROUND):
                self._note(file, offset, line)
            elif line.startswith(BEGIN) and (began := _BEGAN.match(line)) is not None:
                file.begins.append(offset)
                file.began = int(began[1]) if file.began is None else file.began
            file.read = offset + len(line) + 1

    def _note(self, file: RecordFile, offset: int, line: bytes) -> None:
        if line.endswith(_NOTHING_DECIDED) or not line.endswith(b"]}"):  # a line without its end was cut off
            return
        if (numbered := _NUMBERED.match(line)) is not None:
            now, number, count = (int(found) for found in numbered.groups())
        else:
            try:
                body = orjson.loads(line)
                now, count = int(body["now"]), len(body["decided"])
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                return
            number = now * PER_MILLISECOND
        number = max(number, self._next)
        self._next = number + count
        with self._lock:
            file.rounds.extend((number, now, offset, len(line), _PREEMPT in line))
            over = sum(each.count for each in self._files) - self._most
            for each in self._files:
                if over <= 0:
                    break
                self._forgot = True
                each.drop(fewer := min(over, each.count))
                over -= fewer

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def covered_from(self) -> model.Millis | None:
        """The instant from which on all decisions are listed; None while nothing is recorded."""
        with self._lock:
            oldest = next((file for file in self._files if file.count), None)
            first = self._files[0] if self._files else None
            if oldest is not None and (self._forgot or first is None or first.began is None):
                return oldest.entry(0)[1]
            return first.began if first is not None else None

    def page(
        self,
        after: int = -1,
        most: int = MOST_LOOKED_AT,
        *,
        since: model.Millis | None = None,
        until: model.Millis | None = None,
        namespace: str = "",
        workload: str = "",
    ) -> DecisionPage:
        """The decisions after a number, of rounds within these times, `most` of them; of a namespace or a Workload, "" = of all.

        It may have fewer, or none, where others follow: what one page reads is bounded. Raises OSError.
        """
        found: list[RecordedDecision] = []
        last, read, started = after, 0, False
        wanted, more = self._lines(after, since, until)
        for line in wanted:
            if len(found) >= most or (started and read + line.length > MOST_READ):
                return DecisionPage(tuple(found), last, True)
            started = True
            read += line.length
            decided = line.decided()
            for place, body in enumerate(decided):
                number = line.number + place
                if number <= after:
                    continue
                if len(found) >= most:
                    return DecisionPage(tuple(found), last, True)
                last = number
                about = _workload_of(body)
                if workload in ("", about) and namespace in ("", about.partition("/")[0]):
                    found.append(_decision(line, place, body))
            last = max(last, line.number)  # also where the line can't be read
        return DecisionPage(tuple(found), last, more)

    def find(self, number: int) -> tuple[RecordedDecision, RecordPart | None] | None:
        """A decision by its number, and the part of the record from the beginning of its run, or of its file, to the end of its
        round; None in place of a part that has no such beginning. None if the decision is not known. Raises OSError.
        """
        with self._lock:
            line = next((each for file in reversed(self._files) if (each := _line_up_to(file, number))), None)
        if line is None:
            return None
        decided, place = line.decided(), number - line.number
        if place >= len(decided):
            return None
        return _decision(line, place, decided[place]), line.part

    def preemptions(self, spans: Sequence[PreemptedSpan]) -> dict[int, tuple[RecordedDecision, RecordPart | None]]:
        """The last preemption in each of these spans, by its place among them, with the part that `find` has. What is not known
        is left out. One call reads the newest lines first, and MOST_READ bytes at most. Raises OSError.
        """
        since = min((span.since for span in spans), default=0)
        until = max((span.until for span in spans), default=0)
        with self._lock:
            lines = [
                line
                for file in reversed(self._files)
                for place in range(file.count - 1, -1, -1)
                if (line := _Line(file, *file.entry(place))).preempts and since <= line.now <= until
            ]
        sought: dict[str, list[int]] = {}
        for place, span in enumerate(spans):
            sought.setdefault(span.workload, []).append(place)
        found: dict[int, tuple[RecordedDecision, RecordPart | None]] = {}
        read = 0
        for line in lines:
            if len(found) == len(spans) or (read and read + line.length > MOST_READ):
                break
            read += line.length
            for at, body in enumerate(line.decided()):
                about = _workload_of(body) if isinstance(body, list) and body and body[0] == "Preempt" else ""
                for place in sought.get(about, ()):
                    if place not in found and spans[place].since <= line.now <= spans[place].until:
                        found[place] = _decision(line, at, body), line.part
        return found

    def all_parts(self) -> list[RecordPart]:
        """All files, as far as they were looked at, oldest first."""
        with self._lock:
            return [RecordPart(file, 0, file.read) for file in self._files]

    def _lines(
        self, after: int, since: model.Millis | None, until: model.Millis | None
    ) -> tuple[Sequence[_Line], bool]:
        """The next rounds that may have decisions after a number, and whether there are others after these."""
        with self._lock:
            rounds = (
                _Line(file, *file.entry(place))
                for file in self._files
                for place in range(max(0, file.up_to(after)), file.count)
            )
            wanted = (
                line for line in rounds if (since is None or line.now >= since) and (until is None or line.now <= until)
            )
            found = list(itertools.islice(wanted, MOST_LOOKED_AT + 1))
        return found[:MOST_LOOKED_AT], len(found) > MOST_LOOKED_AT


def decisions_of(path: Path) -> Iterator[RecordedDecision]:
    """All decisions of a record, in their order. Raises OSError."""
    index = DecisionIndex(path, most=sys.maxsize)
    index.look()
    after, more = -1, True
    while more:
        page = index.page(after)
        yield from page.decisions
        after, more = page.last, page.more


def identity(stat: os.stat_result) -> tuple[int, int]:
    """What a file is known by, whatever its name is."""
    return stat.st_dev, stat.st_ino


def _line_up_to(file: RecordFile, number: int) -> _Line | None:
    place = file.up_to(number)
    return _Line(file, *file.entry(place)) if place >= 0 else None


def _workload_of(body: Any) -> str:
    """The Workload that a decision in JSON is about; "" for a warning about something else."""
    match body:
        case [str(), {"workload": str(workload)}]:
            return workload
        case ["Warn", {"kind": "Workload", "about": str(workload)}]:
            return workload
        case _:
            return ""


def _decision(line: _Line, place: int, body: Any) -> RecordedDecision:
    try:
        decision: model.Decision | None = fact_codec.decision_from_json(body)
    except FactError:
        decision = None
    kind = body[0] if isinstance(body, list) and body and isinstance(body[0], str) else ""
    return RecordedDecision(line.number + place, line.number, line.now, kind, _workload_of(body), decision)
