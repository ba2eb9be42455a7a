"""The report that `gangline admin replay` prints: a row per policy, and what the numbers mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.console.output import presenting
from gangline.console.output.layout import Rows, wrapped
from gangline.kube.resources import Json
from gangline.replay import savings
from gangline.replay.run import Replay, shaken_lines

#: columns of the report, the last ones of which a narrow terminal leaves out first
_DISPENSABLE: Final = (
    "OPEN", "LOST", "EVICTED", "SLOWDOWN", "P90", "HEAD DELAY", "LATE", "MAX", "P99", "BUDGET", "EARLY END", "<=8", ">8 GPUS"
)  # fmt: skip


def lines(done: Replay, width: int | None = None) -> list[str]:
    """The printed report, for a terminal of `width` columns (None: of any width): one row per policy."""
    measures = {story.policy: story.measures for story in done.stories}
    texts = [
        "Waits in seconds. HEAD DELAY: time that backfilled jobs which overran delayed reserved heads; BUDGET: where the loss "
        "budget spared them; EARLY END: that backfilled jobs within their time did. LATE: heads that started more than a minute "
        "after the first promise. OPEN: jobs that never ended, + jobs larger than the cluster.",
        *(f"{name}: {text}" for name, text in shaken_lines(done).items()),
        *savings.lines(done.savings, done.base),
        *_forecasts(done.forecast),
        *(f"· {note}" for note in done.notes),
    ]
    return [*presenting.styled(table(measures), width), *(part for text in texts for part in wrapped(text, width))]


def table(found: Mapping[str, Json]) -> Rows:
    """One row per policy, of its measures."""
    waits = ("WAIT", "P90", "P99", "MAX", ">8 GPUS", "<=8")
    heads = ("HEAD DELAY", "BUDGET", "EARLY END", "LATE")
    header = ("POLICY", *waits, "SLOWDOWN", "USE", "EVICTED", "LOST", *heads, "OPEN", "SECONDS")
    rows: list[tuple[str, ...]] = []
    for policy, m in found.items():
        wait = m["wait"]
        rows.append(
            (
                policy,
                *(_seconds(wait[name]) for name in ("mean", "p90", "p99", "max")),
                _seconds(m["wait_gt8"]["mean"]),
                _seconds(m["wait_le8"]["mean"]),
                "–" if m["bounded_slowdown"] is None else f"{m['bounded_slowdown']:.2f}",
                f"{m['utilisation']:.1%}",
                str(m["evictions"]),
                f"{m['gpu_hours_lost_share']:.2%}",
                _seconds(m["head_delay_backfill_seconds"]),
                _seconds(m["head_delay_loss_budget_seconds"]),
                _seconds(m["head_delay_early_end_seconds"]),
                "–" if m["heads_late_share"] is None else f"{m['heads_late_share']:.1%}",
                f"{m['unfinished']}+{m['impossible']}" if m["unfinished"] or m["impossible"] else "0",
                f"{m['replay_seconds']:.1f}",
            )
        )
    ranks = {name: rank for rank, name in enumerate(_DISPENSABLE, 1)}
    return Rows(header, tuple(rows), right=frozenset(header[1:]), ranks=ranks)


def _forecasts(scores: Json) -> list[str]:
    if not scores:
        return []
    cover = ", ".join(f"{name} {share:.3f}" for name, share in scores["coverage"].items())
    gain = scores["gain_over_last_two"]
    better = "" if gain is None or gain >= 1 else f", last-two's is {1 / (1 - gain) - 1:.0%} higher"
    found = [f"Forecasts: coverage {cover}; log error {scores['mean_abs_log_error']:.3f}{better}"]
    if least := scores.get("least_covered"):
        found.append(f"Least covered group: {least['group']}, q90 {least['q90']:.3f} of {least['jobs']:,} jobs")
    return found


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
