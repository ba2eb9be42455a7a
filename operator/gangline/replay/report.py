"""The report: one self-contained HTML file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, Final

import numpy as np

from gangline.replay.calibration import LEAST
from gangline.replay.replayed import ReplayedOutcome, ReplayResult
from gangline.replay.run import PolicyResult, Replay, shaken_lines

# --- plots in SVG for the report, as text, without a library or a network ---------------------------------------------


#: distinguishable for colour-blind readers too (Okabe and Ito), in this order
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#b8a400")

Points = Sequence[tuple[float, float]]
Words = Callable[[float], str]


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from values to positions. `log` treats values below `low` as `low`."""

    low: float
    high: float
    log: bool = False
    words: Words = lambda value: f"{value:g}"
    ticks: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        """0 at `low`, 1 at `high`."""
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0

    def marks(self) -> Sequence[float]:
        return self.ticks or _round_ticks(self.low, self.high)


def _round_ticks(low: float, high: float) -> list[float]:
    """Round numbers for the ticks of an axis, about five."""
    if high <= low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) <= 6)
    first = math.ceil(low / step)
    return [round(number * step, 10) for number in range(first, math.floor(high / step) + 1)]


class Plot:
    """One plot. Add marks, then take it as text."""

    LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 36

    def __init__(self, x: Axis, y: Axis, *, width: int = 760, height: int = 260, label: str = "") -> None:
        self._x, self._y = x, y
        self._width, self._height = width, height
        self._marks: list[str] = []
        self._label = label

    def at_x(self, value: float) -> float:
        return self.LEFT + self._x.share(value) * (self._width - self.LEFT - self.RIGHT)

    def at_y(self, value: float) -> float:
        return self._height - self.BOTTOM - self._y.share(value) * (self._height - self.TOP - self.BOTTOM)

    def line(self, points: Points, stroke: str, *, steps: bool = False, dashed: bool = False, title: str = "") -> None:
        if not points:
            return
        places = [(self.at_x(x), self.at_y(y)) for x, y in points]
        path = [f"M{places[0][0]:.1f},{places[0][1]:.1f}"]
        for x, y in places[1:]:
            path.append(f"H{x:.1f}V{y:.1f}" if steps else f"L{x:.1f},{y:.1f}")
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self._marks.append(
            f'<path d="{"".join(path)}" fill="none" stroke="{stroke}" stroke-width="1.6"{dash}>{_title(title)}</path>'
        )

    def box(self, x0: float, x1: float, y0: float, y1: float, fill: str, *, title: str = "", stroke: str = "") -> None:
        left, right = self.at_x(x0), self.at_x(x1)
        top, bottom = self.at_y(max(y0, y1)), self.at_y(min(y0, y1))
        edge = f' stroke="{stroke}" stroke-width="1.4"' if stroke else ""
        self._marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.6, right - left):.1f}" height="{max(0.6, bottom - top):.1f}" '
            f'fill="{fill}"{edge}>{_title(title)}</rect>'
        )

    def dot(self, x: float, y: float, fill: str, title: str = "") -> None:
        self._marks.append(
            f'<circle cx="{self.at_x(x):.1f}" cy="{self.at_y(y):.1f}" r="4" fill="{fill}">{_title(title)}</circle>'
        )

    def tick(self, x: float, y0: float, y1: float, stroke: str, title: str = "") -> None:
        """An upright stroke."""
        place, top, bottom = self.at_x(x), self.at_y(max(y0, y1)), self.at_y(min(y0, y1))
        self._marks.append(
            f'<path d="M{place:.1f},{top:.1f}V{bottom:.1f}" stroke="{stroke}" stroke-width="1.6">{_title(title)}</path>'
        )

    def text(self) -> str:
        frame = [*self._across(), *self._up()]
        label = f' role="img" aria-label="{escape(self._label)}"' if self._label else ""
        return (
            f'<svg viewBox="0 0 {self._width} {self._height}"{label} xmlns="http://www.w3.org/2000/svg">'
            f"{''.join(frame)}{''.join(self._marks)}</svg>"
        )

    def _across(self) -> Iterable[str]:
        top, bottom = self.TOP, self._height - self.BOTTOM
        for value in self._x.marks():
            place = self.at_x(value)
            yield f'<path class="grid" d="M{place:.1f},{top}V{bottom}"/>'
            yield f'<text x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(self._x.words(value))}</text>'

    def _up(self) -> Iterable[str]:
        for value in self._y.marks():
            place = self.at_y(value)
            yield f'<path class="grid" d="M{self.LEFT},{place:.1f}H{self._width - self.RIGHT}"/>'
            yield (
                f'<text x="{self.LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{escape(self._y.words(value))}</text>'
            )


