"""Simulates when waiting workloads will start, in a separate process of low priority.

The operator's process sends a request (`in_process`); the other process reads it pickled from standard input and answers on
standard output. A request is for an outlook, for rehearsals (what follows if one more workload were submitted), for the victims
of a waiting workload, or for the gangs that would leave a node.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from gangline import child_process
from gangline.control.forecasting.rehearsals import Rehearsal, evacuation, preemption, rehearse
from gangline.engine import outlook
from gangline.engine.model import Change, Millis, Settings

_NICE: Final = 10
#: how long a simulation may take, in seconds
TIMEOUT: Final = 200.0


def request(facts: Sequence[Change], settings: Settings, now: Millis, **options: object) -> bytes:
    """A request for an outlook; `options` are those of `engine.outlook`."""
    return _pickled("outlook", list(facts), settings, now, options)


def rehearsal_request(
    facts: Sequence[Change],
    settings: Settings,
    now: Millis,
    rehearsals: Sequence[Rehearsal],
    seconds: float,
    best: int = 0,
) -> bytes:
    """A request for rehearsals: see `rehearsals.rehearse`."""
    return _pickled("rehearse", list(facts), settings, now, list(rehearsals), seconds, best)


def preemption_request(facts: Sequence[Change], settings: Settings, now: Millis, workload: str) -> bytes:
    """A request for the victims of a waiting workload: see `preemptions.preemption`."""
    return _pickled("preempt", list(facts), settings, now, workload)


def evacuation_request(facts: Sequence[Change], settings: Settings, now: Millis, node: str, taint: str) -> bytes:
    """A request for the gangs that would leave a node: see `evacuations.evacuation`."""
    return _pickled("evacuate", list(facts), settings, now, node, taint)


def in_process(asked: bytes, timeout: float = TIMEOUT) -> Any:
    """Returns the answer to a request: an Outlook, Rehearsals, a Preemption, or Moves.

    Raises OSError, subprocess.SubprocessError, PickleError.
    """
    command = [sys.executable, "-m", "gangline.control.forecasting.simulation_process"]
    done = subprocess.run(
        command, input=asked, capture_output=True, timeout=timeout, env=child_process.environment(), check=False
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise OSError(lines[-1])
    return pickle.loads(done.stdout)  # written by our own child process


def _pickled(*parts: object) -> bytes:
    return pickle.dumps(parts, protocol=pickle.HIGHEST_PROTOCOL)


def main() -> int:
    os.nice(_NICE)
    work, *arguments = pickle.load(sys.stdin.buffer)
    if work == "rehearse":
        answer: object = rehearse(*arguments)
    elif work == "preempt":
        answer = preemption(*arguments)
    elif work == "evacuate":
        answer = evacuation(*arguments)
    else:
        facts, settings, now, options = arguments
        answer = outlook(facts, settings, now, clock=time.perf_counter, **options)
    pickle.dump(answer, sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
