"""Writes of pods: one for each version of a pod that is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from gangline.control.feed.changes import JobRef
from gangline.control.writes.outgoing import PatchKind, Priority, Verb, Write
from gangline.control.writes.writer import Writer
from gangline.jobs.pods.member import KnownPod
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, ObjectKey

Report: TypeAlias = Callable[[JobRef, ObjectKey, ApiError], None]


class PodWrites:
    """Writes pods. `report` is called with the owner of a refused write, whose plan tries again."""

    def __init__(self, writer: Writer, report: Report) -> None:
        self._writer = writer
        self._report = report
        self._asked: dict[str, str] = {}  # uid of a pod -> the version on which a write was planned
        self._starting: dict[str, str] = {}  # those of them by which a pod passes its gate

    def send(
        self,
        owner: JobRef,
        pod: KnownPod,
        verb: Verb,
        body: Json,
        done: Callable[[Any], object] | None = None,
        *,
        patch: PatchKind | None = None,
        starts: bool = False,
    ) -> None:
        """Write a pod, once for each version of it. A status is usually patched strategically. `starts`: the pod passes its gate
        by it.
        """
        if self._asked.get(pod.uid) == pod.version:
            return
        self._asked[pod.uid] = pod.version
        if starts:
            self._starting[pod.uid] = pod.version
        self._writer.submit(
            Write(
                ObjectKey.parse(kube.PODS, pod.key),
                verb,
                body,
                priority=Priority.START_STOP,
                owner=owner,
                patch=patch or ("strategic" if verb == "status" else "merge"),
                on_done=done,
                on_error=partial(self._refused, owner, pod),
            )
        )

    def is_starting(self, pod: KnownPod) -> bool:
        """Whether a write lets the pod pass its gate, and the pod's next version is not known yet."""
        return self._starting.get(pod.uid) == pod.version

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._asked.pop(uid, None)
        self._starting.pop(uid, None)

    def _refused(self, owner: JobRef, pod: KnownPod, error: ApiError) -> None:
        """Report a refused write, which is tried again. After a conflict the watch shows another version, or that the pod is
        gone: that is not reported.
        """
        if isinstance(error, Conflict | NotFound):
            return
        self.forget(pod.uid)
        self._report(owner, ObjectKey.parse(kube.PODS, pod.key), error)
