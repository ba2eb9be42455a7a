"""Gangline's own processes beside a cluster: webhooks and operator as supervised child processes with logs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from gangline import files
from gangline.console.stack import keeper
from gangline.devcluster.errors import StartError
from gangline.devcluster.processes.process import ProcessId
from gangline.devcluster.processes.supervisor import Supervisor, end_leftovers

PROGRAM = (sys.executable, "-m", "gangline.console.cli", "admin")
#: in the order in which they are stopped: what starts others again first, the operator before the webhooks
SERVICES = (keeper.NAME, "ui", "operator", "webhooks", "jobset")
TAIL_LINES = 25
READY_SECONDS = 60.0
CHECK_EVERY = 1.0  # seconds between two checks that the processes are alive
PATIENCE = 10.0  # seconds that a service has to end by itself


class Services:
    """The child processes of one directory, which also holds their logs and pid files.

    Unless `detached`, they end with this process, however it ends. `program`: command prefix before a service's name. `enter`:
    prefix of every command, with which it runs in the cluster's own network.
    """

    def __init__(
        self,
        directory: Path,
        *,
        detached: bool = False,
        program: Sequence[str] = PROGRAM,
        enter: Sequence[str] = (),
    ) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        end(directory)
        self.directory = directory
        self._supervisor = Supervisor(directory, detached=detached)
        self._program = program
        self._enter = enter
        self._started: list[str] = []
        self._commands: dict[str, list[str]] = {}

    def log(self, name: str) -> Path:
        return self._supervisor.log(name)

    def start(self, name: str, arguments: Sequence[str]) -> None:
        """Run `gangline admin NAME ARGUMENTS… --ready-file F` and return once the service is ready.

        Raises StartError, with the end of the service's log, when it dies or takes too long.
        """
        self.launch(name, [*self._program, name, *arguments])
        self.wait(name)

    def launch(self, name: str, command: Sequence[str]) -> None:
        """Run a command as the service NAME, with `--ready-file F`; `wait` waits until the service is ready."""
        self._ready(name).unlink(missing_ok=True)
        whole = [*self._enter, *command, "--ready-file", str(self._ready(name))]
        self._supervisor.spawn(name, whole, os.environ)
        self._started.append(name)
        self._commands[name] = whole

    def wait(self, name: str) -> None:
        """Wait until the service is ready. Raises StartError as `start` does."""
        self._supervisor.wait(name, self._ready(name).exists, READY_SECONDS)

    def ready(self, name: str) -> dict[str, str]:
        """What the service, which is ready, says of itself."""
        return json.loads(files.read_text(self._ready(name)))

    def _ready(self, name: str) -> Path:
        return self.directory / f"{name}.ready"

    def check(self) -> None:
        """Raise StartError, with the end of its log, if a service has ended."""
        for name in self._started:
            if self._supervisor.process(name) is None:
                raise StartError(f"{name} has ended. The end of its log, {self.log(name)}:\n{tail(self.log(name))}")

    def hold(self) -> NoReturn:
        """Block forever. Raises StartError when a service ends."""
        while True:
            time.sleep(CHECK_EVERY)
            self.check()

    def stop(self) -> None:
        """Stop the services, last started first."""
        for name in reversed(self._started):
            self._supervisor.stop(name, patience=PATIENCE)
        self._started.clear()
        self._supervisor.close()

    def leave(self) -> None:
        """Leave the services running (only when `detached`), with a process that starts them again when they end."""
        for name, command in self._commands.items():
            files.write(keeper.command_file(self.directory, name), json.dumps({"command": command}))
        self._supervisor.spawn(
            keeper.NAME, [sys.executable, "-m", "gangline.console.stack.keeper", str(self.directory)], os.environ
        )
        self._supervisor.close()


def end(directory: Path) -> list[str]:
    """End services that an earlier command left running in this directory. Returns their names."""
    if not directory.is_dir():
        return []
    for name in SERVICES:
        keeper.command_file(directory, name).unlink(missing_ok=True)
    return end_leftovers(directory, SERVICES, patience=PATIENCE)


def running(directory: Path) -> dict[str, int | None]:
    """The pids of the services that were started in this directory and not stopped; None: it has ended."""
    found: dict[str, int | None] = {}
    for name in SERVICES:
        process = ProcessId.read(directory / f"{name}.pid")
        if process is not None:
            found[name] = process.pid if process.alive() else None
    return found


#: characters of a line of a log that are shown, and bytes of the log in which the last lines are looked for
LONGEST_SHOWN: Final = 500
MOST_READ: Final = 2**20


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, each cut to a readable length."""
    try:
        found = files.read_tail(path, MOST_READ).decode(errors="replace").splitlines()
        return "\n".join(line[:LONGEST_SHOWN] for line in found[-lines:])
    except OSError:
        return "(no log)"
