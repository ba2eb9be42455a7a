"""How first promises come true: a trace through the production engine, and expected starts asked for as jobs begin to wait.

    python -m bench.promises TRACE --gpus N [--from DATE] [--to DATE] [--train-until DATE] [--every N]

Each N-th job that waits is promised a start at its submission, as the operator promises it: by the engine played forward, with
the forecasts of that moment, and with the margin that the ledger makes of what came true before. The promise is compared with the
start that the replay brings; `drawn` has the same without that margin.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import click

from gangline import traces
from gangline.console.options import Instant
from gangline.control.forecasting.promises import Ledger, Promise, PromiseRecord
from gangline.engine import EventKind, ExpectedStart, outlook
from gangline.engine.model import Millis, Workload
from gangline.replay import policies
from gangline.replay.replay_plan import ReplayPlan, prepare
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, number_of
from gangline.replay.run import foresight
from gangline.replay.simulator import Simulator
from gangline.replay.trace_facts import SETTINGS

#: seconds of CPU for the courses of one promise beyond the first, and for the first; waits from which a start counts as waiting
COURSES, PATIENCE, SHORT = 2.0, 20.0, 60_000
#: the one ClusterQueue of a replay
ALL = "all"


@dataclass(slots=True)
class Sample:
    job: ReplayedJob
    at: Millis
    start: ExpectedStart | None
    drawn: Millis | None = None  #: p90 as the courses had it, before the queue's record moved it
    started: Millis | None = None

    def as_json(self) -> dict[str, Any]:
        """Seconds since the promise."""
        p50 = None if self.start is None else (self.start.p50 - self.at) / 1000
        p90 = None if self.start is None or self.start.p90 is None else (self.start.p90 - self.at) / 1000
        drawn = None if self.drawn is None else (self.drawn - self.at) / 1000
        started = None if self.started is None else (self.started - self.at) / 1000
        job = {"job": self.job.number, "gpus": self.job.gpus, "tenant": self.job.tenant}
        return {**job, "at": self.at / 1000, "p50": p50, "p90": p90, "drawn": drawn, "started": started}


@dataclass(slots=True)
class Asked:
    """What was promised, by the job's number; `waited`: jobs that began to wait."""

    samples: dict[int, Sample] = field(default_factory=dict[int, Sample])
    waited: int = 0
    seconds: float = 0.0


class Asking(Simulator):
    """The simulator, which asks for the start of each N-th job that begins to wait."""

    def __init__(self, *given: Any, every: int, written: TextIO | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._every = every
        self._written = written
        self._new: list[ReplayedJob] = []
        self._ledger = Ledger()
        self.asked = Asked()

    def happens(self, kind: EventKind, number: int) -> None:
        if kind == EventKind.ARRIVAL:
            self._new.append(self._jobs[number])
        super().happens(kind, number)

    def settled(self) -> None:
        super().settled()
        new, self._new = self._new, []
        for job in new:
            if job.key in self.workloads and job.key not in self.runs:
                self.asked.waited += 1
                if self.asked.waited % self._every == 0:
                    self._promise(job, self.now)

    def _promise(self, job: ReplayedJob, now: Millis) -> None:
        begun = time.perf_counter()
        seen = outlook(
            self.engine.facts(),
            SETTINGS,
            now,
            only=frozenset({job.key}),
            seconds=COURSES,
            patience=PATIENCE,
            clock=time.process_time,
        )
        drawn = seen.starts.get(job.key)
        promised = self._ledger.promise_starts([drawn] if drawn is not None else [], now, {job.key: ALL})
        self.asked.samples[job.number] = Sample(
            job, now, promised.get(job.key), drawn.p90 if drawn is not None else None
        )
        self.asked.seconds += time.perf_counter() - begun

    def started(self, workload: Workload) -> None:
        sample = self.asked.samples.get(number_of(workload.key))
        if sample is not None and sample.started is None:
            sample.started = self.now
            self._ledger.started(sample.job.key, ALL, self.now)
            if self._written is not None:
                print(json.dumps(sample.as_json()), file=self._written, flush=True)
        super().started(workload)


def measured(samples: Iterable[Sample], *, longer: Millis = 0) -> dict[str, Any]:
    """The record of the promises whose jobs waited longer than this, as the operator keeps it."""
    record, unknown = PromiseRecord(), 0
    for each in samples:
        if each.started is None or each.started - each.at <= longer:
            continue
        if each.start is None:
            unknown += 1
            continue
        record.came_true(Promise(each.at, each.start.p50, each.start.p90), each.started)
    return {**record.as_json(), "unknown": unknown}


def _drawn(sample: Sample) -> ExpectedStart | None:
    return None if sample.start is None else replace(sample.start, p90=sample.drawn)


@click.command()
@click.argument("trace", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--gpus", type=int, required=True)
@click.option("--from", "first", type=Instant(), required=True)
@click.option("--to", "last", type=Instant(), default=None)
@click.option("--train-until", type=Instant(), default=None)
@click.option("--policy", default="gangline", show_default=True)
@click.option(
    "--samples",
    "written",
    type=click.File("w"),
    default=None,
    help="Write each promise to this file when its job starts, one JSON object a line.",
)
@click.option(
    "--every",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Promise the start of each N-th job that waits.",
)
def main(
    trace: Path,
    gpus: int,
    first: float,
    last: float | None,
    train_until: float | None,
    policy: str,
    written: TextIO | None,
    every: int,
) -> None:
    """Replay TRACE, and print how first promises came true."""
    jobs = traces.load(trace, "auto")
    (chosen,) = policies.chosen(policy)
    until = jobs.jobs[-1].submit + 1 if last is None else last
    plan = ReplayPlan(
        ReplayedCluster(gpus, 8), (chosen,), first, until, train_until=train_until, retrain_every=7 * 86_400.0
    )
    prepared, notes = prepare(jobs, plan)
    begun = time.perf_counter()
    simulator = Asking(
        prepared.jobs,
        plan.cluster,
        chosen.queue,
        foresight(plan, chosen, prepared, plan.seed),
        rules=plan.rules,
        ranked=chosen.ranked,
        every=every,
        written=written,
    )
    simulator.run()
    asked = simulator.asked
    report = {
        "jobs": len(prepared.jobs),
        "waited": asked.waited,
        "promised": len(asked.samples),
        "all": measured(asked.samples.values()),
        "longerThanAMinute": measured(asked.samples.values(), longer=SHORT),
        "drawn": measured(replace(each, start=_drawn(each)) for each in asked.samples.values()),
        "secondsPerPromise": asked.seconds / max(1, len(asked.samples)),
        "seconds": time.perf_counter() - begun,
        "notes": notes,
    }
    json.dump(report, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
