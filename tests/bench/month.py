"""A month of a public trace, played into a live cluster at speed: `make bench-month TRACES=DIR`, JSON on stdout.

    python -m tests.bench.month --traces DIR --month 2020-06

Real Jobs, on a real control plane with the operator and the webhooks; the operator goes by the month's clock, and is killed a few
times on the way (`tests.cluster.month` has how). Then `gangline report` is compared with what the trace says. Exit status 1 where
it is more than 0.1 % off, in all or for a namespace, a user or a day.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.command import carried_out
from bench.report import rounded
from bench.stack import machine
from tests.cluster import month

from bench import windows
from gangline import traces
from gangline.traces import TraceError, TraceJob

FILE: Final = windows.WINDOWS["venus"].file
#: the most by which the report may be off, as a part of 1
MOST: Final = 0.001


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    try:
        jobs = _jobs(options.traces / FILE, options.month)[: options.jobs]
    except (OSError, TraceError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = month.runs(jobs, month.begin_of(time.time()))
    gpus = month.gpus_for(jobs, options.load)
    with (
        tempfile.TemporaryDirectory(prefix="gangline-bench-") as directory,
        machine() as busy,
        month.control_plane(Path(directory)) as system,
    ):
        played = asyncio.run(month.play(system, found, gpus, options.kills, options.grain))
    player, report = played.player, played.report
    result = {
        "month": options.month,
        "jobs": len(jobs),
        "cluster_gpus": gpus,
        "jobs_that_waited": player.waited,
        "operators_killed": options.kills,
        "gpu_hours": {"trace": report.hours, "report": report.reported, "off_percent": 100 * report.difference},
        "worst_off_percent": {by: 100 * each for by, each in report.worst.items()},
        "attempts": report.attempts,
        "late_gpu_hours": player.late / 3600,
        "clock_steps": player.steps,
        "seconds": played.seconds,
        "times_as_fast": (found[-1].submit - found[0].submit) / played.seconds,
        "machine": busy,
    }
    print(json.dumps(rounded(result)))
    return 0 if max(report.difference, *report.worst.values()) <= MOST and report.attempts == len(jobs) else 1


def _jobs(file: Path, name: str) -> Sequence[TraceJob]:
    """The jobs that were submitted in a month, such as 2020-06."""
    first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
    last = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    found = traces.load(file).between(first.timestamp(), last.timestamp()).jobs
    if not found:
        raise TraceError(f"{file}: no job was submitted in {name}")
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="A month of a trace in a live cluster: is the report right?")
    parser.add_argument("--traces", type=Path, required=True, help=f"the folder with {FILE}")
    parser.add_argument("--month", default="2020-06", help="(default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=None, help="the first so many of them (default: all)")
    parser.add_argument("--load", type=float, default=0.8, help="of the cluster's GPUs (default: %(default)s)")
    parser.add_argument("--kills", type=int, default=3, help="of the operator (default: %(default)s)")
    parser.add_argument(
        "--grain", type=int, default=1, help="seconds to whose multiples submissions and ends are moved (%(default)s)"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
