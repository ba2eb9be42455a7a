"""Files: private ones of this process are created with mode 0600, whatever the umask is; those of others are read within bounds.

Every file that somebody else may have written is read by `read_lines`, `read_bytes` or `read_text`: a line, and a file once it is
unpacked, has at most so many bytes, however small it is on the disk. A file that is too large, or damaged, raises OSError like
one that cannot be opened.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import zlib
from collections.abc import Iterator
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


# --- reading within bounds --------------------------------------------------------------------------------------------

#: bytes of a file that people write by hand, or of one of credentials
MOST_TEXT: Final = 16 * 2**20
#: bytes that are read at once
_PART: Final = 2**20
_GZIP_MAGIC: Final = b"\x1f\x8b"


def read_bytes(path: Path, *, most: int = MOST_TEXT, unpack: bool = False) -> bytes:
    """The file's bytes; with `unpack` those of a gzipped one are unpacked. Raises OSError."""
    found, size = list[bytes](), 0
    with _opened(path, unpack) as file:
        while part := file.read(_PART):  # to ask for all at once would take the memory for `most`
            found.append(part)
            size += len(part)
            if size > most:
                raise _too_large(path, f"it has more than {most} bytes")
    return b"".join(found)


def read_text(path: Path, *, most: int = MOST_TEXT, unpack: bool = False) -> str:
    """The file's text, of at most so many bytes. Raises OSError, and UnicodeDecodeError for one that is not UTF-8."""
    return read_bytes(path, most=most, unpack=unpack).decode()


def read_tail(path: Path, most: int) -> bytes:
    """The last bytes of a file, at most so many. Raises OSError."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - most))
        return file.read(most)


def read_lines(path: Path, *, longest: int, most: int) -> Iterator[bytes]:
    """The lines of a file, gzipped or not, each with its end. Raises OSError, also while it is read; it names the line."""
    number = total = 0
    with _opened(path, unpack=True) as file:
        while line := file.readline(longest + 1):
            number += 1
            total += len(line)
            if len(line) > longest:
                raise _too_large(path, f"line {number} has more than {longest} bytes")
            if total > most:
                raise _too_large(path, f"up to line {number} it has more than {most} bytes")
            yield line


def read_beginning(path: Path, most: int) -> bytes:
    """The first line of a file, gzipped or not, or as many bytes of it. Raises OSError."""
    with _opened(path, unpack=True) as file:
        return file.readline(most)


@contextlib.contextmanager
def _opened(path: Path, unpack: bool) -> Iterator[IO[bytes]]:
    with path.open("rb") as raw:
        if not unpack or raw.peek(2)[:2] != _GZIP_MAGIC:
            yield raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield unpacked  # type: ignore[misc]  # it reads like a file of bytes
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(errno.EIO, f"it is damaged: {error}", str(path)) from error


def _too_large(path: Path, why: str) -> OSError:
    return OSError(errno.EFBIG, why, str(path))
