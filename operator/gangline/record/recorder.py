"""Events of watches as lines of a record. A line is written when what is kept of an object has changed.

The event loop compares and queues; a thread writes. After a restart the newest file says what was written last, so that only what
happened meanwhile is added.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

import gangline
from gangline import bounded, files
from gangline.api.read.reading import ParseError
from gangline.jobs import BY_RESOURCE
from gangline.kube import resources as kube
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, Resource, namespace_of
from gangline.objects import JobObject, Stored, view
from gangline.record.entries import CONFIGURATION, NOTHING, RECORDED, VERSION, JobFacts, entry, job_facts
from gangline.record.folder import MOST_BYTES, Folder

log = logging.getLogger(__name__)

#: lines are in the file after at most this time, in seconds …
FLUSH_EVERY: Final = 0.5
#: … and on the disk after this
SYNC_EVERY: Final = 5.0
#: a record without news has a line this often, in milliseconds: what is longer without one was not watched
ALIVE_EVERY: Final = 300_000
#: after an error of the disk, the record is begun anew after this time, in milliseconds
RETRY: Final = 30_000
#: uids in one line of finished Workloads
_DONE: Final = 500
#: lines that wait for the disk; beyond, the record is begun anew when the disk answers
_MOST_WAITING: Final = 200_000
#: bytes of what is kept of one Workload or LocalQueue; usual ones take 1,000
_LONGEST_ENTRY: Final = 64 * 2**10
#: namespaces of which it is said that not all of their objects are recorded
_MOST_CROWDED: Final = 1000
#: the part of the room for all objects that those of one namespace may take
_PART_OF_NAMESPACE: Final = 4
_WRITTEN: Final = b"#"


@dataclass(frozen=True, slots=True)
class _Batch:
    """Lines that go into one file; `anew`: into a new one."""

    lines: list[bytes]
    anew: bool = False


class Recorder:
    """What was written of each object, and the thread that writes. Used from one event loop."""

    def __init__(self, path: Path, now: Callable[[], int], most_bytes: int = MOST_BYTES) -> None:
        """Raises OSError where the folder can't be used, or somebody else records there."""
        self.lines = self.lost = self.unreadable = 0  #: counts
        self.trouble = ""  #: why nothing is written, "" while all is well
        self._now = now
        self._folder = Folder(path, most_bytes)
        self._known: dict[tuple[str, str], bytes] = {}
        self._sizes: Counter[str] = Counter()  # bytes in `_known` by namespace
        self._crowded: set[str] = set()  # namespaces of which it was said that not all is recorded
        self._jobs: dict[str, JobFacts] = {}  # by uid of the job
        #: by uid of the job: its Workload as it was last seen, while it has not finished
        self._workloads: dict[str, Stored] = {}
        self._owners: dict[str, str] = {}  # Workload's key -> uid of its job
        self._unseen: set[tuple[str, str]] = set()
        self._last = 0
        self._failed_at: int | None = None
        self._lock = threading.Lock()
        self._waiting: list[_Batch] = []
        self._beginning = False  # a new file waits to be begun
        self._writing = 0
        self._stop = threading.Event()
        self._restore()
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Batches of lines that are not in a file yet."""
        return len(self._waiting) + self._writing

    # --- events -------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        """An event of a watch. Events of other kinds than `watched` are passed over."""
        if resource in RECORDED:
            if isinstance(event, Upsert):
                self.show(resource, view(resource, event.obj))
            elif isinstance(event, Removed):
                if event.obj is not None and resource == kube.WORKLOADS:
                    self.show(resource, view(resource, event.obj))  # it may have ended just before
                self._gone((resource.kind, event.key))
        elif resource in BY_RESOURCE:
            if isinstance(event, Upsert):
                self.show_job(resource, JobObject(event.obj))
            elif isinstance(event, Removed):
                self._jobs.pop(event.uid, None)

    def show(self, resource: Resource, obj: Stored) -> None:
        """The object as it is now."""
        name = (resource.kind, obj.key)
        self._unseen.discard(name)
        if self._known.get(name) == _WRITTEN + obj.uid.encode():
            return  # a Workload that has finished: nothing more happens to it
        owner = obj.controller_uid if resource == kube.WORKLOADS else None
        try:
            body = entry(resource, obj, self._jobs.get(owner or "", NOTHING))
        except (ParseError, ValueError) as error:
            self.unreadable += 1
            log.warning("%s %s is not recorded: %s", resource.kind, name[1], bounded.shown(str(error)))
            return
        finished = "finished" in body
        if finished:
            self._disown(name[1])
        elif owner:
            self._workloads[owner], self._owners[name[1]] = obj, owner
        line = orjson.dumps(body)
        if self._known.get(name) == line:
            return
        known = _WRITTEN + obj.uid.encode() if finished else line
        if not self._has_room(name, known):
            self.unreadable += 1
            self._gone(name)
            return
        self._know(name, known)
        self._write(line)

    def _has_room(self, name: tuple[str, str], line: bytes) -> bool:
        """Whether an object may be recorded. What users create must not keep the objects of all others out of the record."""
        namespace = namespace_of(name[1])
        if not namespace:
            return True
        size = self._sizes[namespace] - len(self._known.get(name, b"")) + len(line)
        if len(line) <= _LONGEST_ENTRY and size <= self._folder.most_snapshot // _PART_OF_NAMESPACE:
            return True
        if namespace not in self._crowded and len(self._crowded) < _MOST_CROWDED:
            self._crowded.add(namespace)
            text = "objects of namespace %s are too large for the record: some are left out, the first one is %s"
            log.warning(text, namespace, bounded.shown(name[1]))
        return False

    def _know(self, name: tuple[str, str], line: bytes | None) -> bytes | None:
        """Remember this of the object from now on; None = nothing. Returns what was known."""
        namespace, before = namespace_of(name[1]), self._known.pop(name, None)
        self._sizes[namespace] += len(line or b"") - len(before or b"")
        if not self._sizes[namespace]:
            del self._sizes[namespace]
        if line is not None:
            self._known[name] = line
        return before

    def show_job(self, resource: Resource, job: JobObject) -> None:
        """The owner of a Workload as it is now: its hints are kept with the Workload."""
        facts = job_facts(resource, job)
        if facts == self._jobs.get(job.uid, NOTHING):
            return
        self._jobs[job.uid] = facts
        if (workload := self._workloads.get(job.uid)) is not None:
            self.show(kube.WORKLOADS, workload)

    def listed(self, resource: Resource) -> None:
        """Note that all existing objects of this kind were shown: what was known from before and was not shown is gone."""
        for name in [name for name in self._unseen if name[0] == resource.kind]:
            self._gone(name)

    def _gone(self, name: tuple[str, str]) -> None:
        self._unseen.discard(name)
        known = self._know(name, None)
        if name[0] == kube.WORKLOADS.kind:
            self._disown(name[1])
        if known is not None and not known.startswith(_WRITTEN):
            self._write(orjson.dumps({"gone": name[0], "name": name[1]}))

    def _disown(self, workload: str) -> None:
        self._workloads.pop(self._owners.pop(workload, ""), None)

    # --- lines --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Write a sign of life, or begin anew after an error of the disk. To be called at least every minute."""
        now = self._now()
        if self._failed_at is not None:
            if now - self._failed_at >= RETRY:
                self._begin_anew("after an error")
        elif now - self._last >= ALIVE_EVERY:
            self._write(b'{"up":true}')

    def _write(self, line: bytes) -> None:
        if self._failed_at is not None:
            self.lost += 1
            return
        with self._lock:
            if not self._waiting:
                self._waiting.append(_Batch([]))
            self._waiting[-1].lines.append(self._dated(line))
            self.lines += 1
            many = len(self._waiting[-1].lines) > _MOST_WAITING + len(self._known)
        if many:
            self._fail("the disk does not keep up")
        elif self._folder.full and not self._beginning:
            self._begin_anew("rotation")

    def _dated(self, line: bytes) -> bytes:
        self._last = max(self._last, self._now())  # a clock that goes back does not turn history round
        return b'{"at":%d,%s\n' % (self._last, line[1:])

    def _begin_anew(self, why: str) -> None:
        """A new file that begins with all that is known."""
        head = {"record": VERSION, "by": f"gangline {gangline.__version__}", "why": why}
        lines = [self._dated(orjson.dumps(head)), *map(self._dated, self._snapshot())]
        size = sum(map(len, lines))
        if size > self._folder.most_snapshot:
            self._fail(
                f"{len(self._known)} objects take {size} bytes: the record must be allowed more than four times that"
            )
            return
        with self._lock:
            self._waiting.append(_Batch(lines, anew=True))
            self._beginning = True
        self._failed_at, self.trouble = None, ""

    def _snapshot(self) -> Iterator[bytes]:
        kinds = {kind.kind: number for number, kind in enumerate((*CONFIGURATION, kube.NODES, kube.WORKLOADS))}
        done: list[str] = []
        for (_, name), line in sorted(self._known.items(), key=lambda each: kinds.get(each[0][0], 0)):
            if not line.startswith(_WRITTEN):
                yield line
            else:
                done.append(f"{name} {line[1:].decode()}")
        for first in range(0, len(done), _DONE):
            yield orjson.dumps({"done": done[first : first + _DONE]})

    def _restore(self) -> None:
        """What the newest file says was written; and this process's beginning, after which something may be missing."""
        newest = self._folder.newest()
        if newest is not None:
            for body in readable(newest):
                at = body.pop("at", None)
                self._last = max(self._last, at if isinstance(at, int) else 0)
                match body:
                    case {"put": str(kind), "name": str(name)}:
                        done = "finished" in body
                        line = _WRITTEN + str(body.get("uid", "")).encode() if done else orjson.dumps(body)
                        self._know((kind, name), line)
                    case {"gone": str(kind), "name": str(name)}:
                        self._know((kind, name), None)
                    case {"done": list(names)}:
                        for each in names:
                            name, _, uid = str(each).rpartition(" ")
                            self._know((kube.WORKLOADS.kind, name), _WRITTEN + uid.encode())
                    case _:
                        pass
        self._unseen = set(self._known)
        if newest is None:
            self._begin_anew("start")
        else:
            self._folder.resume()
            self._write(orjson.dumps({"begin": f"gangline {gangline.__version__}"}))

    def _fail(self, why: str) -> None:
        if not self.trouble:
            log.error("the record has a gap: %s", why)
        self._failed_at, self.trouble = self._now(), why
        with self._lock:
            self.lost += sum(len(batch.lines) for batch in self._waiting)
            self._waiting.clear()
            self._beginning = False

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        stopping, unsynced = False, 0.0
        while not stopping:
            stopping = self._stop.wait(FLUSH_EVERY)
            with self._lock:
                waiting, self._waiting = self._waiting, []
                self._writing = len(waiting)
            try:
                for batch in waiting:
                    if batch.anew:
                        self._folder.begin(batch.lines)
                        self._beginning = False
                    else:
                        self._folder.append(b"".join(batch.lines))
                unsynced += FLUSH_EVERY
                if stopping or unsynced >= SYNC_EVERY:
                    self._folder.sync()
                    unsynced = 0.0
            except Exception as error:  # the thread must survive any error: a full disk, a directory that is gone
                self._folder.abandon()
                self._fail(str(error))
            self._writing = 0
        self._folder.close()

    def close(self) -> None:
        """Write what waits, and let others record there."""
        self._stop.set()
        self._thread.join(10)


def readable(path: Path) -> Iterator[Json]:
    """The lines of one of our own files that can be read."""
    for line in files.read_lines(path, longest=LONGEST_LINE, most=MOST_BYTES):
        try:
            body = bounded.load_json(line, most_bytes=LONGEST_LINE)
        except bounded.BadJsonError:
            continue
        if isinstance(body, dict):
            yield body


#: bytes of a line
LONGEST_LINE: Final = 2**20
