"""Pairs that are learned from progress reports as neighbours come and go."""

from __future__ import annotations

import pytest

from gangline.control.nodes.company.pair_watch import (
    LONGEST_SILENCE,
    MOST_SAMPLES,
    PairWatch,
    Sample,
    Seat,
    with_sample,
)
from gangline.engine.model import CompanySpeed

A, B, C = (Seat("card", "V100", "MPS", kind) for kind in "abc")
OTHER_CARD = Seat("other", "V100", "MPS", "b")


class Clock:
    """Reports every ten seconds, at a rate."""

    def __init__(self) -> None:
        self.watch, self.now, self.steps = PairWatch(), 0, {"wa": 0.0, "wb": 0.0}

    def run(self, seconds: int, **rates: float) -> None:
        for _ in range(seconds // 10):
            self.now += 10_000
            for key, rate in rates.items():
                self.steps[key] += 10 * rate
                self.watch.reported(key, self.now, round(self.steps[key]))


def test_the_rate_before_a_neighbour_came_is_compared_with_the_rate_beside_it() -> None:
    clock = Clock()
    assert clock.watch.seated({"wa": [A]}) == []
    clock.run(120, wa=10)
    assert clock.watch.seated({"wa": [A], "wb": [B]}) == [], "nothing is known of the time beside it yet"
    clock.run(120, wa=8, wb=2)
    (sample,) = clock.watch.seated({"wa": [A]})
    assert sample == Sample("a", "b", "V100", "MPS", pytest.approx(0.8))


def test_the_rate_after_a_neighbour_left_will_do_too() -> None:
    clock = Clock()
    clock.watch.seated({"wa": [A], "wb": [B]})
    clock.run(120, wa=8, wb=2)
    assert clock.watch.seated({"wb": [B]}) == [], "of the run that left nothing is known alone"
    clock.run(120, wb=4)
    (sample,) = clock.watch.seated({})
    assert sample == Sample("b", "a", "V100", "MPS", pytest.approx(0.5))


def test_each_run_tells_once_of_a_pair() -> None:
    clock, found = Clock(), []
    for _ in range(3):
        clock.watch.seated({"wa": [A]})
        clock.run(120, wa=10)
        clock.watch.seated({"wa": [A], "wb": [B]})
        clock.run(120, wa=5)
        found += clock.watch.seated({"wa": [A]})
    assert len(found) == 1


@pytest.mark.parametrize(
    "company",
    [[B, C], [Seat("card", "V100", "MPS", "")], [OTHER_CARD], [Seat("card", "", "", "b"), Seat("x", "", "", "b")]],
)
def test_only_one_neighbour_of_a_known_class_is_a_pair(company: list[Seat]) -> None:
    clock = Clock()
    clock.watch.seated({"wa": [A]})
    clock.run(120, wa=10)
    clock.watch.seated({"wa": [A], **{f"w{number}": [seat] for number, seat in enumerate(company)}})
    clock.run(120, wa=5)
    found = clock.watch.seated({"wa": [A]})
    assert [each.beside for each in found] == (["b"] if len(company) == 2 and company[1].card == "x" else [])


def test_short_stretches_silence_and_restarts_are_no_measurements() -> None:
    clock = Clock()
    clock.watch.seated({"wa": [A]})
    clock.run(50, wa=10)
    clock.watch.seated({"wa": [A], "wb": [B]})
    clock.run(120, wa=5)
    assert clock.watch.seated({"wa": [A]}) == [], "50 s alone are too short"
    clock.run(20, wa=10)
    clock.now += LONGEST_SILENCE + 1
    clock.run(20, wa=10)
    assert clock.watch.seated({}) == [], "so are two times 20 s with silence between them"
    clock = Clock()
    clock.watch.seated({"wa": [A]})
    clock.run(50, wa=10)
    clock.steps["wa"] = 0  # from a checkpoint
    clock.run(50, wa=10)
    clock.watch.seated({"wa": [A], "wb": [B]})
    clock.run(120, wa=5)
    assert clock.watch.seated({}) == []


def test_gangs_and_jobs_without_a_class_are_company_and_are_not_watched() -> None:
    clock = Clock()
    clock.watch.seated({"wa": [A, OTHER_CARD], "wb": [Seat("card", "V100", "MPS", "")]})
    assert not clock.watch


def test_means_are_of_slowdowns_and_old_samples_fade() -> None:
    pairs = with_sample((), Sample("a", "b", "V100", "", 0.5))
    assert pairs == (CompanySpeed("b", "V100", speed=0.5),)
    (pair,) = with_sample(pairs, Sample("a", "b", "V100", "", 0.25))
    assert pair.speed == pytest.approx(1 / 3) and pair.samples == 2
    assert len(with_sample(pairs, Sample("a", "b", "V100", "MPS", 0.25))) == 2
    for _ in range(200):
        pairs = with_sample(pairs, Sample("a", "b", "V100", "", 1.0))
    assert pairs[0].samples == MOST_SAMPLES and pairs[0].speed == pytest.approx(1.0, abs=0.05)
