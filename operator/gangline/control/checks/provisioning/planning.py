"""The next steps for one workload behind checks of this controller. Pure, and level-triggered like `control.kinds.job_plan`.

A request is made in two steps, templates first: an autoscaler refuses a request whose templates are missing. The Workload owns a
template until its request exists, so that none is left behind when this process ends in between.

The state of a check, from the conditions of its newest request. The order of the rules and the messages are Kueue's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from gangline.api.read.conditions import cut
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec, RetryStrategy
from gangline.control.checks.provisioning import bodies
from gangline.control.checks.provisioning.bodies import (
    RequestGroup,
    attempt_of,
    groups,
    pod_set_updates,
    request_name,
    template_name,
    unusable_details,
)
from gangline.jobs.base import JobError
from gangline.kube.resources import Json
from gangline.objects import Stored, WorkloadObject

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"

PENDING: Final = "Pending"
READY: Final = "Ready"
RETRY: Final = "Retry"
REJECTED: Final = "Rejected"

#: the AdmissionCheck has no usable configuration
UNCONFIGURED: Final = "the check is not active"
NOT_NEEDED: Final = "the provisioning request is not needed"

#: seconds of the longest wait: the field is a 32-bit number
_LONGEST_WAIT: Final = 2**31 - 1


def unconfigured(row: Json) -> Json:
    return {**row, "state": PENDING, "message": UNCONFIGURED}


def not_needed(row: Json) -> Json:
    """The row of a check that is ready without a request: what an earlier admission's request added to the pods
    does not apply.
    """
    if row["state"] == READY:
        return row
    return {**_without(row, "podSetUpdates"), "state": READY, "message": NOT_NEEDED}


def followed(
    row: Json,
    request: Stored,
    attempt: int,
    retry: RetryStrategy,
    *,
    admitted: bool,
    active: bool,
    updates: Callable[[], Sequence[Json]],
) -> Json:
    """The row of `status.admissionChecks` as the request's conditions say. `updates`: what the pods get on its nodes."""
    if (failed := request.true_condition(FAILED)) is not None:
        return _failed(row, attempt, retry, failed, "Retrying after failure")
    if (revoked := request.true_condition(CAPACITY_REVOKED)) is not None:
        # the nodes are gone: pods that replace others there would wait for ever
        return {**row, "state": REJECTED, "message": _message(revoked)} if active else row
    if (expired := request.true_condition(BOOKING_EXPIRED)) is not None:
        return row if admitted else _failed(row, attempt, retry, expired, "Retrying after booking expired")
    if (provisioned := request.true_condition(PROVISIONED)) is not None:
        if row["state"] == READY:
            return row
        return {**row, "state": READY, "message": _message(provisioned), "podSetUpdates": list(updates())}
    if request.is_true(ACCEPTED):
        expected = request.condition(PROVISIONED)  # says when the nodes will be there
        return row if expected is None else {**row, "state": PENDING, "message": _message(expected)}
    return {**row, "state": PENDING, "message": ""}


def has_failed(request: Stored, *, admitted: bool) -> bool:
    """Whether another attempt follows this request. A booking that expires under a running workload has done its work."""
    expired = request.is_true(BOOKING_EXPIRED) and not admitted
    return expired or request.is_true(FAILED)


def _failed(row: Json, attempt: int, retry: RetryStrategy, condition: Json, words: str) -> Json:
    """Retry up to the limit, once for each attempt: a request whose failure was counted already changes only the message."""
    if attempt > retry.backoff_limit_count:
        return {**row, "state": REJECTED, "message": _message(condition)}
    said = {**row, "message": cut(f"{words}: {condition.get('message', '')}")}
    retries = row.get("retryCount") or 0
    if attempt <= retries:
        return said
    return {**said, "state": RETRY, "requeueAfterSeconds": wait(retry, retries + 1)}


def wait(retry: RetryStrategy, times: int) -> int:
    """Seconds until a request that has failed for the n-th time is made again. The limit does not apply to the first wait."""
    first, most = retry.backoff_base_seconds, retry.backoff_max_seconds or _LONGEST_WAIT
    seconds = first if times <= 1 else min(first * 2 ** min(times - 1, 31), most)
    return max(0, min(seconds, _LONGEST_WAIT))


