"""The report of `gangline admin forecast eval`: how near forecasts came, by estimate, quantile and group of jobs."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline.console.output import presenting
from gangline.console.output.layout import Rows, wrapped
from gangline.forecast.evaluate import Report, Scores


def lines(report: Report, width: int | None = None) -> list[str]:
    """The report, for a terminal of `width` columns; None: of any width."""
    window = report.window
    sources = ", ".join(f"{name} {count}" for name, count in report.sources.items())
    often = f", retrained {report.models - 1} times" if report.models > 1 else ""
    head = [
        f"trained on {report.trained_on} runs known at {to_minute(window.train_until)}{often}; "
        f"tested on {report.overall.forecast.runs} runs submitted from {to_minute(window.first)} to {to_minute(window.last)}",
        f"sources: {sources}",
        f"at the end: {report.verdict.reason}",
    ]
    tables = {
        "Point estimates (errors of natural logarithms; the forecast's is q50)": _points(report.overall),
        "Quantiles": _quantiles(report.overall),
        "By size and queue": _groups({**report.by_size, **report.by_queue}),
    }
    found = [part for text in head for part in wrapped(text, width)]
    for title, rows in tables.items():
        found += ["", *wrapped(title, width), *presenting.styled(rows, width)]
    return found


def _points(scores: Scores) -> Rows:
    header = ("ESTIMATE", "RUNS", "LOG ERROR", "SPEARMAN", "WITHIN 2x", "TOO SHORT", "FORECAST BETTER BY")
    cells: list[tuple[str, ...]] = []
    for name, score in scores.points.items():
        if score is None:
            cells.append((name, "0", *("–",) * 5))
            continue
        gain = scores.gains.get(name)
        better = "" if gain is None else f"{gain:+.1%}"
        numbers = (f"{score.error:.3f}", f"{score.spearman:.3f}", f"{score.within_two:.1%}", f"{score.under:.1%}")
        cells.append((name, str(score.runs), *numbers, better))
    ranks = {"SPEARMAN": 3, "TOO SHORT": 2, "RUNS": 1}
    return Rows(header, tuple(cells), right=frozenset(header[1:]), ranks=ranks)


def _quantiles(scores: Scores) -> Rows:
    score = scores.forecast
    cells = tuple((name, f"{score.coverage[name]:.3f}", f"{score.pinball[name]:.4f}") for name in score.coverage)
    return Rows(("QUANTILE", "COVERAGE", "PINBALL"), cells, right=frozenset({"COVERAGE", "PINBALL"}))


def _groups(groups: dict[str, Scores]) -> Rows:
    header = (
        "GROUP", "RUNS", "COVERAGE q50", "q80", "q90", "q95", "PINBALL q90", "LOG ERROR", "LAST-TWO", "CLASS MEDIAN", "SPEARMAN"
    )  # fmt: skip
    cells: list[tuple[str, ...]] = []
    for name, scores in groups.items():
        of, points = scores.forecast, scores.points
        errors = (
            f"{p.error:.3f}" if (p := points[which]) else "–" for which in ("forecast", "last-two", "class-median")
        )
        rank = f"{p.spearman:.3f}" if (p := points["forecast"]) else "–"
        coverage = (f"{of.coverage[q]:.3f}" for q in ("q50", "q80", "q90", "q95"))
        cells.append((name, str(of.runs), *coverage, f"{of.pinball['q90']:.4f}", *errors, rank))
    ranks = {"CLASS MEDIAN": 5, "LAST-TWO": 4, "q80": 3, "PINBALL q90": 2, "q95": 1}
    return Rows(header, tuple(cells), right=frozenset(header[1:]), ranks=ranks, least={"GROUP": 20})


def to_minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
