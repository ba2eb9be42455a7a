"""The options by which a job waits for others, in our words (--after) and in Slurm's (--dependency), as its annotations."""

from __future__ import annotations

from typing import Final

from gangline.api import dependencies, names
from gangline.api.dependencies import DependencyError, DependencyPolicy, DependencyState
from gangline.console.submitting.wishes import Given, Wishes
from gangline.kube.resources import GPU_JOBS

#: Slurm's types of dependencies
_STATES: Final = {
    "after": DependencyState.RUNNING,
    "afterok": DependencyState.SUCCEEDED,
    "afternotok": DependencyState.FAILED,
    "afterany": DependencyState.FINISHED,
}
#: those that have no counterpart
_OTHERS: Final = ("aftercorr", "afterburstbuffer", "expand", "singleton")
_CANCELS: Final = {"yes": DependencyPolicy.CANCEL, "no": DependencyPolicy.HOLD}


def dependency_annotations(wishes: Wishes) -> dict[str, str]:
    """The annotations of the job. Raises WishError."""
    entries = [entry for each in wishes.all("after") for entry in each.value.split(",")]
    given = wishes.one("after")
    if slurm := wishes.one("dependency"):
        entries += [entry for part in slurm.value.split(",") for entry in _of_slurm(slurm, part)]
        given = slurm if given is None else given
    policy = _policy(wishes)
    if given is None:
        alone = wishes.one("after-failed")
        if alone is not None and not alone.source.startswith("ConfigMap"):
            raise alone.refuse("the job waits for no others: give --after or --dependency")
        return {}
    try:
        found = {names.AFTER: dependencies.written(dependencies.parse(",".join(entries)))}
    except DependencyError as error:
        raise given.refuse(str(error)) from error
    if policy:
        found[names.AFTER_FAILED] = policy
    return found


def _of_slurm(each: Given, part: str) -> list[str]:
    """The entries of one part such as `afterok:prepare-abcde:job/other`: a name without a kind is that of a GPUJob."""
    if "?" in part:
        raise each.refuse("a job waits until all of them are so (,): one of several (?) is not known here")
    kind, *jobs = part.strip().split(":")
    if kind in _OTHERS:
        raise each.refuse(
            f"{kind} is not known here: a job waits for others by afterok, afterany, afternotok and after"
        )
    state = _STATES.get(kind)
    if state is None or not jobs or not all(jobs):
        raise each.refuse("afterok:JOB[:JOB…], or afterany, afternotok or after, is expected")
    if any("+" in job for job in jobs):
        raise each.refuse("a time after a start (+MINUTES) is not known here")
    if any(job.isdigit() for job in jobs):
        raise each.refuse("a job has no number here: give the name that `gangline submit` has printed")
    return [f"{job if '/' in job else f'{GPU_JOBS.kind.lower()}/{job}'}={state}" for job in jobs]


def _policy(wishes: Wishes) -> str:
    if ours := wishes.one("after-failed"):
        for policy in DependencyPolicy:
            if ours.value.lower() == policy.lower():
                return policy
        raise ours.refuse(f"one of {', '.join(DependencyPolicy)} is expected")
    if slurm := wishes.one("kill-on-invalid-dep"):
        if slurm.value.lower() not in _CANCELS:
            raise slurm.refuse("yes or no is expected")
        return _CANCELS[slurm.value.lower()]
    return ""
