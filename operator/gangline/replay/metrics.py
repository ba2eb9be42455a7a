"""The metrics of a replay (docs/replay.md has the definitions). All times are seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gangline.engine import BACKFILL, BUDGET, EARLY_END, LATE, RECALLED, lateness_of
from gangline.replay import windows
from gangline.replay.replayed import ReplayedOutcome, ReplayResult

Floats = NDArray[np.float64]

#: windows over which fairness between tenants is judged, by name
_WINDOWS: Final = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 86400.0}


def of(result: ReplayResult) -> dict[str, Any]:
    """All figures of a policy in `replay.json`."""
    done = [outcome for outcome in result.outcomes if outcome.finish is not None]
    gpus = np.array([outcome.job.gpus for outcome in done], dtype=np.int64)
    wait = np.array([outcome.wait or 0 for outcome in done], dtype=np.float64) / 1000
    duration = np.array([outcome.length for outcome in done], dtype=np.float64) / 1000
    jct = wait + duration
    use = GpuUse(result)
    return {
        "jobs": len(result.outcomes),
        "finished": len(done),
        "unfinished": sum(not o.impossible and o.finish is None for o in result.outcomes),
        "impossible": sum(bool(o.impossible) for o in result.outcomes),
        "wait": spread(wait),
        "wait_gt8": spread(wait[gpus > 8]),
        "wait_le8": spread(wait[gpus <= 8]),
        "wait_1": spread(wait[gpus == 1]),
        "wait_2_8": spread(wait[(gpus >= 2) & (gpus <= 8)]),
        "first_start": spread(np.array([((o.start or 0) - o.job.submit) / 1000 for o in done])),
        "wait_by_tenant": _by_tenant(done, wait),
        "jct": spread(jct),
        "jct_gt8": spread(jct[gpus > 8]),
        "jct_le8": spread(jct[gpus <= 8]),
        "bounded_slowdown": _slowdown(jct, duration, 10.0),
        "bounded_slowdown_60": _slowdown(jct, duration, 60.0),
        "bounded_slowdown_p50": _quantile(np.maximum(1.0, jct / np.maximum(duration, 10.0)), 50),
        "bounded_slowdown_p99": _quantile(np.maximum(1.0, jct / np.maximum(duration, 10.0)), 99),
        "per_processor_slowdown": _mean(np.maximum(1.0, jct / (np.maximum(gpus, 1) * np.maximum(duration, 10.0)))),
        "makespan": use.makespan,
        "utilisation": use.busy,
        "useful_utilisation": use.busy * (1 - use.lost_share),
        "utilisation_until_last_submit": use.until_last_submit,
        "fragmentation": use.idle_while_waiting,
        "gpu_hours": use.gpu_hours,
        "gpu_hours_lost": use.lost_hours,
        "gpu_hours_lost_share": use.lost_share,
        "gpu_hours_saving": sum(o.job.gpus * o.job.saving for o in done) / 3.6e6,
        "evictions": sum(o.evictions for o in result.outcomes),
        "evictions_per_1000": 1000 * sum(o.evictions for o in result.outcomes) / max(1, len(result.outcomes)),
        "backfilled": sum(any(stint.backfilled for stint in o.stints) for o in result.outcomes),
        **_promises(result),
        "starvation": _starvation(result, wait),
        "fairness": fairness(result),
        **_recalled(result),
        **_moved(result),
        **({"windows": found} if (found := windows.of(result)) else {}),
        "decisions": result.decisions,
        "replay_seconds": result.seconds,
    }


def spread(values: Floats) -> dict[str, float | int | None]:
    """Mean and quantiles (linear between neighbours); None without values."""
    if not len(values):
        return {"jobs": 0, **dict.fromkeys(("mean", "p50", "p90", "p99", "p999", "max"))}
    p50, p90, p99, p999 = np.percentile(values, [50, 90, 99, 99.9]).tolist()
    return {
        "jobs": len(values),
        "mean": float(values.mean()),
        "p50": p50,
        "p90": p90,
        "p99": p99,
        "p999": p999,
        "max": float(values.max()),
    }


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _quantile(values: Floats, percent: float) -> float | None:
    return float(np.percentile(values, percent)) if len(values) else None


def _slowdown(jct: Floats, duration: Floats, tau: float) -> float | None:
    """Mean bounded slowdown: completion time over runtime, runtimes below `tau` seconds counted as that."""
    return _mean(np.maximum(1.0, jct / np.maximum(duration, tau)))


def _by_tenant(done: Sequence[ReplayedOutcome], wait: Floats) -> dict[str, Any]:
    tenants = np.array([outcome.job.tenant for outcome in done])
    return {str(name): spread(wait[tenants == name]) for name in np.unique(tenants)} if len(done) else {}


class GpuUse:
    """The use of the GPUs."""

    def __init__(self, result: ReplayResult) -> None:
        samples, capacity = result.samples, result.cluster.gpus
        at = np.array([sample.at for sample in samples], dtype=np.float64) / 1000
        held = np.array([sample.allocated for sample in samples], dtype=np.float64)
        waiting = np.array([sample.waiting for sample in samples], dtype=np.int64) > 0
        span = np.diff(at, append=at[-1:])
        submits = [outcome.job.submit / 1000 for outcome in result.outcomes if not outcome.impossible]
        ends = [outcome.finish / 1000 for outcome in result.outcomes if outcome.finish is not None]
        self.makespan = max(ends) - min(submits) if ends else 0.0
        self.busy = _share(held, span * waiting, capacity)
        self.idle_while_waiting = 1 - self.busy if (span * waiting).sum() else 0.0
        self.until_last_submit = _share(held, span * (at < max(submits, default=0.0)), capacity)
        self.gpu_hours = sum(o.job.gpus * o.job.duration for o in result.outcomes if o.finish is not None) / 3.6e6
        self.lost_hours = sum(o.job.gpus * o.lost for o in result.outcomes) / 3.6e6
        self.lost_share = self.lost_hours / self.gpu_hours if self.gpu_hours else 0.0


def _share(held: Floats, weights: Floats, capacity: int) -> float:
    total = float(weights.sum())
    return float((held * weights).sum()) / (total * capacity) if total else 0.0


def _promises(result: ReplayResult) -> dict[str, Any]:
    """The delay of heads by backfill, the errors of their first plans, and what was promised."""
    heads = result.heads.values()
    late = np.array([max(0, head.started - head.planned) / 1000 for head in heads if head.planned is not None])
    lengths = np.array([(head.promised - head.at) / 1000 for head in heads if head.promised is not None])
    promised = lateness_of(heads)
    return {
        "head_delay_backfill_seconds": result.head_delay.get(BACKFILL, 0.0),
        "head_delay_loss_budget_seconds": result.head_delay.get(BUDGET, 0.0),
        "head_delay_early_end_seconds": result.head_delay.get(EARLY_END, 0.0),
        "heads": len(late),
        "heads_late_share": float((late > LATE / 1000).mean()) if len(late) else None,
        "heads_mean_lateness": _mean(late),
        "promises": {
            "made": promised.promised,
            "coverage": promised.coverage,
            "mean_lateness": promised.seconds / promised.promised if promised.promised else None,
            "mean_length": _mean(lengths),
            "median_length": _quantile(lengths, 50),
            "missed_by": dict(sorted(promised.causes.items())),
        },
        "modes": [{"at": at / 1000, "tree": tree, "mode": mode} for at, tree, mode in result.modes],
    }


def _recalled(result: ReplayResult) -> dict[str, Any]:
    """Runs that were stopped before a quota fell, and the GPU hours that they lost; nothing without any."""
    found = [(o.job.gpus, stint.lost) for o in result.outcomes for stint in o.stints if stint.evicted == RECALLED]
    lost = sum(gpus * lost for gpus, lost in found) / 3.6e6
    return {"recalled": {"stopped": len(found), "gpu_hours_lost": lost}} if found else {}


def _moved(result: ReplayResult) -> dict[str, Any]:
    """Runs that were moved to other nodes, the jobs that started in the room so made, and the GPU hours that the moves cost;
    nothing without any.
    """
    found = [(o.job, stint) for o in result.outcomes for stint in o.stints if stint.moved_for is not None]
    starts = {outcome.job.number: [stint.start for stint in outcome.stints] for outcome in result.outcomes}
    started = {
        stint.moved_for
        for _, stint in found
        if stint.moved_for is not None and any(start >= stint.end for start in starts.get(stint.moved_for, ()))
    }
    figures = {
        "moved": len(found),
        "jobs": len({job.number for job, _ in found}),
        "started": len(started),
        "gpu_hours_lost": sum(job.gpus * stint.lost for job, stint in found) / 3.6e6,
    }
    return {"moves": figures} if found else {}


def _starvation(result: ReplayResult, wait: Floats) -> dict[str, Any]:
    """Starvation: the longest wait, and the share of jobs that more than 100 later ones of their tenant passed."""
    passed = overtaken(result.outcomes)
    return {
        "max_wait": float(wait.max()) if len(wait) else None,
        "p999_wait": _quantile(wait, 99.9),
        "passed_by_100": float((passed > 100).mean()) if len(passed) else None,
        "longest_queue": max((sample.waiting for sample in result.samples), default=0),
    }


def overtaken(outcomes: Sequence[ReplayedOutcome]) -> NDArray[np.int64]:
    """A count for each started job: how many of the same tenant were submitted later and started before it."""
    found: list[int] = []
    by_tenant: dict[str, list[tuple[int, int]]] = {}
    for outcome in outcomes:
        if outcome.start is not None:
            by_tenant.setdefault(outcome.job.tenant, []).append((outcome.job.submit, outcome.start))
    for jobs in by_tenant.values():
        starts = np.array([start for _, start in sorted(jobs)], dtype=np.int64)
        found.extend(_smaller_after(starts))
    return np.array(found, dtype=np.int64)


def _smaller_after(values: NDArray[np.int64]) -> list[int]:
    """A count for each value: how many later ones are smaller, by a Fenwick tree over ranks."""
    ranks = np.unique(values, return_inverse=True)[1] + 1
    tree = [0] * (int(ranks.max(initial=0)) + 2)
    counts: list[int] = []
    for rank in reversed(ranks.tolist()):
        total, place = 0, rank - 1
        while place > 0:
            total += tree[place]
            place &= place - 1
        counts.append(total)
        place = rank
        while place < len(tree):
            tree[place] += 1
            place += place & -place
    return counts[::-1]


# --- fairness -----------------------------------------------------------------------------------------------------------


def fairness(result: ReplayResult) -> dict[str, Any]:
    """Jain's index of the service of tenants relative to their demand, over windows; and GPU hours and waits per tenant.

    Jain's index is (Σx)² / (n Σx²): 1 = all alike, 1/n = one has everything. x is GPU time received in a window as a share of
    GPU time wanted in it: received, or waited for.
    """
    tenants = sorted({outcome.job.tenant for outcome in result.outcomes})
    if len(tenants) < 2 or not result.samples:
        return {"tenants": len(tenants)}
    first, last = result.samples[0].at / 1000, max(o.job.submit for o in result.outcomes) / 1000
    found: dict[str, Any] = {"tenants": len(tenants)}
    for name, width in _WINDOWS.items():
        indices = _jain(result, tenants, first, last, width)
        found[f"jain_{name}"] = float(np.mean(indices)) if indices else None
        found[f"jain_{name}_min"] = float(np.min(indices)) if indices else None
    return found


def _jain(result: ReplayResult, tenants: Sequence[str], first: float, last: float, width: float) -> list[float]:
    bins = max(1, math.ceil((last - first) / width))
    row = {tenant: number for number, tenant in enumerate(tenants)}
    received, wanted = np.zeros((len(tenants), bins)), np.zeros((len(tenants), bins))
    for outcome in result.outcomes:
        if outcome.impossible or outcome.start is None:
            continue
        tenant, gpus = row[outcome.job.tenant], outcome.job.gpus
        for stint in outcome.stints:
            _pour(received[tenant], stint.start / 1000 - first, stint.end / 1000 - first, width, gpus)
        end = outcome.stints[-1].end
        _pour(wanted[tenant], outcome.job.submit / 1000 - first, end / 1000 - first, width, gpus)
    indices: list[float] = []
    for column in range(bins):
        asked = wanted[:, column] > 0
        share = received[asked, column] / wanted[asked, column]
        if asked.sum() > 1 and share.any():
            indices.append(float(share.sum() ** 2 / (len(share) * (share**2).sum())))
    return indices


def _pour(bins: Floats, start: float, end: float, width: float, amount: float) -> None:
    """Spread `amount` per second from start to end over the bins."""
    low, high = max(0.0, start), min(end, len(bins) * width)
    if high <= low:
        return
    a, b = int(low // width), min(len(bins) - 1, int(high // width))
    if a == b:
        bins[a] += amount * (high - low)
        return
    bins[a] += amount * ((a + 1) * width - low)
    bins[a + 1 : b] += amount * width
    bins[b] += amount * (high - b * width)
