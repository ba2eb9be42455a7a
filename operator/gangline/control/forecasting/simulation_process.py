"""Simulates when waiting workloads will start, in a separate process of low priority.

The operator's process sends a request (`in_process`); the other process reads it pickled from standard input and answers on
standard output.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from gangline.engine import Outlook, outlook
from gangline.engine.model import Change, Millis, Settings

_NICE: Final = 10
#: how long a simulation may take, in seconds
TIMEOUT: Final = 200.0


def request(facts: Sequence[Change], settings: Settings, now: Millis, **options: object) -> bytes:
    """The pickled request that `main` reads; `options` are those of `engine.outlook`."""
    return pickle.dumps((list(facts), settings, now, options), protocol=pickle.HIGHEST_PROTOCOL)


def in_process(asked: bytes) -> Outlook:
    """Returns the answer to a `request`. Raises OSError, subprocess.SubprocessError, PickleError."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input=asked, capture_output=True, timeout=TIMEOUT, env=environment, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise OSError(lines[-1])
    return pickle.loads(done.stdout)  # written by our own child process


def main() -> int:
    os.nice(_NICE)
    facts, settings, now, options = pickle.load(sys.stdin.buffer)
    pickle.dump(outlook(facts, settings, now, clock=time.perf_counter, **options), sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
