"""What a user gains by lying about the own jobs, and what that costs the others, by replay.

    python -m bench.liars TRACE --gpus 720 --from 2017-10-16 --to 2017-10-23 --share 0.01 --copies 4

Two worlds: with `--hints nobody` the liar alone says how long jobs take; with `--hints everyone` all authors do, honestly wrong
(the true duration times a log-normal error), so that the forecaster has learned to rely on hints. In the window one user, of
average habits, lies in all jobs. Each lie is replayed on the same shaken copies of the input as the truth. `echo` changes hints
by a thousandth: what it seems to gain or to cost is what any change of a queue does, and no lie's doing.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import random
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Final, TypeAlias

from gangline import traces
from gangline.console.options import Instant
from gangline.engine.model import Millis
from gangline.forecast.tracking.tracker import Tracker
from gangline.kube.resources import Json
from gangline.replay import policies
from gangline.replay.replay_plan import Prepared, ReplayPlan, prepare, shake
from gangline.replay.replayed import ReplayedCluster, ReplayedJob, ReplayResult
from gangline.replay.run import foresight
from gangline.replay.simulator import Simulator
from gangline.traces import Trace

LIAR: Final = "liar"
#: declared in place of the honest hint, in seconds
Declared: TypeAlias = Callable[[float], float | None]


@dataclass(frozen=True, slots=True)
class Lie:
    """`checkpoint` is in milliseconds; () = the truth about it."""

    does: str
    hint: Declared = lambda honest: honest
    checkpoint: tuple[Millis | None] | tuple[()] = ()


LIES: Final[Mapping[str, Lie]] = {
    "echo": Lie("hints a thousandth longer: no lie at all", lambda honest: honest * 1.001),
    "tenth": Lie("a tenth of the time", lambda honest: honest / 10),
    "minute": Lie("a minute, always", lambda honest: 60.0),
    "tenfold": Lie("ten times the time", lambda honest: honest * 10),
    "silent": Lie("no hint", lambda honest: None),
    "unsaved": Lie("work is never saved, so a stop costs all of it", checkpoint=(None,)),
    "saved": Lie("work is saved every minute, so a stop costs next to nothing", checkpoint=(60_000,)),
    "long-tenth": Lie(
        "a tenth of what takes more than an hour, the truth of the rest",
        lambda honest: honest / 10 if honest > 3600 else honest,
    ),
    "minute-unsaved": Lie("a minute, and work is never saved", lambda honest: 60.0, (None,)),
}


def with_authors(trace: Trace, share: float, *, everyone: bool, spread: float, seed: int) -> Trace:
    """The future liar has a name and this share of the jobs, drawn at random; the other authors are unknown. If `everyone`
    gives hints, they are the true duration times an error of standard deviation `spread` in logs.
    """

    def declared(job: traces.TraceJob) -> traces.TraceJob:
        chance = random.Random(f"{seed}/{job.id}")
        hint = max(1.0, job.duration * math.exp(chance.gauss(0.0, spread)))
        return replace(job, hint=hint if everyone else None, user=LIAR if chance.random() < share else "")

    return replace(trace, jobs=tuple(map(declared, trace.jobs)))


def lying(job: ReplayedJob, lie: Lie) -> ReplayedJob:
    assert job.trace is not None, job
    lied = replace(job, trace=replace(job.trace, hint=lie.hint(job.trace.hint or job.trace.duration)))
    return replace(lied, checkpoint=lie.checkpoint[0]) if lie.checkpoint else lied


@dataclass(frozen=True, slots=True)
class Fate:
    """The outcome of one side: mean wait in seconds, GPU-hours lost to evictions."""

    wait: float
    lost: float

    @classmethod
    def of(cls, result: ReplayResult, jobs: set[str]) -> Fate:
        mine = [outcome for outcome in result.outcomes if outcome.job.id in jobs]
        waits = [outcome.wait / 1000 for outcome in mine if outcome.wait is not None]
        lost = sum(outcome.lost * outcome.job.gpus for outcome in mine) / 3_600_000
        return cls(fmean(waits), lost)


def fates(plan: ReplayPlan, prepared: Prepared, lie: Lie | None, copy: int) -> tuple[Fate, Fate]:
    """The outcomes of the liar and of the others; `lie` None: all are honest. `copy` > 0 numbers a shaken copy of the input."""
    fresh: Prepared = pickle.loads(pickle.dumps(prepared))  # a forecaster learns on the way
    [policy] = plan.policies
    jobs: Sequence[ReplayedJob] = shake(fresh.jobs, plan.seed + copy) if copy else fresh.jobs
    liars = {job.id for job in jobs if job.trace is not None and job.trace.user == LIAR}
    if lie is not None:
        jobs = [lying(job, lie) if job.id in liars else job for job in jobs]
    believed = foresight(plan, policy, fresh, plan.seed)
    result = Simulator(jobs, plan.cluster, policy.queue, believed, rules=plan.rules).run()
    return Fate.of(result, liars), Fate.of(result, {job.id for job in jobs} - liars)


def change(pairs: Iterable[tuple[float, float]]) -> Json:
    """From (honest, lying) pairs: both means, and the mean change in percent of the honest mean with its standard error."""
    found = list(pairs)
    honest, lied = (fmean(side) for side in zip(*found, strict=True))
    changes = [100 * (after - before) / honest for before, after in found]
    error = stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else None
    return {"honest": honest, "lying": lied, "percent": fmean(changes), "error": error}


def study(plan: ReplayPlan, prepared: Prepared, lies: Sequence[str], copies: int, tell: Callable[[str], None]) -> Json:
    truth = [fates(plan, prepared, None, copy) for copy in range(copies)]
    tell(f"honest: {[round(mine.wait) for mine, _ in truth]} and {[round(theirs.wait) for _, theirs in truth]}")
    found: Json = {}
    for name in lies:
        lying_runs = [fates(plan, prepared, LIES[name], copy) for copy in range(copies)]
        both = list(zip(truth, lying_runs, strict=True))
        found[name] = {
            "liar_wait": change((before[0].wait, after[0].wait) for before, after in both),
            "others_wait": change((before[1].wait, after[1].wait) for before, after in both),
            "liar_lost_gpu_hours": change((before[0].lost, after[0].lost) for before, after in both)["lying"],
        }
        rows = (
            f"{who} {effect['percent']:+.1f} ± {effect['error'] or 0:.1f} %"
            for who, effect in list(found[name].items())[:2]
        )
        tell(f"{name}: {', '.join(rows)}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.liars", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--gpus", type=int, required=True)
    parser.add_argument("--from", dest="first", required=True)
    parser.add_argument("--to", dest="last", required=True)
    parser.add_argument("--policy", default="gangline")
    parser.add_argument("--share", type=float, default=0.01, help="of the jobs are the liar's (default: %(default)s)")
    parser.add_argument(
        "--hints", choices=("nobody", "everyone"), default="everyone", help="besides the liar's (default: %(default)s)"
    )
    parser.add_argument("--spread", type=float, default=0.5, help="of honest errors, in logs (default: %(default)s)")
    parser.add_argument("--lies", default=",".join(LIES), help="default: %(default)s")
    parser.add_argument(
        "--copies", type=int, default=4, help="of the input, all but the first shaken (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--credulous", action="store_true", help="believe every hint as it is: what lies would gain then"
    )
    said = parser.parse_args(arguments)
    if said.credulous:
        Tracker.believed = lambda self, run: math.log(run.hint) if run.hint else math.nan  # type: ignore[method-assign]
    first, last = (Instant().convert(text, None, None) for text in (said.first, said.last))
    plan = ReplayPlan(
        cluster=ReplayedCluster(said.gpus),
        policies=tuple(policies.chosen(said.policy)),
        first=first,
        last=last,
        retrain_every=7 * 86_400.0,
        seed=said.seed,
    )
    trace = traces.load(said.trace)
    everyone = said.hints == "everyone"
    prepared, _ = prepare(with_authors(trace, said.share, everyone=everyone, spread=said.spread, seed=said.seed), plan)
    lies = said.lies.split(",")
    found = study(plan, prepared, lies, said.copies, lambda text: print(text, file=sys.stderr, flush=True))
    print(
        json.dumps(
            {
                "trace": said.trace.name,
                "share": said.share,
                "hints": said.hints,
                "credulous": said.credulous,
                "copies": said.copies,
                "lies": found,
            },
            indent=1,
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
