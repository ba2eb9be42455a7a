"""The conclusion of a replay: what each policy gains and loses against plain ones, and which jobs gain and lose by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from gangline.replay.policies import unmoved
from gangline.replay.world import Saving, savings

#: what other policies are compared with, besides the cluster's own one
PLAIN: Final = ("besteffort", "easy")
#: sizes of jobs, by the name of their waits among the measures
SIZES: Final = {"wait_1": "1 GPU", "wait_2_8": "2 to 8", "wait_gt8": "more than 8"}
#: a tenant with fewer jobs is not named: the wait of a few is chance
LEAST_JOBS: Final = 20
#: a wait that grows by less, as a share, has not grown
NOTICEABLE: Final = 0.05
#: tenants that a sentence names
_NAMED: Final = 3

Measures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Waits:
    """The mean wait of some jobs under both policies, in seconds."""

    who: str
    jobs: int
    before: float
    after: float

    @property
    def change(self) -> float | None:
        """The change as a share: -0.5 = half as long. None where nobody waited before."""
        return self.after / self.before - 1 if self.before else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A policy compared with another one. `low` and `high`: the 95 % interval of the hours over shaken copies."""

    policy: str
    against: str
    #: by how much less all jobs together wait, in hours; below zero: more
    hours_saved: float
    low: float | None
    high: float | None
    #: the change of the mean wait as a share
    change: float | None
    #: GPU-hours of work that are lost in addition; below zero: fewer
    gpu_hours_lost: float
    by_size: tuple[Waits, ...]
    #: tenants with at least `LEAST_JOBS` jobs
    by_tenant: tuple[Waits, ...]

    @property
    def losers(self) -> list[Waits]:
        """The tenants that wait noticeably longer, most of all first."""
        worse = [each for each in self.by_tenant if each.after > (1 + NOTICEABLE) * each.before]
        return sorted(worse, key=lambda each: each.before - each.after)


def comparisons(
    measures: Mapping[str, Measures], shaken: Mapping[str, Sequence[Measures]], judged: Sequence[str], own: str = ""
) -> list[Comparison]:
    """Each judged policy against those of `PLAIN` and the cluster's `own` that were played, and against the same one without
    moves. Copies are shaken alike in pairs.
    """
    others = [name for name in (own, *PLAIN) if name in measures]
    pairs = [
        (policy, other)
        for policy in judged
        if policy in measures
        for other in (unmoved(policy), *(others if policy not in others else ()))
        if other in measures and measures[policy]["wait"]["jobs"] and measures[other]["wait"]["jobs"]
    ]
    saved = {other: savings(measures, shaken, other) for other in dict.fromkeys(other for _, other in pairs)}
    return [_compared(policy, other, measures, saved[other][policy]["wait_mean"]) for policy, other in pairs]


def _compared(policy: str, other: str, measures: Mapping[str, Measures], saving: Saving) -> Comparison:
    ours, theirs = measures[policy], measures[other]
    hours = ours["wait"]["jobs"] / 3600
    low, high = saving.low, saving.high
    return Comparison(
        policy,
        other,
        hours_saved=saving.saved * hours,
        low=None if low is None else low * hours,
        high=None if high is None else high * hours,
        change=-saving.saved / saving.base if saving.base else None,
        gpu_hours_lost=ours["gpu_hours_lost"] - theirs["gpu_hours_lost"],
        by_size=tuple(_waits({word: (theirs[name], ours[name]) for name, word in SIZES.items()}, 1)),
        by_tenant=tuple(
            _waits(
                {
                    tenant: (spread, ours["wait_by_tenant"][tenant])
                    for tenant, spread in theirs["wait_by_tenant"].items()
                    if tenant in ours["wait_by_tenant"]
                },
                LEAST_JOBS,
            )
        ),
    )


def _waits(pairs: Mapping[str, tuple[Measures, Measures]], least: int) -> Iterator[Waits]:
    for who, (before, after) in pairs.items():
        if min(before["jobs"], after["jobs"]) >= least:
            yield Waits(who, after["jobs"], before["mean"], after["mean"])


def sentences(found: Sequence[Comparison], measures: Mapping[str, Measures]) -> list[str]:
    """The conclusion for people."""
    sentences: list[str] = []
    for policy in dict.fromkeys(each.policy for each in found):
        own = [each for each in found if each.policy == policy]
        sentences += map(_gain, own)
        still = [each for each in own if each.against == unmoved(policy)]
        sentences += [_moves(policy, measures[policy]) for _ in still]
        better = min(own, key=lambda each: measures[each.against]["wait"]["mean"])
        for each in dict.fromkeys((*still, better)):
            sentences += _who(each)
        sentences += _promises(policy, measures[policy])
    return sentences


def _gain(each: Comparison) -> str:
    saved = each.hours_saved
    share = f" ({each.change:+.0%})" if each.change is not None else ""
    sure = ""
    if each.low is not None and each.high is not None:
        chance = ", so this may be chance" if each.low <= 0 <= each.high else ""
        sure = f"; over shaken copies {each.low:,.0f} to {each.high:,.0f} hours less{chance}"
    lost = each.gpu_hours_lost
    return (
        f"{each.policy} against {each.against}: all jobs together wait {abs(saved):,.0f} hours {_word(saved)}{share}{sure}. "
        f"{abs(lost):,.1f} GPU hours {_word(-lost)} are lost."
    )


def _word(saved: float) -> str:
    return "less" if saved >= 0 else "more"


def _who(each: Comparison) -> Iterator[str]:
    sizes = ", ".join(f"{waits.who} {_change(waits)}" for waits in each.by_size)
    if sizes:
        yield f"{each.policy} against {each.against}, mean waits by size: {sizes}."
    if len(each.by_tenant) > 1:
        losers = each.losers
        named = ", ".join(f"{waits.who} {_change(waits)} ({waits.jobs:,} jobs)" for waits in losers[:_NAMED])
        most = f"; most of all {named}" if named else ""
        yield (
            f"{each.policy} against {each.against}: {len(losers)} of {len(each.by_tenant)} tenants wait longer by more than "
            f"{NOTICEABLE:.0%}{most}."
        )


def _change(waits: Waits) -> str:
    share = f" ({waits.change:+.0%})" if waits.change is not None else ""
    return f"{waits.before:,.0f} → {waits.after:,.0f} s{share}"


def _moves(policy: str, measures: Measures) -> str:
    made = measures.get("moves")
    if not made:
        return f"{policy} moved no job."
    return (
        f"{policy} moved {made['jobs']:,} jobs {made['moved']:,} times, so that {made['started']:,} others started; that cost "
        f"{made['gpu_hours_lost']:,.1f} GPU hours, restarts included."
    )


def _promises(policy: str, measures: Measures) -> Iterator[str]:
    if not measures["heads"]:
        return
    promises = measures["promises"]
    said = (
        f"{policy} held others back for {measures['heads']:,} heads and promised {promises['made']:,} of them a start"
    )
    if not promises["made"]:
        yield f"{said}."
        return
    missed = ", ".join(f"{cause} {count:,}" for cause, count in promises["missed_by"].items())
    yield (
        f"{said}, {promises['mean_length']:,.0f} s ahead on average: {promises['coverage']:.1%} of these were kept "
        f"within a minute{f' (missed by {missed})' if missed else ''}; "
        f"on average they were {promises['mean_lateness']:,.0f} s late."
    )


def as_json(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    return [asdict(each) for each in found]
