"""A cluster that is not made of a number of GPUs: its own queues, quotas and nodes, which change while jobs come and go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.engine.model import Admission, Change, Millis, Workload
from gangline.replay.policies import Policy
from gangline.replay.replayed import ReplayedJob


@dataclass(frozen=True, slots=True)
class ReplayEvent:
    """What changes at an instant. Whoever has pods on `lost` nodes (by their numbers) is stopped, and waits again."""

    at: Millis
    changes: tuple[Change, ...]
    lost: frozenset[int] = frozenset()


class ReplayedWorld(Protocol):
    """A cluster under one policy."""

    def begins(self) -> Iterable[Change]:
        """The facts from before the first job."""
        ...

    def later(self) -> Sequence[ReplayEvent]:
        """What happens later, in the order of time."""
        ...

    def of(self, job: ReplayedJob) -> Workload:
        """The job as it waits."""
        ...

    def places(self, admission: Admission) -> tuple[tuple[int, int], ...]:
        """(node, GPUs) of an admission; () where its nodes are not known."""
        ...


class Worlds(Protocol):
    """A cluster under any policy."""

    def under(self, policy: Policy, restart_seconds: float) -> ReplayedWorld: ...
