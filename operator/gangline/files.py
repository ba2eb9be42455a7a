"""Files of this process that nobody else may read: made so from the start, whatever the umask says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

#: readable and writable by this process's user alone
PRIVATE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700


def append(path: Path) -> IO[bytes]:
    """A private file to write at the end of; also one that was there before becomes private. Raises OSError."""
    make_directory(path.parent)
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "ab")
    os.fchmod(file.fileno(), PRIVATE)
    return file


def write(path: Path, content: str | bytes) -> None:
    """Write a private file whole, or not at all: readers see what was there before or what is there now. Raises OSError."""
    make_directory(path.parent)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def make_private(path: Path) -> None:
    """An empty file that somebody else goes on to fill, or an older one that others could read. Raises OSError."""
    append(path).close()


def make_directory(path: Path) -> None:
    """Private where it is made; one that is there is left as it is."""
    if not path.is_dir():
        path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
