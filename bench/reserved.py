"""What a weekly maintenance costs on months of public traces, by windows that are announced, by a drain, and by users' limits.

    python -m bench.reserved --traces DIR --days 31 --policies gangline,easy

A quarter of the nodes is in maintenance for six hours every Wednesday. Each policy is played with the windows (running jobs learn
by when to save), without them, and as a drain: nobody knows of a window before it stops jobs. `easy` is Slurm's rule: a job
starts before a window only if its time limit ends by then. With `--calendar` a QuotaPlan takes a quarter of the quota away by
day, under all policies alike. DIR has the files of `MONTHS`.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.windows import PER_NODE, WINDOWS, gpus_for
from gangline import traces
from gangline.console.options import Instant, Span
from gangline.console.replaying import trace_windows
from gangline.kube.resources import Json
from gangline.replay import policies, windows
from gangline.replay.planned import Planned
from gangline.replay.policies import Policy
from gangline.replay.replay_plan import PREDICTORS, Prepared, ReplayPlan, prepare
from gangline.replay.replayed import ReplayedCluster, ReplayResult
from gangline.replay.run import play
from gangline.traces import Trace


@dataclass(frozen=True, slots=True)
class Month:
    file: str
    first: str
    #: the time limit of jobs under users' limits: the traces have none
    limit: str


MONTHS: Final = {
    "venus": Month(WINDOWS["venus"].file, "2020-08-01", "48h"),
    "philly": Month(WINDOWS["philly"].file, "2017-10-01", "7d"),
}


def maintenance(nodes: int, saving: Json) -> Json:
    """The spec of a Reservation: a quarter of the nodes, for nobody, six hours a week."""
    schedule = {"days": ["Wednesday"], "time": "02:00", "duration": "6h"}
    return {"window": {"schedule": schedule}, "nodes": {"anyOf": {"flavor": "gpu", "count": nodes // 4}}, **saving}


def calendar(gpus: int, saving: Json) -> Json:
    """The spec of a QuotaPlan: from 8 to 20 o'clock a quarter of the GPUs is for others; who has too much is stopped before."""
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    window = {"schedule": {"days": days, "time": "08:00", "duration": "12h"}}
    quota = {"flavor": "gpu", "resource": "nvidia.com/gpu", "nominalQuota": gpus - gpus // 4}
    recall = {"notice": "30m", "stopBefore": "1m", **saving}
    return {
        "clusterQueue": "replay",
        "overrides": [{"name": "day", "window": window, "quotas": [quota]}],
        "recall": recall,
    }


def month(trace: Trace, name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a trace's month."""
    first = Instant().convert(MONTHS[name].first, None, None)
    last = first + options.days * 86_400
    chosen = policies.with_comparisons(policies.chosen(options.policies))
    checkpoint = None if options.checkpoint == "none" else Span().convert(options.checkpoint, None, None)
    drawn = ReplayPlan(ReplayedCluster(PER_NODE), chosen, first, last, predictor="random", checkpoint=checkpoint)
    jobs = prepare(trace, drawn)[0].jobs
    plan = replace(
        drawn,
        cluster=ReplayedCluster(gpus_for(jobs, last, options.load), PER_NODE),
        predictor=options.predictor,
        limit=Span().convert(MONTHS[name].limit, None, None),
    )
    prepared, _ = prepare(trace, plan)
    saving = {"startWithCheckpoints": options.start_with_checkpoints} if options.start_with_checkpoints else {}
    quotas = {"daily": calendar(plan.cluster.gpus, saving)} if options.calendar else {}
    reservations = {"weekly": maintenance(plan.cluster.nodes, saving)}
    planned, troubles = trace_windows.of_trace(reservations, quotas, plan, prepared)
    if troubles:
        raise ValueError(troubles[0])
    results: dict[str, ReplayResult] = {}
    measures: dict[str, Json] = {}
    for policy in chosen:
        results[policy.name], measures[policy.name] = one(plan, policy, prepared, planned)
        measured = measures[policy.name]
        print(
            f"{name} {policy.name}: mean wait {measured['wait']['mean']:.0f} s, {measured['windows']['stopped']} stopped, "
            f"{measured['windows']['gpu_hours_lost']:.1f} GPU hours lost, {measured['replay_seconds']:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return {
        "trace": name,
        "days": options.days,
        "jobs": len(jobs),
        "gpus": plan.cluster.gpus,
        "load": options.load,
        "predictor": options.predictor,
        "checkpoint_seconds": checkpoint,
        "limit_seconds": plan.limit,
        "calendar": options.calendar,
        "start_with_checkpoints": options.start_with_checkpoints,
        "windows": [asdict(each) for each in windows.costs(results, measures)],
        "policies": {
            policy: {
                "wait": measured["wait"],
                "wait_gt8": measured["wait_gt8"],
                "utilisation": measured["utilisation"],
                "gpu_hours_lost": measured["gpu_hours_lost"],
                "windows": measured["windows"],
                "recalled": measured.get("recalled"),
                "seconds": measured["replay_seconds"],
            }
            for policy, measured in measures.items()
        },
    }


def one(plan: ReplayPlan, policy: Policy, prepared: Prepared, planned: Planned) -> tuple[ReplayResult, Json]:
    """One policy, and its measures."""
    fresh: Prepared = pickle.loads(pickle.dumps(prepared))  # a forecaster learns on the way
    story, _ = play(plan, policy, replace(fresh, planned=planned))
    return story.result, story.measures


def options_of(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--months", type=lambda text: text.split(","), default=list(MONTHS))
    parser.add_argument("--days", type=float, default=31.0)
    parser.add_argument("--load", type=float, default=0.93)
    parser.add_argument("--policies", default="gangline,easy")
    parser.add_argument("--predictor", choices=PREDICTORS, default="model")
    parser.add_argument("--checkpoint", default="30m", help="how often jobs save their work, or none")
    parser.add_argument("--calendar", action="store_true", help="also a quarter of the quota less by day")
    parser.add_argument(
        "--start-with-checkpoints",
        default="",
        metavar="TIME",
        help="the field of that name of Reservation and QuotaPlan",
    )
    options = parser.parse_args(arguments)
    if unknown := {*options.months} - {*MONTHS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if not 0 < options.load < 2 or not 1 <= options.days < math.inf:
        parser.error("--load must be above 0 and below 2, --days at least 1")
    return options


def main() -> int:
    options = options_of()
    found = [month(traces.load(options.traces / MONTHS[name].file, "auto"), name, options) for name in options.months]
    json.dump(found, sys.stdout, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
