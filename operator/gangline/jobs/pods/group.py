"""A pod group as one value, and the rules about its pods. A pod that stands alone is a group of one, without replacements.

A pod *counts* while it runs, will run, or has succeeded. Of these, each role keeps as many as its pod set has; the others are
*excess*. A failed or deleted pod keeps its finalizer until another pod has taken its place: it is *replaced* then. A deleted pod
of a StatefulSet loses it when it has ended, since only then can that one make another pod of its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.jobs.base import JobError, JobOutcome
from gangline.jobs.pods.member import GroupPod

#: pod set of a pod that stands alone
MAIN: Final = "main"
_TOTAL_PATH: Final = f"metadata.annotations[{names.POD_GROUP_TOTAL}]"
_LATEST: Final = 1 << 62


class IncompleteError(JobError):
    """The group lacks pods: it waits for them."""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """The queued pods of one group, the oldest first. `alone`: one pod without a group, of which the group has the name."""

    name: str
    alone: bool
    pods: tuple[GroupPod, ...]

    @classmethod
    def of(cls, name: str, pods: Iterable[GroupPod], *, alone: bool = False) -> PodGroup:
        return cls(name, alone, tuple(sorted(pods, key=lambda pod: (pod.created, pod.key))))

    @property
    def leader(self) -> GroupPod:
        """The pod that speaks for the group: its oldest one that counts, if one does."""
        return next((pod for pod in self.pods if pod.counts), self.pods[0])

    @property
    def serving(self) -> bool:
        return not self.alone and self.leader.serving

    @property
    def fast(self) -> bool:
        return not self.alone and self.leader.fast

    @property
    def parent(self) -> str:
        """The framework of the owner that has made its Workload, "" = it makes its own. A pod that stands alone always does."""
        return "" if self.alone else self.leader.parent

    @property
    def prebuilt(self) -> str:
        """The Workload that a pod that stands alone names, "" = it makes its own. That of a group has the group's name."""
        return self.pods[0].prebuilt if self.alone else ""

    @property
    def total(self) -> int:
        """How many pods the group has when it is complete. Raises JobError."""
        if self.alone:
            return 1
        total = self.leader.total
        if total is None:
            raise JobError("is not a whole number of at least 1", _TOTAL_PATH)
        return total


def role_of(group: PodGroup, pod: GroupPod) -> str:
    """The pod set of one of its pods."""
    return MAIN if group.alone else pod.role


# --- which pods are kept ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Division:
    """The pods of a group by what becomes of them. Pods of roles that its Workload lacks are in none of these."""

    kept: tuple[GroupPod, ...]
    excess: tuple[GroupPod, ...] = ()  # deleted
    replaced: tuple[GroupPod, ...] = ()  # they lose their finalizer
    absent: int = 0  # pods that have to be replaced yet


def before_queueing(group: PodGroup) -> Division:
    """Divide a group that has no Workload: it keeps at most `total` pods. Raises JobError, IncompleteError while pods are
    missing.
    """
    active = _by_worth(pod for pod in group.pods if pod.counts)
    total = group.total
    _check_agreement(group, total)
    if len(active) < total and not (group.fast and active):
        message = f"'{group.name}' group has fewer runnable pods than expected"
        raise IncompleteError(message)
    return Division(_in_order(active[:total]), tuple(active[total:]))


def under_workload(group: PodGroup, counts: Mapping[str, int]) -> Division:
    """Divide a group that has a Workload whose pod sets have these `counts`."""
    kept: list[GroupPod] = []
    excess: list[GroupPod] = []
    replaced: list[GroupPod] = []
    absent = 0
    leaving = _in_the_way(group)
    for role, count in counts.items():
        of_role = [pod for pod in group.pods if role_of(group, pod) == role]
        mine = [pod for pod in of_role if pod not in leaving]
        active = _by_worth(pod for pod in mine if pod.counts)
        failed = sorted((pod for pod in mine if not pod.counts), key=_by_last_life)
        missing = max(0, count - len(active))
        absent += (1 if missing and not active else 0) if group.fast else missing
        kept += [*active[:count], *failed[:missing]]
        excess += active[count:]
        replaced += [*failed[missing:], *(pod for pod in of_role if pod in leaving)]
    return Division(_in_order(kept), tuple(excess), tuple(replaced), absent)


