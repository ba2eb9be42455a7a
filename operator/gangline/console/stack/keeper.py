"""Starts services of a detached stack again when they end: `python -m gangline.console.stack.keeper DIRECTORY`.

Each service has a file with its command in the directory. The keeper is ended before the services, by `gangline down`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangline.console.output import terminal
from gangline.devcluster.processes.supervisor import Supervisor, read_json

NAME: Final = "keeper"
#: what is started again; the stand-in for JobSet may end for good by itself
KEPT: Final = ("webhooks", "operator")
CHECK_EVERY: Final = 1.0
#: seconds until a service is started again, doubled with each end that comes sooner than the longest of them after its start
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0


def command_file(directory: Path, name: str) -> Path:
    return directory / f"{name}.command"


@dataclass(slots=True)
class _Fate:
    """The restarts of a service: the pause before the next one, when it last started, and when it starts again."""

    pause: float = FIRST_PAUSE
    started: float = float("-inf")
    again_at: float | None = None


@dataclass(slots=True)
class Keeper:
    """The services of one directory. `clock` returns seconds."""

    directory: Path
    clock: Callable[[], float] = time.monotonic
    _supervisor: Supervisor = field(init=False)
    _fates: dict[str, _Fate] = field(default_factory=dict[str, _Fate])

    def __post_init__(self) -> None:
        self._supervisor = Supervisor(self.directory, detached=True)

    def look(self) -> list[str]:
        """Start those again that have ended and whose pause is over. Returns their names."""
        started: list[str] = []
        for name in KEPT:
            command = (read_json(command_file(self.directory, name)) or {}).get("command")
            if not isinstance(command, list) or self._supervisor.process(name) is not None:
                continue
            fate, now = self._fates.setdefault(name, _Fate()), self.clock()
            if fate.again_at is None:
                if now - fate.started > LONGEST_PAUSE:
                    fate.pause = FIRST_PAUSE
                fate.again_at = now + fate.pause
                fate.pause = min(LONGEST_PAUSE, 2 * fate.pause)
            if now >= fate.again_at:
                self._supervisor.spawn(name, [str(part) for part in command], os.environ)
                fate.started, fate.again_at = now, None
                started.append(name)
        return started


def main(directory: Path) -> None:
    keeper = Keeper(directory)
    while directory.is_dir():
        for name in keeper.look():
            terminal.say(f"{time.strftime('%F %T')} {name} had ended: it was started again")
        time.sleep(CHECK_EVERY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