def _message(condition: Json) -> str:
    return cut(condition.get("message", ""))


def _without(row: Json, name: str) -> Json:
    return {key: value for key, value in row.items() if key != name}


@dataclass(frozen=True, slots=True)
class ProvisioningView:
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


def plan(view: ProvisioningView) -> list[Step]:
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
    wanted: Sequence[RequestGroup] = ()
    #: name of the request to make; "" = none
    name: str = ""

    def templates(self) -> list[str]:
        """Names of the templates of its request and of the one to make."""
        asked = self.request.spec.get("podSets") or () if self.request is not None else ()
        coming = [template_name(self.name, group.name) for group in self.wanted] if self.name else []
        return [*coming, *(row["podTemplateRef"]["name"] for row in asked)]

    def next_steps(self, view: ProvisioningView) -> Iterator[Step]:
        if self.request is not None:
            yield from _adopt(view, self.request)
        if self.row["state"] != self.after["state"] == READY and self.request is not None and self.config:
            yield from _unusable(self.request, self.config)
        if self.name and self.config is not None:
            yield from _make(view, self.row["name"], self.name, self.config, self.wanted)


def _check_plan(view: ProvisioningView, row: Json) -> _CheckPlan | None:
    """The plan for one check of a workload; None for a check of another controller."""
    workload, check = view.workload, row["name"]
    if check not in view.checks:
        return None
    admitted, config = workload.admitted, view.checks[check]
    if config is None:
        if admitted and row["state"] == READY:  # it runs: a configuration is not needed any more
            return _CheckPlan(row, row, None, _newest(view, check, None))
        return _CheckPlan(row, unconfigured(row), None)
    wanted = groups(workload, config)
    if not wanted:
        return _CheckPlan(row, not_needed(row), config)
    request = _newest(view, check, config)
    if request is None and admitted:
        return _CheckPlan(row, row, None)  # it has nodes: its queue got the check later
    if request is None:
        name = request_name(workload.name, check, (row.get("retryCount") or 0) + 1)
        return _CheckPlan(row, row, config, None, wanted, name if row["state"] == PENDING else "")
    attempt = _attempt(view, check, request)
    after = followed(
        row,
        request,
        attempt,
        config.retry_strategy,
        admitted=admitted,
        active=workload.active,
        updates=partial(pod_set_updates, request, wanted, config),
    )
    again = after["state"] == PENDING and has_failed(request, admitted=admitted)
    name = request_name(workload.name, check, attempt + 1) if again else ""
    return _CheckPlan(row, after, config, request, wanted, name)


def _newest(view: ProvisioningView, check: str, config: ProvisioningRequestConfigSpec | None) -> Stored | None:
    """The last attempt of the check that asks as the configuration says, if one is given."""
    mine = [
        each
        for each in view.requests
        if attempt_of(each.name, view.workload.name, check) is not None
        and not each.deleting
        and (config is None or bodies.is_current(each, view.workload, config))
    ]
    return max(mine, key=lambda each: _attempt(view, check, each), default=None)


def _attempt(view: ProvisioningView, check: str, request: Stored) -> int:
    return attempt_of(request.name, view.workload.name, check) or 0


# --- requests and templates -------------------------------------------------------------------------------------------


def _make(
    view: ProvisioningView, check: str, name: str, config: ProvisioningRequestConfigSpec, wanted: Sequence[RequestGroup]
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


def _template_step(view: ProvisioningView, check: str, body: Json) -> Sequence[Step] | None:
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


def _is_of(view: ProvisioningView, obj: Stored) -> bool:
    return obj.controller_uid == view.workload.uid


def _is_leftover(view: ProvisioningView, obj: Stored) -> bool:
    """Whether the object's owner was deleted, so that Kubernetes is about to delete the object."""
    owner = obj.controller
    return owner is not None and not view.exists(owner)


def _adopt(view: ProvisioningView, request: Stored) -> Iterator[Step]:
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
