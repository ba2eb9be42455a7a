"""How long runs last that have already lasted for long: which share of all runs outlives a time, as observed lately.

A forecast says little about a run that has outlived its q95: its class does not tell how it differs from its likes. What tells is
how long it has run, in comparison with all runs that lasted as long. Clusters differ there: in some a limit of days ends half of
these runs, in others they go on for weeks.

The share is the product-limit estimate (Kaplan and Meier, 1958) of a period life table: every run counts for the time of the last
two weeks in which it ran, from the age that it had then, whether it ended or not. Times are seconds.

Only so many ends are remembered. Beyond, the namespace with most of them loses its oldest one, and its runs count from then on:
one that runs thousands of short jobs does not displace the long ones of others.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gangline.forecast.quantiles import LEVELS, TAIL_LEVELS
from gangline.tenants import Sizes

#: the period that is looked at, and the most runs that ended in it, of all namespaces
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

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._ended: dict[str, deque[tuple[float, float]]] = {}  # by namespace, when and how long they had taken
        self._sizes = Sizes()
        self._full: set[str] = set()  # the namespaces of which ends were dropped that are not that old
        self._curve = Curve()
        self._at = -math.inf  # as of when the curve is
        self._news = 0  # runs that have ended since

    def finished(self, at: float, seconds: float, namespace: str = "") -> None:
        self._ended.setdefault(namespace, deque()).append((at, seconds))
        self._sizes.add(namespace)
        self._news += 1
        if self._sizes.total > self._most:
            largest = self._sizes.largest()
            self._full.add(largest)
            self._drop(largest)

    def _drop(self, namespace: str) -> None:
        ended = self._ended[namespace]
        ended.popleft()
        self._sizes.remove(namespace)
        if not ended:
            del self._ended[namespace]
            self._full.discard(namespace)

    def outdated(self, now: float) -> bool:
        """Whether the curve should be made again."""
        return not 0 <= now - self._at < _AT_MOST or self._news > _NEWS * self._sizes.total

    def renew(self, now: float, running: Iterable[tuple[str, float]]) -> None:
        """Make the curve as of `now`, with the namespaces and ages of all runs that are running then."""
        self._at, self._news = now, 0
        for namespace, ended in [*self._ended.items()]:
            while ended and ended[0][0] < now - PERIOD:
                self._drop(namespace)
        if not self._ended:
            self._curve = Curve()
            return
        first = min(ended[0][0] for ended in self._ended.values())  # of what ended before nothing is known
        firsts = {namespace: self._ended[namespace][0][0] for namespace in self._full}
        spells = [
            Spell(max(0.0, seconds - (at - firsts.get(namespace, first))), seconds, True)
            for namespace, ended in self._ended.items()
            for at, seconds in ended
        ]
        spells += [
            Spell(max(0.0, age - (now - firsts.get(namespace, first))), age, False) for namespace, age in running
        ]
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
