"""How fast workloads are admitted: Kueue's benchmark loads, beside what the quota and the API server allow at best.

    python -m bench.admission --load baseline --size tenth

A table goes to stderr, one JSON object to stdout. Exit status 1 where not every workload
finished or, with --gate, a figure is beyond the limits of the parameter file.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench import report
from bench.command import carried_out
from bench.controllers import Floor, Gangline, Kueue
from bench.measure import measured
from bench.parameters import FILE, ParameterError, gate, read


def main(arguments: Sequence[str] | None = None, *, jobs: bool = False) -> int:
    options = _parser(jobs).parse_args(arguments)
    return carried_out(lambda: _run(options, jobs))


def _run(options: argparse.Namespace, jobs: bool) -> int:
    load = read(options.load, options.size, options.parameters)
    limits = gate(options.parameters) if options.gate else {}
    kueue_binary = None if options.kueue is None else _program(options.kueue)
    measure = partial(measured, load, parameters=options.parameters)
    run = measure(Gangline(jobs, options.profile), track_fields=options.track_fields)
    floor = kueue = None
    if not options.no_floor:
        print(f"{load.workloads} in {run['wall_seconds']:.1f} s; now the floor", file=sys.stderr)
        floor = measure(Floor(jobs), track_fields=options.track_fields)
    if kueue_binary is not None:
        print(f"now {kueue_binary}", file=sys.stderr)
        kueue = measure(Kueue(kueue_binary), track_fields=True)  # it does nothing about that
    result = report.combine(load, run, floor, kueue)
    report.show(result)
    broken = report.beyond(result, limits)
    for line in broken:
        print(f"beyond the gate: {line}", file=sys.stderr)
    return 0 if result["complete"] and not broken else 1


def _program(path: Path) -> Path:
    if not path.is_file() or not os.access(path, os.X_OK):
        raise ParameterError(f"--kueue: {path} is no program")
    return path.resolve()


def _parser(jobs: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Benchmark of admission.")
    if jobs:
        parser.set_defaults(load="jobs", kueue=None)
    else:
        parser.add_argument("--load", default="baseline", help="a load of the parameter file (default: %(default)s)")
        parser.add_argument(
            "--kueue", type=Path, help="then run the same load against this minimalkueue, of Kueue's benchmark"
        )
    parser.add_argument("--size", default="full", help="a size of the parameter file (default: %(default)s)")
    parser.add_argument("--parameters", type=Path, default=FILE, help="YAML file with loads and sizes")
    parser.add_argument("--track-fields", action="store_true", help="the API server keeps account of Workloads' fields")
    parser.add_argument("--no-floor", action="store_true", help="leave out the run with the null controller")
    parser.add_argument(
        "--gate", action="store_true", help="fail if a figure is beyond the limits of the parameter file"
    )
    parser.add_argument("--profile", type=Path, help="sample the operator's stacks into this file")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
