"""Simulations: the ledgers as they would be without some workloads. What a simulation takes out, its end puts back.

with simulate(removed=victims) as removal:
    …                       # quota and nodes are free of them
    removal.put_back(one)   # … but for this one
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self

from gangline.engine.queues.workload_state import WorkloadState


class SimulatedRemoval:
    """Workloads that hold nothing, as far as the ledgers show, until the end of a `with`. May be entered again after that.

    `places`: room on nodes is free of them, too; else only quota. `lazily`: nodes are freed when `free_nodes` is called.
    """

    __slots__ = ("_lazily", "_on_nodes", "_places", "removed")

    def __init__(self, *, places: bool = True, lazily: bool = False) -> None:
        self._places = places
        self._lazily = lazily
        #: in the order in which they were removed
        self.removed: dict[WorkloadState, None] = {}
        #: those of them that still take room on their nodes
        self._on_nodes: dict[WorkloadState, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """All of them hold again what they hold."""
        while self.removed:
            self.put_back(next(reversed(self.removed)))

    def remove(self, *gangs: WorkloadState) -> None:
        for gang in gangs:
            gang.removed = True
            for cell, amount in gang.cells:
                cell.remove(amount)
            self.removed[gang] = None
            if self._places:
                self._on_nodes[gang] = None
        if not self._lazily:
            self.free_nodes()

    def put_back(self, *gangs: WorkloadState) -> None:
        for gang in gangs:
            del self.removed[gang]
            gang.removed = False
            for cell, amount in gang.cells:
                cell.add(amount)
            if gang in self._on_nodes:
                del self._on_nodes[gang]
            elif self._places:
                _take_nodes(gang)

    def free_nodes(self) -> None:
        """Of those that were removed."""
        for gang in self._on_nodes:
            _free_nodes(gang)
        self._on_nodes.clear()


def simulate(removed: Iterable[WorkloadState] = (), *, places: bool = True) -> SimulatedRemoval:
    """The ledgers without these, from now until the end of the `with` that it is used in."""
    simulation = SimulatedRemoval(places=places)
    simulation.remove(*removed)
    return simulation


class OrderedRemoval(SimulatedRemoval):
    """Of workloads in an order, the first ones are removed; who need not go after all is found from the end."""

    __slots__ = ("order",)

    def __init__(self, order: Sequence[WorkloadState], count: int | None = None) -> None:
        super().__init__()
        self.order = order
        self.first(len(order) if count is None else count)

    def first(self, count: int) -> None:
        """The first `count` of them are removed, and the others are not. Only as long as nobody was put back."""
        out = len(self.removed)
        self.remove(*self.order[out:count])
        self.put_back(*self.order[count:out])

    def spare(self, fits: Callable[[], bool], *, last: bool = False) -> list[WorkloadState]:
        """Put back those that need not go, from the last to the first, and return the others in their order.

        It fits without all that are removed now, and would not fit if nobody were. `last`: nor without all but the last.
        """
        for gang in list(reversed(self.removed))[last:]:
            if len(self.removed) == 1:
                break
            self.put_back(gang)
            if not fits():
                self.remove(gang)
        return [gang for gang in self.order if gang in self.removed]


def _free_nodes(gang: WorkloadState) -> None:
    if gang.placed is not None:
        gang.placed.remove_holder(gang.key)
    if gang.on_nodes is not None:
        gang.on_nodes.lift(gang)


def _take_nodes(gang: WorkloadState) -> None:
    if gang.placed is not None and gang.admission is not None:
        gang.placed.put_holder(gang.key, gang.admission)
    if gang.on_nodes is not None:
        gang.on_nodes.restore(gang)
