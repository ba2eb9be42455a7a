"""The job kinds that can be queued. A new kind is one module with a class like `base.JobKind`, and one row here."""

from __future__ import annotations

from typing import Final

from gangline.jobs.base import JobKind
from gangline.jobs.gpujob import GPUJob
from gangline.jobs.job import BatchJob
from gangline.jobs.jobset import JobSet

KINDS: Final[tuple[JobKind, ...]] = (BatchJob(), GPUJob(), JobSet())

_BY_NAME: Final = {(kind.api_version, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> JobKind | None:
    """The job kind of objects with this `apiVersion` and `kind`; None for objects that cannot be queued."""
    return _BY_NAME.get((api_version, kind))
