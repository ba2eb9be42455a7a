"""What a plan has to remember of starts and stops, until the API server or a controller has shown it.

`Starts` keeps the answers to writes that start jobs: an admission counts only as far as the API server has kept it. Starting
writes are strict, so an API server refuses a field that its CRD lacks, which it would drop otherwise. What a webhook has changed
shows in the answer. Both are known for a moment only, until the plan of the job has recorded them on its Workload.

`UnseenStops` are jobs that were suspended again so soon that their controllers may not know it yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from gangline import bounded
from gangline.api.jobkinds.declaration import UNKNOWN_FIELDS, Declaration, shown
from gangline.control.feed.changes import JobRef
from gangline.control.feed.pod import Pod
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.jobs.base import JobKind, PodSetInfo, ShowsSuspension
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.resources import Resource
from gangline.objects import JobObject

#: Seconds that a controller has to say that it knows of a suspension; it takes one at most. One that is away sees nothing but
#: the suspension when it comes back.
PATIENCE: Final = 5.0


class UnseenStops:
    """Remembers jobs whose suspension their controllers may not have seen. `again` is called with a job whose controller has said
    nothing for `patience` seconds.
    """

    def __init__(self, again: Callable[[JobRef], None], patience: float = PATIENCE) -> None:
        self._again = again
        self._patience = patience
        #: job -> its uid, and time.monotonic() of when this was first seen of it
        self._since: dict[JobRef, tuple[str, float]] = {}

    def may_start_pods(self, ref: JobRef, kind: JobKind, job: JobObject, pods: Iterable[Pod]) -> bool:
        """Whether the job's controller may still create pods of the suspended job, or has yet to delete some of these."""
        if not isinstance(kind, ShowsSuspension) or kind.has_seen_suspension(job):
            self.forget(ref)
            return False
        if any(not pod.ended for pod in pods):
            return True
        uid, now = job.uid, time.monotonic()
        if self._since.get(ref, ("", 0.0))[0] != uid:
            self._since[ref] = uid, now
            asyncio.get_running_loop().call_later(self._patience, self._again, ref)
        return now < self._since[ref][1] + self._patience

    def forget(self, ref: JobRef) -> None:
        self._since.pop(ref, None)


class Starts:
    """The answers to starting writes that no plan has seen yet, and the fields that the API server does not know."""

    def __init__(self) -> None:
        self._written: dict[JobRef, Sequence[PodSetInfo]] = {}
        self._refusals: dict[JobRef, str] = {}
        self._unknown: dict[Resource, frozenset[str]] = {}

    def informed(self, kind: JobKind, job: JobObject) -> JobObject:
        """The job with those alternative fields of its kind that the API server does not know."""
        unknown = self._unknown.get(kind.resource)
        return JobObject({**job, UNKNOWN_FIELDS: unknown}) if unknown else job

    def written(self, ref: JobRef) -> Sequence[PodSetInfo]:
        """The admission that was written into the job, if it has not been compared yet: it is compared once."""
        return self._written.pop(ref, ())

    def why_refused(self, ref: JobRef) -> str:
        """The reason why a job's start was refused, if that has not been recorded yet."""
        return self._refusals.pop(ref, "")

    def forget(self, ref: JobRef) -> None:
        self._written.pop(ref, None)
        self._refusals.pop(ref, None)

    # --- answers ---

    def answered(self, ref: JobRef, infos: Sequence[PodSetInfo], answer: JobObject | None) -> None:
        if answer is not None:
            self._written[ref] = infos

    def has_alternative(self, ref: JobRef, error: ApiError) -> bool:
        """Whether, after a write of this job was refused, another field than the refused one may be known.

        If not, the reason is kept for the plan of the job.
        """
        fields = error.unknown_fields if isinstance(error, Invalid) else ()
        if not fields:
            return False
        declaration = JOB_KINDS[ref[0]].declaration
        unknown = self._unknown.get(ref[0], frozenset()) | {
            name for name in map(shown, declaration.alternatives) if any(_within(field, name) for field in fields)
        }
        if unknown and len(unknown) < len(declaration.alternatives):
            self._unknown[ref[0]] = unknown
            return True
        self._unknown.pop(ref[0], None)  # the CRD may be another one by the next attempt
        self._refusals[ref] = _says(
            declaration, [name for name in map(shown, declaration.alternatives) if name in unknown] or fields
        )
        return False


def _within(field: str, name: str) -> bool:
    return field == name or field.startswith((f"{name}.", f"{name}["))


def _says(declaration: Declaration, fields: Sequence[str]) -> str:
    resource = declaration.resource
    listed = bounded.some(fields, 2)
    missing = f"The CRD {resource.plural}.{resource.group} has no field for the admission of the job ({listed})"
    wanted = f"{declaration.needs} or newer is needed" if declaration.needs else "a newer version of it is needed"
    return f"{missing}: {wanted}. The job stays suspended"
