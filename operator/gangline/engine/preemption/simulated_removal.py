"""Trials: the ledgers as they would be without some workloads. What a trial takes out, its end puts back.

with simulate(removed=victims) as removal:
    …                       # quota and nodes are free of them
    removal.put_back(one)   # … but for this one
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self

from gangline.engine.queues.workload_state import WorkloadState


class SimulatedRemoval:
    """Workloads that hold nothing in the ledgers until the end of a `with`. May be entered again after that.

    `places`: their room on nodes is free, too; else only quota. `lazily`: nodes are freed when `free_nodes` is called.
    """

    __slots__ = ("_lazily", "_on_nodes", "_places", "removed")

    def __init__(self, *, places: bool = True, lazily: bool = False) -> None:
        self._places = places
        self._lazily = lazily
        #: in the order of removal
        self.removed: dict[WorkloadState, None] = {}
        #: removed workloads that still take room on their nodes
        self._on_nodes: dict[WorkloadState, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Let all removed workloads hold again what they held."""
        while self.removed:
            self.put_back(next(reversed(self.removed)))

    def remove(self, *gangs: WorkloadState) -> None:
        for gang in gangs:
            gang.quota.leave_ledger()
            self.removed[gang] = None
            if self._places:
                self._on_nodes[gang] = None
        if not self._lazily:
            self.free_nodes()

    def put_back(self, *gangs: WorkloadState) -> None:
        for gang in gangs:
            del self.removed[gang]
            gang.quota.return_to_ledger()
            if gang in self._on_nodes:
                del self._on_nodes[gang]
            elif self._places:
                _take_nodes(gang)

    def free_nodes(self) -> None:
        """Free the nodes of the removed workloads."""
        for gang in self._on_nodes:
            _free_nodes(gang)
        self._on_nodes.clear()


def simulate(removed: Iterable[WorkloadState] = (), *, places: bool = True) -> SimulatedRemoval:
    """The ledgers without these workloads, from now until the end of the `with` statement."""
    trial = SimulatedRemoval(places=places)
    trial.remove(*removed)
    return trial


class OrderedRemoval(SimulatedRemoval):
    """Simulates removal of the first workloads of an order; from the end, it finds those that need not be removed after all."""

    __slots__ = ("order",)

    def __init__(self, order: Sequence[WorkloadState], count: int | None = None) -> None:
        super().__init__()
        self.order = order
        self.first(len(order) if count is None else count)

    def first(self, count: int) -> None:
        """The first `count` of them are removed, and the others are not. Only valid while none has been put back."""
        out = len(self.removed)
        self.remove(*self.order[out:count])
        self.put_back(*self.order[count:out])

    def spare(self, fits: Callable[[], bool], *, last: bool = False) -> list[WorkloadState]:
        """Put back those that need not be removed, from the last to the first, and return the others in their order.

        It fits without all that are removed now, and would not fit with all present. `last`: nor without all but the last.
        """
        for gang in list(reversed(self.removed))[last:]:
            if len(self.removed) == 1:
                break
            self.put_back(gang)
            if not fits():
                self.remove(gang)
        return [gang for gang in self.order if gang in self.removed]


def _free_nodes(gang: WorkloadState) -> None:
    if gang.nodes.ledger is not None:
        gang.nodes.ledger.lift(gang.key)


def _take_nodes(gang: WorkloadState) -> None:
    if gang.nodes.ledger is not None:
        gang.nodes.ledger.restore(gang.key)
