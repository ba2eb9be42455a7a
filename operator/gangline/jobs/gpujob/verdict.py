"""How a gang ends: the roles that decide, and the decision.

A verdict is written to the status twice: first as SuccessCriteriaMet or FailureTarget, while the rest of the gang is deleted,
and as Complete or Failed when no pod can run any more (as the Job controller does). Quota is held in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gangline.jobs.gpujob.gang import Gang, Role
from gangline.objects import JobObject

SUCCEEDING: Final = "SuccessCriteriaMet"
FAILING: Final = "FailureTarget"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

_MPI_DECIDES: Final = ("launcher",)
_TENSORFLOW_DECIDES: Final = ("chief", "master")
_TENSORFLOW_SERVES: Final = ("ps", "evaluator")


@dataclass(frozen=True, slots=True)
class GangVerdict:
    success: bool
    reason: str
    message: str
    at: str  # RFC 3339

    @property
    def interim(self) -> str:
        return SUCCEEDING if self.success else FAILING

    @property
    def final(self) -> str:
        return COMPLETE if self.success else FAILED


def recorded(job: JobObject) -> GangVerdict | None:
    """The verdict in the status."""
    for success, kind in ((True, SUCCEEDING), (False, FAILING)):
        if (found := job.true_condition(kind)) is not None:
            return GangVerdict(success, found["reason"], found.get("message") or "", found["lastTransitionTime"])
    return None


def succeeded(gang: Gang, jobs: Sequence[JobObject]) -> GangVerdict | None:
    """The gang has succeeded when the roles that decide are complete."""
    ended: list[str] = []
    roles = deciding_roles(gang)
    for role in roles:
        child = find(gang, role, jobs)
        condition = child.true_condition(COMPLETE) if child else None
        if child is None or condition is None:
            return None
        ended.append(child.status.get("completionTime") or condition["lastTransitionTime"])
    if len(roles) == len(gang.roles):
        message = "All pods of the gang succeeded"
    else:
        message = f"All pods of {', '.join(role.name for role in roles)} succeeded"
    return GangVerdict(True, "Succeeded", message, max(ended))


def failed(gang: Gang, jobs: Sequence[JobObject]) -> GangVerdict | None:
    """The first role, in order, whose Job has failed."""
    for role in gang.roles:
        child = find(gang, role, jobs)
        condition = child.true_condition(FAILED) if child else None
        if condition is not None:
            message = f"{role.name}: {condition.get('message') or 'its Job failed'}"
            return GangVerdict(False, condition.get("reason") or FAILED, message, condition["lastTransitionTime"])
    return None


def deciding_roles(gang: Gang) -> Sequence[Role]:
    """All roles, except in frameworks with roles that serve the others and never end by themselves."""
    if gang.framework == "MPI":
        return _named(gang, _MPI_DECIDES) or gang.roles
    if gang.framework == "TensorFlow":
        workers = [role for role in gang.roles if role.name not in _TENSORFLOW_SERVES]
        return _named(gang, _TENSORFLOW_DECIDES) or workers or gang.roles
    return gang.roles


def find(gang: Gang, role: Role, jobs: Sequence[JobObject]) -> JobObject | None:
    return next((child for child in jobs if child.name == gang.child_name(role)), None)


def _named(gang: Gang, wanted: Sequence[str]) -> list[Role]:
    return [role for role in gang.roles if role.name in wanted]
