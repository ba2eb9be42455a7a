"""Phases of trainings from their metrics (row G6, SpeCon, of placement-and-sharing §1 and §4.3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from gangline.api.phases import CONVERGED, PROGRESSING, WATCHING, PhasePolicy
from gangline.control.nodes.stall import phases, progress_reports
from gangline.control.nodes.stall.phases import Phase
from gangline.control.nodes.stall.progress_reports import BadReportError

MINUTE = 60_000


def phase_names(phase: Phase, *metrics: float, begin: int = 0) -> list[str]:
    """The phase after each report; they are a minute apart, as windows are long."""
    names: list[str] = []
    for number, metric in enumerate(metrics):
        phase.take((begin + number) * MINUTE, metric)
        names.append(phase.name)
    return names


def test_g6_windows_speak_for_progressing_watching_and_converged() -> None:
    """Growth .0083, .00083 and .00002 a second: 1, .1 and .002 of the first."""
    phase = Phase(PhasePolicy())
    kinds: list[str] = []
    growths: list[float] = []
    for minute, loss in enumerate((2.0, 1.5, 1.45, 1.449, 1.449)):
        phase.take(minute * MINUTE, loss)
        if minute >= 2:
            kinds.append(phase.kind_of(phase.share))
            growths.append(phase.share * (phase.first or 0))
    assert growths == pytest.approx([0.0083, 0.00083, 0.000017], rel=0.03)
    assert kinds == [PROGRESSING, WATCHING, CONVERGED]


def test_three_windows_in_a_row_without_growth_are_needed_to_converge() -> None:
    names = phase_names(Phase(PhasePolicy()), 2.0, 1.5, 1.45, 1.449, 1.4489, 1.4488, 1.4487)
    assert names == [PROGRESSING] * 3 + [WATCHING] * 3 + [CONVERGED]
    assert CONVERGED not in phase_names(Phase(PhasePolicy()), 2.0, 1.5, 1.4999, 1.4998, 1.46, 1.4599, 1.4598, 1.4)


def test_two_windows_that_grow_again_end_a_phase_and_one_does_not() -> None:
    """The learning rate drops, and the loss falls again."""
    phase = Phase(PhasePolicy())
    phase_names(phase, 2.0, 1.5, 1.4999, 1.4998, 1.4997, 1.4997)
    assert phase.name == CONVERGED
    assert phase_names(phase, 1.2, 1.2, 1.2, begin=6) == [CONVERGED] * 3, "one window"
    assert phase_names(phase, 1.0, 0.8, 0.6, 0.6, begin=9)[-1] == PROGRESSING


def test_who_reports_always_the_same_is_progressing() -> None:
    phase = Phase(PhasePolicy())
    assert set(phase_names(phase, *[1.0] * 20)) == {PROGRESSING}
    assert phase.first is None


def test_reports_of_a_window_count_by_their_mean_whatever_their_number() -> None:
    """Losses of single steps are noisy: their means fall from 2.0 to 1.5 and 1.45."""
    phase = Phase(PhasePolicy())
    for minute, mean in enumerate((2.0, 1.5, 1.45, 1.45)):
        for second in range(0, 60, 10):
            phase.take(minute * MINUTE + second * 1000, mean + (0.5 if second % 20 else -0.5))
    assert phase.first == pytest.approx(0.5 / 60)
    assert phase.share == pytest.approx(0.1)
    assert phase.name == WATCHING


def test_another_operator_goes_on_with_the_phase_and_the_first_growth() -> None:
    before = Phase(PhasePolicy())
    phase_names(before, 2.0, 1.5, 1.4999, 1.4998, 1.4997, 1.4997)
    after = Phase(PhasePolicy(), before.name, phases.first_growth(before.text))
    assert after.first == pytest.approx(before.first, rel=1e-4)
    assert set(phase_names(after, 1.4997, 1.4996, 1.4996, 1.4995)) == {CONVERGED}
    assert phases.first_growth("Previously: something else") is None


def test_after_a_return_to_a_checkpoint_the_jump_of_the_loss_is_no_growth() -> None:
    phase = Phase(PhasePolicy())
    phase_names(phase, 2.0, 1.5, 1.4999, 1.4998, 1.4997, 1.4997)
    phase.begin_anew()
    assert set(phase_names(phase, 1.8, 1.7999, 1.7999, 1.7998, begin=6)) == {CONVERGED}


@examples(200)
@given(st.lists(st.floats(-1e15, 1e15), max_size=30), st.lists(st.integers(1, 10**7), min_size=30, max_size=30))
def test_whatever_is_reported_there_is_a_phase_and_a_first_growth_that_is_found_again(
    metrics: list[float], steps: list[int]
) -> None:
    phase, at = Phase(PhasePolicy()), 0
    for metric, step in zip(metrics, steps, strict=False):
        at += step
        before = phase.name
        assert phase.take(at, metric) is (phase.name != before)
    if phase.first is not None:
        found = phases.first_growth(phase.text)
        assert found == pytest.approx(phase.first, rel=1e-4)


@pytest.mark.parametrize("wrong", [True, "1.4", float("nan"), float("inf"), 1e16, 10**400, [1]])
def test_a_metric_that_is_no_number_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(BadReportError, match="metric"):
        progress_reports.read({"step": 1, "metric": wrong}, 0)


def test_a_metric_is_read_from_reports_and_annotations() -> None:
    assert progress_reports.read({"metric": 3}, 0).metric == 3.0
    assert progress_reports.read_annotation("step=120 metric=1.45", 0).metric == 1.45
    assert progress_reports.read_annotation("metric=-2.5e-3", 0).metric == -0.0025
    for wrong in ("metric=nan", "metric=1" + "0" * 40, "metric=x"):
        with pytest.raises(BadReportError, match="metric"):
            progress_reports.read_annotation(wrong, 0)
