"""JobSet: replicated Jobs, each of which becomes a pod set.

JobSet's own webhook checks its other fields, and that it does not change while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from gangline.api import names
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    duplicate,
    labels_of,
    mapping,
    objects,
    required,
    spec,
    text,
    too_many,
    whole,
)
from gangline.api.admission.of_jobs import jobs, pods, topology_request
from gangline.api.jobkinds import own

LIST_PATH: Final = "spec.replicatedJobs"
MAX_GROUPS: Final = 18  # the most pod sets of a Workload


@dataclass(frozen=True, slots=True)
class _Group:
    """One replicated job: `path` is its own, `pods_path` that of its pod template."""

    path: str
    name: str
    template: Json
    count: int

    @property
    def pods_path(self) -> str:
        return f"{self.path}.template.spec.template"


def _groups(job: Json | None) -> Iterator[_Group]:
    for position, row in enumerate(objects(spec(job).get("replicatedJobs"))):
        body = spec(mapping(row.get("template")))
        parallelism = whole(body.get("parallelism"), 1)
        each = min(parallelism, whole(body.get("completions"), parallelism))
        yield _Group(
            path=f"{LIST_PATH}[{position}]",
            name=text(row.get("name")),
            template=mapping(body.get("template")),
            count=whole(row.get("replicas"), 1) * each,
        )


def _check(job: Json, old: Json | None) -> list[FieldError]:
    groups, before = list(_groups(job)), {group.path: group for group in _groups(old)}
    if not groups:
        return [required(LIST_PATH, "a JobSet in a queue needs at least one replicated job")]
    if len(groups) > MAX_GROUPS:  # the rest costs time in proportion
        return [too_many(LIST_PATH, len(groups), MAX_GROUPS)]
    errors = _pod_set_names(groups)
    for group in groups:
        known = before.get(group.path)
        if known is None or known.template != group.template:
            errors += pods.check_pods(group.pods_path, group.template)
        errors += topology_request.check_template(group.pods_path, group.template, group.count)
    return errors + topology_request.check_groups([(group.pods_path, group.template, group.count) for group in groups])


def _pod_set_names(groups: list[_Group]) -> list[FieldError]:
    """Pod sets have the names of the replicated jobs in lower case."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for group in groups:
        if group.name.lower() in seen:
            errors.append(
                duplicate(f"{group.path}.name", group.name, "names must differ in more than upper and lower case")
            )
        seen.add(group.name.lower())
    return errors


def _grown(job: Json, old: Json) -> bool:
    """Whether some group has more pods than before, or is new. JobSet's own webhook refuses that; without it, the JobSet is
    suspended.
    """
    before = {group.name: group.count for group in _groups(old)}
    return any(group.count > before.get(group.name, 0) for group in _groups(job))


def _no_class(name: str) -> bool:
    return False


_COMMON: Final[KindRules] = jobs.job_rules(
    _check, grown=_grown, managed_by=own.JOB_SET.managed_by, own_manager=own.JOB_SET.controller
)


def _default(job: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    """Set the defaults that every job gets; but if the pods' label names a priority class, the default one must not
    replace it.
    """
    if any(labels_of(group.template).get(names.PRIORITY_CLASS) for group in _groups(job)):
        context = replace(context, priority_class_exists=_no_class)
    return _COMMON.default(job, old, context)


RULES: Final[KindRules] = KindRules(validate=_COMMON.validate, default=_default)
