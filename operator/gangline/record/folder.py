"""The files of a record: appended to, begun anew when one has grown too large, and the oldest deleted.

A new file appears whole, with all that is known at its beginning, or not at all. So each file can be read without those before
it, and the death of the process at any instant costs at most the line that it was writing.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from gangline import files

_NAME: Final = re.compile(r"record-([0-9]{8})\.jsonl")
_LOCK: Final = "lock"
_PARTIAL: Final = ".partial"
#: bytes of all files together
MOST_BYTES: Final = 512 * 2**20
#: a file is closed when it has this part of all bytes, or has grown to twice what it began with
_PART: Final = 8


class FolderError(OSError):
    """The folder can't be used; the message says why."""


def files_of(folder: Path) -> list[Path]:
    """The files of a record, the oldest first. Raises OSError."""
    return sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name) and each.is_file())


class Folder:
    """One process's hold on a folder: nobody else may write there meanwhile. Used from one thread."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        """Raises FolderError where another process writes there, OSError where the folder can't be written."""
        self._path = path
        self._most = most_bytes
        files.make_directory(path)
        self._lock = files.append(path / _LOCK)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise FolderError(f"{path}: another process records there") from error
        for left in path.glob(f"*{_PARTIAL}"):
            left.unlink(missing_ok=True)
        self._file: IO[bytes] | None = None
        self._begun = 0  # size of the newest file when it was begun
        self.size = 0  #: of the newest file

    @property
    def most_snapshot(self) -> int:
        """Bytes of the largest beginning of a file that leaves room for what happens after it."""
        return self._most // 4

    @property
    def full(self) -> bool:
        """Whether the next lines belong into a new file."""
        return self.size >= self._share

    @property
    def _share(self) -> int:
        """Bytes to which the newest file may grow."""
        return max(self._most // _PART, 2 * self._begun)

    def newest(self) -> Path | None:
        return next(reversed(files_of(self._path)), None)

    def resume(self) -> None:
        """Go on with the newest file, at the beginning of a line: its last one may have been cut off."""
        newest = self.newest()
        if newest is None:
            return
        self.size = newest.stat().st_size
        with newest.open("rb") as reading:
            if self.size:
                reading.seek(-1, os.SEEK_END)
            cut = self.size > 0 and reading.read(1) != b"\n"
        self._file = files.append(newest)
        if cut:
            self.append(b"\n")

    def append(self, lines: bytes) -> None:
        if self._file is None:
            raise FolderError("no file is open")
        self._file.write(lines)
        self._file.flush()
        self.size += len(lines)
        if self.full:  # it goes on growing until the next one is begun
            self._drop_old()

    def sync(self) -> None:
        """Write the file through to the disk itself."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def begin(self, lines: Iterable[bytes]) -> None:
        """A new file with these lines; old ones are deleted until all fit."""
        last = self.newest()
        number = 1 if last is None else int(last.name[7:15]) + 1
        path = self._path / f"record-{number:08d}.jsonl"
        partial = path.with_name(path.name + _PARTIAL)
        try:
            partial.unlink(missing_ok=True)
            with files.append(partial) as file:
                for line in lines:
                    file.write(line)
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        self.abandon()
        self._file = files.append(path)
        self.size = self._begun = size
        self._drop_old()

    def _drop_old(self) -> None:
        """The newest file has room to grow."""
        *older, _ = files_of(self._path)
        room = self._most - max(self.size, self._share)
        for each in reversed(older):
            room -= each.stat().st_size
            if room < 0:
                each.unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close the newest file, whose content may not be writable."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def close(self) -> None:
        self.abandon()
        self._lock.close()