def _title(text: str) -> str:
    return f"<title>{escape(text)}</title>" if text else ""


def legend(names: Sequence[tuple[str, str]]) -> str:
    """(name, colour) side by side."""
    items = (f'<span><i style="background:{fill}"></i>{escape(name)}</span>' for name, fill in names)
    return f'<p class="legend">{"".join(items)}</p>'


#: familiar spans, for logarithmic axes: (seconds, label)
SPANS: Final = (
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3600.0, "1 h"),
    (6 * 3600.0, "6 h"),
    (86400.0, "1 d"),
    (3 * 86400.0, "3 d"),
    (7 * 86400.0, "7 d"),
    (30 * 86400.0, "30 d"),
)


def span_axis(longest: float) -> Axis:
    """A logarithmic axis of spans from a second to at least `longest` seconds."""
    ticks = [seconds for seconds, _ in SPANS if seconds <= max(longest, 60.0)]
    words = dict(SPANS)
    return Axis(1.0, max(longest, 60.0), log=True, words=lambda value: words[value], ticks=tuple(ticks))


def thinned(points: Points, most: int) -> Points:
    """The points of a step function, thinned to about `most`: the last one of each stretch."""
    if len(points) <= most:
        return points
    step = len(points) / most
    return [points[min(len(points) - 1, int((number + 1) * step) - 1)] for number in range(most)]


_DAY: Final = 86_400_000
#: of the Gantt chart
_STRETCH: Final = 12 * 3_600_000
_ROWS: Final = 40
_TENANTS: Final = 12
_POINTS: Final = 800

_ORDINARY, _BACKFILLED, _EVICTED, _HEAD = "#9fb8cc", "#e6b566", "#d55e00", "#1b1b1b"

_STYLE: Final = """
:root{color-scheme:light dark;--fg:#1b1b1b;--bg:#fff;--dim:#667;--line:#8884}
@media(prefers-color-scheme:dark){:root{--fg:#e8e8e8;--bg:#16181b;--dim:#9aa}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1160px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .3rem}h3{font-size:1rem;margin:1.2rem 0 .2rem}
p.note{color:var(--dim);margin:.2rem 0 .6rem}svg{width:100%;height:auto;display:block}
svg text{font-size:11px;fill:var(--dim)}svg .grid{stroke:var(--line);stroke-width:1;fill:none}
div.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:.2rem .55rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}th{color:var(--dim);font-weight:600}
.legend span{margin-right:1rem;white-space:nowrap}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
"""


def html(done: Replay, name: str) -> str:
    """The whole page."""
    sections = [
        _head(done, name),
        _conclusion(done),
        _table(done.stories),
        _delays(done.stories),
        _use(done.stories),
        _windows(done),
        _gantt(done.stories),
        _fairness(done.stories),
        _calibration(done.forecast),
        _notes(done),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Replay of {escape(name)}</title><style>{_STYLE}</style>{''.join(sections)}</html>\n"
    )


def _head(done: Replay, name: str) -> str:
    plan = done.plan
    shape = f" in nodes of {plan.cluster.per_node}" if plan.cluster.per_node else ", a flat pool"
    jobs = done.stories[0].measures["jobs"] if done.stories else 0
    saved = "never" if plan.checkpoint is None else f"every {_span(plan.checkpoint)}"
    return (
        f"<h1>Replay of {escape(name)}</h1><p>{jobs:,} jobs submitted from {_date(plan.first * 1000)} to "
        f"{_date(plan.last * 1000)} on {plan.cluster.gpus:,} GPUs{shape}. Jobs save their work {saved}; "
        f"a restart costs {_span(plan.restart)}. Requested time where none is known: {_span(done.limit)}.</p>"
    )


def _conclusion(done: Replay) -> str:
    items = "".join(f"<li>{escape(each)}</li>" for each in done.conclusion())
    return f"<h2>Conclusion</h2><ul>{items}</ul>" if items else ""


# --- numbers ------------------------------------------------------------------------------------------------------------


