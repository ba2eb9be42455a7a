"""Which gang a pod belongs to: its annotation names a Workload, and its owners have to prove it.

Anybody who may create pods can write any annotation. So a pod counts as one of a gang only where the chain of its controllers,
each of which exists, has that uid and is in the pod's namespace, leads to the owner of the Workload. A pod without that proof is
taken for a stranger's; it is looked at again when an owner or the Workload comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gangline.api import names
from gangline.control.mirror import Mirror, controller_uid
from gangline.kube import resources as kube
from gangline.kube.resources import key_of

Json: TypeAlias = dict[str, Any]


def claim(pod: Json) -> str | None:
    """The key of the Workload that the pod says it belongs to."""
    meta = pod["metadata"]
    name = (meta.get("annotations") or {}).get(names.WORKLOAD_ANNOTATION)
    return f"{meta['namespace']}/{name}" if name else None


@dataclass(slots=True)
class PodOwners:
    """The pods that were proven to belong to a gang, and those that only say so."""

    mirror: Mirror
    #: uid of a pod -> its Workload. What was proven once holds for as long as the pod says the same
    _proven: dict[str, str] = field(default_factory=dict[str, str])
    #: pod -> its newest version, and claimed Workload -> the pods that claim it in vain
    _unproven: dict[str, Json] = field(default_factory=dict[str, Json])
    _claims: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _uids: dict[str, str] = field(default_factory=dict[str, str])

    def admits(self, pod: Json) -> bool:
        """Whether the pod belongs where it says, or says nothing; takes note of it."""
        key, uid, claimed = key_of(pod), pod["metadata"].get("uid", ""), claim(pod)
        self.forget(key)
        if claimed is None:
            return True
        if self._proven.get(uid) == claimed or self._is_proof(pod, claimed):
            self._proven[uid] = claimed
            self._uids[key] = uid
            return True
        self._unproven[key] = pod
        self._claims.setdefault(claimed, set()).add(key)
        return False

    def forget(self, key: str, *, gone: bool = False) -> None:
        pod = self._unproven.pop(key, None)
        if pod is not None:
            claimed = claim(pod) or ""
            self._claims[claimed].discard(key)
            if not self._claims[claimed]:
                del self._claims[claimed]
        if gone:
            self._proven.pop(self._uids.pop(key, ""), None)

    def provable(self) -> list[Json]:
        """Pods that have to be looked at again, since owners or Workloads have come."""
        arrived, self.mirror.arrived = self.mirror.arrived, set()
        keys = {key for workload in arrived for key in self._claims.get(workload, ())}
        return [self._unproven[key] for key in sorted(keys)]

    def _is_proof(self, pod: Json, claimed: str) -> bool:
        workload = self.mirror.get(kube.WORKLOADS, claimed)
        owner = controller_uid(workload) if workload is not None else None
        if owner is None or not self._made_by_its_job(pod):
            return False
        return owner in self.mirror.controllers_of(pod)

    def _made_by_its_job(self, pod: Json) -> bool:
        """A Job counts and tidies only pods that its selector selects, whatever their owner references say."""
        ref = self.mirror.owner_of(pod)
        if ref is None or ref[0] != kube.JOBS:
            return ref is not None
        selector = (self.mirror.objects[ref[0]][ref[1]]["spec"].get("selector") or {}).get("matchLabels") or {}
        return selector.items() <= (pod["metadata"].get("labels") or {}).items()


def as_stranger(pod: Json) -> Json:
    """The pod without what it says of a gang."""
    meta = pod["metadata"]
    said = {name: text for name, text in meta["annotations"].items() if name != names.WORKLOAD_ANNOTATION}
    return {**pod, "metadata": {**meta, "annotations": said}}
