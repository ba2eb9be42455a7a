"""A cluster that is not made of a number of GPUs: its own queues, quotas and nodes, which change while jobs come and go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gangline.engine.model import Admission, Change, Millis, ResourceGroup, Workload
from gangline.replay.policies import Policy
from gangline.replay.replayed import ReplayedJob


@dataclass(frozen=True, slots=True)
class ReplayEvent:
    """What changes at an instant. Whoever has pods on `lost` nodes (by their numbers) is stopped, and waits again.

    `quotas`: those that ClusterQueues have from now on, whatever their own facts say; None = as these say.
    """

    at: Millis
    changes: tuple[Change, ...]
    lost: frozenset[int] = frozenset()
    quotas: Mapping[str, tuple[ResourceGroup, ...] | None] = field(
        default_factory=dict[str, "tuple[ResourceGroup, ...] | None"]
    )


class ReplayedWorld(Protocol):
    """A cluster under one policy."""

    def begins(self) -> Iterable[Change]:
        """The facts from before the first job."""
        ...

    def later(self) -> Sequence[ReplayEvent]:
        """What happens later, in the order of time."""
        ...

    def of(self, job: ReplayedJob) -> Workload:
        """The job as it waits."""
        ...

    def places(self, admission: Admission) -> tuple[tuple[int, int], ...]:
        """(node, GPUs) of an admission; () where its nodes are not known."""
        ...

    def number(self, node: str) -> int | None:
        """The number of a node in `places`; None if there never was one of this name."""
        ...


class Worlds(Protocol):
    """A cluster under any policy."""

    def under(self, policy: Policy, restart_seconds: float) -> ReplayedWorld: ...


# --- savings ----------------------------------------------------------------------------------------------------------
#
# What a policy saves against another one, with intervals over shaken runs. The copies of a pair are shaken alike, so that what
# both have in common is no noise.


#: 97.5 % quantiles of Student's t by degrees of freedom; beyond, that of the normal distribution is close
_STUDENT: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
_BEYOND: Final = 2.0

#: what is compared, by its name in the JSON and for people; less is better
MEASURES: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], float | None]]]] = {
    "wait_mean": ("mean wait", lambda run: run["wait"]["mean"]),
    "wait_p99": ("p99", lambda run: run["wait"]["p99"]),
    "wait_gt8_mean": ("mean of >8 GPUs", lambda run: run["wait_gt8"]["mean"]),
    "gpu_hours_lost": ("GPU hours lost", lambda run: run["gpu_hours_lost"]),
}


@dataclass(frozen=True, slots=True)
class Saving:
    """How much less there is of something, in its own unit; low and high: the 95 % interval, None without shaken runs."""

    base: float
    saved: float
    low: float | None
    high: float | None

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out zero: the difference is no chance."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def savings(
    measures: Mapping[str, Mapping[str, Any]], shaken: Mapping[str, Sequence[Mapping[str, Any]]], base: str
) -> dict[str, dict[str, Saving]]:
    """What each policy saves against the policy `base`, by policy and measure; empty where that was not played."""
    if base not in measures:
        return {}
    return {
        policy: {
            name: saving
            for name, (_, pick) in MEASURES.items()
            if (saving := _saving(pick, measures[base], measures[policy], shaken.get(base, ()), shaken.get(policy, ())))
        }
        for policy in measures
        if policy != base
    }


def _saving(
    pick: Callable[[Mapping[str, Any]], float | None],
    theirs: Mapping[str, Any],
    ours: Mapping[str, Any],
    their_runs: Sequence[Mapping[str, Any]],
    our_runs: Sequence[Mapping[str, Any]],
) -> Saving | None:
    before, after = pick(theirs), pick(ours)
    if before is None or after is None:
        return None
    pairs = [(pick(a), pick(b)) for a, b in zip(their_runs, our_runs, strict=False)]
    differences = [a - b for a, b in [(before, after), *pairs] if a is not None and b is not None]
    low, high = interval(differences) if len(differences) > 2 else (None, None)
    return Saving(before, sum(differences) / len(differences), low, high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean of at least two values."""
    count = len(values)
    mean = sum(values) / count
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    factor = _STUDENT[count - 2] if count - 2 < len(_STUDENT) else _BEYOND
    half = factor * deviation / math.sqrt(count)
    return mean - half, mean + half


def as_json(found: Mapping[str, Mapping[str, Saving]]) -> dict[str, Any]:
    return {
        policy: {
            name: {"base": each.base, "saved": each.saved, "low": each.low, "high": each.high, "certain": each.certain}
            for name, each in by_measure.items()
        }
        for policy, by_measure in found.items()
    }


def lines(found: Mapping[str, Mapping[str, Saving]], base: str) -> list[str]:
    """A line for each policy, for people."""
    return [
        f"{policy} saves against {base}: " + "; ".join(_words(name, each) for name, each in by_measure.items())
        for policy, by_measure in found.items()
        if by_measure
    ]


def _words(name: str, saving: Saving) -> str:
    word = MEASURES[name][0]
    unit = "" if name == "gpu_hours_lost" else " s"
    share = f" ({saving.saved / saving.base:+.0%})" if saving.base else ""
    if saving.low is None or saving.high is None:
        return f"{word} {saving.saved:,.0f}{unit}{share}"
    chance = "" if saving.certain else ", may be chance"
    return f"{word} {saving.saved:,.0f}{unit}{share}, {saving.low:,.0f} to {saving.high:,.0f}{chance}"
