"""The demand of the owner of a group's pods, where it has made the Workload: it knows how many pods there are to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """The pods that the owner of a group wants. `in_stages`: some are only created once others run. `pods`: the uids of those
    that the owner has made.
    """

    wanted: int
    in_stages: bool = False
    pods: frozenset[str] = frozenset()
