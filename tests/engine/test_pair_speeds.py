"""Expected speeds of pairs, and who may join whom."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from gangline.engine import Company, PairSpeeds, by_prior, features_of
from gangline.engine.interference.joining import NO_GAIN, PAIR_BARRED, TOO_SLOW, UNKNOWN
from gangline.engine.model import CompanyPolicy, CompanyPrior, CompanySpeed, Device, JobProfile, SpeedAlone
from gangline.engine.model.company import LEAST_SPEED, MOST_SPEED, Unknown

V100 = Device("n", "GPU-0", model="Tesla V100-SXM2-16GB", mode="TimeSlice")
K80 = Device("n", "GPU-1", model="Tesla K80", mode="TimeSlice")
FLAT = CompanyPrior("v100", "V100", constant=0.6, mine=(0.0,) * 3, theirs=(0.0,) * 3, usual=(0.0,) * 3)


def profiles(*said: tuple[str, CompanySpeed]) -> dict[str, JobProfile]:
    return {
        name: JobProfile(name, tuple(pair for of, pair in said if of == name))
        for name in sorted({name for name, _ in said})
    }


def company(speeds: PairSpeeds, kind: str, unknown: Unknown = "Alone", cap: float = 1.25) -> Company:
    return Company(kind, CompanyPolicy(cap, 1.1, unknown), speeds)


def test_pairs_have_a_direction_and_a_model_of_card() -> None:
    speeds = PairSpeeds(
        profiles(
            ("a", CompanySpeed("b", "v100", speed=0.9)),
            ("b", CompanySpeed("a", "v100", speed=0.5)),
            ("a", CompanySpeed("b", "k80", "MPS", speed=0.7)),
        )
    )
    found = [speeds.on_card(*pair, V100) for pair in ("ab", "ba")]
    assert [each.speed for each in found if each] == [0.9, 0.5]
    assert speeds.on_card("b", "a", K80) is None, "of another model nothing was measured"
    assert speeds.on_card("a", "b", K80) is None, "nor of another way of sharing it"


def test_the_closest_measurement_counts() -> None:
    speeds = PairSpeeds(
        profiles(
            ("a", CompanySpeed("b", speed=0.5)),
            ("a", CompanySpeed("b", "v100-sxm2", speed=0.8)),
            ("a", CompanySpeed("b", "v100", speed=0.6)),
        )
    )
    assert speeds.on_card("a", "b", V100).speed == 0.8  # type: ignore[union-attr]
    assert speeds.on_card("a", "b", K80).speed == 0.5  # type: ignore[union-attr]


def test_a_few_samples_are_drawn_to_the_prior_and_many_are_not() -> None:
    """The prior counts 2: of an expected excess of 0.15 and a measured one of 1.10, 0.47 after 1 sample and 0.625 after 2."""
    excess = [(2 * 0.15 + n * 1.10) / (2 + n) for n in (1, 2)]
    assert [round(each, 3) for each in excess] == [0.467, 0.625]
    for n in (1, 2, 1000):
        speeds = PairSpeeds(profiles(("a", CompanySpeed("b", "V100", speed=0.9, samples=n))), (FLAT,))
        # its own residual is half of its class's: one pair of a class that was measured once
        prior = 0.6 + 0.3 / 3 + (0.3 - 0.3 / 3) / 3
        assert speeds.on_card("a", "b", V100).speed == pytest.approx((2 * prior + n * 0.9) / (2 + n))  # type: ignore[union-attr]


def test_a_class_that_suffers_more_than_the_prior_says_is_expected_to_suffer_beside_others_too() -> None:
    measured = [("a", CompanySpeed(f"b{number}", "V100", speed=0.3)) for number in range(8)]
    speeds = PairSpeeds(profiles(*measured), (FLAT,))
    assert speeds.on_card("a", "new", V100).speed == pytest.approx(0.6 - 8 * 0.3 / 10)  # type: ignore[union-attr]
    assert speeds.on_card("new", "other", V100).speed == 0.6  # type: ignore[union-attr]


def test_features_are_the_own_pair_the_use_and_the_speedup() -> None:
    profile = JobProfile(
        "a",
        (CompanySpeed("a", "V100", speed=0.5),),
        (SpeedAlone("V100", 8.0, utilisation=40), SpeedAlone("K80", 2.0)),
    )
    own, used, speedup = features_of(profile, V100.model)
    assert (own, used) == (0.5, 0.4) and speedup == pytest.approx(math.log(4))
    assert features_of(None, "") == (None, None, None)
    prior = CompanyPrior("p", constant=0.1, mine=(1.0, 2.0, 0.0), theirs=(0.0, 0.5, 0.0), usual=(0.3, 0.2, 0.0))
    assert by_prior(prior, (0.5, 0.4, 1.0), (None, None, None)) == pytest.approx(0.1 + 0.5 + 0.8 + 0.1)


def test_a_pair_that_ran_out_of_memory_is_barred_both_ways() -> None:
    speeds = PairSpeeds(
        profiles(("cnn", CompanySpeed("vgg16", "V100", out_of_memory=True)), ("vgg16", CompanySpeed("b", speed=1.0)))
    )
    for mine, other in (("cnn", "vgg16"), ("vgg16", "cnn")):
        assert company(speeds, mine, "Share").refuses(V100, [other]) == PAIR_BARRED
        assert company(speeds, mine, "Share").refuses(K80, [other]) == "", "on another model it may fit"


def test_who_joins_is_not_slowed_beyond_the_cap_and_all_gain() -> None:
    speeds = PairSpeeds(
        profiles(
            ("a", CompanySpeed("b", speed=0.9)),
            ("b", CompanySpeed("a", speed=0.7)),
            ("a", CompanySpeed("a", speed=0.5)),
        )
    )
    assert company(speeds, "a").refuses(V100, []) == ""
    assert company(speeds, "a").refuses(V100, ["b"]) == TOO_SLOW, "b is slowed by 1.43"
    assert company(speeds, "a", cap=1.5).refuses(V100, ["b"]) == ""
    assert company(speeds, "a", cap=3).refuses(V100, ["a"]) == NO_GAIN
    assert company(speeds, "b").refuses(V100, ["b"]) == UNKNOWN
    assert company(speeds, "b", "Probe").refuses(V100, ["b"]) == ""
    assert company(speeds, "b", "Probe").refuses(V100, ["b", "b"]) == UNKNOWN
    assert company(speeds, "b", "Share").refuses(V100, ["b", "b"]) == ""
    assert company(speeds, "", "Alone").refuses(V100, ["b"]) == UNKNOWN, "a pod without a class is nobody that is known"


def test_company_on_the_node_counts_where_it_was_measured() -> None:
    """The pair of LAMMPS beside the pair of GROMACS on one node of Kim and Kim: together they are slower than either alone."""
    speeds = PairSpeeds(
        profiles(
            ("lammps", CompanySpeed("gromacs", on_node=True, speed=1 / 2.015)),
            ("gromacs", CompanySpeed("lammps", on_node=True, speed=1 / 1.95)),
        )
    )
    lammps = company(speeds, "lammps", cap=10)
    assert lammps.refuses_node({"gromacs": 2}) == NO_GAIN
    assert lammps.refuses_node({"lammps": 1, "other": 5}) == ""
    assert company(speeds, "lammps").refuses_node({"gromacs": 1}) == TOO_SLOW
    # two of each: 0.33 of the speed for LAMMPS, 0.345 for GROMACS
    slowed = lammps._node_slowdowns({"lammps": 1, "gromacs": 2}, joined=True)
    assert {name: round(1 / each, 3) for name, each in slowed.items()} == {"lammps": 0.33, "gromacs": 0.345}


def test_marks_are_other_names_of_classes() -> None:
    speeds = PairSpeeds(profiles(("a", CompanySpeed("a", speed=0.95))), mark=lambda name: f"class {name}")
    assert speeds.on_card("class a", "a", V100) == speeds.on_card("a", "a", V100)
    assert company(speeds, "a").refuses(V100, ["class a"]) == ""


_SPEEDS = st.floats(LEAST_SPEED, MOST_SPEED)


@given(st.lists(_SPEEDS, min_size=4, max_size=4), st.floats(1, 5), st.integers(0, 3))
def test_nobody_who_may_join_breaks_the_rules(declared: list[float], cap: float, there: int) -> None:
    """Of known pairs: each is within the cap, and all together gain; and `gain` agrees with the speeds."""
    pairs = [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b")]
    speeds = PairSpeeds(
        profiles(*((one, CompanySpeed(other, speed=each)) for (one, other), each in zip(pairs, declared, strict=True)))
    )
    joining, residents = company(speeds, "a", cap=cap), ["b"] * there
    slowdown = dict(zip(pairs, (1 / each for each in declared), strict=True))

    def speed(kind: str, others: list[str]) -> float:
        return 1 / max(1.0, 1 + sum(slowdown[kind, other] - 1 for other in others))

    before = sum(speed("b", ["b"] * (there - 1)) for _ in residents)
    each = [speed("b", ["b"] * (there - 1) + ["a"]) for _ in residents] + [speed("a", residents)]
    if residents:
        rules = min(each) >= 1 / cap - 1e-9 and sum(each) >= 1.1 * max(before, 1.0) - 1e-9
        assert (joining.refuses(V100, residents) == "") == rules or math.isclose(sum(each), 1.1 * max(before, 1.0))
    assert joining.gain(V100, residents, {"b": there}) == pytest.approx(sum(each) - before)
