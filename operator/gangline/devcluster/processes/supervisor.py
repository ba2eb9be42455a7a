"""Runs programs in the background: pid files, logs, and a watchdog that ends them when this process dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gangline.devcluster.errors import DevClusterError, StartError
from gangline.devcluster.processes.process import ProcessId

LOG_TAIL_LINES = 25
LOG_KEPT_BYTES = 64 * 1024 * 1024  # a longer log starts afresh with its program
POLL_SECONDS = 0.03
WATCHDOG = Path(__file__).with_name("watchdog.py")


class PortTakenError(StartError):
    """Another process took a port between our choice and the server's bind."""


class Supervisor:
    """The programs of one directory, each known by name. Unless `detached`, they end with this process."""

    def __init__(self, directory: Path, *, detached: bool = False) -> None:
        self.directory = directory
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._watchdog = None if detached else _start_watchdog()

    def log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def spawn(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a program; its output goes to its log."""
        with _open_log(self.log(name), command) as log:
            child = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which ends its children in order
            )
        self._children[name] = child
        self._tell_watchdog(f"+{child.pid}")
        process = ProcessId.of(child.pid)
        if process is not None:  # else it ended at once, which the waiting caller will report
            process.write(self._pid_file(name))

    def process(self, name: str) -> ProcessId | None:
        """The running process of that name, started by this process or by an earlier run in this directory; None without
        one.
        """
        process = ProcessId.read(self._pid_file(name))
        return process if process is not None and process.alive() else None

    def signal(self, name: str, number: int) -> None:
        process = self.process(name)
        if process is None:
            raise DevClusterError(f"{name} is not running")
        process.signal(number)

    def stop(self, name: str, *, patience: float) -> None:
        """SIGTERM, after `patience` seconds SIGKILL. Returns when the process is gone. Does nothing if it is not running."""
        process = self.process(name)
        if process is not None:
            process.signal(signal.SIGCONT)  # a frozen process would see SIGTERM only when it is resumed
            process.end(patience=patience)
            self._tell_watchdog(f"-{process.pid}")
        self._pid_file(name).unlink(missing_ok=True)
        child = self._children.pop(name, None)
        if child is not None:
            child.wait()

    def wait(self, name: str, ready: Callable[[], bool], timeout: float) -> None:
        """Wait until `ready()`. Raises StartError, with the log's tail, when a program ends or time is up."""
        deadline = time.monotonic() + timeout
        while not ready():
            for other, child in self._children.items():
                if child.poll() is not None:
                    raise self._failure(other, f"ended with status {child.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(name, f"was not ready after {timeout:g} s")
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Stop the watchdog, which ends what was not stopped."""
        if self._watchdog is not None:
            self._watchdog.communicate()
            self._watchdog = None

    def _pid_file(self, name: str) -> Path:
        return self.directory / f"{name}.pid"

    def guard_cgroup(self, cgroup: Path) -> None:
        """Let the watchdog remove a cgroup, too, after it ended the programs."""
        self._tell_watchdog(f"={cgroup}")

    def _tell_watchdog(self, line: str) -> None:
        if self._watchdog is None or self._watchdog.stdin is None:
            return
        with suppress(BrokenPipeError):  # another process ended it; pid files still tell the next run what to clean up
            self._watchdog.stdin.write(f"{line}\n".encode())
            self._watchdog.stdin.flush()

    def _failure(self, name: str, what: str) -> StartError:
        try:
            lines = self.log(name).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            lines = ["(no log)"]
        tail = "\n".join(line[:500] for line in lines)
        kind = PortTakenError if "address already in use" in tail.lower() else StartError
        return kind(f"{name} {what}. The end of its log, {self.log(name)}:\n{tail}")


def end_leftovers(directory: Path, names: Iterable[str], *, patience: float = 0.0) -> list[str]:
    """End, in this order, the processes of an earlier run in `directory`. Returns their names.

    Only processes whose pid file matches in pid and start time.
    """
    ended: list[str] = []
    for name in names:
        pid_file = directory / f"{name}.pid"
        process = ProcessId.read(pid_file)
        if process is not None and process.alive():
            process.end(patience=patience)
            ended.append(name)
        pid_file.unlink(missing_ok=True)
    return ended


def free_of_proxies() -> dict[str, str]:
    """This process's environment, without variables that would send local calls through a proxy."""
    return {k: v for k, v in os.environ.items() if k.lower() not in {"http_proxy", "https_proxy", "all_proxy"}}


def read_json(path: Path) -> dict[str, object] | None:
    """A JSON object from a file of ours; None if it is missing or broken."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _start_watchdog() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(WATCHDOG)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _open_log(path: Path, command: Sequence[str]) -> BinaryIO:
    """Open a program's log for appending; one that has grown too long starts afresh."""
    if path.exists() and path.stat().st_size > LOG_KEPT_BYTES:
        path.unlink()
    log = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    log.write(f"\n=== {' '.join(command)}\n".encode())
    log.flush()
    return log