#: columns about heads
_HEADS: Final = ("head delay", "budget", "early ends")
#: columns about what heads were promised
_PROMISED: Final = ("policy", "heads", "after plan", "by", "promised", "kept", "late by", "ahead", "missed by")


def _table(stories: Sequence[PolicyResult]) -> str:
    waits = ("mean", "p50", "p90", "p99", "max", ">8 GPUs", "≤8 GPUs")
    columns = ("policy", *waits, "slowdown", "allocated")
    losses = ("policy", "evicted", "lost", *_HEADS, "unfinished", "impossible")
    rows: list[Sequence[str]] = []
    lost: list[Sequence[str]] = []
    promised: list[Sequence[str]] = []
    for story in stories:
        m = story.measures
        slowdown = m["bounded_slowdown"]
        rows.append(
            (
                story.policy,
                *(_span(m["wait"][key]) for key in ("mean", "p50", "p90", "p99", "max")),
                _span(m["wait_gt8"]["mean"]),
                _span(m["wait_le8"]["mean"]),
                "–" if slowdown is None else f"{slowdown:.1f}",
                f"{m['utilisation']:.1%}",
            )
        )
        lost.append(
            (
                story.policy,
                f"{m['evictions']:,}",
                f"{m['gpu_hours_lost_share']:.2%}",
                _span(m["head_delay_backfill_seconds"]),
                _span(m["head_delay_loss_budget_seconds"]),
                _span(m["head_delay_early_end_seconds"]),
                f"{m['unfinished']:,}",
                f"{m['impossible']:,}",
            )
        )
        promises = m["promises"]
        promised.append(
            (
                story.policy,
                f"{m['heads']:,}",
                _percent(m["heads_late_share"]),
                _span(m["heads_mean_lateness"]),
                f"{promises['made']:,}",
                _percent(promises["coverage"]),
                _span(promises["mean_lateness"]),
                _span(promises["mean_length"]),
                ", ".join(f"{cause} {count:,}" for cause, count in promises["missed_by"].items()) or "–",
            )
        )
    note = (
        "Queue delay: completion time minus duration. Allocated: of all GPUs while jobs waited. Head delay: for how long "
        "reserved heads could have started but for backfilled jobs that overran (with revoke: Any, for any); budget: the same, "
        "where the loss budget spared them; early ends: for backfilled jobs within their time. Unfinished: never ended; "
        "impossible: larger than the cluster."
    )
    about = (
        "Heads: jobs for which a start was planned and others were held back; how many started more than a minute after the "
        "first plan, and by how much all did on average. Promised: to how many of these a start was promised; how many of the "
        "promises were kept within a minute, by how much all were late on average, how far ahead they lay, and what missed ones "
        "were missed by."
    )
    policies = f'<h2>Policies</h2><p class="note">{note}</p>{_html_table(columns, rows)}{_html_table(losses, lost)}'
    section = f'<h2>Promises</h2><p class="note">{about}</p>{_html_table(_PROMISED, promised)}'
    return policies + (section if any(story.measures["heads"] for story in stories) else "")


def _html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


# --- queue delay --------------------------------------------------------------------------------------------------------


def _delays(stories: Sequence[PolicyResult]) -> str:
    parts = ['<h2>Queue delay</h2><p class="note">Share of jobs that waited longer.</p>', _names(stories)]
    for title, least, most in (("All jobs", 0, 10**9), ("Jobs on more than 8 GPUs", 9, 10**9)):
        waits = [_waits(story.result, least, most) for story in stories]
        longest = max((float(wait[-1]) for wait in waits if len(wait)), default=0.0)
        if not any(len(wait) for wait in waits):
            continue
        plot = Plot(
            span_axis(longest), Axis(0, 1, words=lambda value: f"{value:.0%}"), label=f"Queue delay, {title.lower()}"
        )
        for number, (story, wait) in enumerate(zip(stories, waits, strict=True)):
            beyond = 1 - (np.arange(len(wait)) + 1) / max(1, len(wait))
            points = thinned(list(zip(wait.tolist(), beyond.tolist(), strict=True)), _POINTS)
            plot.line(points, colour(number), steps=True, title=story.policy)
        parts.append(f"<h3>{title}</h3>{plot.text()}")
    return "".join(parts)


