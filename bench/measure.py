"""One measured run of a load against one controller, and its figures."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from bench import sampler
from bench.controllers import Controller, Floor, Gangline
from bench.parameters import FILE, Load
from bench.stack import Stack, machine
from bench.usage import Usage, requests, total
from gangline.kube.resources import Json

_WRITES = ("create", "patch", "apply", "replace", "delete")
#: After the last workload the operator may still write throttled statuses; it gets this long to come to rest, in seconds.
SETTLE = 20.0
#: It is at rest when it used less than this share of a core over a window of this many seconds.
AT_REST, REST_WINDOW = 0.02, 2.0


def measured(
    load: Load,
    controller: Controller,
    *,
    track_fields: bool = False,
    parameters: Path = FILE,
) -> Json:
    """Run `load` against this controller, on a control plane of its own."""
    with Stack(load, simulate=controller.jobs, track_fields=track_fields, parameters=parameters) as stack:
        controller.start(stack)
        before, asked = stack.usage(), requests(stack.api_metrics(), "apiserver_request_total")
        gangline = controller if isinstance(controller, Gangline) else None
        own = requests(stack.operator_metrics(), "gangline_api_requests_total") if gangline else Counter[str]()
        with machine() as surroundings:
            results = stack.run_load(controller.driver)
        results["settle_seconds"] = 0.0 if isinstance(controller, Floor) else rest(stack, SETTLE)
        _add_usage(results, before, stack.usage())
        results["machine"] = surroundings
        ours = sum(results["cpu_seconds"].values()) / max(results["wall_seconds"], 0.001)
        surroundings["others_cores"] = max(0.0, surroundings["busy_cores"] - ours)
        all_requests = requests(stack.api_metrics(), "apiserver_request_total") - asked
        results["api_requests_per_workload"] = _per(all_requests, load.workloads)
        if gangline:
            _add_operator(results, stack, own, load.workloads)
        if gangline and gangline.profile is not None:
            stack.processes["operator"].stop()  # it writes its samples when it ends
            results["engine_share_sampled"] = sampler.shares(gangline.profile, "gangline/engine/")
    return results


def _add_usage(results: Json, before: dict[str, Usage], after: dict[str, Usage]) -> None:
    """CPU and memory by process; the load process measures itself."""
    spent = {name: after[name].since(before[name]) for name in before}
    results["cpu_seconds"] = {name: used.cpu_seconds for name, used in spent.items()} | {"load": results["cpu_seconds"]}
    results["peak_memory_mb"] = {name: used.peak_mb for name, used in spent.items()} | {"load": results.pop("peak_mb")}


def rest(stack: Stack, patience: float, windows: int = 1) -> float:
    """Seconds until the operator uses almost no CPU, for this many windows in a row, or until patience ends.

    Not asked by HTTP: with many queues its metrics are themselves noticeable work.
    """
    start = since = time.monotonic()
    spent = stack.usage()["operator"].cpu_seconds
    quiet = 0
    while time.monotonic() - start < patience:
        time.sleep(REST_WINDOW)
        before, spent = spent, stack.usage()["operator"].cpu_seconds
        quiet = quiet + 1 if spent - before <= AT_REST * REST_WINDOW else 0
        if quiet == 0:
            since = time.monotonic()
        elif quiet == windows:
            return since - start
    return time.monotonic() - start


def _add_operator(results: Json, stack: Stack, before: Counter[str], workloads: int) -> None:
    """The operator's own figures."""
    text = stack.operator_metrics()
    asked = requests(text, "gangline_api_requests_total") - before
    writes = {key: count for key, count in asked.items() if key.split(" ", 1)[0] in _WRITES}
    results["operator_requests_per_workload"] = _per(asked, workloads)
    results["writes_per_workload"] = sum(writes.values()) / workloads
    results["preemptions"] = int(total(text, "kueue_evicted_workloads_total", reason="Preempted"))
    deciding, rounds = total(text, "gangline_decide_seconds_sum"), total(text, "gangline_decide_seconds_count")
    results["decide"] = {"rounds": int(rounds), "seconds": deciding, "mean_ms": 1000 * deciding / max(1.0, rounds)}
    cpu = results["cpu_seconds"]["operator"]
    results["engine_share"] = total(text, "gangline_decide_cpu_seconds_total") / cpu if cpu else 0.0


def _per(counts: Counter[str], workloads: int) -> dict[str, float]:
    """Per workload, most frequent first; requests less frequent than one per thousand workloads are left out."""
    rows = {key: count / workloads for key, count in counts.most_common() if key.strip()}
    return {key: rate for key, rate in rows.items() if rate >= 0.001}
