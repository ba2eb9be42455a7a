"""A pod that waits because its owner is queued, as far as it is told to which group it belongs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.jobs.pods import member
from gangline.objects import PodObject

#: label of Kubernetes on pods of StatefulSets: the revision of their template
REVISION: Final = "controller-revision-hash"
#: keys of the LeaderWorkerSet controller on pods: labels, and an annotation that only workers have
SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/leader-name"


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


def is_held(pod: PodObject) -> bool:
    return names.SUSPENDED_BY_PARENT in pod.annotations


def read(pod: PodObject) -> HeldPod:
    """The record of a pod that is held."""
    labels, notes, owner = pod.labels, pod.annotations, pod.controller or {}
    return HeldPod(
        key=pod.key,
        uid=pod.uid,
        version=pod.resource_version,
        framework=notes.get(names.SUSPENDED_BY_PARENT) or "",
        owner=(f"{owner['apiVersion']}/{owner['kind']}", owner["name"], owner["uid"]) if owner else ("", "", ""),
        set_name=labels.get(SET_NAME) or "",
        group_index=labels.get(GROUP_INDEX) or "",
        is_worker=LEADER_NAME in notes,
        revision=labels.get(REVISION) or "",
        queue=pod.queue_name,
        group=member.group_name(pod) if member.is_managed(pod) else "",
        gated=names.ADMISSION_GATE in pod.gates,
        deleted=pod.deleting,
        ended=pod.has_ended,
    )
