"""Pods that may be deleted by force: those whose owners say so, once their node has been out of reach for a minute too long.

Kueue's failure recovery (gate `FailureRecoveryPolicy`): a pod with the annotation `safe-to-forcefully-delete`, of a gang or not,
that is still there a minute after its grace period, on a node with the taint `unreachable`. Its phase becomes Failed, so that its
controller counts it; then it is deleted without grace. Pods of gangs are left behind or deleted earlier where the queue's policy
recovers gangs (`fencing`); what is left behind, and annotated, is deleted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.kernel.context import Context
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
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


class StuckPods(Part):
    """Ends pods that nobody can end any more, where their owners allow it."""

    name = "stuck pods"
    kinds = (kube.PODS,)

    def __init__(self, context: Context) -> None:
        self._mirror = context.mirror
        self._writer = context.writer
        self._recorder = context.recorder
        self._pods: dict[str, StuckPod] = {}
        self._on: dict[str, set[str]] = {}  # node -> keys of its stuck pods
        self._look: set[str] = set()
        self._times: dict[str, int] = {}  # when the patience with a pod ends
        self._nodes = context.mirror.changes.nodes.subscribe(worth=lambda node: node in self._on)
        self._wake = context.wake
        self._attempts: Attempts[str] = Attempts(self._again)

    def observe(self, resource: Resource, event: Event) -> None:
        if isinstance(event, Upsert):
            self._keep(event.obj.key, stuck_pod(event.obj))
        elif isinstance(event, Removed):
            self._keep(event.key, None)

    def _keep(self, key: str, pod: StuckPod | None) -> None:
        old = self._pods.pop(key, None)
        if old is not None:
            self._times.pop(key, None)
            on = self._on[old.node]
            on.discard(key)
            if not on:
                del self._on[old.node]
        if pod is None:
            self._attempts.forgive(key)
            return
        self._pods[key] = pod
        self._on.setdefault(pod.node, set()).add(key)
        self._look.add(key)

    def _again(self, key: str) -> None:
        self._look.add(key)
        self._wake()

    def act(self, now: int) -> None:
        """Look at the pods that changed, whose node changed, and with whom the patience has ended."""
        self._look |= {key for node in self._nodes.take() for key in self._on.get(node, ())}
        self._look |= {key for key, time in self._times.items() if time <= now}
        look, self._look = self._look, set()
        for key in sorted(look):
            pod = self._pods.get(key)
            self._times.pop(key, None)
            if pod is None or not self._attempts.ready(key):
                continue
            if pod.due + PATIENCE > now:
                self._times[key] = pod.due + PATIENCE
            elif self._writer.pending(ObjectKey.parse(kube.PODS, key)):  # something else about it
                self._times[key] = now + RETRY
            elif is_unreachable(self._mirror.nodes.get(pod.node)):
                self._end(pod)
        self.due = min(self._times.values(), default=None)

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
        self._send(pod, "status", failure(pod, note), done=lambda _: self._failed(pod, note))

    def _failed(self, pod: StuckPod, note: str) -> None:
        self._recorder.record(pod.object, "Warning", REASON, note, "ForcefulTermination")
        self._delete(pod)

    def _delete(self, pod: StuckPod) -> None:
        self._send(pod, "delete", {"uid": pod.uid, "grace_seconds": 0}, done=lambda _: self._attempts.forgive(pod.key))

    def _send(self, pod: StuckPod, verb: Any, body: Mapping[str, Any], *, done: Any) -> None:
        def written(answer: PodObject) -> None:
            self._attempts.resolved(pod.key)
            done(answer)

        self._attempts.sent(pod.key)
        key = ObjectKey.parse(kube.PODS, pod.key)
        self._writer.submit(
            Write(
                key,
                verb,
                body,
                Priority.START_STOP,
                on_done=written,
                on_error=partial(self._refused, pod),
                slot="stuck",
                patch="strategic",
            )
        )

    def _refused(self, pod: StuckPod, error: ApiError) -> None:
        self._attempts.resolved(pod.key)
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
