"""Quota that follows nodes: what the `spec.follow` of a QuotaPlan asks for, the capacity that it follows, and the quota from it.

Pure functions. Capacity is damped, since nodes come and go: a change counts once it has lasted, and of several changes in one
direction meanwhile the smallest does. Amounts are in the engine's units.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from gangline import bounded
from gangline.api.spec_fields import SpecError, a_length, a_list, a_text, an_amount, an_object
from gangline.engine.model import UNLIMITED, Millis

#: resources that one plan lets follow nodes
MOST_FOLLOWED: Final = 64
#: percent of a flavor's usable capacity
MOST_PERCENT: Final = 1000
#: what unset fields mean, and the longest damping
USUAL_DOWN: Final = "5m"
USUAL_UP: Final = "2m"
LONGEST_DAMPING: Final[Millis] = 86_400_000

#: (flavor, resource)
FlavorResource: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Follow:
    """The nominal quota of one resource of a flavor as a share of what the flavor's usable nodes have of it."""

    flavor: str
    resource: str
    percent: int
    least: int = 0
    most: int = UNLIMITED
    #: how long a smaller and a larger capacity must last before they count
    down: Millis = 300_000
    up: Millis = 120_000

    @property
    def about(self) -> FlavorResource:
        return self.flavor, self.resource

    def quota(self, capacity: int) -> int:
        """The nominal quota at this capacity, rounded down, within the bounds."""
        return min(self.most, max(self.least, capacity * self.percent // 100))


@dataclass(frozen=True, slots=True)
class Damped:
    """The capacity that counts, and another one that is about to."""

    capacity: int
    #: None = no other one
    pending: int | None = None
    #: since when there has been less than `capacity`, or more
    since: Millis = 0

    def due(self, follow: Follow, notice: Millis) -> Millis | None:
        """When the pending capacity counts; None = there is none."""
        if self.pending is None:
            return None
        return self.since + (follow.down + notice if self.pending < self.capacity else follow.up)

    def postponed(self, follow: Follow, notice: Millis, earliest: Millis) -> Damped:
        """The same, but a smaller capacity does not count before an instant."""
        due = self.due(follow, notice)
        if self.pending is None or due is None or self.pending >= self.capacity or due >= earliest:
            return self
        return Damped(self.capacity, self.pending, earliest - follow.down - notice)

    def announced(self, follow: Follow, notice: Millis, now: Millis) -> Millis | None:
        """When a smaller capacity counts that has lasted long enough to be announced; None = nothing is to be announced."""
        if self.pending is None or self.pending >= self.capacity or now < self.since + follow.down:
            return None
        return self.due(follow, notice)


def damped(before: Damped | None, usable: int, follow: Follow, notice: Millis, now: Millis) -> Damped:
    """The capacity that counts now that so much is usable. `notice`: a smaller capacity counts so much later, since workloads
    are warned of it first.
    """
    if before is None or usable == before.capacity:
        return Damped(usable)
    if before.pending is None or (before.pending < before.capacity) != (usable < before.capacity):
        pending = Damped(before.capacity, usable, now)
    else:  # a clock that was set back begins anew
        nearest = (max if usable < before.capacity else min)(before.pending, usable)
        pending = Damped(before.capacity, nearest, min(before.since, now))
    due = pending.due(follow, notice)
    if pending.pending is None or due is None or now < due:
        return pending
    return Damped(usable) if usable == pending.pending else Damped(pending.pending, usable, now)


# --- the spec ---------------------------------------------------------------------------------------------------------


def followed(value: Any, path: str) -> tuple[Follow, ...]:
    """The list at `path` of a spec. Raises SpecError, which names the field."""
    found = tuple(_follow(each, f"{path}[{i}]") for i, each in enumerate(a_list(value, path, MOST_FOLLOWED)))
    seen: set[FlavorResource] = set()
    for i, each in enumerate(found):
        if each.about in seen:
            raise SpecError(f"{path}[{i}]", "is about the same resource and flavor as another one")
        seen.add(each.about)
    return found


def _follow(value: Any, path: str) -> Follow:
    section = an_object(value, path)
    resource, percent = a_text(section.get("resource"), f"{path}.resource"), section.get("sharePercent")
    if percent is None:
        raise SpecError(f"{path}.sharePercent", "is required")
    if isinstance(percent, bool) or not isinstance(percent, int) or not 0 <= percent <= MOST_PERCENT:
        raise SpecError(f"{path}.sharePercent", f"must be a whole number from 0 to {MOST_PERCENT}")
    least, most = (an_amount(section.get(name), resource, f"{path}.{name}") for name in ("min", "max"))
    if most is not None and most < (least or 0):
        raise SpecError(f"{path}.max", "must be at least min")
    damping = an_object(section.get("damping") or {}, f"{path}.damping")
    return Follow(
        a_text(section.get("flavor"), f"{path}.flavor"),
        resource,
        percent,
        least or 0,
        UNLIMITED if most is None else most,
        a_length(damping.get("down") or USUAL_DOWN, f"{path}.damping.down", LONGEST_DAMPING),
        a_length(damping.get("up") or USUAL_UP, f"{path}.damping.up", LONGEST_DAMPING),
    )


# --- shares of all queues ---------------------------------------------------------------------------------------------


def excess(shares: Mapping[str, Sequence[Follow]]) -> dict[str, str]:
    """ClusterQueue -> the sentence that shares on a flavor sum above 100 %, for each queue that has one of these. `shares`: what
    each ClusterQueue follows.
    """
    of: dict[FlavorResource, dict[str, int]] = {}
    for queue, follows in shares.items():
        for each in follows:
            of.setdefault(each.about, {})[queue] = each.percent
    found: dict[str, list[str]] = {}
    for (flavor, resource), percents in sorted(of.items()):
        if (total := sum(percents.values())) > 100:
            for queue in percents:
                found.setdefault(queue, []).append(_excess(flavor, resource, total, sorted(percents)))
    return {queue: ". ".join(sentences[:3]) for queue, sentences in found.items()}


def _excess(flavor: str, resource: str, total: int, queues: Collection[str]) -> str:
    named = bounded.some(_queues(queues), 5)
    return f"{named} follow {total} % of {resource} in flavor {flavor}"


def _queues(names: Iterable[str]) -> list[str]:
    return [f"ClusterQueue {name}" for name in names]