def _waits(result: ReplayResult, least: int, most: int) -> np.ndarray:
    waits = [o.wait / 1000 for o in result.outcomes if o.wait is not None and least <= o.job.gpus <= most]
    return np.sort(np.array(waits))


def _names(stories: Sequence[PolicyResult]) -> str:
    return legend([(story.policy, colour(number)) for number, story in enumerate(stories)])


# --- use over time ------------------------------------------------------------------------------------------------------


def _use(stories: Sequence[PolicyResult]) -> str:
    last = max((outcome.job.submit for story in stories for outcome in story.result.outcomes), default=0)
    first = min((outcome.job.submit for story in stories for outcome in story.result.outcomes), default=0)
    x = Axis(first, last, words=_day, ticks=_days(first, last))
    parts = ["<h2>Utilisation over time</h2>", _names(stories)]
    for title, of in (("Allocated GPUs", "allocated"), ("GPUs that waiting jobs ask for", "waiting_gpus")):
        series = [[(s.at, float(getattr(s, of))) for s in story.result.samples if s.at <= last] for story in stories]
        high = max((y for points in series for _, y in points), default=1.0) or 1.0
        plot = Plot(x, Axis(0, high), height=200, label=title)
        for number, points in enumerate(series):
            plot.line(_averaged(points, first, last), colour(number), steps=True, title=stories[number].policy)
        parts.append(f"<h3>{title}</h3>{plot.text()}")
    return "".join(parts)


def _averaged(points: Sequence[tuple[float, float]], first: float, last: float) -> list[tuple[float, float]]:
    """A step function as its means over 240 equal stretches."""
    if len(points) < 2 or last <= first:
        return list(points)
    at = np.array([x for x, _ in points])
    value = np.array([y for _, y in points])
    total = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(at))])
    edges = np.linspace(first, last, 241)
    means = np.diff(np.interp(edges, at, total)) / np.diff(edges)
    return list(zip(edges[:-1].tolist(), means.tolist(), strict=True))


