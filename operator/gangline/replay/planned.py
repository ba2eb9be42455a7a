"""Windows of Reservations and quotas by QuotaPlans in a replay: when the engine learns of each, under a policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from gangline.engine.model import Change, Gone, Millis, Put, ReservedWindow
from gangline.replay.policies import WindowHandling
from gangline.replay.replayed import PlayedWindow
from gangline.replay.world import ReplayEvent


@dataclass(frozen=True, slots=True)
class PlannedWindow:
    """A window as it was when it began, with its nodes by name."""

    window: ReservedWindow
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class Planned:
    """What is planned in a replay: what an operator would have passed to its engine and when, in the order of time, and what
    each window came to.
    """

    events: tuple[ReplayEvent, ...] = ()
    windows: tuple[PlannedWindow, ...] = ()
    #: the same of quotas
    quotas: tuple[ReplayEvent, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.events or self.quotas)

    def under(self, handling: WindowHandling) -> Sequence[ReplayEvent]:
        """What the engine receives under a policy. Where there are windows, policies differ in these only: quotas change alike
        under all of them.
        """
        quotas = self.quotas if self.events or handling == "announced" else _unforeseen(self.quotas)
        if handling == "without":
            return quotas if self.events else ()
        windows = self.events if handling == "announced" else _held_back(self.events)
        return sorted((*windows, *quotas), key=lambda event: event.at)

    def played(self, number: Callable[[str], int | None]) -> tuple[PlayedWindow, ...]:
        """The windows with the numbers of their nodes."""
        return tuple(
            PlayedWindow(
                name=each.window.name,
                reservation=each.window.reservation,
                stops=each.window.begin,
                end=each.window.end,
                nodes=frozenset(found for name in each.nodes if (found := number(name)) is not None),
            )
            for each in self.windows
        )


def _unforeseen(events: Iterable[ReplayEvent]) -> list[ReplayEvent]:
    """The same quotas, of which nothing is known ahead."""
    return [replace(event, changes=()) for event in events if event.quotas]


def _held_back(events: Iterable[ReplayEvent]) -> Iterator[ReplayEvent]:
    """The same windows, each passed to the engine when it begins to stop jobs, and not before."""
    waiting: dict[str, ReservedWindow] = {}
    for event in events:
        yield from _begun(waiting, event.at)
        changes: list[Change] = []
        for change in event.changes:
            match change:
                case Put(ReservedWindow() as window) if window.begin > event.at:
                    waiting[window.name] = window
                case Gone(_, name) if name in waiting:
                    del waiting[name]
                case _:
                    changes.append(change)
        if changes:
            yield ReplayEvent(event.at, tuple(changes))
    yield from _begun(waiting, None)


def _begun(waiting: dict[str, ReservedWindow], until: Millis | None) -> Iterator[ReplayEvent]:
    """Those of the waiting windows that begin by a time (None: ever), which then wait no more."""
    for window in sorted(waiting.values(), key=lambda each: (each.begin, each.name)):
        if until is None or window.begin <= until:
            del waiting[window.name]
            yield ReplayEvent(window.begin, (Put(window),))


#: of a replay without Reservations
NOTHING_PLANNED: Final = Planned()
