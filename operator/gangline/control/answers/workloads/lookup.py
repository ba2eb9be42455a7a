"""Finds a workload by a job's name, by kind and name, or by the Workload's name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gangline.api import jobkinds
from gangline.control.answers.workloads.snapshot import WorkloadView
from gangline.kube.resources import PODS, Resource

#: singular kind -> resource
KINDS: Final[dict[str, Resource]] = {
    **{each.kind.lower(): each.resource for each in jobkinds.BUILT_IN},
    "pod": PODS,
}
_SINGULAR: Final = {
    "jobs": "job",
    "gpujobs": "gpujob",
    "jobsets": "jobset",
    "pods": "pod",
    "podgroups": "podgroup",
    "workloads": "workload",
    "wl": "workload",
}


class WrongNameError(ValueError):
    """The name is of no known kind, or of several jobs; the text says which names to use."""


def find(views: Iterable[WorkloadView], namespace: str, kind: str, name: str) -> WorkloadView | None:
    """The newest matching workload of a namespace, or None. `kind` "" is any. Raises WrongNameError."""
    views = list(views)
    kind = singular(kind)
    if kind and kind not in (*KINDS, "podgroup", "workload") and not any(v.job_kind.lower() == kind for v in views):
        raise WrongNameError(f"unknown kind {kind!r} of {name!r}: use {', '.join(KINDS)}, podgroup or workload")
    found = [v for v in views if v.namespace == namespace and matches(v, kind, name)]
    kinds = sorted({v.job_kind for v in found})
    if len(kinds) > 1:
        raise WrongNameError(f"{name!r} is {' and '.join(f'a {k}' for k in kinds)}: use {kinds[0].lower()}/{name}")
    return max(found, key=lambda v: v.created, default=None)


def matches(view: WorkloadView, kind: str, name: str) -> bool:
    by_job = view.job_name == name and kind in ("", view.job_kind.lower())
    return by_job or (view.name == name and kind in ("", "workload"))


def singular(kind: str) -> str:
    kind = kind.lower().partition(".")[0]
    return _SINGULAR.get(kind, kind)
