"""How long runs last that have already lasted for long: which share of all runs outlives a time, as observed lately.

A forecast says little about a run that has outlived its q95: its class does not tell how it differs from its likes. What tells is
how long it has run, in comparison with all runs that lasted as long. Clusters differ there: in some a limit of days ends half of
these runs, in others they go on for weeks.

The share is the product-limit estimate (Kaplan and Meier, 1958) of a period life table: every run counts for the time of the last
two weeks in which it ran, from the age that it had then, whether it ended or not. Times are seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gangline.forecast.quantiles import LEVELS, TAIL_LEVELS

#: the period that is looked at, and the most runs that ended in it
PERIOD: Final = 14 * 86_400.0
MOST: Final = 10_000
#: a curve ends where fewer runs than this have reached that age
LEAST: Final = 20
#: a curve is made again when so large a share of its runs has been replaced, or when it is a day old
_NEWS: Final = 0.1
_AT_MOST: Final = 86_400.0


class Spell(NamedTuple):
    """The ages between which a run was observed, and whether it ended then."""

    entry: float
    exit: float
    ended: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """`shares[i]` of all runs outlive `times[i]`; both in order of time. Nothing is known of ages beyond `known`."""

    times: Sequence[float] = ()
    shares: Sequence[float] = ()
    known: float = 0.0

    def share(self, seconds: float) -> float:
        """The share of all runs that lasts longer."""
        place = bisect_right(self.times, seconds)
        return self.shares[place - 1] if place else 1.0

    def tail(self, q95: float) -> tuple[float, ...]:
        """Runtimes at TAIL_LEVELS of a run whose q95 is this; fewer, or none, where they are not known."""
        beyond = self.share(q95) / (1.0 - LEVELS[-1])
        if q95 >= self.known or not beyond:
            return ()
        found: list[float] = []
        for level in TAIL_LEVELS:
            place = bisect_left(self.shares, -beyond * (1.0 - level), key=_negative)
            if place == len(self.times):
                break
            found.append(max(q95, self.times[place]))
        return tuple(found)


def _negative(share: float) -> float:
    return -share


class Survival:
    """The runs that have ended lately, and the curve that they and the running ones make."""

    def __init__(self) -> None:
        self._ended: deque[tuple[float, float]] = deque(maxlen=MOST)  # when, and how long they had taken
        self._curve = Curve()
        self._at = -math.inf  # as of when the curve is
        self._news = 0  # runs that have ended since

    def finished(self, at: float, seconds: float) -> None:
        self._ended.append((at, seconds))
        self._news += 1

    def outdated(self, now: float) -> bool:
        """Whether the curve should be made again."""
        return not 0 <= now - self._at < _AT_MOST or self._news > _NEWS * len(self._ended)

    def renew(self, now: float, running: Iterable[float]) -> None:
        """Make the curve as of `now`, with the ages of all runs that are running then."""
        self._at, self._news = now, 0
        while self._ended and self._ended[0][0] < now - PERIOD:
            self._ended.popleft()
        if not self._ended:
            self._curve = Curve()
            return
        first = self._ended[0][0]  # of what ended before nothing is known
        spells = [Spell(max(0.0, seconds - (at - first)), seconds, True) for at, seconds in self._ended]
        spells += [Spell(max(0.0, age - (now - first)), age, False) for age in running]
        self._curve = product_limit(spells)

    @property
    def curve(self) -> Curve:
        return self._curve


def product_limit(spells: Sequence[Spell]) -> Curve:
    """The curve of runs that were observed so."""
    exits = sorted((spell for spell in spells if spell.entry < spell.exit), key=lambda spell: spell.exit)
    entries = sorted(spell.entry for spell in exits)
    times: list[float] = []
    shares: list[float] = []
    share, entered, number, known = 1.0, 0, 0, 0.0
    while number < len(exits):
        age, left, ends = exits[number].exit, number, 0
        while entered < len(entries) and entries[entered] < age:
            entered += 1
        while number < len(exits) and exits[number].exit == age:
            ends += exits[number].ended
            number += 1
        reached = entered - left
        if reached < LEAST:
            break
        known = age
        if ends:
            share *= max(0.0, 1.0 - ends / reached)
            times.append(age)
            shares.append(share)
    return Curve(times, shares, known)
