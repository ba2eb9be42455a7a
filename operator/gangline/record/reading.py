"""Records read again. A record may come from anywhere: every size in it is bounded, and what does not belong is refused with its
file, line and field. A line that is no JSON was cut off by the end of its writer, and costs itself alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from gangline import bounded, files
from gangline.api.read.reading import ParseError
from gangline.engine.model import Millis
from gangline.kube.resources import Json
from gangline.record import values
from gangline.record.entries import VERSION
from gangline.record.folder import files_of
from gangline.record.history import AdmittedSpan, FileLine, Recorded, RecordedChange, RecordedHistory, RecordError
from gangline.record.recorder import ALIVE_EVERY, LONGEST_LINE

#: bytes of all files together
MOST_BYTES: Final = 8 * 2**30
#: files, Workloads, changes of other objects, and lines that were cut off
MOST_FILES: Final = 10_000
MOST_WORKLOADS: Final = 2_000_000
MOST_CHANGES: Final = 2_000_000
MOST_CUT: Final = 1_000
#: the year 2100
LATEST: Final[Millis] = 4_102_444_800_000
#: characters of a name; a namespaced one has two parts of 253
LONGEST_NAME: Final = 600
#: times that a record may be silent before it counts as interrupted
_SILENCE: Final = 3 * ALIVE_EVERY
_WORKLOAD: Final = "Workload"
_KEPT: Final = ("assignments", "clusterQueue", "user", "hint", "limit", "checkpoint")


def read(folder: Path) -> RecordedHistory:
    """The record in a folder. Raises RecordError."""
    try:
        paths = files_of(folder)
    except OSError as error:
        raise RecordError(f"{folder}: cannot be read: {error.strerror or error}") from error
    if not paths:
        raise RecordError(f"{folder} has no record: its files are named record-00000001.jsonl and so on")
    if len(paths) > MOST_FILES:
        raise RecordError(f"{folder} has more than {MOST_FILES} files")
    reader = _Reader()
    for path in paths:
        for place, body in _lines(path, reader):
            reader.take(place, body)
    return reader.done()


def _lines(path: Path, reader: _Reader) -> Iterator[tuple[FileLine, Json]]:
    try:
        for number, line in enumerate(files.read_lines(path, longest=LONGEST_LINE, most=MOST_BYTES), start=1):
            place = FileLine(path, number)
            reader.count(len(line), place)
            if not line.strip():
                continue
            try:
                body = bounded.load_json(line, most_bytes=LONGEST_LINE)
            except bounded.BadJsonError:
                reader.passed_over(place)
                continue
            if not isinstance(body, dict):
                raise RecordError(f"{place}: not an object")
            yield place, body
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error


class _Reader:
    def __init__(self) -> None:
        self._history = RecordedHistory()
        self._bytes = 0
        self._now: Millis | None = None
        self._state: dict[tuple[str, str], Json] = {}  # of all but Workloads
        self._current: dict[str, str] = {}  # Workload's name -> uid

    def count(self, size: int, place: FileLine) -> None:
        self._bytes += size
        if self._bytes > MOST_BYTES:
            raise RecordError(f"{place}: the record has more than {MOST_BYTES} bytes")

    def passed_over(self, place: FileLine) -> None:
        self._history.cut.append(place)
        if len(self._history.cut) > MOST_CUT:
            raise RecordError(f"{place}: more than {MOST_CUT} lines are no JSON")

    def done(self) -> RecordedHistory:
        history = self._history
        if self._now is None:
            raise RecordError("the record has no line that can be read")
        history.last = self._now
        return history

    def take(self, place: FileLine, body: Json) -> None:
        now = self._moment(place, body, "at")
        if self._now is None:
            self._history.first = self._now = now
        now = max(now, self._now)
        begins = "begin" in body or (body.get("why") not in (None, "rotation"))
        if now - self._now > _SILENCE or (begins and now > self._now):
            self._history.gaps.append((self._now, now))
        self._now = now
        match body:
            case {"record": version}:
                if version != VERSION:
                    self._refuse(place, "record", f"version {bounded.shown(version)}: this Gangline reads {VERSION}")
            case {"put": kind, "name": _}:
                name = self._name(place, body)
                if kind == _WORKLOAD:
                    self._workload(place, name, body, now)
                else:
                    self._change(place, self._kind(place, "put", kind), name, body, now)
            case {"gone": kind, "name": _}:
                name = self._name(place, body)
                if kind == _WORKLOAD:
                    self._gone(name, now)
                else:
                    self._change(place, self._kind(place, "gone", kind), name, None, now)
            case {"done": _} | {"up": _} | {"begin": _}:
                pass
            case _:
                raise RecordError(f"{place}: none of the fields put, gone, record, done, begin and up")

    # --- configuration and nodes --------------------------------------------------------------------------------------

    def _kind(self, place: FileLine, field: str, kind: Any) -> str:
        if kind not in values.KINDS:
            self._refuse(place, field, f"{bounded.shown(kind)} is not recorded: use one of {', '.join(values.KINDS)}")
        return kind

    def _change(self, place: FileLine, kind: str, name: str, body: Json | None, now: Millis) -> None:
        before = self._state.get((kind, name))
        if body is None:
            if self._state.pop((kind, name), None) is None:
                return
        else:
            body = {field: value for field, value in body.items() if field not in ("at", "put")}
            if body == before:
                return
            try:
                values.check(kind, name, body)
            except ParseError as error:
                raise RecordError(f"{place}: {error}") from None
            self._state[kind, name] = body
        self._history.changes.append(RecordedChange(now, kind, name, body, place))
        if len(self._history.changes) > MOST_CHANGES:
            raise RecordError(f"{place}: more than {MOST_CHANGES} changes")

    # --- Workloads ----------------------------------------------------------------------------------------------------

    def _workload(self, place: FileLine, name: str, body: Json, now: Millis) -> None:
        uid = self._text(place, body, "uid") or name
        self._moment(place, body, "created")
        for field in ("reserved", "admitted"):
            if field in body:
                self._moment(place, body, field)
        for field in ("evicted", "finished"):
            if field in body:
                if not isinstance(body[field], dict):
                    self._refuse(place, field, "is no object")
                self._moment(place, body[field], "at", f"{field}.at")
                self._text(place, body[field], "reason", f"{field}.reason")
        before = self._current.get(name)
        if before is not None and before != uid:
            self._gone(name, now)  # another one of this name
        self._current[name] = uid
        known = self._history.workloads.get(uid)
        body = {field: value for field, value in body.items() if field not in ("at", "put")}
        if known is None:
            if len(self._history.workloads) >= MOST_WORKLOADS:
                raise RecordError(f"{place}: more than {MOST_WORKLOADS} Workloads")
            known = self._history.workloads[uid] = Recorded(uid, name, body, place)
        elif known.body == body:
            return
        else:
            # what it got when it was admitted, and what its job said, is worth keeping when the object does not say it any more
            kept = {field: known.body[field] for field in _KEPT if field in known.body}
            known.body, known.place = kept | body, place
        _follow(known.stays, body, now)

    def _gone(self, name: str, now: Millis) -> None:
        found = self._history.workloads.get(self._current.pop(name, ""))
        if found is None:
            return
        found.gone = now
        if found.stays and found.stays[-1].end is None:
            _end(found.stays[-1], now, "Deleted")

    # --- fields -------------------------------------------------------------------------------------------------------

    def _name(self, place: FileLine, body: Json) -> str:
        name = self._text(place, body, "name")
        if not name:
            self._refuse(place, "name", "is missing")
        return name

    def _text(self, place: FileLine, body: Json, field: str, path: str = "") -> str:
        value = body.get(field, "")
        if not isinstance(value, str) or len(value) > LONGEST_NAME:
            self._refuse(place, path or field, f"is no text of at most {LONGEST_NAME} characters")
        return value

    def _moment(self, place: FileLine, body: Json, field: str, path: str = "") -> Millis:
        value = body.get(field)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LATEST:
            self._refuse(place, path or field, f"{bounded.shown(value)} is no time in Unix milliseconds")
        return value

    def _refuse(self, place: FileLine, field: str, why: str) -> NoReturn:
        raise RecordError(f"{place}: {field}: {why}")


def _follow(stays: list[AdmittedSpan], body: Json, now: Millis) -> None:
    """What this state of a Workload says of its admissions."""
    admitted, evicted, finished = body.get("admitted"), body.get("evicted"), body.get("finished")
    last = stays[-1] if stays else None
    if last is not None and last.end is None:
        if finished is not None:
            _end(last, finished["at"], "Finished", finished=True)
        elif admitted != last.start:
            at = evicted["at"] if evicted is not None and evicted["at"] >= last.start else now
            _end(last, at, evicted["reason"] if evicted is not None else "")
    if admitted is not None and (last is None or admitted > last.start):
        stays.append(AdmittedSpan(admitted))
        if finished is not None:
            _end(stays[-1], finished["at"], "Finished", finished=True)


def _end(stay: AdmittedSpan, at: Millis, reason: str, *, finished: bool = False) -> None:
    stay.end, stay.reason, stay.finished = max(stay.start, at), reason, finished
