"""Answers the admission checks of its controller: plans each workload behind them, and sends the steps of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gangline.api.read import conditions
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.control.checks.active_checks import Activity
from gangline.control.checks.provisioning import activity, planning
from gangline.control.isolation.time_limit import limited
from gangline.control.kernel.context import Context
from gangline.control.kernel.reconciler import Reconciler
from gangline.control.parts.messages import WriteResolved
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.status.change import Change
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, ApiError
from gangline.kube.reflector import Event, Synced
from gangline.kube.resources import Json, ObjectKey, Resource, key_of
from gangline.objects import Stored, WorkloadObject


class Provisioning(Reconciler[str]):
    """Requests nodes for workloads with quota, and reports in their checks how far the requests are."""

    name = "provisioning"
    doing = "provisioning it"
    kinds = (kube.PROVISIONING_REQUESTS,)

    def __init__(self, context: Context) -> None:
        exists = context.mirror.has(kube.WORKLOADS)
        super().__init__(context, context.mirror.changes.checked.subscribe(worth=exists))
        self._served = context.served
        self._clean_up = context.gates.get("CleanupProvisioningRequestsOnEviction", True)
        self._changed_checks = context.mirror.changes.checks.subscribe(worth=context.mirror.has(kube.ADMISSION_CHECKS))
        self._look_at_all = False
        context.mirror.messages.subscribe(WriteResolved, self._note_resolved)

    def observe(self, resource: Resource, event: Event) -> None:
        """Look at all workloads again after a full list: the kind may be served only now."""
        if isinstance(event, Synced):
            self._look_at_all = True

    def lead(self) -> None:
        self._look_at_all = True

    def _gather(self, now: int) -> None:
        if self._changed_checks.take() or self._look_at_all:
            self._look_at_all = False
            for key, workload in self._mirror.workloads.items():
                if "admissionChecks" in workload.status:
                    self._changed.add(key)

    # --- AdmissionChecks ---

    def judge(self, check: Stored) -> Activity:
        """The activity of a check of this controller: whether it is active, and why."""
        return activity.activity_of(check, self._config_named, served=self._served(kube.PROVISIONING_REQUESTS))

    def _config_named(self, name: str) -> Stored | None:
        return self._mirror.get(kube.PROVISIONING_CONFIGS, name)

    # --- workloads ---

    def _reconcile(self, key: str, now: int) -> None:
        workload = self._mirror.workloads.get(key)
        if workload is None:
            self._attempts.forgive(key)
        elif not self._writes.in_doubt(kube.WORKLOADS, key):  # else it is looked at when the doubt is over
            view = self._view(workload)
            for step in limited(lambda: planning.plan(view)):
                self._carry_out(key, workload, step)

    def _view(self, workload: WorkloadObject) -> planning.ProvisioningView:
        mirror, namespace = self._mirror, workload.namespace
        return planning.ProvisioningView(
            workload,
            self._checks_of(workload),
            mirror.controlled_by(workload, kube.PROVISIONING_REQUESTS),
            mirror.controlled_by(workload, kube.POD_TEMPLATES),
            request_named=lambda name: mirror.get(kube.PROVISIONING_REQUESTS, f"{namespace}/{name}"),
            template_named=lambda name: mirror.get(kube.POD_TEMPLATES, f"{namespace}/{name}"),
            exists=partial(self._exists, namespace),
            flavor=mirror.flavor,
            clean_up=self._clean_up,
        )

    def _checks_of(self, workload: WorkloadObject) -> dict[str, ProvisioningRequestConfigSpec | None]:
        """The checks of a workload that this controller answers, each with its configuration; None for one that
        cannot be used.
        """
        found: dict[str, ProvisioningRequestConfigSpec | None] = {}
        for row in workload.checks:
            check = self._mirror.get(kube.ADMISSION_CHECKS, row["name"])
            if check is not None and activity.is_ours(check):
                try:
                    found[row["name"]] = activity.config_of(check, self._config_named)
                except activity.UnusableError:
                    found[row["name"]] = None
        return found

    def _exists(self, namespace: str, owner: Json) -> bool:
        """Whether the owner that a reference names exists; one of another kind is not ours to judge."""
        for kind in (kube.WORKLOADS, kube.PROVISIONING_REQUESTS):
            if owner.get("kind") == kind.kind:
                found = self._mirror.get(kind, f"{namespace}/{owner['name']}")
                return found is not None and found.uid == owner["uid"]
        return True

    # --- steps ---

    def _carry_out(self, key: str, workload: WorkloadObject, step: planning.Step) -> None:
        match step:
            case planning.SetChecks(rows):
                self._change(key, key, _changed_rows(rows), done=partial(self._rows_written, rows))
            case planning.CreateTemplate(check, body):
                self._create(key, check, kube.POD_TEMPLATES, body)
            case planning.CreateRequest(check, body):
                self._create(key, check, kube.PROVISIONING_REQUESTS, body)
            case planning.AdoptTemplate(template, body):
                self._send(key, ObjectKey.of(kube.POD_TEMPLATES, template), "patch", body)
            case planning.DeleteTemplate(template):
                self._send(key, ObjectKey.of(kube.POD_TEMPLATES, template), "delete", {"uid": template.uid})
            case planning.DeleteRequest(request):
                self._send(key, ObjectKey.of(kube.PROVISIONING_REQUESTS, request), "delete", {"uid": request.uid})
            case planning.Refused(check, why):
                self._report(key, check, why)
                self._attempts.pause(key)
            case planning.Remark(reason, message):
                self._recorder.record(workload, "Warning", reason, message)

    def _create(self, key: str, check: str, resource: Resource, body: Json) -> None:
        done, failed = partial(self._created, key, resource), partial(self._not_created, key, check, resource, body)
        self._send(key, ObjectKey.of(resource, body), "create", body, done=done, failed=failed)

    # --- results of writes ---

    def _note_resolved(self, message: WriteResolved) -> None:
        """Look again at a Workload that is not in doubt any more, perhaps without a change that the mirror shows."""
        if message.key.resource == kube.WORKLOADS:
            workload = self._mirror.workloads.get(message.key.text)
            if workload is not None and "admissionChecks" in workload.status:
                self._changed.add(message.key.text)

    def _rows_written(self, rows: Sequence[tuple[Json, Json]], answer: Json | None) -> None:
        for before, after in rows if answer is not None else ():
            if before["state"] != after["state"]:
                said = f" with message: {after['message']}" if after["message"] else ""
                text = f"Admission check {after['name']} updated state from {before['state']} to {after['state']}{said}"
                self._recorder.record(answer or {}, "Normal", "AdmissionCheckUpdated", text)

    def _created(self, key: str, resource: Resource, answer: Json | None) -> None:
        workload = self._mirror.workloads.get(key)
        if resource == kube.PROVISIONING_REQUESTS and answer is not None and workload is not None:
            text = f'Created ProvisioningRequest: "{answer["metadata"]["name"]}"'
            self._recorder.record(workload, "Normal", "ProvisioningRequestCreated", text, "Created")

    def _not_created(self, key: str, check: str, resource: Resource, body: Json, error: ApiError) -> None:
        """Report in the check that an object could not be created, unless it is there after all: the answer to an earlier attempt
        may have been lost.
        """
        there = self._mirror.get(resource, key_of(body))
        owner = body["metadata"]["ownerReferences"][0]["uid"]
        if isinstance(error, AlreadyExists) and there is not None and there.controller_uid == owner:
            self._again(key)
            return
        self._report(key, check, f'Error creating {resource.kind} "{body["metadata"]["name"]}": {error.message}')
        self._attempts.pause(key)

    def _report(self, key: str, check: str, message: str) -> None:
        """Say in the check why its request is not made."""
        workload = self._mirror.workloads.get(key)
        if workload is None:
            return
        self._recorder.record(workload, "Warning", "FailedCreate", message)
        change = _message_of_check(check, message[: conditions.MAX_MESSAGE])
        self._writes.change(key, "provisioning-trouble", change, priority=Priority.STATUS)


def _changed_rows(rows: Sequence[tuple[Json, Json]]) -> Change:
    """Replaces the rows that are still as they were when the change was planned."""
    planned: dict[str, tuple[Json, Json]] = {before["name"]: (before, after) for before, after in rows}

    def change(status: Json, now: int) -> None:
        for i, row in enumerate(status.get("admissionChecks") or ()):
            before, after = planned.get(row["name"], (None, row))
            if row == before:
                moved = {"lastTransitionTime": conditions.timestamp(now)} if after["state"] != row["state"] else {}
                status["admissionChecks"][i] = {**after, **moved}

    return change


def _message_of_check(check: str, message: str) -> Change:
    def change(status: Json, now: int) -> None:
        for row in status.get("admissionChecks") or ():
            if row["name"] == check and row["state"] == "Pending":
                row["message"] = message

    return change
