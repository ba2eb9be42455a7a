"""Judges which hosts of a placed gang count as failed, by Kueue's rules. Pure.

A node that is gone, or says nothing of its readiness, counts at once. A node that is not ready, or has a taint that the gang does
not tolerate for ever, counts once the gang's pods there have ended or are terminating: until then they may run on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangline.api.read import conditions
from gangline.engine import model
from gangline.kube.resources import Json
from gangline.objects import NodeObject

HOST: Final = "kubernetes.io/hostname"
#: how long a node may be not ready where a gate sets a limit, in milliseconds
NOT_READY: Final = 30_000
#: effects of taints that keep pods away
_EFFECTS: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Rules:
    """Kueue's gates about failed nodes."""

    #: TASReplaceNodeOnPodTermination: the gang's pods have to end first; without it only a limit of time counts
    on_termination: bool = True
    #: TASReplaceNodeOnNodeTaints
    on_taints: bool = True
    #: TASReplaceNodeDueToNotReadyOverFixedTime: the limit of time counts as well
    by_time: bool = False
    #: SkipReassignmentForPodOwnedWorkloads: what cannot move loses no node
    lone_pods_stay: bool = True

    @staticmethod
    def of(gates: Mapping[str, bool]) -> Rules:
        return Rules(
            on_termination=gates.get("TASReplaceNodeOnPodTermination", True),
            on_taints=gates.get("TASReplaceNodeOnNodeTaints", True),
            by_time=gates.get("TASReplaceNodeDueToNotReadyOverFixedTime", False),
            lone_pods_stay=gates.get("SkipReassignmentForPodOwnedWorkloads", True),
        )


@dataclass(frozen=True, slots=True)
class Found:
    """The failed hosts of a gang. `due`: when time alone makes another one fail."""

    failed: tuple[str, ...] = ()
    #: some host is not as it should be: the gang's pods decide when it counts
    troubled: bool = False
    due: int | None = None


def hosts_of(admission: model.Admission | None) -> dict[str, list[str]]:
    """The hosts in the places of an admission, each with the pod sets that have pods there."""
    found: dict[str, list[str]] = {}
    for each in admission.pod_sets if admission is not None else ():
        if each.topology is not None and each.topology.levels[-1] == HOST:
            for domain in each.topology.domains:
                found.setdefault(domain.values[-1], []).append(each.name)
    return found


def done_on(admission: model.Admission | None, succeeded: Iterable[str]) -> set[str]:
    """The hosts where all pods with a place there ended well. `succeeded`: the host of each pod that did."""
    ended = Counter(succeeded)
    wanted = Counter[str]()
    for each in admission.pod_sets if admission is not None else ():
        if each.topology is not None and each.topology.levels[-1] == HOST:
            for domain in each.topology.domains:
                wanted[domain.values[-1]] += domain.count
    return {host for host, count in wanted.items() if ended[host] >= count}


def failed_hosts(
    workload: model.Workload,
    *,
    busy: Collection[str],
    node_of: Callable[[str], NodeObject | None],
    tolerations: Callable[[str], Sequence[Json]],
    rules: Rules,
    now: int,
) -> Found:
    """The failed hosts of a gang. `busy`: names of nodes with pods of the gang that neither ended nor are terminating; `node_of`:
    host name -> the node, or None; `tolerations`: those of a pod set.
    """
    if not workload.admitted or workload.evicted or workload.finished:
        return Found()
    if workload.lone_pod and rules.lone_pods_stay:
        return Found()
    failed: list[str] = []
    times: list[int] = []
    troubled = False
    for host, pod_sets in sorted(hosts_of(workload.admission).items()):
        node = node_of(host)
        if node is None:
            failed.append(host)
            troubled = True
            continue
        verdict, due = _judge(node, node.name in busy, map(tolerations, pod_sets), rules, now)
        troubled |= verdict is not None
        if verdict:
            failed.append(host)
        elif due is not None:
            times.append(due)
    return Found(tuple(failed), troubled, min(times, default=None))


def keeps_away(node: NodeObject, tolerations: Iterable[Sequence[Json]]) -> bool:
    """Whether the node has a taint that pods with some of these tolerations stand for a while at most."""
    return _worst(node, tolerations) > 0


def _judge(
    node: NodeObject, busy: bool, tolerations: Iterable[Sequence[Json]], rules: Rules, now: int
) -> tuple[bool | None, int | None]:
    """Whether a node failed the gang, None = it is as it should be; and when that changes by time alone."""
    ready = node.condition("Ready")
    if ready is None:
        return True, None
    if ready.get("status") != "True":
        limit = conditions.millis_of(ready.get("lastTransitionTime")) + NOT_READY
        late = limit <= now
        if not rules.on_termination:
            return late, limit
        return not busy or (rules.by_time and late), limit if rules.by_time else None
    worst = _worst(node, tolerations) if rules.on_taints else 0
    if worst == 0:
        return None, None
    return not busy or (worst == 2 and not rules.on_termination), None


def _worst(node: NodeObject, tolerations: Iterable[Sequence[Json]]) -> int:
    """The rank of the node's worst taint. 0: all its taints are tolerated; 1: some only for a while; 2: some are not."""
    taints = [taint for taint in node.taints if taint.get("effect") in _EFFECTS]
    if not taints:
        return 0
    worst = 0
    for given in tolerations:
        lasting = [each for each in given if each.get("tolerationSeconds") is None]
        for taint in taints:
            if not any(_tolerates(each, taint) for each in given):
                return 2
            if not any(_tolerates(each, taint) for each in lasting):
                worst = 1
    return worst


def _tolerates(toleration: Json, taint: Json) -> bool:
    """Whether a toleration tolerates a taint, by Kubernetes' rule: an empty key or effect of the toleration matches all; Exists
    ignores the value.
    """
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    return operator == "Exists" or (
        operator == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")
    )