def _in_the_way(group: PodGroup) -> list[GroupPod]:
    """The pods that have to go before others can take their places.

    Of a group of several, one stays until there are others: without any pod its Workload would go.
    """
    if group.alone:
        return []
    found = sorted((pod for pod in group.pods if pod.in_the_way), key=lambda pod: pod.ordinal)
    last = bool(found) and len(found) == len(group.pods) and found[-1].total != 1
    return [pod for pod in (found[:-1] if last else found) if pod.held]


def _by_worth(pods: Iterable[GroupPod]) -> list[GroupPod]:
    """Pods with our finalizer are kept first, then those that have started, then the oldest; of an owner the first by number."""
    return sorted(
        pods,
        key=lambda pod: (not pod.held, pod.gated, pod.ordinal if pod.parent else pod.created, pod.created, pod.key),
    )


def _by_last_life(pod: GroupPod) -> tuple[bool, int, int, str]:
    """Failed pods that lived last stand in the group's place longest."""
    lived = min(pod.failed or _LATEST, pod.deleted or _LATEST)
    return (not pod.held, -lived, pod.created, pod.key)


def _in_order(pods: Iterable[GroupPod]) -> tuple[GroupPod, ...]:
    return tuple(sorted(pods, key=lambda pod: (pod.created, pod.key)))


def _check_agreement(group: PodGroup, total: int) -> None:
    """Check that all pods that have not failed name the same queue and the same total. Raises JobError."""
    leader = group.leader
    for pod in group.pods:
        if pod.phase == "Failed":
            continue
        if pod.queue != leader.queue:
            message = f"pods '{leader.name}' and '{pod.name}' has different queue names: {leader.queue}!={pod.queue}"
            raise JobError(message)
        if not group.alone and pod.total != total:
            message = (
                f"pods '{leader.name}' and '{pod.name}' has different '{names.POD_GROUP_TOTAL}' values: "
                f"{total}!={pod.total}"
            )
            raise JobError(message)


# --- the state of a group ---------------------------------------------------------------------------------------------


def finished(group: PodGroup) -> JobOutcome | None:
    """How the group ended. A group that serves never does; failed pods may be replaced unless one of them says otherwise.

    A pod that stands alone and was stopped by us has not finished: it goes with its Workload.
    """
    if group.alone:
        (pod,) = group.pods
        return JobOutcome(pod.succeeded, "") if pod.succeeded or (pod.ended and not pod.marked) else None
    if group.serving:
        return None
    succeeded, total = sum(pod.succeeded for pod in group.pods), group.total
    final = all(pod.ended for pod in group.pods) and not all(pod.retriable for pod in group.pods)
    if succeeded != total and not final:
        return None
    return JobOutcome(True, f"Pods succeeded: {succeeded}/{total}.")


def ready(group: PodGroup, wanted: int | None = None) -> bool:
    """Whether all pods of the group are there, and are ready or have succeeded. `wanted`: how many there are to be, if an owner
    says it.
    """
    return sum(pod.ready or pod.succeeded for pod in group.pods) >= (group.total if wanted is None else wanted)


def reclaimable(group: PodGroup) -> dict[str, int]:
    """Pod set -> pods that have succeeded, whose quota may be released."""
    if group.alone or group.serving:
        return {}
    return dict(Counter(role_of(group, pod) for pod in group.pods if pod.succeeded))


def may_start(division: Division, group: PodGroup) -> bool:
    """Whether pods of the group may start. No gang starts with fewer pods than it has: the first of them starts only when none is
    missing.

    Of a group whose pods have failed, the last one starts alone: one that says that no other will follow.
    """
    if not division.absent or group.fast:
        return True
    last = any(pod.ended for pod in division.kept) and not all(pod.retriable for pod in division.kept)
    return last or any(pod.started or pod.succeeded for pod in division.kept)


def given_up(pods: Sequence[GroupPod]) -> bool:
    """Whether somebody else deleted all pods of the group, and none of them runs any more: nobody will replace them."""
    return bool(pods) and all(pod.deleted and not (pod.marked or pod.started or pod.lost) for pod in pods)
