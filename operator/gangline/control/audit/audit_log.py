"""A record of the facts that the engine observed and of its decisions, complete enough to repeat every decision.

Each entry is one line of JSON: the beginning of a run, a fact, or a round of decisions with its time. A separate thread writes
the lines; the event loop pays one append to a list. A file that has grown too large is rotated, and the next file begins with all
facts that are known, so that each file can be read without its predecessors.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, TypeAlias

import orjson

import gangline
from gangline import bounded, files
from gangline.control.audit import fact_codec
from gangline.control.audit.decision_index import DecisionIndex
from gangline.engine import IsolatedEngine, model
from gangline.kube.resources import Json

log = logging.getLogger(__name__)


#: entries are on the disk after at most this time, in seconds
FLUSH_EVERY: Final = 0.5
#: a file larger than this is rotated, in bytes, unless less than half of it came after the facts with which it began …
MAX_BYTES: Final = 64 * 2**20
#: … and this many rotated files are kept
KEPT: Final = 4
#: a file that is full after less than this, in milliseconds, is reported: the record covers a few times as much
SOON: Final = 3600_000


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a new engine's run (`serial` 0), or of a file that continues a run and first lists all known facts."""

    run: str
    serial: int
    at: model.Millis
    settings: model.Settings
    known: int = 0  # how many of the following facts the engine knows already
    version: str = gangline.__version__  # of Gangline


@dataclass(frozen=True, slots=True)
class Round:
    """One call of `decide` and its decisions. `number`: of the first of these (`decision_index`); 0 where none was given."""

    now: model.Millis
    decisions: tuple[model.Decision, ...]
    room: int | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """An entry that could not be written. Decisions after it cannot be repeated until the next Begin entry."""

    why: str


Entry: TypeAlias = Begin | Round | Gap | model.Put | model.Gone | model.WriteFailed


def to_line(entry: Entry) -> bytes:
    match entry:
        case Begin(run, serial, at, settings, known, version):
            body: Json = {"run": run, "serial": serial, "at": at, "known": known}
            body |= {"settings": fact_codec.written(settings), "version": version}
        case Round(now, decisions, room, number):
            numbered: Json = {"number": number, "count": len(decisions)} if number else {}
            decided = [fact_codec.decision_to_json(decision) for decision in decisions]
            body = {"now": now, **numbered, "room": room, "decided": decided}
        case Gap(why):
            body = {"gap": why}
        case _:
            body = {"fact": fact_codec.change_to_json(entry)}
    return orjson.dumps(body) + b"\n"


def from_line(line: bytes) -> Entry:
    """Parse an entry. Raises fact_codec.FactError."""
    try:
        body = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise fact_codec.FactError(f"not JSON: {error}") from error
    match body:
        case {"fact": change}:
            return fact_codec.change_from_json(change)
        case {"gap": str(why)}:
            return Gap(why)
        case {"now": int(now), "decided": list(decided)}:
            decisions = tuple(fact_codec.decision_from_json(entry) for entry in decided)
            return Round(now, decisions, body.get("room"), body.get("number", 0))
        case {"run": str(run), "serial": int(serial), "at": int(at), "known": int(known), "settings": dict(settings)}:
            version = str(body.get("version", ""))
            return Begin(run, serial, at, fact_codec.from_json(model.Settings, settings), known, version)
        case _:
            raise fact_codec.FactError("not a line of an audit record")


