"""Gangline beside best effort and EASY on development windows of public traces: waits, ratios, losses, promises, coverage.

    python -m bench.windows --traces DIR --days 3 --loads 0.95 --checkpoints 30m,none --predictors model,random,true --copies 4

Every cell is one window at one load, with one kind of forecast, averaged over copies of the window: the first one as it is, the
others shaken by 1 %. A ratio is Gangline's figure over that of the better one of best effort and EASY: above 1 it does worse than
a scheduler that forecasts nothing. Its error says what chance makes of it. DIR has the files of `WINDOWS`.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple, TypeAlias

from gangline import traces
from gangline.console.options import Instant, Span
from gangline.replay import policies
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import PREDICTORS, Prepared, ReplayPlan, prepare
from gangline.replay.replayed import ReplayedCluster, ReplayedJob
from gangline.replay.run import play
from gangline.traces import Trace

#: of a run, or the mean of several
Figures: TypeAlias = dict[str, Any]

#: schedulers that need no forecast
PLAIN: Final = ("besteffort", "easy")
PER_NODE: Final = 8


@dataclass(frozen=True, slots=True)
class Window:
    file: str
    first: str


WINDOWS: Final = {
    "venus": Window("helios-venus-gpu-2020-mar-aug.csv.gz", "2020-08-10"),
    "philly": Window("philly-vc-2017-sep-oct.csv.gz", "2017-10-16"),
    "pai": Window("pai-2020-sample-first70.csv.gz", "3800000"),
}


def gpus_for(jobs: Sequence[ReplayedJob], end: float, load: float) -> int:
    """GPUs of a cluster to which these jobs are such a load until `end` (Unix seconds), from its second half on: that is the work
    that would be done by then if all started at once. The largest job fits in any case.
    """
    first, last = jobs[0].submit, round(end * 1000)
    middle = (first + last) // 2
    work = sum(job.gpus * max(0, min(job.submit + job.duration, last) - max(job.submit, middle)) for job in jobs)
    most = max(job.gpus for job in jobs)
    return PER_NODE * math.ceil(max(most, work / (last - middle) / load) / PER_NODE)


def figures(measures: dict[str, Any]) -> Figures:
    wait = measures["wait"]
    return {
        "wait": {name: wait[name] for name in ("mean", "p99", "max")},
        "wait_gt8": measures["wait_gt8"]["mean"],
        "lost_share": measures["gpu_hours_lost_share"],
        "evictions": measures["evictions"],
        "heads_late_share": measures["heads_late_share"],
        "heads_mean_lateness": measures["heads_mean_lateness"],
        "promises": {key: value for key, value in measures["promises"].items() if key != "missed_by"},
        "seconds": round(measures["replay_seconds"], 1),
    }


class Ratio(NamedTuple):
    """The mean of some figure over that of another, measured on the same copies, with its standard error (None of one copy)."""

    value: float
    error: float | None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + (f" ± {self.error:.2f}" if self.error is not None else "")


def ratios(mine: Sequence[Figures], plain: Mapping[str, Sequence[Figures]]) -> dict[str, Ratio | None]:
    """Mine over the better one of the others, per figure of the wait; None where the better one is 0."""
    found: dict[str, Ratio | None] = {}
    for name in ("mean", "p99", "max"):
        best = min(([each["wait"][name] for each in copies] for copies in plain.values()), key=fmean)
        found[name] = _ratio([each["wait"][name] for each in mine], best)
    return found


def _ratio(mine: Sequence[float], best: Sequence[float]) -> Ratio | None:
    under = fmean(best)
    if not under:
        return None
    value = fmean(mine) / under
    if len(mine) < 2:
        return Ratio(value, None)
    off = [one - value * other for one, other in zip(mine, best, strict=True)]
    return Ratio(value, stdev(off) / math.sqrt(len(off)) / under)


def averaged(copies: Sequence[Figures]) -> Figures:
    """The mean of every figure; None where a copy has none."""
    first = copies[0]
    found: Figures = {}
    for name, value in first.items():
        values = [each[name] for each in copies]
        if isinstance(value, dict):
            found[name] = averaged(values)
        else:
            found[name] = None if None in values else fmean(values)
    return found


def one(plan: ReplayPlan, policy: Policy, prepared: Prepared, copy: int) -> tuple[Figures, dict[str, Any]]:
    """Figures of a copy of the window, the first of which is not shaken, and the accuracy of its forecasts."""
    fresh: Prepared = pickle.loads(pickle.dumps(prepared))  # a forecaster learns on the way
    story, forecast = play(plan, policy, fresh, copy)
    return figures(story.measures), forecast


def cells(trace: Trace, name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first = Instant().convert(WINDOWS[name].first, None, None)
    seconds = options.days * 86_400
    mine = policies.chosen(options.policies)
    everyone = (*policies.chosen(",".join(PLAIN)), *mine)
    whole = ReplayPlan(
        ReplayedCluster(PER_NODE), everyone, first, first + seconds, retrain_every=None, predictor="random"
    )
    drawn, _ = prepare(trace, whole)
    model: Prepared | None = None
    copies = range(options.copies)
    for load in options.loads:
        cluster = ReplayedCluster(gpus_for(drawn.jobs, first + seconds, load), PER_NODE)
        sized = replace(whole, cluster=cluster)
        plain = {policy: [one(sized, policies.POLICIES[policy], drawn, copy)[0] for copy in copies] for policy in PLAIN}
        for predictor in options.predictors:
            plan = replace(sized, predictor=predictor)
            prepared = drawn
            if predictor == "model":
                prepared = model = model or prepare(trace, plan)[0]
            for checkpoint in options.checkpoints:
                saving = replace(plan, checkpoint=None if math.isinf(checkpoint) else checkpoint)
                for policy in mine:
                    played = [one(saving, policy, prepared, copy) for copy in copies]
                    found, forecast = [figures for figures, _ in played], played[0][1]
                    yield {
                        "window": name,
                        "days": options.days,
                        "jobs": len(drawn.jobs),
                        "gpus": cluster.gpus,
                        "load": load,
                        "predictor": predictor,
                        "checkpoint_seconds": saving.checkpoint,
                        "policy": policy.name,
                        **averaged(found),
                        "plain": {policy: averaged(each) for policy, each in plain.items()},
                        "ratios": {
                            figure: ratio._asdict() if ratio is not None else None
                            for figure, ratio in ratios(found, plain).items()
                        },
                        "copies": {policy.name: found, **plain},
                        "coverage": forecast.get("coverage", {}),
                        "least_covered": forecast.get("least_covered"),
                    }


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--windows", type=lambda text: text.split(","), default=list(WINDOWS))
    parser.add_argument("--days", type=float, default=3.0)
    parser.add_argument(
        "--loads", type=lambda text: [float(each) for each in text.split(",")], default=[0.8, 0.95, 1.0]
    )
    parser.add_argument("--checkpoints", type=_spans, default=[1800.0, math.inf], help="30m,none")
    parser.add_argument("--predictors", type=lambda text: text.split(","), default=["model", "random", "true"])
    parser.add_argument("--policies", default="gangline")
    parser.add_argument("--copies", type=int, default=4, help="of each window, all but the first shaken")
    options = parser.parse_args(arguments)
    unknown = {*options.windows} - {*WINDOWS} | {*options.predictors} - {*PREDICTORS}
    if options.copies < 1:
        parser.error("--copies must be at least 1")
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def _spans(text: str) -> list[float]:
    return [math.inf if each == "none" else Span().convert(each, None, None) for each in text.split(",")]


def _shown(ratio: dict[str, Any] | None) -> str:
    return "–" if ratio is None else str(Ratio(**ratio))


def main() -> int:
    options = options_of()
    found: list[dict[str, Any]] = []
    for name in options.windows:
        trace = traces.load(options.traces / WINDOWS[name].file, "auto")
        for cell in cells(trace, name, options):
            found.append(cell)
            ratio_texts = ", ".join(f"{figure} {_shown(ratio)}" for figure, ratio in cell["ratios"].items())
            waits = {policy: round(each["wait"]["mean"]) for policy, each in cell["plain"].items()}
            print(
                f"{name} load {cell['load']} {cell['predictor']} checkpoints {cell['checkpoint_seconds']}: {cell['policy']} "
                f"mean {cell['wait']['mean']:.0f} of {waits}, ratios {ratio_texts}, lost {cell['lost_share']:.2%}, "
                f"{cell['seconds']:.1f} s",
                file=sys.stderr,
                flush=True,
            )
    json.dump(found, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
