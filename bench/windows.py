"""Gangline beside best effort and EASY on development windows of public traces: waits, ratios, losses, promises, coverage.

    python -m bench.windows --traces DIR --days 3 --loads 0.95 --checkpoints 30m,none --predictors model,random,true

Every cell is one window at one load, with one kind of forecast. A ratio is Gangline's figure over the better one of best effort
and EASY: above 1 it does worse than a scheduler that forecasts nothing. DIR has the files of `WINDOWS`.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gangline import traces
from gangline.console.options import Instant, Span
from gangline.replay import policies
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import PREDICTORS, Plan, Prepared, prepare
from gangline.replay.replayed import Cluster, Job
from gangline.replay.run import play
from gangline.traces import Trace

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


def gpus_for(jobs: Sequence[Job], end: float, load: float) -> int:
    """GPUs of a cluster to which these jobs are such a load until `end` (Unix seconds), from its second half on: that is the work
    that would be done by then if all started at once. The largest job fits in any case.
    """
    first, last = jobs[0].submit, round(end * 1000)
    middle = (first + last) // 2
    work = sum(job.gpus * max(0, min(job.submit + job.duration, last) - max(job.submit, middle)) for job in jobs)
    most = max(job.gpus for job in jobs)
    return PER_NODE * math.ceil(max(most, work / (last - middle) / load) / PER_NODE)


def figures(measures: dict[str, Any]) -> dict[str, Any]:
    wait = measures["wait"]
    return {
        "wait": {name: wait[name] for name in ("mean", "p99", "max")},
        "wait_gt8": measures["wait_gt8"]["mean"],
        "lost_share": measures["gpu_hours_lost_share"],
        "evictions": measures["evictions"],
        "heads_late_share": measures["heads_late_share"],
        "heads_mean_lateness": measures["heads_mean_lateness"],
        "seconds": round(measures["replay_seconds"], 1),
    }


def ratios(mine: dict[str, Any], plain: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Mine over the better one of the others, per figure of the wait; None where the better one is 0."""
    found: dict[str, float | None] = {}
    for name in ("mean", "p99", "max"):
        best = min(each["wait"][name] for each in plain)
        found[name] = mine["wait"][name] / best if best else None
    return found


def one(plan: Plan, policy: Policy, prepared: Prepared) -> tuple[dict[str, Any], dict[str, Any]]:
    fresh: Prepared = pickle.loads(pickle.dumps(prepared))  # a forecaster learns on the way
    story, forecast = play(plan, policy, fresh)
    return figures(story.measures), forecast


def cells(trace: Trace, name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first = Instant().convert(WINDOWS[name].first, None, None)
    seconds = options.days * 86_400
    mine = policies.chosen(options.policies)
    everyone = (*policies.chosen(",".join(PLAIN)), *mine)
    whole = Plan(Cluster(PER_NODE), everyone, first, first + seconds, retrain_every=None, predictor="random")
    drawn, _ = prepare(trace, whole)
    model: Prepared | None = None
    for load in options.loads:
        cluster = Cluster(gpus_for(drawn.jobs, first + seconds, load), PER_NODE)
        plain: list[dict[str, Any]] = []
        for predictor in options.predictors:
            plan = replace(whole, cluster=cluster, predictor=predictor)
            prepared = drawn
            if predictor == "model":
                prepared = model = model or prepare(trace, plan)[0]
            plain = plain or [one(plan, policies.POLICIES[policy], prepared)[0] for policy in PLAIN]
            for checkpoint in options.checkpoints:
                saving = replace(plan, checkpoint=None if math.isinf(checkpoint) else checkpoint)
                for policy in mine:
                    found, forecast = one(saving, policy, prepared)
                    yield {
                        "window": name,
                        "days": options.days,
                        "jobs": len(drawn.jobs),
                        "gpus": cluster.gpus,
                        "load": load,
                        "predictor": predictor,
                        "checkpoint_seconds": saving.checkpoint,
                        "policy": policy.name,
                        **found,
                        "plain": dict(zip(PLAIN, plain, strict=True)),
                        "ratios": ratios(found, plain),
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
    options = parser.parse_args(arguments)
    unknown = {*options.windows} - {*WINDOWS} | {*options.predictors} - {*PREDICTORS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    return options


def _spans(text: str) -> list[float]:
    return [math.inf if each == "none" else Span().convert(each, None, None) for each in text.split(",")]


def main() -> int:
    options = options_of()
    found: list[dict[str, Any]] = []
    for name in options.windows:
        trace = traces.load(options.traces / WINDOWS[name].file, "auto")
        for cell in cells(trace, name, options):
            found.append(cell)
            shown = {key: round(value, 3) for key, value in cell["ratios"].items() if value is not None}
            waits = {policy: round(each["wait"]["mean"]) for policy, each in cell["plain"].items()}
            print(
                f"{name} load {cell['load']} {cell['predictor']} checkpoints {cell['checkpoint_seconds']}: {cell['policy']} "
                f"mean {cell['wait']['mean']:.0f} of {waits}, ratios {shown}, lost {cell['lost_share']:.2%}, "
                f"{cell['seconds']} s",
                file=sys.stderr,
                flush=True,
            )
    json.dump(found, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
