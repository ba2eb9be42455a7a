"""How fast work is on which flavor: what its author says, and what runs of the same work have shown."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from gangline.forecast.forecaster import Forecaster
from gangline.forecast.history.runs import Run
from gangline.forecast.tracking.flavors import MOST_FLAVORS, FlavorRuns


def run(uid: str, submit: float, **fields: object) -> Run:
    return replace(Run(uid, submit, gpus=1, namespace="ml", user="ann", queue="q", name="train"), **fields)  # type: ignore[arg-type]


class Past:
    """A forecaster that has seen runs, one after the other."""

    def __init__(self) -> None:
        self.forecaster = Forecaster()
        self.now = 0.0

    def ran(self, flavor: str, seconds: float, times: int, **fields: object) -> None:
        for _ in range(times):
            uid = f"run-{self.now}"
            self.forecaster.submitted(run(uid, self.now, **fields))
            self.forecaster.started(uid, self.now, flavor)
            self.now += seconds
            self.forecaster.finished(uid, self.now)

    def medians(self, speeds: dict[str, float] | None = None, **fields: object) -> dict[str, float]:
        """Of a new run on each of two flavors."""
        self.forecaster.submitted(run("new", self.now, **fields))
        found = self.forecaster.on_flavors({"new": ["fast", "slow"]}, self.now, {"new": speeds or {}})["new"]
        self.forecaster.forget("new")
        return {flavor: forecast.q50 for flavor, forecast in found.items()}


def test_nothing_known_is_speed_one() -> None:
    found = Past().medians()
    assert found["fast"] == found["slow"]


def test_what_an_author_says_of_speeds_holds_for_what_is_said_of_the_runtime() -> None:
    found = Past().medians({"fast": 2.5}, hint=3600.0)
    assert found["slow"] == pytest.approx(3600, rel=0.01) and found["fast"] == pytest.approx(3600 / 2.5, rel=0.01)


def test_a_limit_holds_on_every_flavor() -> None:
    found = Past().medians({"slow": 0.1}, hint=3600.0, limit=7200.0)
    assert found["slow"] == 7200.0


def test_runs_on_one_flavor_alone_show_no_difference() -> None:
    past = Past()
    past.ran("fast", 600, 9)
    found = past.medians()
    assert found["fast"] == found["slow"] == pytest.approx(600, rel=0.01)


def test_many_runs_of_the_same_work_show_its_speed_and_few_hardly_do() -> None:
    ratios: list[float] = []
    for times in (1, 2, 5, 25):
        past = Past()
        past.ran("fast", 600, times)
        past.ran("slow", 6000, times)
        found = past.medians()
        ratios.append(found["slow"] / found["fast"])
    assert ratios[0] == 1 and ratios == sorted(ratios) and 1.5 < ratios[1] < 3 and 6 < ratios[3] < 10


def test_kubesc_rtp_g5_each_kind_of_work_has_its_own_speeds() -> None:
    """Times of kinds of work on CPU and GPU: one gains much from the GPU, the other nothing."""
    past = Past()
    for name, fast, slow in (("network", 100, 4000), ("parsing", 900, 900)):
        for _ in range(20):
            past.ran("fast", fast, 1, name=name)
            past.ran("slow", slow, 1, name=name)
    network, parsing = past.medians(name="network"), past.medians(name="parsing")
    assert network["slow"] > 10 * network["fast"] and parsing["slow"] == pytest.approx(parsing["fast"])
    assert parsing["fast"] == pytest.approx(900, rel=0.05)
    assert network["fast"] == pytest.approx(100, rel=0.6) and network["slow"] == pytest.approx(4000, rel=0.6)


def test_runs_correct_what_the_author_says() -> None:
    past = Past()
    past.ran("fast", 1000, 30)
    past.ran("slow", 1000, 30)
    found = past.medians({"fast": 10.0})
    assert found["slow"] / found["fast"] < 2


def test_other_work_and_other_namespaces_have_speeds_of_their_own() -> None:
    past = Past()
    past.ran("fast", 600, 20)
    past.ran("slow", 6000, 20)
    for found in (past.medians(namespace="law"), past.medians(name="eval"), past.medians(gpus=8)):
        assert found["fast"] == found["slow"]


def test_so_many_flavors_are_remembered_of_a_class() -> None:
    seen = FlavorRuns()
    for number in range(2 * MOST_FLAVORS):
        seen.add(f"f{number}", 1.0)
    assert len(seen.seen) == MOST_FLAVORS


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 12)), max_size=60),
    st.dictionaries(st.sampled_from("abcd"), st.floats(-5, 5), max_size=4),
)
def test_offsets_are_bounded_by_what_was_seen_and_expected(
    runs: list[tuple[str, float]], expected: dict[str, float]
) -> None:
    seen = FlavorRuns()
    for flavor, log in runs:
        seen.add(flavor, log)
    found = seen.offsets("abcd", expected)
    assert found["d"] == pytest.approx(expected.get("d", 0.0), abs=1e-9), "nothing ran there"
    assert all(math.isfinite(offset) and abs(offset) <= 22 for offset in found.values())
