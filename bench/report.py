"""Results for people, as a table, and for programs, as one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.parameters import Load
from gangline.kube.resources import Json


def combine(load: Load, run: Json, floor: Json | None = None, kueue: Json | None = None) -> Json:
    """One object for the run, its two bounds, and the same load with Kueue."""
    wall = run["wall_seconds"]
    result: Json = {
        "load": load.name,
        "size": load.size,
        "queues": len(load.queues),
        "capacity_bound_seconds": load.capacity_bound,
        "schedule_seconds": load.schedule,
        **run,
        "wall_over_capacity_bound": wall / load.capacity_bound,
        "operator_cpu_ms_per_workload": 1000 * run["cpu_seconds"].get("operator", 0.0) / load.workloads,
        "complete": run["finished"] == load.workloads,
    }
    if run["cpu_seconds"].get("kube-apiserver"):
        result["operator_over_apiserver_cpu"] = run["cpu_seconds"]["operator"] / run["cpu_seconds"]["kube-apiserver"]
    if floor is not None:
        best = max(floor["wall_seconds"], load.capacity_bound)
        result["api_floor_seconds"] = floor["wall_seconds"]
        result["wall_over_api_floor"] = wall / floor["wall_seconds"]
        result["quota_use_at_api_floor"] = load.capacity_bound / best
        result["floor"] = floor
    if kueue is not None:
        result["wall_over_kueue"] = wall / kueue["wall_seconds"]
        result["kueue"] = kueue
    return rounded(result)


def beyond(result: Json, limits: Mapping[str, float]) -> list[str]:
    """One line for each figure of a run that is missing or larger than its limit."""
    lines: list[str] = []
    for name, limit in limits.items():
        if name not in result:
            lines.append(f"{name}: not measured; the limit is {limit:g}")
        elif result[name] > limit:
            lines.append(f"{name}: {result[name]:g}; the limit is {limit:g}")
    return lines


def line(cells: Iterable[str]) -> str:
    """A row of a table that grows while it is measured."""
    return "  ".join(f"{cell:>13}" for cell in cells)


def rounded(value: Any) -> Any:
    """Three decimals are more than these measurements are precise to."""
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return value


def show(result: Json) -> None:
    """The table on stderr, the JSON on stdout."""
    console = Console(stderr=True, highlight=False)
    console.print(_headline(result))
    for left in result["unfinished"]:
        console.print(f"unfinished: {json.dumps(left)}", style="red", soft_wrap=True)
    for table in (_waits(result), _processes(result), _requests(result)):
        console.print(table)
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


def _numbers(title: str, first: str, *columns: str) -> Table:
    """A table whose first column says what its numbers are of."""
    table = Table(title=title)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    return table


def _headline(result: Json) -> Table:
    table = _numbers(f"{result['load']} ({result['size']}): {result['workloads']} in {result['queues']} queues", "", "")
    rows = [
        ("finished", f"{result['finished']} of {result['workloads']}"),
        ("wall", f"{result['wall_seconds']:.1f} s"),
        (
            "capacity bound",
            f"{result['capacity_bound_seconds']:.1f} s (wall ×{result['wall_over_capacity_bound']:.2f})",
        ),
    ]
    if "api_floor_seconds" in result:
        rows.append(("API floor", f"{result['api_floor_seconds']:.1f} s (wall ×{result['wall_over_api_floor']:.2f})"))
    if "kueue" in result:
        rows.append(("Kueue", f"{result['kueue']['wall_seconds']:.1f} s (wall ×{result['wall_over_kueue']:.2f})"))
    rows.append(("created within", f"{result['creating_seconds']:.1f} s (schedule {result['schedule_seconds']:.1f} s)"))
    rows.append(("quota use", f"{result['quota_use']:.0%}"))
    if "writes_per_workload" in result:
        rows += [
            ("operator's writes per workload", f"{result['writes_per_workload']:.2f}"),
            ("preemptions", str(result["preemptions"])),
            ("deciding", f"{result['decide']['rounds']} rounds of {result['decide']['mean_ms']:.2f} ms"),
            ("engine's share of operator CPU", f"{result['engine_share']:.0%}"),
        ]
    if "engine_share_sampled" in result:
        rows.append(("the same with taking in facts, sampled", f"{result['engine_share_sampled']:.0%}"))
    machine = result["machine"]
    busy, others = machine["busy_cores"], machine["others_cores"]
    rows.append(("cores busy", f"{busy:.1f} of {machine['cores']}, {others:.1f} of them with others' work"))
    for row in rows:
        table.add_row(*row)
    return table


def _waits(result: Json) -> Table:
    columns = ("mean", "p50", "p95", "max")
    theirs = result.get("kueue", {}).get("time_to_admission_seconds", {})
    table = _numbers("time to admission, seconds", "class", "count", *columns, *(["Kueue's mean"] if theirs else []))
    for name, row in result["time_to_admission_seconds"].items():
        cells = [str(row["count"]), *(_seconds(row, column) for column in columns)]
        table.add_row(name, *cells, *([_seconds(theirs[name], "mean")] if theirs else []))
    return table


def _seconds(row: Json, column: str) -> str:
    return f"{row[column]:.2f}" if column in row else "–"


def _processes(result: Json) -> Table:
    table = _numbers("processes", "", "CPU s", "ms per workload", "peak MB")
    for name, seconds in result["cpu_seconds"].items():
        each = 1000 * seconds / result["workloads"]
        table.add_row(name, f"{seconds:.1f}", f"{each:.2f}", f"{result['peak_memory_mb'][name]:.0f}")
    return table


def _requests(result: Json) -> Table:
    table = _numbers("API requests per workload", "", "all", "operator")
    own = result.get("operator_requests_per_workload", {})
    everyone = result["api_requests_per_workload"]
    for name in sorted({*own, *everyone}, key=lambda name: -everyone.get(name, 0.0)):
        if max(own.get(name, 0.0), everyone.get(name, 0.0)) >= 0.01:
            table.add_row(name, f"{everyone.get(name, 0.0):.2f}", f"{own[name]:.2f}" if name in own else "")
    return table
