"""The simulation of expected starts, in a process of its own with low priority.

The operator's process asks (`in_process`); the other one reads a pickle on its standard input and answers on its output.
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
#: seconds that it may take
TIMEOUT: Final = 200.0


def request(facts: Sequence[Change], settings: Settings, now: Millis, **options: object) -> bytes:
    """What `main` reads; `options` are those of `engine.outlook`."""
    return pickle.dumps((list(facts), settings, now, options), protocol=pickle.HIGHEST_PROTOCOL)


def in_process(asked: bytes) -> Outlook:
    """The answer to a `request`. Raises OSError, subprocess.SubprocessError, PickleError."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, input=asked, capture_output=True, timeout=TIMEOUT, env=environment, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
        raise OSError(lines[-1])
    return pickle.loads(done.stdout)  # written by a process of our own


def main() -> int:
    os.nice(_NICE)
    facts, settings, now, options = pickle.load(sys.stdin.buffer)
    pickle.dump(outlook(facts, settings, now, clock=time.perf_counter, **options), sys.stdout.buffer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
