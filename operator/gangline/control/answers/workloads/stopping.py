"""The wait of a workload that preempted others: pods of these that have not ended, until when they may run, and what would end
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.answers.workloads.reasons import parse, preemption
from gangline.control.answers.workloads.snapshot import State, WorkloadView
from gangline.control.answers.workloads.words import age
from gangline.control.feed.pod import Pod
from gangline.control.nodes.recovery.fencing import EXTRA_GRACE, OUT_OF_SERVICE, gone_for_certain, out_of_reach_since
from gangline.engine import model

#: preempted workloads of which the pods are named, and pods of each
MOST_VICTIMS: Final = 3
MOST_PODS: Final = 2


def waits_for_preempted(view: WorkloadView) -> bool:
    return view.reason == "WaitingForPreemptedWorkloads" or parse(view.message).preempting > 0


def victims_of(view: WorkloadView, views: list[WorkloadView]) -> list[WorkloadView]:
    """The workloads that still hold quota after they were preempted for this one."""
    stopping = [each for each in views if each.state is State.STOPPING]
    return [each for each in stopping if (found := preemption(each.evicted)) is not None and found.uid == view.uid]


def lines(source: Source, sight: Sight, victims: list[WorkloadView]) -> Iterator[str]:
    """One sentence for each pod that has not ended; those that end last come first."""
    if source.pods is None:
        return
    for victim in victims[:MOST_VICTIMS]:
        job, recovery = sight.workload(victim).job, source.mirror.recovery_for(victim.key)
        pods = [pod for pod in source.pods.of(victim.key) if not pod.ended and pod.node]
        pods.sort(key=lambda pod: (not _is_out_of_reach(source, pod), -pod.due, pod.key))
        for pod in pods[:MOST_PODS]:
            name = f"pod {pod.name}" if sight.sees(victim.namespace) else "a pod"
            yield f"{job}: {name} on node {pod.node}{_until(source, pod, recovery)}"
        if len(pods) > MOST_PODS:
            yield f"{job}: {len(pods) - MOST_PODS} more pods"


def _is_out_of_reach(source: Source, pod: Pod) -> bool:
    return out_of_reach_since(source.mirror.nodes.get(pod.node)) is not None


def _until(source: Source, pod: Pod, recovery: model.Recovery | None) -> str:
    now, node = source.now(), source.mirror.nodes.get(pod.node)
    since = out_of_reach_since(node)
    if since is None:
        left = age((pod.due - now) / 1000)
        return (
            f" has {left} left to end"
            if pod.due > now
            else " has not ended yet" + (" after its time" if pod.due else "")
        )
    away = f", out of reach for {age((now - since) / 1000)}" if since else ", which is lost"
    if not recovery or not recovery.enabled:
        return f"{away}: it stays until the node returns; {_remedy(pod)}"
    if gone_for_certain(node):
        return f"{away}: it is deleted by force now"
    if recovery.force_delete:
        return f"{away}: it is deleted by force in {age((pod.due + EXTRA_GRACE - now) / 1000)}"
    if pod.keeps_name:
        return f"{away}: it stays until the node returns, since its successor has its name; {_remedy(pod)}"
    return f"{away}: the gang goes on without it in a moment"


def _remedy(pod: Pod) -> str:
    taint = f"kubectl taint node {pod.node} {OUT_OF_SERVICE}=lost:NoExecute"
    return f"an administrator who is sure that the node is off ends it by `{taint}`, or by deleting the Node"
