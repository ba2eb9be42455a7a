"""An adaptive limit of concurrent writes to an API server, with pauses when the server refuses.

Additive increase, multiplicative decrease, as in TCP: every answer in good time lets the number grow a little, up to `most`;
latency above `target`, a timeout or a refusal cuts it. Refusals (429, 503, no connection) also hold all writes for a while, since
they concern all writes alike. No clock, no I/O: times are passed in, in seconds.

Writes of low priority, on which no start depends, get the spare capacity (`spare`). It follows from the *strain*: how many times
slower than at its best the server answers. At its best they get a sixth of the writes in flight; the higher the strain, the
longer the pause after each of them, because on a busy server each one delays an admission.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TypeGuard

from gangline.kube.errors import ApiError, TooManyRequests, Unavailable
from gangline.kube.resources import Json

SMOOTHING = 0.1
FIRST_HOLD = 0.1
LONGEST_HOLD = 5.0
#: the share of the writes in flight that low priorities may take, as a divisor
SPARE = 6
#: … and the longest pause between two of them: a trickle remains, however strained the server is
LONGEST_PAUSE = 0.25
#: a server counts as strained above this strain: below it, latencies vary that much anyway
STRAINED = 2.0
#: the best latency is forgotten after at most twice this: a server may become slower for good
MEMORY = 300.0


@dataclass(slots=True)
class Pace:
    """The pace at which the API server accepts writes."""

    most: int = 24
    least: int = 1
    #: acceptable seconds per write; above this, pushing harder only lengthens the server's queue
    target: float = 0.5
    #: how many writes may be in flight (a float, as it grows by fractions)
    limit: float = 0.0
    #: exponentially weighted mean of seconds per write
    latency: float = 0.0
    #: the lowest recent `latency`, 0 = unknown
    best: float = 0.0
    held_until: float = 0.0
    _least: float = 0.0
    _least_before: float = 0.0
    _since: float = field(default=float("-inf"))
    _spared_until: float = field(default=float("-inf"))
    _refusals: int = 0
    _cut_at: float = field(default=float("-inf"))

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise ValueError(f"pace: 1 <= least <= most must hold, not least={self.least}, most={self.most}")
        self.limit = self.limit or max(float(self.least), self.most / 2)

    def allowance(self, now: float) -> int:
        """How many writes may be in flight now."""
        return 0 if now < self.held_until else int(self.limit)

    @property
    def rate(self) -> float:
        """The number of writes a second that succeed, about; a guess until the first answer."""
        return self.limit / (self.latency or self.target / 10)

    @property
    def strain(self) -> float:
        """How many times slower than at its best the server answers."""
        return self.latency / self.best if self.best else 1.0

    @property
    def strained(self) -> bool:
        return self.strain > STRAINED

    def spare(self, now: float) -> int:
        """How many writes of low priority may be in flight now."""
        if now < self._spared_until:
            return 0
        return 1 if self.strained else max(1, self.allowance(now) // SPARE)

    def spared(self, now: float) -> float:
        """Note that a write of low priority was answered. Returns when the next may be sent."""
        if self.strained:
            self._spared_until = now + min(LONGEST_PAUSE, self.latency * self.strain)
        return self._spared_until

    def adapt(self, now: float, seconds: float, outcome: Json | ApiError) -> None:
        """Adapt to the outcome of a write that took `seconds`."""
        if isinstance(outcome, Unavailable) and outcome.timeout:
            self.timed_out(now)
        elif refuses(outcome):
            self.refused(now, outcome.retry_after)
        else:
            self.answered(now, seconds)

    def answered(self, now: float, seconds: float) -> None:
        """Adapt to a write that the server processed, with whatever result."""
        self.latency += (seconds - self.latency) * (SMOOTHING if self.latency else 1.0)
        self._remember_best(now)
        self._refusals = 0
        if self.latency > self.target:
            self._cut(now, 0.9)
        else:
            self.limit = min(float(self.most), self.limit + 1 / self.limit)

    def _remember_best(self, now: float) -> None:
        """Track the lowest latency of the last one to two periods of `MEMORY`."""
        age = now - self._since
        if age >= MEMORY:
            self._least_before = self._least if age < 2 * MEMORY else self.latency
            self._least, self._since = self.latency, now
        self._least = min(self._least, self.latency)
        self.best = min(self._least_before, self._least)

    def timed_out(self, now: float) -> None:
        """Adapt to a write that got no answer in time. Its object may be the cause, so the other writes go on,
        only more slowly.
        """
        self._cut(now, 0.7)

    def refused(self, now: float, retry_after: float | None = None) -> None:
        """Hold all writes, at least `retry_after` seconds: the server accepts none now."""
        if now >= self.held_until:  # the rest of the same burst does not count again
            hold = min(LONGEST_HOLD, FIRST_HOLD * 2 ** min(self._refusals, 20)) * random.uniform(0.5, 1.0)
            self._refusals += 1
            self._cut_at = float("-inf")
            self._cut(now, 0.5)
            self.held_until = now + hold
        if retry_after:
            self.held_until = max(self.held_until, now + retry_after * random.uniform(1.0, 1.1))

    def _cut(self, now: float, factor: float) -> None:
        if now - self._cut_at >= self.latency:  # once per round trip: the effect of the last cut must show first
            self._cut_at = now
            self.limit = max(float(self.least), self.limit * factor)


def refuses(outcome: Json | ApiError) -> TypeGuard[ApiError]:
    """Whether the server accepts no writes at all now."""
    if isinstance(outcome, Unavailable):
        return outcome.status in (0, 503) and not outcome.timeout
    return isinstance(outcome, TooManyRequests)
