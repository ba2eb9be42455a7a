"""What a workload costs against the size of the cluster: from 100 in one queue to 50,000 in 1,000 queues.

    python -m bench.curve --to 15000

The same loads as in `bench.admission`, smallest first, without their floors. A row goes to stderr as soon as it is measured, one
JSON object to stdout. Exit status 1 where not every workload finished.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import report
from bench.command import carried_out
from bench.controllers import Gangline
from bench.measure import measured
from bench.parameters import FILE, Load, ParameterError, read
from gangline.kube.resources import Json

#: (load, size)
POINTS = (
    ("baseline", "hundred"),
    ("baseline", "single"),
    ("baseline", "tenth"),
    ("baseline", "fifth"),
    ("large", "tenth"),
    ("baseline", "full"),
    ("large", "full"),
)
COLUMNS = ("workloads", "queues", "wall ms", "operator ms", "API server ms", "engine", "writes", "peak MB")


def point(load: Load, parameters: Path) -> Json:
    """One row: milliseconds of wall time and of CPU are per workload."""
    result = report.combine(load, measured(load, Gangline(), parameters=parameters))
    each = 1000 / load.workloads
    return report.rounded(
        {
            "load": load.name,
            "size": load.size,
            "workloads": load.workloads,
            "queues": len(load.queues),
            "wall_ms": each * result["wall_seconds"],
            "operator_cpu_ms": result["operator_cpu_ms_per_workload"],
            "apiserver_cpu_ms": each * result["cpu_seconds"]["kube-apiserver"],
            "engine_share": result["engine_share"],
            "writes": result["writes_per_workload"],
            "operator_peak_mb": result["peak_memory_mb"]["operator"],
            "others_cores": result["machine"]["others_cores"],
            "complete": result["complete"],
        }
    )


def row(found: Json) -> str:
    cells = (
        f"{found['workloads']:,}",
        f"{found['queues']:,}",
        f"{found['wall_ms']:.1f}",
        f"{found['operator_cpu_ms']:.2f}",
        f"{found['apiserver_cpu_ms']:.1f}",
        f"{found['engine_share']:.0%}",
        f"{found['writes']:.2f}",
        f"{found['operator_peak_mb']:.0f}",
    )
    return report.line(cells)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Cost per workload against size.")
    parser.add_argument("--to", type=int, default=50_000, help="the largest number of workloads (default: %(default)s)")
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    options = parser.parse_args(arguments)
    return carried_out(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    loads = [read(name, size, options.parameters) for name, size in POINTS]
    chosen = [load for load in loads if load.workloads <= options.to]
    if not chosen:
        raise ParameterError(f"--to {options.to}: the smallest load has {loads[0].workloads} workloads")
    print(report.line(COLUMNS), file=sys.stderr)
    found: list[Json] = []
    for load in chosen:
        found.append(point(load, options.parameters))
        print(row(found[-1]), file=sys.stderr)
    print(json.dumps({"points": found}))
    return 0 if all(each["complete"] for each in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
