"""A quick no: whether a gang that did not fit could possibly fit by now, by counting its pods node by node.

A yes proves nothing. Inadmissible workloads are checked this way whenever something is released, instead of being tried.
"""

from __future__ import annotations

from typing import TypeAlias

from gangline.engine.occupancy.fitting import PodRequests
from gangline.engine.quota.quota_ledger import Cell
from gangline.engine.topology.topology_ledger import TopologyLedger

#: One flavor that a pod set could use: the quota that it takes of it, and where its pods have to find room, if anywhere.
Way: TypeAlias = tuple[tuple[tuple[Cell, int], ...], TopologyLedger | None]
#: One pod set: its least number of pods, the requests of one pod, and the flavors.
Part: TypeAlias = tuple[int, PodRequests, tuple[Way, ...]]
Question: TypeAlias = tuple[Part, ...]


def could_fit(question: Question) -> bool:
    """Whether the workload may fit. False is certain: for some pod set no flavor has enough quota and enough room."""
    for count, pod_requests, ways in question:
        for cells, ledger in ways:
            if all(amount <= cell.available() for cell, amount in cells) and (
                ledger is None or ledger.pods_that_fit(pod_requests) >= count
            ):
                break
        else:
            return False
    return True
