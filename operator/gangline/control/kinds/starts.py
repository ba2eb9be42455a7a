"""Keeps the answers to writes that start jobs: an admission counts only as far as the API server has kept it.

Starting writes are strict, so an API server refuses a field that its CRD lacks, which it would drop otherwise. What a webhook has
changed shows in the answer. Both are known for a moment only, until the plan of the job has recorded them on its Workload.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline.api.jobkinds.declaration import UNKNOWN_FIELDS, Declaration, shown
from gangline.control.feed.changes import JobRef
from gangline.control.feed.watched_kinds import JOB_KINDS
from gangline.jobs.base import JobKind, PodSetInfo
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.resources import Resource
from gangline.objects import JobObject


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
    listed = ", ".join(fields[:2]) + (f" and {len(fields) - 2} more" if len(fields) > 2 else "")
    missing = f"The CRD {resource.plural}.{resource.group} has no field for the admission of the job ({listed})"
    wanted = f"{declaration.needs} or newer is needed" if declaration.needs else "a newer version of it is needed"
    return f"{missing}: {wanted}. The job stays suspended"
