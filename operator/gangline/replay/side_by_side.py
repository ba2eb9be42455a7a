"""Policies side by side, each in a process of its own."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any, Final, TypeAlias

from gangline.replay.policies import Policy
from gangline.replay.replay_plan import Prepared, ReplayPlan
from gangline.replay.replayed import ReplayedOutcome
from gangline.replay.run import PolicyResult, Replay, play
from gangline.traces import Trace

#: (policy, shaken copy, jobs submitted since the last message)
Tick: TypeAlias = tuple[str, int, int]
Tell: TypeAlias = Callable[[Tick], None]
Task: TypeAlias = tuple[Policy, int]
Done: TypeAlias = tuple[PolicyResult, dict[str, Any]]

#: jobs between two progress messages
_STEP: Final = 250


def replay(
    trace: Trace, plan: ReplayPlan, prepared: Prepared, notes: Sequence[str] = (), tell: Tell = lambda tick: None
) -> Replay:
    """Run every policy, and every shaken copy of its input; in this process if there is only one worker."""
    tasks = [(policy, shaken) for shaken in range(plan.jitter + 1) for policy in plan.policies]
    stories: dict[str, PolicyResult] = {}
    shaken_runs: dict[str, dict[int, dict[str, Any]]] = {}
    forecasts: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="gangline-replay-") as folder:
        path = Path(folder) / "prepared"
        with path.open("wb") as file:
            pickle.dump(prepared, file, protocol=pickle.HIGHEST_PROTOCOL)
        play_all = _one_by_one if min(plan.workers, len(tasks)) == 1 else _in_processes
        for (policy, shaken), (story, forecast) in play_all(plan, tasks, path, tell):
            if shaken:
                shaken_runs.setdefault(policy.name, {})[shaken] = story.measures
                continue
            stories[policy.name] = story
            if forecast:
                forecasts[policy.name] = forecast
    ordered = [stories[policy.name] for policy in plan.policies]
    first = next((forecasts[policy.name] for policy in plan.policies if policy.name in forecasts), {})
    told = {**first, "by_policy": forecasts} if first else {}
    in_order = {name: [runs[copy] for copy in sorted(runs)] for name, runs in shaken_runs.items()}
    return Replay(plan, trace.format, ordered, in_order, told, prepared.limit / 1000, list(notes))


def _one_by_one(plan: ReplayPlan, tasks: Sequence[Task], path: Path, tell: Tell) -> Iterator[tuple[Task, Done]]:
    for task in tasks:
        yield task, _play(plan, task, _load(path), tell)


def _in_processes(plan: ReplayPlan, tasks: Sequence[Task], path: Path, tell: Tell) -> Iterator[tuple[Task, Done]]:
    context = multiprocessing.get_context("spawn")
    ticks: Queue[Tick] = context.Queue()
    workers = min(plan.workers, len(tasks))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_set_up, initargs=(ticks, path)) as pool:
        futures = {pool.submit(_work, plan, task): task for task in tasks}
        while futures:
            _drain(ticks, tell)
            for future in [future for future in futures if future.done()]:
                yield futures.pop(future), future.result()
        _drain(ticks, tell)


def _drain(ticks: Queue[Tick], tell: Tell) -> None:
    """Pass on the workers' messages; waits a moment without any."""
    try:
        tell(ticks.get(timeout=0.2))
        while True:
            tell(ticks.get_nowait())
    except Empty:
        pass


# --- in a worker --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Worker:
    """The inputs of a worker process."""

    ticks: Queue[Tick] | None = None
    path: Path = Path()


_WORKER: Final = _Worker()


def _set_up(ticks: Queue[Tick], path: Path) -> None:
    _WORKER.ticks, _WORKER.path = ticks, path


def _work(plan: ReplayPlan, task: Task) -> Done:
    assert _WORKER.ticks is not None
    return _play(plan, task, _load(_WORKER.path), _WORKER.ticks.put)


def _load(path: Path) -> Prepared:
    """Load what a run needs. Each run begins with a fresh copy, since a forecaster learns on the way."""
    with path.open("rb") as file:
        prepared: Prepared = pickle.load(file)
    gc.freeze()  # it stays: garbage is looked for in the rest
    return prepared


def _play(plan: ReplayPlan, task: Task, prepared: Prepared, tell: Tell) -> Done:
    policy, shaken = task
    count = 0

    def progress(jobs: int) -> None:
        nonlocal count
        count += jobs
        if count >= _STEP:
            tell((policy.name, shaken, count))
            count = 0

    story, forecast = play(plan, policy, prepared, shaken, progress)
    tell((policy.name, shaken, count))
    result = story.result
    result.outcomes = [] if shaken else [_without_trace(outcome) for outcome in result.outcomes]
    return story, forecast


def _without_trace(outcome: ReplayedOutcome) -> ReplayedOutcome:
    outcome.job = replace(outcome.job, trace=None)
    return outcome
