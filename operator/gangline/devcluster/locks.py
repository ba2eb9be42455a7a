"""File locks that the kernel releases when their holder dies, and ports reserved with them."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gangline.devcluster.errors import StartError

# Below Linux's and the BSDs' ephemeral ranges, so that no outgoing connection takes a port while its server restarts.
PORTS = range(20_000, 32_000)


class FileLock:
    """An exclusive advisory lock on a file. Released by `release`, or by the kernel when the process dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def try_acquire(self) -> bool:
        """Take the lock if it is free. The file then has this process's pid, for the messages of waiting processes."""
        return self._acquire(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def acquire(self, waiting: Callable[[str], object] | None = None) -> None:
        """Take the lock, waiting as long as needed; `waiting(pid)` is called with the holder if it is not free at once."""
        if self.try_acquire():
            return
        if waiting is not None:
            waiting(self._holder())
        self._acquire(fcntl.LOCK_EX)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _acquire(self, how: int) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, how)
        except BlockingIOError:
            os.close(fd)
            return False
        except BaseException:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
        self._fd = fd
        return True

    def _holder(self) -> str:
        try:
            return self.path.read_text() or "unknown"
        except OSError:
            return "unknown"


@contextmanager
def locked(path: Path, waiting: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold the lock on `path` within the block."""
    lock = FileLock(path)
    lock.acquire(waiting)
    try:
        yield
    finally:
        lock.release()


def private_directory(name: str) -> Path:
    """A directory of this user in the machine's temp directory; refuses a directory of another user."""
    path = Path(tempfile.gettempdir()) / f"gangline-{os.getuid()}" / name
    for part in (path.parent, path):
        with suppress(FileExistsError):
            part.mkdir(mode=0o700)
        status = part.lstat()
        if status.st_uid != os.getuid() or part.is_symlink():
            raise StartError(f"{part} belongs to another user; set TMPDIR to a directory of your own")
    return path


class PortReservation:
    """Free ports on 127.0.0.1 that no other control plane of this user picks while this one exists.

    A port is free when it can be bound, and a file lock on its number keeps it reserved between two runs of its server.
    """

    def __init__(self) -> None:
        self._locks: list[FileLock] = []

    def take(self) -> int:
        """A free port without reservation."""
        for port in random.sample(PORTS, k=500):
            if self.take_exactly(port):
                return port
        raise StartError(f"no free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop - 1}")

    def take_exactly(self, port: int) -> bool:
        """Reserve this very port; false if it is in use or reserved by another control plane."""
        lock = FileLock(private_directory("ports") / str(port))
        if not lock.try_acquire():
            return False
        if not _can_bind(port):
            lock.release()
            return False
        self._locks.append(lock)
        return True

    def release(self) -> None:
        for lock in self._locks:
            lock.release()
        self._locks.clear()


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Go's servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
