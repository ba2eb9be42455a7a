"""Runs of policies on one input, and how much one policy gains against another, with an interval."""

from __future__ import annotations

import math
import multiprocessing
import pickle
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.run import play

Floats: TypeAlias = NDArray[np.float64]

#: at least as many blocks of time are drawn from
_BLOCKS: Final = 10
_DAY: Final = 86_400_000
_DRAWS: Final = 2000

#: what can be improved: of waits and durations, in seconds
OBJECTIVES: Final[Mapping[str, Callable[[Floats, Floats], float]]] = {
    "mean": lambda wait, duration: float(wait.mean()),
    "p99": lambda wait, duration: float(np.percentile(wait, 99)),
    "slowdown": lambda wait, duration: float(np.maximum(1, (wait + duration) / np.maximum(duration, 10)).mean()),
}


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """One run of one policy: its measured jobs, those that did not end included as far as they waited."""

    submit: Floats
    wait: Floats
    duration: Floats
    lost_share: float

    def value(self, objective: str) -> float:
        return OBJECTIVES[objective](self.wait, self.duration)


@dataclass(frozen=True, slots=True)
class Gain:
    """A share of what it was: 0.2 is a fifth less. Low and high: the 95 % interval."""

    gain: float
    low: float
    high: float


def gain_of(run: PolicyRun, own: PolicyRun, objective: str) -> float:
    before = own.value(objective)
    return (before - run.value(objective)) / before if before else 0.0


def interval(pairs: Sequence[tuple[PolicyRun, PolicyRun]], objective: str, seed: int) -> Gain:
    """The gain of the second of each pair against the first, with a 95 % interval.

    Blocks of time are drawn with replacement, each from a run drawn at random: a gain that rests on one day is no gain.
    """
    first = min(float(own.submit.min()) for own, _ in pairs)
    last = max(float(own.submit.max()) for own, _ in pairs)
    blocks = max(_BLOCKS, math.ceil((last - first) / _DAY))
    width = (last - first) / blocks or 1.0
    split = [tuple(_blocks(run, first, width, blocks) for run in pair) for pair in pairs]
    chance = random.Random(seed)
    drawn = sorted(_draw(split, blocks, objective, chance) for _ in range(_DRAWS))
    whole = sum(gain_of(ours, own, objective) for own, ours in pairs) / len(pairs)
    return Gain(whole, drawn[round(0.025 * _DRAWS)], drawn[round(0.975 * _DRAWS) - 1])


def _blocks(run: PolicyRun, first: float, width: float, count: int) -> list[tuple[Floats, Floats]]:
    """(waits, durations) by the time of submission."""
    numbers = np.clip(((run.submit - first) / width).astype(np.int64), 0, count - 1)
    return [(run.wait[numbers == number], run.duration[numbers == number]) for number in range(count)]


def _draw(
    split: Sequence[tuple[list[tuple[Floats, Floats]], ...]], blocks: int, objective: str, chance: random.Random
) -> float:
    picks = [(chance.randrange(len(split)), chance.randrange(blocks)) for _ in range(blocks)]
    values: list[float] = []
    for side in (0, 1):
        chosen = [split[run][side][block] for run, block in picks]
        wait, duration = (np.concatenate([each[part] for each in chosen]) for part in (0, 1))
        values.append(OBJECTIVES[objective](wait, duration) if len(wait) else 0.0)
    return (values[0] - values[1]) / values[0] if values[0] else 0.0


# --- in processes ------------------------------------------------------------------------------------------


class _TimeUpError(Exception):
    pass


_Task: TypeAlias = tuple[ReplayPlan, Policy, int, str, float]


class Runs:
    """Runs of policies on shaken copies of one input, in several processes if the plan says so, in the order in which they were
    asked for. A run that does not end in time is None, and so are all after it.
    """

    def __init__(self, plan: ReplayPlan, prepared: Prepared, deadline: float) -> None:
        self._plan = plan
        self._prepared = prepared
        self._deadline = time.time() + max(0.0, deadline - time.monotonic())

    def __enter__(self) -> Runs:
        self._folder = tempfile.TemporaryDirectory(prefix="gangline-tune-")
        self._path = Path(self._folder.name) / "prepared"
        with self._path.open("wb") as file:
            pickle.dump(self._prepared, file, protocol=pickle.HIGHEST_PROTOCOL)
        workers = self._plan.workers
        self._pool = None
        if workers > 1:
            self._pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._folder.cleanup()

    def of(self, tasks: Sequence[tuple[Policy, int]]) -> Iterator[PolicyRun | None]:
        given = [(self._plan, policy, copy, str(self._path), self._deadline) for policy, copy in tasks]
        over = False
        for run in map(_run, given) if self._pool is None else self._pool.map(_run, given):
            over = over or run is None
            yield None if over else run


def _run(task: _Task) -> PolicyRun | None:
    plan, policy, copy, path, deadline = task

    def progress(jobs: int) -> None:
        del jobs
        if time.time() > deadline:
            raise _TimeUpError

    try:
        progress(0)
        with Path(path).open("rb") as file:
            prepared: Prepared = pickle.load(file)  # each run has a copy: a forecaster learns on the way
        story, _ = play(plan, policy, prepared, copy, progress)
    except _TimeUpError:
        return None
    result: Any = story.result
    end = max((sample.at for sample in result.samples), default=0)
    rows = [
        (
            outcome.job.submit,
            (end if outcome.finish is None else outcome.finish) - outcome.job.submit - outcome.job.duration,
            outcome.job.duration,
        )
        for outcome in result.outcomes
        if not outcome.impossible
    ]
    table = np.array(sorted(rows), dtype=np.float64).reshape(-1, 3)
    wait = np.maximum(0.0, table[:, 1])
    return PolicyRun(table[:, 0], wait / 1000, table[:, 2] / 1000, story.measures["gpu_hours_lost_share"])
