"""The pods that wait in the place of StatefulSets and LeaderWorkerSets, by the owner that they name."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TypeVar

from gangline.api import names
from gangline.control.mirror.changes import JobRef
from gangline.jobs.pods import member
from gangline.jobs.pods.member import HeldPod
from gangline.jobs.serving import BY_FRAMEWORK
from gangline.kube import resources as kube
from gangline.kube.resources import as_revision
from gangline.objects import PodObject

K = TypeVar("K", bound=Hashable)

_STATEFUL_SET = f"{kube.STATEFUL_SETS.api_version}/{kube.STATEFUL_SETS.kind}"


class HeldIndex:
    """The pods that wait for a parent of these frameworks."""

    def __init__(self, frameworks: Collection[str]) -> None:
        #: parents with a pod that has changed, appeared or gone
        self.changed: set[JobRef] = set()
        self._frameworks = frozenset(frameworks) & BY_FRAMEWORK.keys()
        self._pods: dict[str, HeldPod] = {}
        self._of: dict[JobRef, set[str]] = {}
        self._in: dict[str, set[str]] = {}  # pod group, which is that of a Workload -> keys of its pods

    def upsert(self, pod: PodObject) -> None:
        key, old = pod.key, self._pods.get(pod.key)
        if not member.is_held(pod) or pod.namespace in names.EXCLUDED_NAMESPACES:
            self.remove(key)
            return
        new = member.read_held(pod)
        if old is not None and old.uid == new.uid and as_revision(new.version) < as_revision(old.version):
            return
        ref = self._parent_of(new)
        self.remove(key)
        if ref is None:
            return
        self._pods[key] = new
        self._of.setdefault(ref, set()).add(key)
        if new.group:
            self._in.setdefault(f"{new.namespace}/{new.group}", set()).add(key)
        self.changed.add(ref)

    def remove(self, key: str) -> HeldPod | None:
        """Forget a pod. Returns it if it was known."""
        old = self._pods.pop(key, None)
        ref = self._parent_of(old) if old is not None else None
        if old is not None and ref is not None:
            _discard(self._of, ref, key)
            if old.group:
                _discard(self._in, f"{old.namespace}/{old.group}", key)
            self.changed.add(ref)
        return old

    def pod(self, key: str) -> HeldPod | None:
        return self._pods.get(key)

    def pods_of(self, ref: JobRef) -> list[HeldPod]:
        """The pods that name this parent, whether it has made them or not."""
        return [self._pods[key] for key in sorted(self._of.get(ref, ()))]

    def members_of(self, ref: JobRef, group: str) -> list[HeldPod]:
        """The pods that name this parent and are members of the pod group of this key."""
        return [self._pods[key] for key in sorted(self._in.get(group, ())) if key in self._of.get(ref, ())]

    def refs(self) -> list[JobRef]:
        return list(self._of)

    def _parent_of(self, pod: HeldPod) -> JobRef | None:
        if pod.framework not in self._frameworks:
            return None
        resource = BY_FRAMEWORK[pod.framework].declaration.resource
        kind, name, _ = pod.owner
        if resource != kube.STATEFUL_SETS:
            name = pod.set_name
        elif kind != _STATEFUL_SET:
            return None
        return (resource, f"{pod.namespace}/{name}") if name else None


def _discard(table: dict[K, set[str]], at: K, key: str) -> None:
    table[at].discard(key)
    if not table[at]:
        del table[at]
