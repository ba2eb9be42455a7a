"""Plays the counterfactuals of the floor in a process of low priority, for as long as its standard input is open.

The first message is a `Beginning`, each further one a `Turn`; each is answered by a `FloorVerdict`, pickled on standard output.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gangline import child_process
from gangline.engine import Comparison, Floor, PolicyFallback
from gangline.engine.model import Change, Millis, Settings

_NICE: Final = 10
#: a turn may take this long, in seconds; the process is ended then
TIMEOUT: Final = 240.0


@dataclass(frozen=True, slots=True)
class Beginning:
    settings: Settings
    #: the ClusterQueues that are in another mode than their policy
    fallen_back: Mapping[str, PolicyFallback]


@dataclass(frozen=True, slots=True)
class Turn:
    """Facts with their times, oldest first, and the present time."""

    facts: Sequence[tuple[Millis, Change]]
    now: Millis


@dataclass(frozen=True, slots=True)
class FloorVerdict:
    """The queues that are not in their policy's mode; and the last comparison of each tree."""

    fallen_back: Mapping[str, PolicyFallback]
    comparisons: Mapping[str, Comparison]
    #: seconds of CPU that the turn took
    cpu: float = 0.0


class FloorProcess:
    """The child process. Every method may raise OSError, pickle.PickleError or EOFError; then only `end` is of use."""

    def __init__(self, beginning: Beginning) -> None:
        command = [sys.executable, "-c", f"from {__name__} import main; main()"]  # run with -m, classes had other names
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_process.environment(),
        )
        self._send(beginning)

    def turn(self, turn: Turn) -> FloorVerdict:
        """Blocks until it is played, or `TIMEOUT` is over."""
        deadline = threading.Timer(TIMEOUT, self._child.kill)
        deadline.start()
        try:
            self._send(turn)
            assert self._child.stdout is not None
            return pickle.load(self._child.stdout)  # written by our own child process
        finally:
            deadline.cancel()

    def _send(self, message: object) -> None:
        assert self._child.stdin is not None
        pickle.dump(message, self._child.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        self._child.stdin.flush()

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):  # what was not sent yet is lost with the process
                    pipe.close()


class FloorRun:
    """The state of the floor's process: the floor, and the verdict after each turn."""

    def __init__(self, beginning: Beginning) -> None:
        self._floor = Floor(beginning.settings, beginning.fallen_back)

    def turn(self, turn: Turn) -> FloorVerdict:
        floor, begun = self._floor, time.process_time()
        for at, change in turn.facts:
            floor.observe(change, at)
        floor.advance(turn.now)
        return FloorVerdict(floor.fallen_back(), dict(floor.comparisons), time.process_time() - begun)


def serve(requests: Any, answers: Any) -> None:
    """Answer until the input ends."""
    played = FloorRun(pickle.load(requests))
    while True:
        try:
            turn = pickle.load(requests)
        except EOFError:
            return
        pickle.dump(played.turn(turn), answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def main() -> None:
    os.nice(_NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
