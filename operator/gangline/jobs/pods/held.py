"""A pod that waits because its owner is queued, as far as it is told to which group it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.jobs.pods import member
from gangline.kube.resources import Json, controller_of, key_of

#: label of Kubernetes on pods of StatefulSets: the revision of their template
REVISION: Final = "controller-revision-hash"
#: keys of the LeaderWorkerSet controller on pods: labels, and an annotation that only workers have
SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/leader-name"
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class HeldPod:
    """A pod with the annotation `pod-suspending-parent`."""

    key: str
    uid: str
    version: str
    framework: str  #: that of the owner in whose place it waits
    owner: tuple[str, str, str]  #: apiVersion/kind, name and uid of its controller; empty texts without one
    set_name: str
    group_index: str
    is_worker: bool
    revision: str
    queue: str
    group: str  #: the pod group that it was made a member of
    gated: bool
    deleted: bool
    ended: bool

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def stays(self) -> bool:
        return not self.deleted and not self.ended


def is_held(pod: Json) -> bool:
    return names.SUSPENDED_BY_PARENT in (pod["metadata"].get("annotations") or ())


def read(pod: Json) -> HeldPod:
    """The record of a pod that is held."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    labels, notes = meta.get("labels") or {}, meta.get("annotations") or {}
    owner = controller_of(pod) or {}
    return HeldPod(
        key=key_of(pod),
        uid=meta["uid"],
        version=meta["resourceVersion"],
        framework=notes.get(names.SUSPENDED_BY_PARENT) or "",
        owner=(f"{owner['apiVersion']}/{owner['kind']}", owner["name"], owner["uid"]) if owner else ("", "", ""),
        set_name=labels.get(SET_NAME) or "",
        group_index=labels.get(GROUP_INDEX) or "",
        is_worker=LEADER_NAME in notes,
        revision=labels.get(REVISION) or "",
        queue=queue_name(pod),
        group=member.group_name(pod) if member.is_managed(pod) else "",
        gated=any(gate.get("name") == names.ADMISSION_GATE for gate in spec.get("schedulingGates") or ()),
        deleted="deletionTimestamp" in meta,
        ended=(pod.get("status") or {}).get("phase") in _ENDED,
    )
