"""The next steps for one workload behind checks of this controller. Pure, and level-triggered like `control.kinds.job_plan`.

A request is made in two steps, templates first: an autoscaler refuses a request whose templates are missing. The Workload owns a
template until its request exists, so that none is left behind when this process ends in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.control.checks.provisioning import bodies, check_state
from gangline.control.checks.provisioning.groups import Group, groups
from gangline.control.checks.provisioning.naming import attempt_of, request_name, template_name
from gangline.control.checks.provisioning.updates import pod_set_updates, unusable_details
from gangline.jobs.base import JobError
from gangline.kube.resources import Json
from gangline.objects import Stored, WorkloadObject


@dataclass(frozen=True, slots=True)
class View:
    """A Workload and what exists for it, as last seen."""

    workload: WorkloadObject
    #: the checks of this controller among the Workload's, each with its configuration; None: it has none that can be used
    checks: Mapping[str, ProvisioningRequestConfigSpec | None]
    #: the requests that the Workload controls
    requests: Sequence[Stored]
    #: the PodTemplates that the Workload itself controls
    templates: Sequence[Stored]
    #: whoever controls it: name -> the ProvisioningRequest, or the PodTemplate, in the Workload's namespace
    request_named: Callable[[str], Stored | None]
    template_named: Callable[[str], Stored | None]
    #: an owner reference -> whether that ProvisioningRequest or Workload still exists
    exists: Callable[[Json], bool]
    flavor: bodies.FlavorOf
    #: requests of an evicted Workload are deleted (Kueue's gate CleanupProvisioningRequestsOnEviction)
    clean_up: bool = True


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetChecks:
    """Change rows of `status.admissionChecks`: what each is, and what it becomes."""

    rows: Sequence[tuple[Json, Json]]


@dataclass(frozen=True, slots=True)
class CreateTemplate:
    check: str
    body: Json


@dataclass(frozen=True, slots=True)
class CreateRequest:
    check: str
    body: Json


@dataclass(frozen=True, slots=True)
class AdoptTemplate:
    """Give a template to its request."""

    template: Stored
    body: Json


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    request: Stored


@dataclass(frozen=True, slots=True)
class DeleteTemplate:
    template: Stored


@dataclass(frozen=True, slots=True)
class Refused:
    """Report in the check that a request cannot be made as the workload and its flavors are; `message` says why."""

    check: str
    message: str


@dataclass(frozen=True, slots=True)
class Remark:
    """An event on the Workload."""

    reason: str
    message: str


Step: TypeAlias = (
    SetChecks | CreateTemplate | CreateRequest | AdoptTemplate | DeleteRequest | DeleteTemplate | Refused | Remark
)


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan(view: View) -> list[Step]:
    """The next steps; [] when there is nothing to do until something changes. Raises ParseError for an incomplete admission."""
    workload = view.workload
    if workload.finished or workload.deleting or (workload.evicted and view.clean_up):
        return [*_delete_requests(view.requests), *_delete_templates(view.templates)]
    if not workload.holds_quota or workload.evicted:
        return []
    plans = [plan for row in workload.checks if (plan := _check_plan(view, row)) is not None]
    changes = [(plan.row, plan.after) for plan in plans if plan.after != plan.row]
    steps: list[Step] = [SetChecks(changes)] if changes else []
    kept = {plan.request.name for plan in plans if plan.request is not None}
    steps += _delete_requests(each for each in view.requests if each.name not in kept)
    for each in plans:
        steps += each.next_steps(view)
    needed = {name for each in plans for name in each.templates()}
    steps += _delete_templates(each for each in view.templates if each.name not in needed)
    return steps


@dataclass(frozen=True, slots=True)
class _CheckPlan:
    """One check: its row, what that becomes, its newest request, and the pods to request if another one has to be made."""

    row: Json
    after: Json
    config: ProvisioningRequestConfigSpec | None
    request: Stored | None = None
    wanted: Sequence[Group] = ()
    #: name of the request to make; "" = none
    name: str = ""

    def templates(self) -> list[str]:
        """Names of the templates of its request and of the one to make."""
        asked = self.request.spec.get("podSets") or () if self.request is not None else ()
        coming = [template_name(self.name, group.name) for group in self.wanted] if self.name else []
        return [*coming, *(row["podTemplateRef"]["name"] for row in asked)]

    def next_steps(self, view: View) -> Iterator[Step]:
        if self.request is not None:
            yield from _adopt(view, self.request)
        if self.row["state"] != self.after["state"] == check_state.READY and self.request is not None and self.config:
            yield from _unusable(self.request, self.config)
        if self.name and self.config is not None:
            yield from _make(view, self.row["name"], self.name, self.config, self.wanted)


def _check_plan(view: View, row: Json) -> _CheckPlan | None:
    """The plan for one check of a workload; None for a check of another controller."""
    workload, check = view.workload, row["name"]
    if check not in view.checks:
        return None
    admitted, config = workload.admitted, view.checks[check]
    if config is None:
        if admitted and row["state"] == check_state.READY:  # it runs: a configuration is not needed any more
            return _CheckPlan(row, row, None, _newest(view, check, None))
        return _CheckPlan(row, check_state.unconfigured(row), None)
    wanted = groups(workload, config)
    if not wanted:
        return _CheckPlan(row, check_state.not_needed(row), config)
    request = _newest(view, check, config)
    if request is None and admitted:
        return _CheckPlan(row, row, None)  # it has nodes: its queue got the check later
    if request is None:
        name = request_name(workload.name, check, (row.get("retryCount") or 0) + 1)
        return _CheckPlan(row, row, config, None, wanted, name if row["state"] == check_state.PENDING else "")
    attempt = _attempt(view, check, request)
    after = check_state.followed(
        row,
        request,
        attempt,
        config.retry_strategy,
        admitted=admitted,
        active=workload.active,
        updates=partial(pod_set_updates, request, wanted, config),
    )
    again = after["state"] == check_state.PENDING and check_state.has_failed(request, admitted=admitted)
    name = request_name(workload.name, check, attempt + 1) if again else ""
    return _CheckPlan(row, after, config, request, wanted, name)


def _newest(view: View, check: str, config: ProvisioningRequestConfigSpec | None) -> Stored | None:
    """The last attempt of the check that asks as the configuration says, if one is given."""
    mine = [
        each
        for each in view.requests
        if attempt_of(each.name, view.workload.name, check) is not None
        and not each.deleting
        and (config is None or bodies.is_current(each, view.workload, config))
    ]
    return max(mine, key=lambda each: _attempt(view, check, each), default=None)


def _attempt(view: View, check: str, request: Stored) -> int:
    return attempt_of(request.name, view.workload.name, check) or 0


# --- requests and templates -------------------------------------------------------------------------------------------


def _make(
    view: View, check: str, name: str, config: ProvisioningRequestConfigSpec, wanted: Sequence[Group]
) -> Iterator[Step]:
    """The templates that are missing or outdated; the request once there is none."""
    taken = view.request_named(name)
    if taken is not None and (taken.deleting or _is_leftover(view, taken) or _is_of(view, taken)):
        return  # it goes away first
    ready = True
    for group in wanted:
        try:
            body = bodies.template(view.workload, template_name(name, group.name), group, view.flavor)
        except JobError as error:
            where = template_name(name, group.name)
            yield Refused(check, f'Error creating PodTemplate "{where}": {error}')
            return
        step = _template_step(view, check, body)
        if step is not None:
            yield from step
            ready = False
    if ready:
        yield CreateRequest(check, bodies.request(view.workload, name, config, wanted))


def _template_step(view: View, check: str, body: Json) -> Sequence[Step] | None:
    """The step that brings a PodTemplate to what it should be: None if it is so already; no step where it only has to be waited
    for.
    """
    there = view.template_named(body["metadata"]["name"])
    if there is not None and there.deleting:
        return ()
    if there is not None and _is_of(view, there) and bodies.digest_of(there) == bodies.digest_of(body):
        return None
    if there is not None and (_is_of(view, there) or _is_leftover(view, there)):
        return (DeleteTemplate(there),)
    return (CreateTemplate(check, body),)  # where another owner has the name, the API server says so


def _is_of(view: View, obj: Stored) -> bool:
    return obj.controller_uid == view.workload.uid


def _is_leftover(view: View, obj: Stored) -> bool:
    """Whether the object's owner was deleted, so that Kubernetes is about to delete the object."""
    owner = obj.controller
    return owner is not None and not view.exists(owner)


def _adopt(view: View, request: Stored) -> Iterator[Step]:
    for row in request.spec.get("podSets") or ():
        template = view.template_named(row["podTemplateRef"]["name"])
        if template is not None and _is_of(view, template) and not template.deleting:
            yield AdoptTemplate(template, bodies.adopted(template, request))


def _unusable(request: Stored, config: ProvisioningRequestConfigSpec) -> Iterator[Step]:
    for detail in unusable_details(request, config):
        text = (
            f'ProvisioningRequest "{request.name}" has no detail "{detail[:64]}" that can be a node selector\'s value'
        )
        yield Remark("ProvisioningDetailSkipped", text)


def _delete_requests(requests: Iterable[Stored]) -> list[Step]:
    return [DeleteRequest(each) for each in requests if not each.deleting]


def _delete_templates(templates: Iterable[Stored]) -> list[Step]:
    return [DeleteTemplate(each) for each in templates if not each.deleting]