class AuditLog:
    """Appends entries to a file, in a thread. What cannot be written is dropped; the first I/O error is logged, and the file is
    tried again with the next entries."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> None:
        self.lost = 0  #: how often an entry could not be written
        self.index = DecisionIndex(path)
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._waiting: deque[Entry] = deque()
        self._size = path.stat().st_size if path.exists() else 0
        self._beginning = 0  # bytes of the Begin entry and of the known facts after it, in the present file
        self._known = 0  # of these facts so many are still to be written
        self._begun: model.Millis | None = None  # when the present file was begun
        self._bytes: Counter[str] = Counter()  # written since then about Workloads, by namespace
        self._trouble = ""  # why the last entries were dropped
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        """Whether a new file is due: the next entry should be a Begin, followed by all known facts.

        Where the known facts alone are larger than a file may be, a file grows to twice their size. Otherwise each round of
        decisions would begin another file and delete the oldest one.
        """
        return self._size > max(self._max_bytes, 2 * self._beginning)

    @property
    def backlog(self) -> int:
        """Entries that are not on the disk yet."""
        return len(self._waiting)

    def add(self, entry: Entry) -> None:
        self._waiting.append(entry)

    def begin_anew(self, entries: Iterable[Entry]) -> None:
        """Rotate the file and begin another one with these entries."""
        self._size = self._beginning = 0
        self._waiting.extend(entries)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        file: IO[bytes] | None = None
        stopping = False
        self.index.follow()  # what earlier processes have recorded
        while not stopping:
            stopping = self._stop.wait(FLUSH_EVERY)
            try:
                anything = bool(self._waiting) or file is None
                file = self._write(file or self._open())
                if anything:
                    self.index.follow()
            except Exception as error:  # the thread must survive any error: a full disk, a directory that is gone
                self._give_up(str(error))
                _abandon(file)
                file = None
        _abandon(file)

    def _open(self) -> IO[bytes]:
        """The file, at the beginning of a line. After a gap, the line that says so is the first."""
        file = files.append(self._path)
        if file.tell():
            file.write(b"\n")  # the last line may have been cut off
        if self._trouble:
            self._size += file.write(to_line(Gap(bounded.shown(self._trouble))))
        return file

    def _give_up(self, trouble: str) -> None:
        """Drop what waits: entries would pile up in memory for as long as the disk is full."""
        if not self._trouble:
            log.error("the audit record has a gap: %s", trouble)
        self._trouble = trouble
        self.lost += max(1, len(self._waiting))
        self._waiting.clear()

    def _write(self, file: IO[bytes]) -> IO[bytes]:
        while self._waiting:
            entry = self._waiting.popleft()
            if isinstance(entry, Begin) and entry.serial:
                size = file.tell()
                file.close()
                self._report_soon(entry.at, size)
                rotate(self._path, self._kept)
                file = files.append(self._path)
                self._size, self._beginning, self._known = 0, 0, entry.known + 1
            if isinstance(entry, Begin):
                self._begun = entry.at
                self._bytes.clear()
            written = file.write(self._line(entry))
            self._size += written
            if isinstance(entry, model.Put) and isinstance(entry.item, model.Workload):
                self._bytes[entry.item.namespace] += written
            if self._known:
                self._known -= 1
                self._beginning += written
        file.flush()
        if self._trouble:
            log.info("the audit record goes on")
            self._trouble = ""
        return file

    def _report_soon(self, now: model.Millis, size: int) -> None:
        """Say whose Workloads filled a file of this size early: they displace what the record says of everybody."""
        if self._begun is None or now - self._begun >= SOON:
            return
        text = f"the audit record covers less than usual: a file was full after {(now - self._begun) // 1000} s"
        if self._bytes:
            namespace, most = self._bytes.most_common(1)[0]
            share = 100 * most // max(1, size)
            text += f", and {share} % of it is about Workloads of namespace {bounded.shown(namespace)}"
        log.warning("%s", text)

    def _line(self, entry: Entry) -> bytes:
        """The entry as a line. An entry that cannot be written costs itself alone: a Gap takes its place."""
        try:
            if isinstance(entry, Round) and entry.decisions:
                entry = replace(entry, number=self.index.number(entry.now, len(entry.decisions)))
            return to_line(entry)
        except Exception as error:
            self.lost += 1
            why = bounded.shown(f"{type(error).__name__}: {error}")
            log.error("the audit record has a gap: a %s could not be written: %s", type(entry).__name__, why)
            return to_line(Gap(why))


def _abandon(file: IO[bytes] | None) -> None:
    """Close a file whose content may not be writable."""
    if file is not None:
        with contextlib.suppress(OSError):
            file.close()


def rotate(path: Path, kept: int) -> None:
    """Rename FILE to FILE.1, FILE.1 to FILE.2 and so on; delete those beyond `kept`."""
    for number in range(kept, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        newer = path.with_name(f"{path.name}.{number - 1}") if number > 1 else path
        if newer.exists():
            newer.replace(older)


class RecordedEngine(IsolatedEngine):
    """An engine that records the facts it observes and its decisions."""

    def __init__(self, settings: model.Settings, record: AuditLog, *, at: model.Millis) -> None:
        super().__init__(settings)
        self._record = record
        self._run = uuid.uuid4().hex
        self._serial = 0
        self._at = at
        record.add(Begin(self._run, 0, at, settings))

    def observe(self, change: model.Change) -> None:
        super().observe(change)
        if not self.leaves_out(change):
            self._record.add(change)

    def decide(self, now: model.Millis, room: int | None = None) -> list[model.Decision]:
        self._at = now
        decisions = super().decide(now, room)
        self._record.add(Round(now, tuple(decisions), room))
        if self._record.full:
            self._write_anew()
        return decisions

    def _rebuild(self) -> None:
        """Start a new run in the record: the engine was replaced by one that knows less."""
        super()._rebuild()
        self._run, self._serial = uuid.uuid4().hex, 0
        self._write_anew()

    def _write_anew(self) -> None:
        """Begin another file with all known facts."""
        self._serial += 1
        known = self.facts()
        self._record.begin_anew([Begin(self._run, self._serial, self._at, self.settings, len(known)), *known])
