"""Finds a workload by a job's name, by kind/name, or by the Workload's name."""

from __future__ import annotations

import click

from gangline.console.views.snapshot import Snapshot, WorkloadView
from gangline.kube.resources import GPU_JOBS, JOB_SETS, JOBS, Resource

#: singular kind that `kind/name` accepts -> resource
KINDS: dict[str, Resource] = {"job": JOBS, "gpujob": GPU_JOBS, "jobset": JOB_SETS}


def find(seen: Snapshot, namespace: str, job: str) -> WorkloadView | None:
    """The newest matching workload, or None. Raises click.ClickException for an unknown kind or an ambiguous name."""
    kind, _, name = job.rpartition("/")
    kind = singular(kind)
    if kind and kind not in (*KINDS, "workload") and not any(v.job_kind.lower() == kind for v in seen.workloads):
        raise click.ClickException(f"unknown kind {kind!r} in {job!r}: use {', '.join(KINDS)} or workload")
    found = [v for v in seen.workloads if v.namespace == namespace and matches(v, kind, name)]
    kinds = sorted({v.job_kind for v in found})
    if len(kinds) > 1:
        raise click.ClickException(
            f"{name!r} is {' and '.join(f'a {k}' for k in kinds)}: use {kinds[0].lower()}/{name}"
        )
    return max(found, key=lambda v: v.created, default=None)


def matches(view: WorkloadView, kind: str, name: str) -> bool:
    by_job = view.job_name == name and kind in ("", view.job_kind.lower())
    return by_job or (view.name == name and kind in ("", "workload"))


def singular(kind: str) -> str:
    kind = kind.lower().partition(".")[0]
    return {"jobs": "job", "gpujobs": "gpujob", "workloads": "workload", "wl": "workload"}.get(kind, kind)
