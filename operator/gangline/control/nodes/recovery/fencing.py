"""Pods that cannot terminate because their node is unreachable: their gang goes on without them, or they are force-deleted.

A deleted pod stays Terminating until its node reports that it ended, which a dead node never does; its Job, and everything that
waits for the Job, would hang with it. Two ways out:

- *The pod is left behind*, unless its successor would get its name: it loses its owner and the labels by which its gang finds it,
  so that the gang goes on without it. It is not force-deleted: its node ends it when it returns, or Kubernetes when the node is
  deleted.
- *The pod is force-deleted*, only where it cannot run any more: its node was deleted, or marked out of service by an
  administrator. On a node that is merely unreachable it may still run: then it is force-deleted only if the queue's policy
  allows.

A pod whose successor has the same name (`Pod.keeps_name`) is in the way as long as it exists, left behind or not. Its gang waits,
and starts again as a whole when the pod is gone; an event says what would help.

Queues whose policy switches recovery off are left to Kubernetes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

from gangline.api import jobkinds, names
from gangline.api.read import conditions
from gangline.control.feed.pod import TRACKING_FINALIZER, Pod
from gangline.control.kernel.context import Context
from gangline.control.nodes.recovery.silent_nodes import is_silent
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import NodeObject

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
#: a node that is not ready for less than this may come back in a moment, in milliseconds
PATIENCE: Final = 2_000
#: where the policy allows force deletion, a pod gets this much beyond its grace period, in milliseconds
EXTRA_GRACE: Final = 2_000
#: a step that was not possible is tried again after this, in milliseconds
RETRY: Final = 1_000
#: the labels by which a gang, its Jobs, its Service and its controller find their pods
_GANG_LABELS: Final = (
    *("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    *("jobset.sigs.k8s.io/job-key", "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"),
    *(names.GPUJOB_LABEL, names.PODSET, names.TAS_LABEL),
    *dict.fromkeys(label for each in jobkinds.BUILT_IN for label in each.found_by),
)


def out_of_reach_since(node: NodeObject | None) -> int | None:
    """The time since when the node's pods cannot be reached, in ms; 0 for a deleted, silent or out-of-service node, None for a
    reachable one.
    """
    if node is None or gone_for_certain(node) or is_silent(node):
        return 0
    ready = node.condition("Ready")
    if ready is None or ready.get("status") == "True":
        return None
    return conditions.millis_of(ready.get("lastTransitionTime"))


def gone_for_certain(node: NodeObject | None) -> str:
    """Why no pod can run on the node any more, in a few words; "" where one might."""
    if node is None:
        return "its node was deleted"
    is_out = any(taint.get("key") == OUT_OF_SERVICE for taint in node.taints)
    return "its node is out of service" if is_out else ""


def lingering(pods: Iterable[Pod], jobs: Collection[str], node_of: Callable[[str], NodeObject | None]) -> bool:
    """Whether a pod of one of these Jobs holds resources or may take some, though its Job does not count it: it is on a reachable
    node, or the scheduler may bind it before its Job has it deleted. Pods that their Job has lost (`--cascade=orphan`) count.

    Pods that only claim to be of the gang do not count.
    """
    mine = (pod for pod in pods if (pod.job in jobs or not pod.job) and not pod.ended)
    return any(
        out_of_reach_since(node_of(pod.node)) is None if pod.node else not (pod.gated or pod.terminating)
        for pod in mine
    )


def started_pods(
    pods: Iterable[Pod], node_of: Callable[[str], NodeObject | None], starting: Callable[[Pod], bool]
) -> Counter[str]:
    """Pod set -> its pods that are on reachable nodes, or will be: they have passed the gate of elastic jobs, or pass it.

    Pods on nodes hold what they have, also when they are being deleted. `starting`: a write of this pod is on its way.
    """

    def holds(pod: Pod) -> bool:
        if pod.node:
            return not pod.ended and out_of_reach_since(node_of(pod.node)) is None
        return pod.alive and (not pod.at_elastic_gate or starting(pod))

    return Counter(pod.pod_set for pod in pods if holds(pod))


def left_behind(pod: Pod) -> Json:
    """The merge patch that detaches a pod from its gang."""
    rest = [finalizer for finalizer in pod.finalizers if finalizer != TRACKING_FINALIZER]
    return {
        "metadata": {
            "uid": pod.uid,
            "ownerReferences": None,
            "finalizers": rest or None,
            "labels": dict.fromkeys(_GANG_LABELS),
            "annotations": {
                names.WORKLOAD_ANNOTATION: None,
                names.SLICE_NAME: None,
                names.EXCLUSIVE_TOPOLOGY: None,  # JobSet makes other pods follow every pod that has this annotation
                names.LEFT_BEHIND: pod.workload,
            },
        }
    }


class Fencing(Part):
    """Frees gangs of pods that cannot terminate. `policy` returns the recovery policy for a Workload, None for an unknown one."""

    name = "fencing"

    def __init__(self, context: Context, policy: Callable[[str], model.Recovery | None]) -> None:
        self._mirror = context.mirror
        self._pods = context.pods
        self._writer = context.writer
        self._recorder = context.recorder
        self._policy = policy
        self._troubled: set[str] = set()
        self._reported: set[str] = set()  # uids of pods whose gang waits for them
        self._changed = context.mirror.changes.nodes.subscribe(worth=self._is_node_of_interest)
        context.pods.changed_nodes.feed(self._changed)

    def _is_node_of_interest(self, node: str) -> bool:
        return self._mirror.nodes.get(node) is not None or bool(self._pods.on(node))

    def act(self, now: int) -> None:
        """Look at all pods of gangs on unreachable nodes, and do what is due."""
        nodes = self._mirror.nodes
        self._troubled |= {name for name in self._changed.take() if out_of_reach_since(nodes.get(name)) is not None}
        self._reported &= {pod.uid for name in self._troubled for pod in self._pods.on(name)}
        times: list[int] = []
        for name in sorted(self._troubled):
            pods, since = self._pods.on(name), out_of_reach_since(nodes.get(name))
            if not pods or since is None:
                self._troubled.discard(name)
            elif since + PATIENCE > now:
                times.append(since + PATIENCE)
            else:
                times += self._judge(pods, nodes.get(name), now)
        self.due = min(times, default=None)

    def _judge(self, pods: Iterable[Pod], node: NodeObject | None, now: int) -> Iterable[int]:
        """Handle each pod. Yields the times at which to look again."""
        certain = gone_for_certain(node)
        for pod in pods:
            policy = self._policy(pod.workload)
            if not pod.terminating or pod.ended or policy is None or not policy.enabled:
                continue
            key = ObjectKey.parse(kube.PODS, pod.key)
            if self._writer.pending(key):
                yield now + RETRY
            elif certain:
                self._delete(pod, key, certain)
                yield now + RETRY
            elif policy.force_delete:
                over = pod.due + EXTRA_GRACE
                if over <= now:
                    self._delete(pod, key, "by consent of the queue's policy")
                yield max(over, now + RETRY)
            elif pod.keeps_name:
                self._tell(pod)
                yield now + RETRY
            else:
                self._leave(pod, key)
                yield now + RETRY

    def _delete(self, pod: Pod, key: ObjectKey, why: str) -> None:
        body = {"uid": pod.uid, "grace_seconds": 0}
        self._writer.submit(Write(key, "delete", body, priority=Priority.START_STOP))
        self._record(pod, "PodDeletedByForce", f"Pod {pod.key} on node {pod.node} was deleted by force: {why}")

    def _leave(self, pod: Pod, key: ObjectKey) -> None:
        write = Write(key, "patch", left_behind(pod), priority=Priority.START_STOP, on_done=self._pods.upsert)
        self._writer.submit(write)
        self._record(pod, "PodLeftBehind", f"Pod {pod.key} can't terminate: node {pod.node} is unreachable")

    def _tell(self, pod: Pod) -> None:
        """Say once that the pod is in its successor's way."""
        if pod.uid not in self._reported:
            self._reported.add(pod.uid)
            helps = "delete the node, taint it out-of-service, or set forceDelete in the queue's policy"
            why = f"can't terminate on unreachable node {pod.node}, and its successor needs its name"
            self._record(pod, "PodKeepsItsName", f"The gang waits: pod {pod.key} {why}: {helps}")

    def _record(self, pod: Pod, reason: str, note: str) -> None:
        workload = self._mirror.workloads.get(pod.workload)
        if workload is not None:
            self._recorder.record(workload, "Warning", reason, note)
