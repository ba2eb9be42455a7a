"""The cost of an idle operator, with a full cluster and all other workloads waiting.

    python -m bench.idle --size tenth

The load's workloads are all created and none ever ends; once the operator has come to rest, its CPU is measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench import objects
from bench.command import carried_out
from bench.measure import rest
from bench.parameters import FILE, Load, read
from bench.report import rounded
from bench.stack import Stack
from bench.usage import requests, total

#: How long the operator may take to report why 15,000 workloads wait, in seconds.
PATIENCE = 400.0
#: On a busy machine it may look idle for a moment, so it has to be idle for this many windows in a row.
WINDOWS = 5


def measured(load: Load, seconds: float, parameters: Path = FILE) -> dict[str, object]:
    """CPU share of one core, and requests, of the resting operator over `seconds`."""
    with Stack(load, parameters=parameters) as stack:
        stack.operator()
        started = time.monotonic()
        stack.create(
            objects.workload(kind, queue, number)
            for _, queue in load.queues
            for kind in load.classes
            for number in range(kind.count)
        )
        created = time.monotonic() - started
        rested = rest(stack, PATIENCE, WINDOWS)
        before, asked = stack.usage()["operator"], requests(stack.operator_metrics(), "gangline_api_requests_total")
        start = time.monotonic()
        time.sleep(seconds)
        span = time.monotonic() - start
        spent = stack.usage()["operator"].since(before)
        text = stack.operator_metrics()
        return {
            "load": load.name,
            "size": load.size,
            "workloads": load.workloads,
            "pending": int(total(text, "kueue_pending_workloads")),
            "created_seconds": created,
            "at_rest_after_seconds": rested,
            "measured_seconds": span,
            "cpu_share": spent.cpu_seconds / span,
            "operator_peak_mb": spent.peak_mb,
            "requests": dict(requests(text, "gangline_api_requests_total") - asked),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="CPU of an operator at rest.")
    parser.add_argument("--load", default="baseline", help="a load of the parameter file (default: %(default)s)")
    parser.add_argument("--size", default="full", help="a size of the parameter file (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to measure (default: %(default)s)")
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    load = read(options.load, options.size, options.parameters)
    result = measured(load, options.seconds, options.parameters)
    print(f"{result['pending']} pending: {result['cpu_share']:.2%} of a core at rest", file=sys.stderr)
    print(json.dumps(rounded(result)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
