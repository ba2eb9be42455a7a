"""Processes identified by pid *and* start time, so that a recycled pid is never mistaken for one of ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from gangline import files
from gangline.devcluster.errors import StartError


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, unique: `started` differs when the kernel gives the pid to another process."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process with this pid now, or None."""
        started = _start_time(pid)
        return cls(pid, started) if started is not None else None

    def alive(self) -> bool:
        return _start_time(self.pid) == self.started

    def signal(self, number: int) -> None:
        """Signal the process if it is still the same one."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the process is gone; false if it outlives `seconds`."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def end(self, *, patience: float) -> None:
        """Ask the process to end (SIGTERM), kill it after `patience` seconds, and return when it is gone."""
        if patience > 0:
            self.signal(signal.SIGTERM)
            if self.wait_gone(patience):
                return
        self.signal(signal.SIGKILL)
        if not self.wait_gone(10.0):
            raise StartError(f"process {self.pid} does not die, not even by SIGKILL")

    def write(self, path: Path) -> None:
        """Write the process to a pid file, atomically."""
        files.write(path, json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> ProcessId | None:
        """The process of a pid file; None without a file, or if it is not one of ours."""
        try:
            known = json.loads(path.read_text())
            return cls(int(known["pid"]), str(known["started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _start_time(pid: int) -> str | None:
    """When the process with this pid started, as text that is unique across reboots; None without a process and for a
    zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_time_by_ps(pid)
    except (ProcessLookupError, PermissionError):
        return None
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may contain spaces and brackets
    return None if state in "ZX" else f"{_boot_id()}/{rest[18]}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_time_by_ps(pid: int) -> str | None:
    """When the process with this pid started, on systems without /proc (macOS, BSD)."""
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return started.strip() if started and "Z" not in state else None
