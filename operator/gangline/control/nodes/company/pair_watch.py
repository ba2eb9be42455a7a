"""Learns pairs from progress reports: a job's rate with a neighbour on its card, beside its rate before or after that was there.

No job has to run alone for that on purpose: two stretches of one run are compared, of which one was without company and the other
beside exactly one pod. Each run tells at most once of each pair. Pure: what is kept is lost with the process, and what was
learned is in the statuses of JobProfiles.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gangline.engine.model import CompanySpeed, Millis, Mode
from gangline.engine.model.company import LEAST_SPEED, MOST_SPEED

#: a stretch counts from this length and number of steps on
SHORTEST: Final[Millis] = 60_000
FEWEST_STEPS: Final = 5
#: reports that are further apart end a stretch: the run may have stood still
LONGEST_SILENCE: Final[Millis] = 300_000
#: samples of which a mean is made: older ones fade
MOST_SAMPLES: Final = 50
#: runs that are watched at a time: those that report first
MOST_RUNS: Final = 5_000


class Seat(NamedTuple):
    """Where the only pod of a run sits: the card, its model and way of sharing; and the class of its job."""

    card: str
    gpu: str
    mode: Mode
    kind: str


class Sample(NamedTuple):
    """How fast a class was beside another one, as a part of its speed alone."""

    kind: str
    beside: str
    gpu: str
    mode: Mode
    speed: float


@dataclass(slots=True)
class _Run:
    seat: Seat
    #: the stretch: who was there, and its first and last report
    company: tuple[str, ...] = ()
    first: tuple[Millis, int] | None = None
    last: tuple[Millis, int] | None = None
    #: steps per second alone, once that is known; and beside one pod of a class
    alone: float | None = None
    beside: dict[str, float] = field(default_factory=dict[str, float])
    reported: set[str] = field(default_factory=set[str])

    def close(self) -> None:
        """End the stretch, and note its rate if it was long enough."""
        first, last, self.first, self.last = self.first, self.last, None, None
        if first is None or last is None:
            return
        time, steps = last[0] - first[0], last[1] - first[1]
        if time < SHORTEST or steps < FEWEST_STEPS:
            return
        rate = 1000 * steps / time
        if not self.company:
            self.alone = rate
        elif len(self.company) == 1 and self.company[0]:
            self.beside[self.company[0]] = rate

    def samples(self) -> Iterator[Sample]:
        for kind, rate in self.beside.items() if self.alone else ():
            if kind not in self.reported:
                self.reported.add(kind)
                speed = min(MOST_SPEED, max(LEAST_SPEED, rate / (self.alone or rate)))
                yield Sample(self.seat.kind, kind, self.seat.gpu, self.seat.mode, speed)


class PairWatch:
    """Runs whose pods share cards, by the key of their Workload."""

    def __init__(self) -> None:
        self._runs: dict[str, _Run] = {}
        #: who has reported a step
        self._reporting: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._runs)

    def seated(self, seats: Mapping[str, Sequence[Seat]], started: Container[str] | None = None) -> list[Sample]:
        """Who sits where now: the seats of each workload's pods on cards. Runs of one pod on one card are watched; the others are
        company. A change of company ends a stretch. `started`: the workloads whose pods run, as far as that is known; None = all.
        Beside one that may still be starting nothing is measured.
        """
        on_card: dict[str, list[tuple[str, str]]] = {}
        for key, pods in seats.items():
            runs = started is None or key in started or key in self._reporting
            for seat in pods:
                on_card.setdefault(seat.card, []).append((key, seat.kind if runs else ""))
        self._reporting &= seats.keys()
        found: list[Sample] = []
        for key in [key for key, run in self._runs.items() if list(seats.get(key, ())) != [run.seat]]:
            run = self._runs.pop(key)
            run.close()
            found += run.samples()
        for key, pods in seats.items():
            if len(pods) != 1 or not pods[0].kind or (key not in self._runs and len(self._runs) >= MOST_RUNS):
                continue
            run = self._runs.setdefault(key, _Run(pods[0]))
            company = tuple(sorted(kind for other, kind in on_card[pods[0].card] if other != key))
            if company != run.company:
                run.close()
                found += run.samples()
                run.company = company
        return found

    def reported(self, key: str, at: Millis, step: int) -> None:
        """A run reports a step."""
        run = self._runs.get(key)
        if run is None:
            return
        self._reporting.add(key)
        if run.last is not None and (step < run.last[1] or at - run.last[0] > LONGEST_SILENCE):
            run.close()
        if run.first is None:
            run.first = at, step
        run.last = at, step


def with_sample(pairs: Sequence[CompanySpeed], sample: Sample) -> tuple[CompanySpeed, ...]:
    """Learned pairs with one sample more: the mean of slowdowns, of which old ones fade."""
    found = list(pairs)
    for place, pair in enumerate(found):
        if (pair.beside, pair.gpu, pair.mode, pair.on_node) == (sample.beside, sample.gpu, sample.mode, False):
            count = min(pair.samples, MOST_SAMPLES - 1)
            slowdown = (count / pair.speed + 1 / sample.speed) / (count + 1)
            found[place] = CompanySpeed(pair.beside, pair.gpu, pair.mode, speed=1 / slowdown, samples=count + 1)
            return tuple(found)
    return (*found, CompanySpeed(sample.beside, sample.gpu, sample.mode, speed=sample.speed))
