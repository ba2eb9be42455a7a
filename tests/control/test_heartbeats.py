"""Reports of running jobs: how they are read, when a run comes further, and how long it still takes by its own pace."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.control.nodes.stall.progress_reports import BadReportError, Beat, Progress, read, read_annotation

SECOND = 1000


def steps(*said: tuple[int, int], total: int | None = None, pod: str = "p") -> Progress:
    """(seconds, step) pairs."""
    first, *others = [Beat(at * SECOND, step, total, pod=pod) for at, step in said]
    progress = Progress.begin(first)
    for beat in others:
        progress.take(beat)
    return progress


# --- reading ----------------------------------------------------------------------------------------------------------


def test_what_the_client_posts_is_read() -> None:
    assert read({"step": 3, "total": 9, "phase": "evaluation", "pod": "p-0", "metric": 0.1}, 7) == Beat(
        7, 3, 9, "evaluation", "p-0", metric=0.1
    )
    assert read({}, 7) == Beat(7), "a bare sign of life"


@pytest.mark.parametrize(
    ("text", "beat"),
    [
        ("step=120 total=5000", Beat(7, 120, 5000)),
        ("step=120,phase=checkpoint", Beat(7, 120, phase="checkpoint")),
        ('{"step": 4}', Beat(7, 4)),
        ("2026-01-01T00:00:00Z", Beat(7)),
    ],
)
def test_annotations_are_read(text: str, beat: Beat) -> None:
    assert read_annotation(text, 7) == beat


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ([], "object"),
        ({"step": "x"}, "step"),
        ({"step": True}, "step"),
        ({"total": -1}, "total"),
        ({"step": 1.5}, "step"),
        ({"phase": 3}, "phase"),
        ({"pod": "x" * 300}, "pod"),
    ],
)
def test_what_makes_no_sense_is_named(body: Any, field: str) -> None:
    with pytest.raises(BadReportError, match=field):
        read(body, 0)
    with pytest.raises(BadReportError, match="step"):
        read_annotation("step=-3", 0)
    with pytest.raises(BadReportError, match="JSON"):
        read_annotation("{", 0)


# --- coming further ---------------------------------------------------------------------------------------------------


def test_the_same_step_again_is_no_progress() -> None:
    progress = steps((0, 1), (10, 2), (20, 2), (500, 2))
    assert progress.silence(500 * SECOND) == 490 * SECOND


def test_without_steps_every_report_counts() -> None:
    progress = Progress.begin(Beat(0))
    progress.take(Beat(50 * SECOND))
    assert progress.silence(60 * SECOND) == 10 * SECOND


def test_a_phase_without_steps_counts_while_it_is_reported() -> None:
    progress = steps((0, 1), (10, 2))
    for at in range(20, 500, 10):
        progress.take(Beat(at * SECOND, phase="evaluation"))
    assert progress.silence(500 * SECOND) == 10 * SECOND
    progress.take(Beat(500 * SECOND, 2))
    assert progress.silence(510 * SECOND) <= 20 * SECOND, "what was done in between was no silence"


def test_a_slower_pod_neither_holds_up_nor_moves_the_gang() -> None:
    progress = steps((0, 10), (10, 20), pod="fast")
    progress.take(Beat(11 * SECOND, 15, pod="slow"))
    progress.take(Beat(90 * SECOND, 18, pod="slow"))
    assert progress.step == 20
    assert progress.silence(90 * SECOND) == 80 * SECOND


def test_a_run_that_starts_again_from_a_checkpoint_makes_progress() -> None:
    progress = steps((0, 100), (10, 200), (400, 150))
    assert progress.step == 150
    assert progress.silence(400 * SECOND) == 0


# --- how long it still takes ------------------------------------------------------------------------------------------


def test_the_pace_gives_the_whole_runtime() -> None:
    progress = steps(*((100 + at, at // 2) for at in range(0, 101, 10)), total=500)
    forecast = progress.forecast("team/a", 0)
    assert forecast is not None
    assert (forecast.source, forecast.samples) == ("Progress", 10)
    points = dict(forecast.quantiles)
    assert points[0.5] == (200 + 450 * 2) * SECOND, "so far, and two seconds for each step that is left"
    assert points[0.1] < points[0.5] < points[0.9] <= 1.2 * points[0.5]
    assert progress.median_step == 2 * SECOND


def test_an_uneven_pace_is_less_certain() -> None:
    even = steps(*((at, at) for at in range(0, 101, 10)), total=1000).forecast("w", 0)
    uneven = steps(*((at + (5 if at % 20 else 0), at) for at in range(0, 101, 10)), total=1000).forecast("w", 0)
    assert even is not None
    assert uneven is not None
    spread = [dict(f.quantiles)[0.9] - dict(f.quantiles)[0.1] for f in (even, uneven)]
    assert spread[1] > 1.5 * spread[0]


@pytest.mark.parametrize("total", [None, 3])
def test_no_estimate_without_a_total_that_makes_sense(total: int | None) -> None:
    assert steps(*((at, at) for at in range(10)), total=total).forecast("w", 0) is None


def test_no_estimate_from_the_first_reports() -> None:
    assert steps((0, 1), (1, 2), (2, 3), total=100).forecast("w", 0) is None


@pytest.mark.parametrize(
    "text",
    [
        "step=" + "9" * 4000,
        "step=" + "9" * 5000,
        "step=" + "9" * 200_000,
        '{"step": ' + "9" * 4000 + "}",
        '{"a":' * 500 + "1" + "}" * 500,
        "{" * 4000,
        "[" * 200_000,
        "step=\u0663",
    ],
    ids=lambda text: f"{text[:8]}…{len(text)}",
)
def test_annotations_of_any_length_and_depth_are_refused_in_words(text: str) -> None:
    try:
        read_annotation(text, 0)
    except BadReportError as error:
        assert len(str(error)) < 300
