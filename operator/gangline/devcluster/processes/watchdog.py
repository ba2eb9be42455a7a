"""Ends the children of a process that died without ending them. Run as a script, with the standard library only.

Standard input is a pipe from that process. Every line names a process (`+PID` to guard it, `-PID` to release it) or a cgroup
(`=PATH`); the end of input means that the parent is gone, for whatever reason: every guarded process is ended, then the cgroups
are removed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; its end is what counts here
    guarded: dict[int, str] = {}
    cgroups: set[str] = set()
    for line in sys.stdin:
        if line[0] == "=":
            cgroups.add(line[1:].rstrip("\n"))
            continue
        pid = int(line[1:])
        if line[0] == "+":
            guarded[pid] = started(pid)
        else:
            guarded.pop(pid, None)
    kill({pid: when for pid, when in guarded.items() if when})
    remove(cgroups)


def remove(cgroups: set[str]) -> None:
    """Remove the cgroups with those below them, once their processes are gone."""
    deadline = time.monotonic() + 10.0
    while any(os.path.isdir(path) for path in cgroups) and time.monotonic() < deadline:  # noqa: PTH112
        for top in cgroups:
            for path, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    os.rmdir(path)  # noqa: PTH106
        time.sleep(0.05)


def kill(guarded: dict[int, str]) -> None:
    """SIGTERM to all, then SIGKILL to those that remain; a pid that now belongs to another process is left alone."""
    for number, patience in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 0.0)):
        for pid, when in guarded.items():
            if started(pid) == when:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and any(started(pid) == when for pid, when in guarded.items()):
            time.sleep(0.05)


def started(pid: int) -> str:
    """The start time of a process in clock ticks; empty when it is gone. Without /proc: whether it exists."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - pathlib would double the start-up time
            fields = stat.read().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else fields[19]
    except OSError:
        if os.path.exists("/proc/self/stat"):  # noqa: PTH110
            return ""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, 0)
        return "there"
    return ""


if __name__ == "__main__":
    main()