def _days(first: float, last: float) -> tuple[float, ...]:
    days = int((last - first) // _DAY) + 1
    step = next((step for step in (1, 2, 5, 7, 14, 30) if days / step <= 8), 60) * _DAY
    start = -(-first // _DAY) * _DAY
    return tuple(np.arange(start, last, step).tolist()) or (first,)


# --- windows of Reservations ---------------------------------------------------------------------------------------------


def _windows(done: Replay) -> str:
    """What windows cost, and how many GPUs were busy in the hours before them; nothing where none were played."""
    stories = [story for story in done.stories if "windows" in story.measures]
    if not stories:
        return ""
    before = {story.policy: story.measures["windows"]["busy_by_hour_before"] for story in stories}
    hours = len(next(iter(before.values())))
    high = max((busy for row in before.values() for busy in row), default=0.0) or 1.0
    plot = Plot(
        Axis(-hours, 0, words=lambda hour: f"{hour:.0f} h", ticks=tuple(range(-hours, 1, 4))),
        Axis(0, high),
        height=200,
        label="GPUs busy in the hours before windows",
    )
    for number, (policy, row) in enumerate(before.items()):
        points = [(-hours + place, busy) for place, busy in enumerate(reversed(row))]
        plot.line([*points, (0.0, row[0])], colour(number), steps=True, title=policy)
    columns = ("policy", "windows", "stopped", "GPU hours lost", "GPU hours of others inside", "busy inside")
    rows = [
        (
            story.policy,
            str(found["count"]),
            str(found["stopped"]),
            f"{found['gpu_hours_lost']:,.1f}",
            f"{found['gpu_hours_of_others_inside']:,.1f}",
            f"{sum(each['busy_inside'] for each in found['each']) / len(found['each']):,.0f}",
        )
        for story in stories
        for found in [story.measures["windows"]]
    ]
    costs = [
        (
            each.policy,
            _percent(each.use_in_the_day_before),
            _percent(each.use_while_any_fits),
            _percent(each.lost_share_of_drain),
        )
        for each in done.window_costs()
    ]
    note = (
        "Policies whose name ends in -without had no windows: what they have inside is what windows take away. Those in -drain "
        "knew of no window before it stopped jobs. GPUs busy: means over all windows. Use: before windows, as a share of the use "
        "without them, in the whole day and until no waiting job would have ended in time."
    )
    head = ("policy", "use in the day before", "use while any job fits", "lost, of what a drain loses")
    return (
        f'<h2>Windows</h2><p class="note">{note}</p>{_html_table(columns, rows)}{_html_table(head, costs)}'
        f"<h3>GPUs busy before a window</h3>{_names(stories)}{plot.text()}"
    )


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


# --- Gantt --------------------------------------------------------------------------------------------------------------


def _gantt(stories: Sequence[PolicyResult]) -> str:
    drawn = [story for story in stories if story.result.cluster.per_node]
    if not drawn:
        return ""
    start = _busiest(drawn)
    rows = min(_ROWS, drawn[0].result.cluster.nodes)
    parts = [
        f'<h2>Nodes</h2><p class="note">The first {rows} nodes around the time at which most was waiting. '
        "The reserved head's box is outlined; the stroke before or in it is the start that it was promised first.</p>",
        legend(
            [("in turn", _ORDINARY), ("backfilled", _BACKFILLED), ("evicted later", _EVICTED), ("reserved head", _HEAD)]
        ),
    ]
    for story in drawn:
        parts.append(f"<h3>{escape(story.policy)}</h3>{_nodes(story.result, start, rows)}")
    return "".join(parts)


def _busiest(stories: Sequence[PolicyResult]) -> int:
    """The most interesting stretch: centred on the moment with the longest queue under the last policy."""
    samples = stories[-1].result.samples
    peak = max(samples, key=lambda sample: sample.waiting_gpus, default=None)
    return (peak.at if peak else 0) - _STRETCH // 2


def _nodes(result: ReplayResult, start: int, rows: int) -> str:
    end, per_node = start + _STRETCH, result.cluster.per_node
    hours = tuple(start + hour * 3_600_000 for hour in range(0, 13, 2))
    x = Axis(start, end, words=lambda at: datetime.fromtimestamp(at / 1000, UTC).strftime("%d %H:%M"), ticks=hours)
    plot = Plot(
        x,
        Axis(0, rows, words=lambda row: f"node {row:.0f}"),
        height=60 + 9 * rows,
        label="Which jobs ran on which nodes",
    )
    filled = _Lanes(per_node)
    heads = result.heads
    spans = sorted(
        ((stint, outcome) for outcome in result.outcomes for stint in outcome.stints),
        key=lambda pair: pair[0].start,
    )
    for stint, outcome in spans:
        places = [(node, gpus) for node, gpus in stint.places if node < rows]
        lanes = {node: filled.take(node, gpus, stint.start, stint.end) for node, gpus in places}
        if stint.end <= start or stint.start >= end:
            continue
        fill = _EVICTED if stint.lost else _BACKFILLED if stint.backfilled else _ORDINARY
        head = heads.get(outcome.job.number) if stint.start == outcome.start else None
        for node, gpus in places:
            lane = lanes[node]
            bottom, top = node + lane / per_node, node + (lane + gpus) / per_node
            edge = _HEAD if head is not None else ""
            plot.box(stint.start, stint.end, bottom, top, fill, title=_words(outcome), stroke=edge)
            if head is not None and head.promised is not None and start <= head.promised <= end:
                plot.tick(head.promised, bottom, top, _HEAD, f"promised to {outcome.job.id}")
    return plot.text()


class _Lanes:
    """The GPUs of a node on which a job is drawn: the lowest free ones. The real ones are unknown."""

    def __init__(self, per_node: int) -> None:
        self._per_node = per_node
        self._free_at: dict[int, list[float]] = {}

    def take(self, node: int, gpus: int, start: float, end: float) -> int:
        free_at = self._free_at.setdefault(node, [0.0] * self._per_node)
        for lane in range(self._per_node - gpus + 1):
            if all(at <= start for at in free_at[lane : lane + gpus]):
                break
        else:
            lane = 0
        free_at[lane : lane + gpus] = [end] * gpus
        return lane


def _words(outcome: ReplayedOutcome) -> str:
    job = outcome.job
    wait = "" if outcome.wait is None else f", waited {_span(outcome.wait / 1000)}"
    owner = f" of {job.tenant}" if job.tenant else ""
    return f"{job.id}{owner}: {job.gpus} GPUs for {_span(job.duration / 1000)}{wait}"


# --- fairness -----------------------------------------------------------------------------------------------------------


def _fairness(stories: Sequence[PolicyResult]) -> str:
    tenants = _largest_tenants(stories[0].result) if stories else []
    if len(tenants) < 2:
        return ""
    waits = {story.policy: story.measures["wait_by_tenant"] for story in stories}
    longest = max((waits[s.policy].get(t, {}).get("mean") or 0.0 for s in stories for t in tenants), default=1.0)
    width = len(stories) + 1
    plot = Plot(
        Axis(
            0,
            len(tenants) * width,
            words=lambda at: tenants[int(at // width)][:10],
            ticks=tuple(number * width + width / 2 for number in range(len(tenants))),
        ),
        Axis(0, longest or 1.0, words=_span),
        label="Mean queue delay of each tenant",
    )
    for number, tenant in enumerate(tenants):
        for place, story in enumerate(stories):
            mean = waits[story.policy].get(tenant, {}).get("mean") or 0.0
            left = number * width + 0.5 + place
            plot.box(left, left + 0.9, 0, mean, colour(place), title=f"{tenant}, {story.policy}: {_span(mean)}")
    columns = ("policy", "Jain, 1 h", "6 h", "24 h", "worst 24 h")
    keys = ("jain_1h", "jain_6h", "jain_24h", "jain_24h_min")
    rows = [(story.policy, *(_share(story.measures["fairness"].get(key)) for key in keys)) for story in stories]
    note = (
        "Mean queue delay of the tenants that asked for most GPU time. "
        "Jain's index of GPU time received over GPU time wanted: 1 is even."
    )
    return f'<h2>Fairness</h2><p class="note">{note}</p>{_names(stories)}{plot.text()}{_html_table(columns, rows)}'


def _largest_tenants(result: ReplayResult) -> list[str]:
    asked: dict[str, int] = {}
    for outcome in result.outcomes:
        asked[outcome.job.tenant] = asked.get(outcome.job.tenant, 0) + outcome.job.gpus * outcome.job.duration
    return sorted((t for t in asked if t), key=lambda tenant: -asked[tenant])[:_TENANTS]


# --- forecasts ----------------------------------------------------------------------------------------------------------


def _calibration(forecast: dict[str, Any]) -> str:
    if not forecast:
        return ""
    share = Axis(0, 1, words=lambda value: f"{value:.0%}")
    plot = Plot(share, share, width=420, height=320, label="Forecast calibration")
    plot.line([(0, 0), (1, 1)], "#888888", dashed=True)
    for number, (size, scores) in enumerate({"all": forecast, **forecast["by_size"]}.items()):
        points = [(int(name[1:]) / 100, covered) for name, covered in scores["coverage"].items()]
        plot.line(points, colour(number), title=size)
        for x, y in points:
            plot.dot(x, y, colour(number), f"{size}: q{x * 100:.0f} covers {y:.1%}")
    names = legend(
        [
            (f"{size} GPUs" if size != "all" else "all jobs", colour(n))
            for n, size in enumerate(["all", *forecast["by_size"]])
        ]
    )
    tenants = {f"tenant {name}": scores for name, scores in forecast.get("by_tenant", {}).items()}
    columns = ("jobs", "runs", "q50", "q90", "log error", "last-two's", "Spearman", "within 2x")
    rows = [
        (
            size,
            f"{s['jobs']:,}",
            _share(s["coverage"]["q50"]),
            _share(s["coverage"]["q90"]),
            _share(s["mean_abs_log_error"]),
            _share(s["last_two_mean_abs_log_error"]),
            _share(s["spearman"]),
            f"{s['within_two']:.1%}",
        )
        for size, s in {"all": forecast, **forecast["by_size"], **tenants}.items()
    ]
    note = (
        "How many runs took no longer than each quantile said at their submission; on the diagonal is honest. By size, and by "
        f"tenant with at least {LEAST} runs."
    )
    return f'<h2>Forecasts</h2><p class="note">{note}</p>{names}{plot.text()}{_html_table(columns, rows)}'


def _notes(done: Replay) -> str:
    shaken = [f"{name}, {text}" for name, text in shaken_lines(done).items()]
    return "".join(f'<p class="note">{escape(note)}</p>' for note in [*shaken, *done.notes])


# --- words --------------------------------------------------------------------------------------------------------------


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _span(seconds: float | None) -> str:
    """A span in at most two units."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    if seconds < 86400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} d"


def _date(millis: float) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M")


def _day(millis: float) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).strftime("%d %b")
