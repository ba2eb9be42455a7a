"""Gangline's own processes beside a cluster: webhooks and operator as children with logs, each watched for its death."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gangline.devcluster.errors import StartError
from gangline.devcluster.supervisor import Supervisor, end_leftovers

GANGLINE = (sys.executable, "-m", "gangline.console.cli")
#: in the order in which they are ended: nothing is decided any more before admission goes
SERVICES = ("operator", "webhooks", "jobset")
TAIL_LINES = 25
READY_SECONDS = 60.0
CHECK_EVERY = 1.0  # seconds between two looks at whether they live
PATIENCE = 10.0  # seconds that a service gets to end by itself


class Services:
    """The child processes of one directory, which also holds their logs and pid files.

    Unless `detached`, they die with this process, however it ends. `program` is what a service's name is put behind.
    """

    def __init__(self, directory: Path, *, detached: bool = False, program: Sequence[str] = GANGLINE) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        end_leftovers(directory, SERVICES, patience=PATIENCE)
        self.directory = directory
        self._supervisor = Supervisor(directory, detached=detached)
        self._program = program
        self._started: list[str] = []

    def log(self, name: str) -> Path:
        return self._supervisor.log(name)

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Runs `gangline NAME ARGUMENTS… --ready-file F` and returns once it is ready.

        Raises StartError, with the end of its log, when it dies or takes too long.
        """
        self.launch(name, [*self._program, name, *arguments])
        self.wait(name)

    def launch(self, name: str, command: Sequence[str]) -> None:
        """Runs a command as the service NAME, with `--ready-file F`; `wait` waits until it is ready."""
        self._ready(name).unlink(missing_ok=True)
        self._supervisor.spawn(name, [*command, "--ready-file", str(self._ready(name))], os.environ)
        self._started.append(name)

    def wait(self, name: str) -> None:
        """Returns once the service is ready. Raises StartError as `start` does."""
        self._supervisor.wait(name, self._ready(name).exists, READY_SECONDS)

    def _ready(self, name: str) -> Path:
        return self.directory / f"{name}.ready"

    def check(self) -> None:
        """Raises StartError, with the end of its log, when one of them has ended."""
        for name in self._started:
            if self._supervisor.process(name) is None:
                raise StartError(f"{name} has ended. The end of its log, {self.log(name)}:\n{tail(self.log(name))}")

    def hold(self) -> NoReturn:
        """Blocks for ever. Raises StartError when one of them ends."""
        while True:
            time.sleep(CHECK_EVERY)
            self.check()

    def stop(self) -> None:
        """Ends them, last started first."""
        for name in reversed(self._started):
            self._supervisor.stop(name, patience=PATIENCE)
        self._started.clear()
        self._supervisor.close()

    def leave(self) -> None:
        """Lets them live on (only when `detached`)."""
        self._supervisor.close()


def end(directory: Path) -> list[str]:
    """Ends what an earlier command left running in this directory; returns the names."""
    return end_leftovers(directory, SERVICES, patience=PATIENCE) if directory.is_dir() else []


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, each cut to a readable length."""
    try:
        return "\n".join(line[:500] for line in path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
