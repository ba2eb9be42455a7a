"""Private files of this process: created with mode 0600, whatever the umask is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Final

#: readable and writable by this process's user alone
PRIVATE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700


def append(path: Path) -> IO[bytes]:
    """Open a private file for appending; an existing one becomes private. Raises OSError."""
    make_directory(path.parent)
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, PRIVATE), "ab")
    os.fchmod(file.fileno(), PRIVATE)
    return file


def write(path: Path, content: str | bytes) -> None:
    """Write a private file completely, or not at all: readers see the old content or the new one. Raises OSError."""
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
    """Create an empty private file for another library to fill, or make an existing one private. Raises OSError."""
    append(path).close()


def make_directory(path: Path) -> None:
    """Create a private directory; an existing one is left as it is."""
    if not path.is_dir():
        path.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
