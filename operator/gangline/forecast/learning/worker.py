"""Training in a separate process, so that the operator process neither waits for it nor holds its memory.

The worker reads the store itself and writes the model file atomically. Its task arrives on standard input, so that no password
appears in the process list.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gangline.forecast.errors import TooFewRunsError, TrainingError
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.learning.settings import DEFAULTS, LearningSettings

if TYPE_CHECKING:
    from gangline.forecast.learning.quantile_model import QuantileModel

TIMEOUT: Final = 600.0  # seconds
_NICE: Final = 10
_TOO_FEW: Final = 3  # exit status


def train_in_process(
    url: str, out: Path, now: float, settings: LearningSettings = DEFAULTS, timeout: float = TIMEOUT
) -> QuantileModel:
    """Train as `train_file` does, and return the model."""
    from gangline.forecast.learning.quantile_model import load

    train_file(url, out, now, settings, timeout)
    return load(out)


def train_file(
    url: str, out: Path, now: float, settings: LearningSettings = DEFAULTS, timeout: float = TIMEOUT
) -> None:
    """Train on the history at `url` as known at `now`, and write the model to `out`.

    Blocks until the worker has ended; an event loop calls it in a thread. Raises TooFewRunsError, TrainingError (also after
    `timeout` seconds, when the worker is killed).
    """
    task = json.dumps({"url": url, "out": str(out), "now": now, "settings": asdict(settings)})
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys; from gangline.forecast.learning import worker; sys.exit(worker.main())",
            ],
            input=task,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TrainingError(f"training took longer than {timeout:g} seconds") from error
    if done.returncode:
        message = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise TooFewRunsError(message) if done.returncode == _TOO_FEW else TrainingError(message)


def main() -> int:
    """Run the worker: reads a task as JSON from standard input, writes a model file. Returns the exit status."""
    os.nice(_NICE)
    from gangline.forecast.learning.training import train

    task = json.load(sys.stdin)
    settings = LearningSettings(**task["settings"])
    with HistoryStore(task["url"]) as store:
        runs = store.runs(limit=settings.rows + settings.rows // 4)
    try:
        train(runs, task["now"], settings).save(Path(task["out"]))
    except TooFewRunsError as error:
        print(error, file=sys.stderr)
        return _TOO_FEW
    return 0
