"""One measured run of a load against one controller, and the figures that come of it."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

from bench import sampler
from bench.parameters import FILE, Load
from bench.stack import Stack, machine
from bench.usage import requests, total

Json: TypeAlias = dict[str, Any]

_WRITES = ("create", "patch", "apply", "replace", "delete")
#: After the last workload the operator may still write what it throttled; it is given so long to come to rest, seconds.
SETTLE = 20.0


def measured(
    load: Load, *, null: bool = False, jobs: bool = False, profile: Path | None = None, parameters: Path = FILE
) -> Json:
    """Run `load` on a control plane of its own. `null`: with the null controller (for jobs: without any)."""
    with Stack(load, simulate=jobs, parameters=parameters) as stack:
        if jobs and not null:
            stack.webhooks()
        if not null:
            stack.operator(profile)
        elif not jobs:
            stack.null_controller()
        driver = ("bare-jobs" if null else "jobs") if jobs else "workloads"
        before, asked = stack.usage(), requests(stack.api_metrics(), "apiserver_request_total")
        own = Counter[str]() if null else requests(stack.operator_metrics(), "gangline_api_requests_total")
        with machine() as surroundings:
            results = stack.run_load(driver)
        settled = 0.0 if null else rest(stack, SETTLE)
        after = stack.usage()
        results["machine"] = surroundings
        results["settle_seconds"] = settled
        spent = {name: after[name].since(before[name]) for name in before}
        results["cpu_seconds"] = {name: used.cpu_seconds for name, used in spent.items()} | {
            "load": results["cpu_seconds"]
        }
        results["peak_memory_mb"] = {name: used.peak_mb for name, used in spent.items()} | {
            "load": results.pop("peak_mb")
        }
        each = load.workloads
        all_requests = requests(stack.api_metrics(), "apiserver_request_total") - asked
        results["api_requests_per_workload"] = _per(all_requests, each)
        if not null:
            _add_operator(results, stack, own, each)
        if profile is not None:
            stack.processes["operator"].stop()  # it writes its samples when it ends
            results["engine_share_sampled"] = sampler.shares(profile, "gangline/engine/")
    return results


def rest(stack: Stack, patience: float) -> float:
    """Seconds until the operator has asked nothing of the API server for two seconds, or until patience ends.

    Not counted: its lease, and asking for kinds that are not served.
    """
    start = time.monotonic()
    last, since = _asked(stack), start
    while time.monotonic() - start < patience and time.monotonic() - since < 2.0:
        time.sleep(0.25)
        now = _asked(stack)
        if now != last:
            last, since = now, time.monotonic()
    return since - start


def _asked(stack: Stack) -> dict[str, int]:
    counted = requests(stack.operator_metrics(), "gangline_api_requests_total")
    return {key: count for key, count in counted.items() if not key.startswith("list ") and not key.endswith(" leases")}


def _add_operator(results: Json, stack: Stack, before: Counter[str], workloads: int) -> None:
    """What the operator says of itself."""
    text = stack.operator_metrics()
    asked = requests(text, "gangline_api_requests_total") - before
    writes = {key: count for key, count in asked.items() if key.split(" ", 1)[0] in _WRITES}
    results["operator_requests_per_workload"] = _per(asked, workloads)
    results["writes_per_workload"] = sum(writes.values()) / workloads
    results["preemptions"] = int(total(text, "kueue_evicted_workloads_total", reason="Preempted"))
    deciding, rounds = total(text, "gangline_decide_seconds_sum"), total(text, "gangline_decide_seconds_count")
    results["decide"] = {"rounds": int(rounds), "seconds": deciding, "mean_ms": 1000 * deciding / max(1.0, rounds)}
    cpu = results["cpu_seconds"]["operator"]
    #: wall time inside decide(); with other processes on the same cores this is an upper bound of its CPU
    results["engine_share"] = deciding / cpu if cpu else 0.0


def _per(counts: Counter[str], workloads: int) -> dict[str, float]:
    """Per workload, most frequent first; what happened less than once in a thousand workloads is left out."""
    rows = {key: count / workloads for key, count in counts.most_common() if key.strip()}
    return {key: rate for key, rate in rows.items() if rate >= 0.001}
