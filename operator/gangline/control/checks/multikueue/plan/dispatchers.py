"""Chooses the clusters that a workload is offered to: all at once, some more in each round, or those that another controller
names.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline.api.read.configuration.multikueue import ALL_AT_ONCE, INCREMENTAL, MultiKueueSettings
from gangline.control.checks.multikueue.plan.steps import Nominate, Step, Wait

#: milliseconds of a round of the incremental dispatcher
ROUND = 300_000


def nominate(
    settings: MultiKueueSettings,
    listed: Sequence[str],
    connected: Sequence[str],
    nominated: Sequence[str],
    *,
    round_at: int | None,
    now: int,
) -> tuple[list[Step], Sequence[str]]:
    """The steps, and the clusters in which copies are wanted. `nominated`: as the status says now."""
    if settings.dispatcher == ALL_AT_ONCE:
        wanted = sorted(connected)
        return ([Nominate(wanted)] if set(wanted) != set(nominated) else []), wanted
    if settings.dispatcher == INCREMENTAL:
        return _more(settings, listed, nominated, round_at, now), nominated
    return [], nominated


def _more(
    settings: MultiKueueSettings, listed: Sequence[str], nominated: Sequence[str], round_at: int | None, now: int
) -> list[Step]:
    left = [name for name in listed if name not in nominated]
    if not left:
        return []
    if nominated and round_at is None:  # begun by an earlier process: its round is counted from here
        return [Nominate(nominated, begins=True)]
    if nominated and round_at is not None and now < round_at + ROUND:
        return [Wait(round_at + ROUND)]
    if not settings.in_listed_order:
        left.sort()
    return [Nominate([*nominated, *left[: settings.step]], begins=True)]
