"""Removes a scheduling gate from the pods of admitted workloads."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.parts.changed_keys import ChangedKeys
from gangline.control.writes.outgoing import Priority, Write
from gangline.engine import model
from gangline.engine.model.units import SECOND
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import PodObject, WorkloadObject

#: within this time after a conflict the newest version of a pod is seen, or the pod is gone; after a refusal it is tried again
_LATER: Final = 60 * SECOND
#: after this time a pod is looked at again of which another write was on its way: the watch may have shown that write before its
#: answer was there, and shows nothing more
_SOON: Final = SECOND // 5


@dataclass(frozen=True, slots=True)
class _Asked:
    """The write that removes a pod's gate: the version of the pod that it changes, and what the pod has afterwards."""

    version: str
    annotations: Json
    spec: Json


class GateRemoval(Reconciler[str]):
    """Looks at a workload when it or its pods changed, and writes what `_ungating` says, once for each pod.

    Pods come one after the other, and a look may come while the writes of the last one are on their way: what was asked for a
    pod holds until its outcome has been seen, or two pods would get the same place.
    """

    gate: ClassVar[str]

    def __init__(self, context: Context) -> None:
        of_workloads, of_pods = self._changes(context)
        super().__init__(context, of_workloads.subscribe(worth=context.mirror.has(kube.WORKLOADS)))
        of_pods.feed(self._changed)
        self._pods = context.pods
        self._metrics = context.metrics
        self._now = context.now
        self._asked: dict[str, _Asked] = {}  # by the key of the pod
        #: when it is over, keys of workload and pod; without the latter the workload is only looked at again
        self._failures: deque[tuple[int, str, str, _Asked | None]] = deque()
        #: workload with a pod of which another write is on its way -> when to look at it again
        self._busy: dict[str, int] = {}

    @abstractmethod
    def _changes(self, context: Context) -> tuple[ChangedKeys[str], ChangedKeys[str]]:
        """The changed workloads, and those of changed pods."""

    @abstractmethod
    def _ungating(self, key: str, workload: model.Workload, raw: WorkloadObject) -> Iterable[tuple[PodObject, Json]]:
        """Yields each pod that may start, and the merge patch that removes its gate. Implementations see pods through
        `_as_asked`.
        """

    def _as_asked(self, pod: PodObject) -> PodObject:
        """The pod as it will be once its gate is removed, if that was asked for and is not known to have failed."""
        asked = self._asked.get(pod.key)
        if asked is None:
            return pod
        on_its_way = self._writer.pending(ObjectKey.of(kube.PODS, pod))
        if not on_its_way and pod.resource_version != asked.version:
            del self._asked[pod.key]
            return pod
        metadata = {**pod.metadata, "annotations": {**pod.annotations, **asked.annotations}}
        return PodObject({**pod, "metadata": metadata, "spec": {**pod.spec, **asked.spec}})

    def _gather(self, now: int) -> None:
        for key in [key for key, when in self._busy.items() if when <= now]:
            del self._busy[key]
            self._changed.add(key)
        while self._failures and self._failures[0][0] <= now:
            _, workload, pod, asked = self._failures.popleft()
            self._changed.add(workload)
            if asked is not None and self._asked.get(pod) is asked:  # and was not asked for again
                del self._asked[pod]

    def _times(self) -> Iterable[int]:
        yield from self._busy.values()
        if self._failures:
            yield self._failures[0][0]  # the earliest

    def _reconcile(self, key: str, now: int) -> None:
        workload, raw = self._mirror.workload_value(key), self._mirror.workloads.get(key)
        if workload is None or raw is None or not runs(workload):
            return
        if self._writes.in_doubt(kube.WORKLOADS, key):
            self._changed.add(key)
            return
        for pod, body in self._ungating(key, workload, raw):
            self._submit(key, raw, pod, body)

    def _submit(self, key: str, raw: WorkloadObject | None, pod: PodObject, body: Json) -> None:
        """Write the patch that removes a pod's gate, unless another write of the pod is on its way."""
        target, name = ObjectKey.of(kube.PODS, pod), pod.key
        if self._writer.pending(target):
            self._busy[key] = self._now() + _SOON
            return
        annotations = body["metadata"].get("annotations", {})
        self._asked[name] = asked = _Asked(pod.resource_version, annotations, body["spec"])
        done, failed = partial(self._started, raw), partial(self._failed, key, name, asked)
        write = Write(target, "patch", body, Priority.START_STOP, on_done=done, on_error=failed, slot=self.gate)
        self._writer.submit(write)

    def _look_later(self, workload: str) -> None:
        self._failures.append((self._now() + _LATER, workload, "", None))
        self._wake()

    def _started(self, workload: WorkloadObject | None, pod: PodObject) -> None:
        self._asked.pop(pod.key, None)
        self._pods.upsert(pod)
        if workload is not None:
            self._metrics.kueue.gate_removed(self.gate, workload, self._now())

    def _failed(self, workload: str, pod: str, asked: _Asked, error: ApiError) -> None:
        """Try again later. After a conflict the pod's newest version has to be seen: an earlier try, its answer lost, may have
        come through. That version may have been seen already, while the answer was on its way.
        """
        if isinstance(error, NotFound):
            self._asked.pop(pod, None)
            return
        if isinstance(error, Conflict):
            self._changed.add(workload)
        else:
            self._asked.pop(pod, None)
        self._failures.append((self._now() + _LATER, workload, pod, asked))
        self._wake()


def runs(workload: model.Workload) -> bool:
    """Whether the workload is admitted and stays so: an evicted one still holds its quota while its pods end."""
    return workload.admission is not None and workload.admitted and not workload.evicted and not workload.finished
