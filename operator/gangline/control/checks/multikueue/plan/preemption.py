"""Decides which copy of a workload may have others preempted for it: one at a time (gate MultiKueueOrchestratedPreemption). Pure.

A copy is created with a closed preemption gate. The scheduler there says in a condition that it would preempt; the gate of the
copy that says so first is opened, and the next one's only when that has had its time. An eviction there closes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gangline.api import names
from gangline.control.checks.multikueue.plan.steps import OpenGate, Send, Step, View, Wait

#: ms for which one copy alone may preempt; Kueue's, which has no setting for it
ALONE: Final = 300_000


def send(view: View, cluster: str, *, alone: bool = False) -> Send:
    """The step that creates the copy in a cluster. `alone`: its cluster is chosen already, so there is nothing to wait for."""
    if not view.settings.orchestrates:
        return Send(cluster)
    return Send(cluster, () if alone else (names.MULTIKUEUE_GATE,))


def open_next(view: View, asked: Iterable[str]) -> Iterator[Step]:
    """Open the gate of the next copy. `asked`: the clusters that may hold copies. What is known of one that is not connected does
    not count, as in Kueue.
    """
    if not view.settings.orchestrates:
        return
    there = {name: view.clusters[name] for name in asked if name in view.clusters and view.clusters[name].connected}
    copies = [(name, each.copy) for name, each in there.items() if each.copy is not None and not each.copy.leaving]
    opened = [at for _, copy in copies if (at := copy.open_since()) is not None and at <= view.now]
    waiting = sorted(
        (copy.since(names.BLOCKED_ON_GATES), name, copy)
        for name, copy in copies
        if copy.gated and copy.open_since() is None and copy.row(names.BLOCKED_ON_GATES) is not None
    )
    if not waiting or any(there[name].in_flight for _, name, _ in waiting):  # one may be opened just now
        return
    if opened and (due := max(opened) + ALONE) > view.now:
        yield Wait(due)
        return
    ready = [(name, copy) for _, name, copy in waiting if not there[name].busy]
    if ready:
        yield OpenGate(*ready[0])
