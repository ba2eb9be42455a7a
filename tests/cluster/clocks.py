"""Clocks of processes under test, which they read in the place of this machine's."""

from __future__ import annotations

import math
import mmap
import struct
import time
from functools import lru_cache, partial
from pathlib import Path

from tests.cluster.harness import Replaced

_READ = "gangline.kube.transport:read"


def _shifted(seconds: float) -> float:
    return time.time() + seconds


def ahead(seconds: float) -> Replaced:
    """A clock that is so far ahead (behind, if negative)."""
    return {_READ: partial(_shifted, seconds)}


class ChangedClock:
    """This machine's clock, and so many seconds that are changed while processes go by it."""

    def __init__(self, file: Path, ahead: float = 0.0) -> None:
        self._file = file
        file.write_bytes(struct.pack("d", ahead))

    def put(self, ahead: float) -> None:
        struct.pack_into("d", _opened(str(self._file)), 0, ahead)

    def replaced(self) -> Replaced:
        return {_READ: partial(_changed, str(self._file))}


class SetClock:
    """A clock that stands still until it is set, for several processes. It reads Unix seconds."""

    def __init__(self, file: Path, now: float) -> None:
        self._file = file
        file.write_bytes(struct.pack("d", now))

    @property
    def now(self) -> float:
        return _seconds(str(self._file))

    def set(self, now: float) -> None:
        struct.pack_into("d", _opened(str(self._file)), 0, now)

    def replaced(self) -> Replaced:
        """What makes a process go by this clock alone: it does not take the API server's time for the right one."""
        return {_READ: partial(_seconds, str(self._file)), "gangline.kube.transport:TOLERANCE": math.inf}


@lru_cache
def _opened(file: str) -> mmap.mmap:
    with Path(file).open("r+b") as opened:
        return mmap.mmap(opened.fileno(), 8)


def _changed(file: str) -> float:
    return time.time() + _seconds(file)


def _seconds(file: str) -> float:
    (now,) = struct.unpack_from("d", _opened(file))
    return now
