"""Windows of Reservations: nodes that are kept for somebody, or for nobody, from one instant to another.

A window marks its nodes as a taint does, from when it is known until it ends. Pods may be on a marked node if the window is for
their workload, or if the workload will have ended before the window begins: by its limit, or by its forecast at the quantile by
which its queue judges backfill. Where the window says so, also if it will have saved its work until it is stopped. So filters,
tables and topologies need to know nothing of time: a workload carries the names of the windows whose nodes it may use
(`PodSet.windows`), and they change as time passes.

A soft window marks its nodes only while one whom it is for needs them (`recovery.recalls` says when). Others may be there until
they are recalled.

Without a Reservation nothing is marked, and whoever asks looks at an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias

from gangline.engine.model import Millis, Node, ReservedWindow, SaveTime, Submitter, Taint
from gangline.engine.model.nodes import RESERVED
from gangline.engine.model.runtime import NEVER
from gangline.engine.queues.cluster_queue import backfill_level
from gangline.engine.queues.ordering import Estimates
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.text.wording import minute_text, starts_before_text

#: How many nodes are named in a message.
_NAMED: Final = 3

#: The names of the nodes of a flavor.
NodesOfFlavor: TypeAlias = Callable[[str], Iterable[str]]

_NONE: Final[tuple[ReservedWindow, ...]] = ()


class Windows:
    """All windows that have not ended, and the nodes that they mark."""

    def __init__(self, estimates: Estimates) -> None:
        self._estimates = estimates
        #: by name; one that has ended stays until it is taken away, and marks nothing
        self._known: dict[str, ReservedWindow] = {}
        self._open: dict[str, ReservedWindow] = {}
        self._begun: set[str] = set()
        #: node -> the open windows that it is in, those that begin first are first
        self._on: dict[str, tuple[ReservedWindow, ...]] = {}
        #: the soft windows that mark their nodes, since somebody needs these
        self.needed: frozenset[str] = frozenset()
        #: windows came, went or changed, and nodes are not marked anew yet
        self.changed = False
        #: by workload: its user, where a window names that one; and how long its pods take to end, in milliseconds
        self.submitters: dict[str, Submitter] = {}
        self.save_times: dict[str, SaveTime] = {}
        #: the present, as of the last `advance`
        self.now: Millis = 0

    def __bool__(self) -> bool:
        """Whether any window has not ended."""
        return bool(self._open)

    def known(self) -> Collection[ReservedWindow]:
        return self._known.values()

    def put(self, window: ReservedWindow | None, name: str) -> None:
        """A window as it is now; None if it was taken away."""
        self.changed = True
        self._open.pop(name, None)
        self._begun.discard(name)
        if window is None:
            self._known.pop(name, None)
            return
        self._known[name] = window
        if window.end > self.now:
            self._open[name] = window

    def advance(self, now: Millis) -> tuple[bool, bool]:
        """Go on to a time. Returns whether a window has begun, and whether one has ended."""
        self.now = now
        begun = [name for name, window in self._open.items() if window.begin <= now and name not in self._begun]
        ended = [name for name, window in self._open.items() if window.end <= now]
        self._begun.update(begun)
        for name in ended:
            del self._open[name]
            self._begun.discard(name)
        self.needed -= {*ended}
        return bool(begun), bool(ended)

    def next_due(self) -> Millis | None:
        """When next a window begins or ends, or others can be recalled from the nodes of a soft one."""
        times = [time for window in self._open.values() for time in (window.begin, window.end)]
        times += [window.begin - window.notice for window in self._open.values() if window.soft]
        return min((time for time in times if time > self.now), default=None)

    def soft_ones(self) -> list[ReservedWindow]:
        """The open soft windows from which others may be recalled by now: so that they have left when it begins."""
        due = (w for w in self._open.values() if w.soft and w.begin - w.notice <= self.now)
        return sorted(due, key=lambda each: (each.begin, each.name))

    def need(self, names: frozenset[str]) -> bool:
        """Set the soft windows that mark their nodes. Returns whether that is a change: nodes have to be marked anew then."""
        changed, self.needed = names != self.needed, names
        return changed

    def _marks(self, window: ReservedWindow) -> bool:
        return not window.soft or window.name in self.needed

    def ends(self) -> list[Millis]:
        """The ends of the open windows: capacity comes back."""
        return [window.end for window in self._open.values()]

    # --- nodes --------------------------------------------------------------------------------------------------------

    def marked(self, node: Node) -> Node:
        """The node with a mark for each open window that it is in."""
        found = sorted((w for w in self._open.values() if w.selects(node)), key=lambda each: (each.begin, each.name))
        if not found:
            self._on.pop(node.name, None)
            return node
        self._on[node.name] = tuple(found)
        marks = tuple(Taint(RESERVED, window.name, RESERVED) for window in found if self._marks(window))
        return replace(node, taints=(*node.taints, *marks)) if marks else node

    def forget_node(self, name: str) -> None:
        self._on.pop(name, None)

    def nodes(self) -> Collection[str]:
        """The nodes that are in any open window."""
        return self._on.keys()

    def on(self, node: str) -> tuple[ReservedWindow, ...]:
        """The open windows that a node is in, those that begin first are first."""
        return self._on.get(node, _NONE)

    def nodes_of(self, window: str) -> list[str]:
        """The nodes of a window, by name."""
        return sorted(node for node, windows in self._on.items() if any(each.name == window for each in windows))

    def first_on(self, nodes: Iterable[str], gang: WorkloadState, since: Millis = 0) -> ReservedWindow | None:
        """The hard window that begins first, after a time, of those that these nodes are in and that are not for the workload."""
        on = (each for node in nodes for each in self.on(node))
        found = (each for each in on if not each.soft and each.begin > since and not self.is_for(each, gang))
        return self.first_to_leave(found, gang)

    def first_to_leave(self, windows: Iterable[ReservedWindow], gang: WorkloadState) -> ReservedWindow | None:
        """The window for which a workload is stopped first."""
        return min(windows, key=lambda each: (self.leaves_at(each, gang), each.begin, each.name), default=None)

    def leaves_at(self, window: ReservedWindow, gang: WorkloadState) -> Millis:
        """When a workload is stopped so that its nodes are empty in the window: as long before as its pods take to end, if that
        is known and longer than the Reservation says; never before the window is announced. One that ends by itself in time, by
        its limit, may go on until the window begins.
        """
        left, known = gang.workload.execution_left, self.save_times.get(gang.key)
        if left is not None and gang.admitted and gang.quota.admitted_at + left <= window.begin:
            return window.begin
        longer = max(0, known.millis - window.lead) if known is not None else 0
        return window.begin - min(longer, max(0, window.notice))

    # --- workloads ----------------------------------------------------------------------------------------------------

    def passed(self, gang: WorkloadState, start: Millis) -> frozenset[str]:
        """The windows whose nodes a workload may use if it starts at this time."""
        end = min(NEVER, start + self._length(gang))
        return frozenset(
            name
            for name, window in self._open.items()
            if window.end <= start or self.is_for(window, gang) or self._may_start(window, gang, start, end)
        )

    def _may_start(self, window: ReservedWindow, gang: WorkloadState, start: Millis, end: Millis) -> bool:
        """Whether a workload will have ended when it would be stopped for the window, or by its limit when the window begins, or
        will have saved enough work by then.
        """
        left, leaves = gang.workload.execution_left, self.leaves_at(window, gang)
        by_limit = left is not None and start + left <= window.begin
        return by_limit or end <= leaves or gang.workload.may_run_for(leaves - start, window.shortest_run)

    def let_stay(self, gang: WorkloadState) -> None:
        """A workload that holds quota may use the nodes of windows until these begin: it is stopped then. It may use those of
        soft ones until it is recalled.
        """
        if self._open or gang.windows:
            stays = {name for name, w in self._open.items() if w.soft or w.begin > self.now or self.is_for(w, gang)}
            gang.use_windows(frozenset(stays))

    def renew(self, gang: WorkloadState, start: Millis | None = None) -> bool:
        """Bring what a workload may use up to date, from now on or for a start. Returns whether it changed."""
        if not self._open and not gang.windows:
            return False
        return gang.use_windows(self.passed(gang, self.now if start is None else start))

    @contextmanager
    def at_start(self, gang: WorkloadState, start: Millis) -> Generator[None]:
        """Ask about a workload as if it started at this time."""
        before = gang.windows
        self.renew(gang, start)
        try:
            yield
        finally:
            gang.use_windows(before)

    def barring(self, gang: WorkloadState) -> list[ReservedWindow]:
        """The open windows with nodes that a waiting workload may not use now, those that begin first are first."""
        marking = (w for name, w in self._open.items() if name not in gang.windows and self._marks(w))
        return sorted((w for w in marking if not self.is_for(w, gang)), key=lambda each: (each.begin, each.name))

    def is_for(self, window: ReservedWindow, gang: WorkloadState) -> bool:
        """Whether a workload may run in the window, since the window is for its queue or its user."""
        if window.is_maintenance:
            return False
        if window.users and (known := self.submitters.get(gang.key)) is not None and known.user in window.users:
            return True
        admission = gang.quota.admission
        queue = admission.cluster_queue if admission is not None else gang.queue.name if gang.queue is not None else ""
        return gang.local_queue in window.local_queues or queue in window.cluster_queues

    def _length(self, gang: WorkloadState) -> Millis:
        """How long a workload will run at most, by its limit, or with the probability on which its queue relies in backfill."""
        return self._estimates.length(gang, backfill_level(gang))

    # --- in words -----------------------------------------------------------------------------------------------------

    def text(self, window: ReservedWindow, nodes: Collection[str] | None = None) -> str:
        """Which nodes are reserved from when until when, and for whom."""
        named = sorted(self.nodes_of(window.name) if nodes is None else nodes)
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        which = f"nodes {', '.join(named[:_NAMED])}{more} are" if len(named) != 1 else f"node {named[0]} is"
        what = "maintenance" if window.is_maintenance else "reservation"
        return (
            f"{which} reserved from {minute_text(window.begin)} until {minute_text(window.end)}"
            f" ({what} '{window.reservation}')"
        )

    def remark(self, gang: WorkloadState, flavors: Iterable[str], nodes_of: NodesOfFlavor) -> str:
        """What is added to the reason of a workload that finds no room on nodes of these flavors; "" = windows do not matter."""
        if not self._open:
            return ""
        reach = {node for flavor in flavors for node in nodes_of(flavor)}
        for window in self.barring(gang):
            nodes = reach.intersection(self.nodes_of(window.name))
            if nodes and window.begin <= self.now:
                return f". {_capital(self.text(window, nodes))}"
            if nodes:
                return (
                    f". {_capital(self.text(window, nodes))}; {starts_before_text('there before', window.shortest_run)}"
                )
        return ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
