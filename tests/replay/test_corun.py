"""Jobs that share cards, played: speeds, ends and the law of the world."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.examples import examples

from gangline.engine import PairSpeeds, kind_mark
from gangline.engine.model import CompanyPolicy, CompanySpeed, JobProfile, Share
from gangline.replay.corun import CorunJob, CorunPolicy, DoesNotFitError, PairLaw, hosts_of, play

ANY = Share(milli=0, mode="Software")
LAW = PairLaw({("a", "a"): 0.5, ("a", "b"): 0.8, ("b", "a"): 1.0})
PACKED = CorunPolicy("packed", "Pack")


def job(name: str, kind: str, seconds: float, submit: float = 0.0, share: Share = ANY, pods: int = 1) -> CorunJob:
    return CorunJob(name, kind, submit, seconds, share, pods)


def test_who_shares_a_card_is_slowed_while_the_other_is_there() -> None:
    outcome = play([job("1", "a", 100), job("2", "a", 50)], hosts_of(1, 1), PACKED, LAW)
    # both at half speed until the shorter one is done at 100 s; then the other has 50 s left
    assert [(end.job.name, end.ended) for end in outcome.ends] == [("2", 100.0), ("1", 150.0)]
    assert [end.slowdown for end in outcome.ends] == [2.0, 2.0] and outcome.joined == 1


def test_slowdowns_have_a_direction() -> None:
    outcome = play([job("1", "a", 80), job("2", "b", 50)], hosts_of(1, 1), PACKED, LAW)
    assert {end.job.name: end.ended for end in outcome.ends} == {"2": 50.0, "1": pytest.approx(50 + (80 - 40))}


def test_who_finds_no_card_waits_and_a_later_one_passes() -> None:
    alone = Share(exclusive=True)
    jobs = [
        job("1", "a", 10, 0, alone),
        job("2", "a", 10, 1, Share(count=2, exclusive=True)),
        job("3", "a", 5, 2, alone),
    ]
    ends = {end.job.name: end.ended for end in play(jobs, hosts_of(1, 2), PACKED, LAW).ends}
    assert ends == {"1": 10.0, "3": 7.0, "2": 20.0}
    strict = CorunPolicy("strict", "Pack", passes=False)
    ends = {end.job.name: end.ended for end in play(jobs, hosts_of(1, 2), strict, LAW).ends}
    assert ends == {"1": 10.0, "2": 20.0, "3": 25.0}


def test_a_job_of_several_pods_is_as_fast_as_its_slowest() -> None:
    jobs = [job("1", "b", 10), job("2", "a", 10, share=Share(milli=600), pods=2)]
    ends = {end.job.name: end.ended for end in play(jobs, hosts_of(2, 1), PACKED, LAW).ends}
    assert ends == {"1": 10.0, "2": pytest.approx(10 + (10 - 8))}


def test_a_job_that_fits_nowhere_is_named() -> None:
    with pytest.raises(DoesNotFitError, match="big"):
        play([job("big", "a", 10, share=Share(count=3))], hosts_of(1, 2), PACKED, LAW)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(1, 100), st.floats(0, 50)), min_size=1, max_size=12),
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), st.floats(0.1, 1), min_size=9, max_size=9
    ),
    st.floats(1, 3),
    st.integers(1, 3),
)
@examples(60)
def test_every_job_ends_not_before_it_could_and_no_known_pair_breaks_the_cap(
    said: list[tuple[str, float, float]], speeds: dict[tuple[str, str], float], cap: float, cards: int
) -> None:
    profiles = {
        kind: JobProfile(kind, tuple(CompanySpeed(other, speed=speeds[kind, other]) for other in "abc"))
        for kind in "abc"
    }
    jobs = [job(str(number), kind, seconds, submit) for number, (kind, seconds, submit) in enumerate(said)]
    policy = CorunPolicy("ours", "Interference", CompanyPolicy(cap, 1.0), PairSpeeds(profiles, mark=kind_mark))
    outcome = play(jobs, hosts_of(1, cards, slots=2), policy, PairLaw(speeds))
    assert len(outcome.ends) == len(jobs) and outcome.broken_caps == 0
    for end in outcome.ends:
        assert end.ended - end.started >= end.job.seconds * (1 - 1e-6)
        assert end.ended - end.started <= end.job.seconds * cap * (1 + 1e-6)
        assert end.slowdown <= cap * (1 + 1e-6)
