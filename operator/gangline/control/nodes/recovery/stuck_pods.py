"""Pods that may be deleted by force: those whose owners say so, once their node has been out of reach for a minute too long.

Kueue's failure recovery (gate `FailureRecoveryPolicy`): a pod with the annotation `safe-to-forcefully-delete`, of a gang or not,
that is still there a minute after its grace period, on a node with the taint `unreachable`. Its phase becomes Failed, so that its
controller counts it; then it is deleted without grace. Pods of gangs are left behind or deleted earlier where the queue's policy
recovers gangs (`fencing`); what is left behind, and annotated, is deleted here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.isolation.quarantine import Subject
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.parts.changed_keys import KeySet
from gangline.control.writes.outgoing import Verb
from gangline.control.writes.writes import Done
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.reflector import Event, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import NodeObject, PodObject

GATE: Final = "FailureRecoveryPolicy"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
#: how long a pod may stay beyond its grace period, in milliseconds
PATIENCE: Final = 60_000
#: a pod about which another write is in flight is looked at again after this, in milliseconds
RETRY: Final = 1_000
CONDITION: Final = "KueueFailureRecovery"
REASON: Final = "KueueForcefullyDeleted"


@dataclass(frozen=True, slots=True)
class StuckPod:
    """A terminating pod that may be deleted by force. `due`: when its grace period ends, in ms; `grace` in seconds."""

    key: str
    uid: str
    version: str
    node: str
    due: int
    grace: int
    ended: bool
    #: its failure is on record: only the deletion is missing
    failed: bool

    @property
    def object(self) -> PodObject:
        """The pod as the object of an event."""
        namespace, _, name = self.key.rpartition("/")
        metadata = {"name": name, "namespace": namespace, "uid": self.uid}
        return PodObject({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def stuck_pod(pod: PodObject) -> StuckPod | None:
    """The facts about a terminating pod that may be deleted by force; None for any other pod."""
    if pod.annotations.get(names.SAFE_TO_DELETE) != "true" or not pod.deletion_time:
        return None
    grace: int = pod.metadata.get("deletionGracePeriodSeconds") or 0
    failed = pod.condition(CONDITION) is not None
    if failed and not grace:
        return None  # it was deleted: what is left of it belongs to its finalizers
    return StuckPod(
        key=pod.key,
        uid=pod.uid,
        version=pod.resource_version,
        node=pod.node,
        due=conditions.millis_of(pod.deletion_time),
        grace=grace,
        ended=pod.has_ended,
        failed=failed,
    )


def is_unreachable(node: NodeObject | None) -> bool:
    """Whether Kubernetes has given up hearing of the node. A deleted node is none: Kubernetes deletes its pods itself."""
    return node is not None and any(taint.get("key") == UNREACHABLE for taint in node.taints)


class StuckPods(Reconciler[str]):
    """Ends pods that nobody can end any more, where their owners allow it."""

    name = "stuck pods"
    doing = "ending it"
    kinds = (kube.PODS,)

    def __init__(self, context: Context) -> None:
        self._pods: dict[str, StuckPod] = {}
        super().__init__(context, KeySet[str](self._pods.__contains__))
        self._on: dict[str, set[str]] = {}  # node -> keys of its stuck pods
        self._deadlines: dict[str, int] = {}  # when the patience with a pod ends
        self._nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: node in self._on)

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._keep(event.obj.key, stuck_pod(event.obj))
        elif isinstance(event, Removed):
            self._keep(event.key, None)

    def _keep(self, key: str, pod: StuckPod | None) -> None:
        old = self._pods.pop(key, None)
        if old is not None:
            self._deadlines.pop(key, None)
            on = self._on[old.node]
            on.discard(key)
            if not on:
                del self._on[old.node]
        if pod is None:
            self._attempts.forgive(key)
            return
        self._pods[key] = pod
        self._on.setdefault(pod.node, set()).add(key)
        self._changed.add(key)

    def _subject(self, key: str) -> Subject:
        return kube.PODS, key

    def _gather(self, now: int) -> None:
        """Add the pods whose node changed, and those with whom the patience has ended."""
        self._changed.update(key for node in self._nodes.take() for key in self._on.get(node, ()))
        self._changed.update(key for key, time in self._deadlines.items() if time <= now)

    def _times(self) -> Iterable[int]:
        return self._deadlines.values()

    def _reconcile(self, key: str, now: int) -> None:
        pod = self._pods.get(key)
        self._deadlines.pop(key, None)
        if pod is None:
            return
        if pod.due + PATIENCE > now:
            self._deadlines[key] = pod.due + PATIENCE
        elif self._writer.pending(ObjectKey.parse(kube.PODS, key)):  # something else about it
            self._deadlines[key] = now + RETRY
        elif is_unreachable(self._mirror.nodes.get(pod.node)):
            self._end(pod)

    def _end(self, pod: StuckPod) -> None:
        if pod.failed:
            self._delete(pod)
        else:
            self._fail(pod)

    def _fail(self, pod: StuckPod) -> None:
        """Report the pod as failed, fenced by its version: with a newer one it is looked at again."""
        seconds = pod.grace + PATIENCE // 1000
        note = (
            f"Pod forcefully terminated after {_as_go(seconds)} grace period due to unreachable node `{pod.node}` "
            f"(triggered by `{names.SAFE_TO_DELETE}` annotation)"
        )
        self._write(pod, "status", failure(pod, note), lambda _: self._failed(pod, note))

    def _failed(self, pod: StuckPod, note: str) -> None:
        self._recorder.record(pod.object, "Warning", REASON, note, "ForcefulTermination")
        self._delete(pod)

    def _delete(self, pod: StuckPod) -> None:
        self._write(pod, "delete", {"uid": pod.uid, "grace_seconds": 0})

    def _write(self, pod: StuckPod, verb: Verb, body: Json, done: Done | None = None) -> None:
        self._write_pod(pod.key, pod.key, verb, body, slot="stuck", done=done, failed=partial(self._not_ended, pod))

    def _not_ended(self, pod: StuckPod, error: ApiError) -> None:
        if not isinstance(error, Conflict | NotFound):  # of these two the watch tells more
            self._attempts.pause(pod.key)
        elif self._pods.get(pod.key) != pod:  # and already has
            self._again(pod.key)


def failure(pod: StuckPod, note: str) -> Json:
    """The patch of a pod's status that says it has failed; a pod that ended stays as it ended."""
    row = {
        "type": CONDITION,
        "status": "True",
        "reason": REASON,
        "message": note,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    status: Json = {"conditions": [row]} if pod.ended else {"phase": "Failed", "conditions": [row]}
    return {"metadata": {"uid": pod.uid, "resourceVersion": pod.version}, "status": status}


def _as_go(seconds: int) -> str:
    """A duration as Go writes it: 1m30s."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if hours or minutes else "") + f"{rest}s"
