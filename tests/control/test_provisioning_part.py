"""The part that answers checks by ProvisioningRequests: when it looks, what it sends, and what it does with refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.context import a_context
from tests.control.test_provisioning import CLASS, FLAVOR, RIGHT, check, workload

from gangline.control.checks.active_checks import ActiveChecks
from gangline.control.checks.provisioning import provisioning
from gangline.control.checks.provisioning.activity import CONTROLLER
from gangline.control.checks.provisioning.provisioning import Provisioning
from gangline.control.feed.mirror import Mirror
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.parts import attempts
from gangline.control.parts.messages import Messages, WriteResolved
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, ApiError, Forbidden
from gangline.kube.reflector import Synced
from gangline.kube.resources import Json, ObjectKey, Resource

KEY = "team/wl"
START = 1_700_000_000_000


class Room:
    """A Workload with quota behind a check; writes are kept until the test resolves them."""

    def __init__(self, *, served: bool = True) -> None:
        self.version = 0
        self.sent: list[tuple[ObjectKey, str, Json, Callable[..., None], Callable[..., None]]] = []
        self.events: list[tuple[str, str]] = []
        self.doubted = False
        self.served = served
        self.messages = Messages()
        self.mirror = Mirror(lambda change: None, messages=self.messages)
        self.part = Provisioning(
            a_context(
                mirror=self.mirror,
                writes=cast(Any, self),
                recorder=cast(Any, self),
                served=lambda resource: self.served,
                gates={},
                wake=lambda: None,
                quarantine=Quarantine(lambda *_: None),
            )
        )
        judges = {CONTROLLER: self.part.judge}
        self.checks = ActiveChecks(
            a_context(mirror=self.mirror, writes=cast(Any, self), quarantine=Quarantine(lambda *_: None)), judges
        )
        self.put(kube.RESOURCE_FLAVORS, {"metadata": {"name": "a100"}, **FLAVOR})
        spec = {"provisioningClassName": CLASS, "retryStrategy": {"backoffBaseSeconds": 7}}
        self.put(kube.PROVISIONING_CONFIGS, {"metadata": {"name": "c"}, "spec": spec})
        self.put(kube.ADMISSION_CHECKS, {"metadata": {"name": "nodes"}, **check(**RIGHT)})
        self.put(kube.WORKLOADS, workload())

    def put(self, resource: Resource, obj: Json) -> Json:
        self.version += 1
        head = {"resourceVersion": str(self.version), "uid": f"u{self.version}"}
        meta = {**head, **obj["metadata"], "resourceVersion": str(self.version)}
        stored = {**obj, "kind": resource.kind, "metadata": meta}
        self.mirror.upsert(resource, stored)
        return stored

    def act(self) -> list[str]:
        """One round; what it sent."""
        before = len(self.sent)
        self.checks.act(START)
        self.part.act(START)
        return [f"{verb} {key.resource.kind} {key.name}" for key, verb, *_ in self.sent[before:]]

    def done(self) -> None:
        """All writes in flight succeed."""
        sent, self.sent = self.sent, []
        for key, verb, body, done, _ in sent:
            if verb == "create":
                done(self.put(key.resource, body))
            elif verb == "delete":
                self.mirror.remove(key.resource, key.text)
                done(None)
            else:
                raw = self.mirror.get(key.resource, key.text) or {}
                meta = {**raw["metadata"], **body.get("metadata", {})}
                done(self.put(key.resource, {**raw, **body, "metadata": meta}))

    def row(self) -> Json:
        return (self.mirror.get(kube.WORKLOADS, KEY) or {})["status"]["admissionChecks"][0]

    # as Writes

    def in_doubt(self, *_: object) -> bool:
        return self.doubted

    def expected(self, error: ApiError) -> bool:
        return False

    def send(self, key: ObjectKey, verb: str, body: Json, *, done: Any = None, failed: Any = None, **_: Any) -> None:
        self.sent.append((key, verb, body, done or (lambda answer: None), failed))

    def change(self, workload: str, slot: str, change: Any, *, done: Any = None, failed: Any = None, **_: Any) -> None:
        raw = self.mirror.get(kube.WORKLOADS, workload) or {}
        status = {**raw["status"], "admissionChecks": [dict(row) for row in raw["status"]["admissionChecks"]]}
        change(status, START)
        self.sent.append(
            (
                ObjectKey.parse(kube.WORKLOADS, workload),
                slot,
                {"status": status},
                done or (lambda answer: None),
                failed,
            )
        )

    # as EventRecorder

    def record(self, obj: Json, kind: str, reason: str, note: str, action: str = "") -> None:
        self.events.append((reason, note))


def requested() -> Room:
    """Its nodes are requested, and the request has its template."""
    room = Room()
    room.part.lead()
    while room.act():
        room.done()
    return room


def answered(room: Room, kind: str, message: str) -> None:
    [request] = room.mirror.objects[kube.PROVISIONING_REQUESTS].values()
    condition = {"type": kind, "status": "True", "reason": kind, "message": message}
    room.put(kube.PROVISIONING_REQUESTS, {**request, "status": {"conditions": [condition]}})


def test_one_step_at_a_time_from_the_check_to_the_request() -> None:
    room = Room()
    room.part.lead()
    assert room.act() == ["status AdmissionCheck nodes", "create PodTemplate ppt-wl-nodes-1-main"]
    assert room.sent[0][2]["status"]["conditions"][0]["status"] == "True"
    assert room.act() == [], "the write is in flight"
    room.done()
    assert room.act() == ["create ProvisioningRequest wl-nodes-1"]
    room.done()
    assert room.events == [("ProvisioningRequestCreated", 'Created ProvisioningRequest: "wl-nodes-1"')]
    assert room.act() == ["patch PodTemplate ppt-wl-nodes-1-main"]
    room.done()
    assert room.act() == []


def test_an_answer_of_the_autoscaler_changes_the_check_and_is_told() -> None:
    room = requested()
    room.events.clear()
    answered(room, "Failed", "none left")
    assert room.act() == ["provisioning Workload wl"]
    room.done()
    said = room.row()
    assert (said["state"], said["message"], said["requeueAfterSeconds"]) == (
        "Retry",
        "Retrying after failure: none left",
        7,
    )
    assert said["lastTransitionTime"] == "2023-11-14T22:13:20Z"
    text = "Admission check nodes updated state from Pending to Retry with message: Retrying after failure: none left"
    assert room.events == [("AdmissionCheckUpdated", text)]
    assert room.act() == []


def test_a_row_that_has_changed_meanwhile_is_left_alone() -> None:
    room = requested()
    before, after = room.row(), {**room.row(), "state": "Ready"}
    status = {"admissionChecks": [{**before, "message": "reset by an eviction"}]}
    provisioning._changed_rows([(before, after)])(status, START)
    assert status["admissionChecks"] == [{**before, "message": "reset by an eviction"}]
    status = {"admissionChecks": [before]}
    provisioning._changed_rows([(before, after)])(status, START)
    assert status["admissionChecks"][0]["state"] == "Ready"


def test_nothing_is_planned_while_the_workload_is_in_doubt() -> None:
    """A reservation or an eviction that is being written decides whether nodes are needed."""
    room = Room()
    room.doubted = True
    room.part.lead()
    assert room.act() == ["status AdmissionCheck nodes"]
    room.doubted = False
    key = ObjectKey.parse(kube.WORKLOADS, KEY)
    room.messages.publish(WriteResolved(None, None, key))
    assert room.act() == ["create PodTemplate ppt-wl-nodes-1-main"]


def test_a_check_follows_its_configuration_and_whether_requests_are_served() -> None:
    room = Room(served=False)
    room.part.lead()
    room.act()
    assert room.sent[0][2]["status"]["conditions"][0]["reason"] == "NotServed"
    room.done()
    room.served = True
    room.checks.observe(kube.PROVISIONING_REQUESTS, Synced())
    room.act()
    assert room.sent[0][2]["status"]["conditions"][0]["reason"] == "Active"
    room.done()
    room.mirror.remove(kube.PROVISIONING_CONFIGS, "c")
    assert "status AdmissionCheck nodes" in room.act()
    [body] = [body for key, _, body, *_ in room.sent if key.resource == kube.ADMISSION_CHECKS]
    assert body["status"]["conditions"][0]["message"] == 'ProvisioningRequestConfig.kueue.x-k8s.io "c" not found'


async def test_a_refusal_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "LONGEST_PAUSE", 0.0)
    room = Room()
    room.part.lead()
    room.act()
    room.sent[1][4](Forbidden(403, "Forbidden", "exceeded quota: few"))
    room.sent.clear()
    assert room.act() == [], "not at once"
    await asyncio.sleep(0.01)
    assert room.act() == ["create PodTemplate ppt-wl-nodes-1-main"]
    text = 'Error creating PodTemplate "ppt-wl-nodes-1-main": exceeded quota: few'
    assert room.events == [("FailedCreate", text)]


async def test_a_create_whose_answer_was_lost_is_no_refusal() -> None:
    room = Room()
    room.part.lead()
    room.act()
    _, _, body, _, failed = room.sent[1]
    room.sent.clear()
    room.put(kube.POD_TEMPLATES, body)
    failed(AlreadyExists(409, "AlreadyExists", "it exists"))
    assert room.events == []
    assert room.act() == ["create ProvisioningRequest wl-nodes-1"]


def test_objects_of_other_namespaces_and_owners_do_not_count() -> None:
    """Whoever may create requests in other namespaces cannot answer a check of this namespace."""
    room = requested()
    [request] = room.mirror.objects[kube.PROVISIONING_REQUESTS].values()
    provisioned = {"conditions": [{"type": "Provisioned", "status": "True", "reason": "x", "message": ""}]}
    foreign = {**request, "metadata": {**request["metadata"], "namespace": "other", "name": "wl-nodes-2", "uid": "x"}}
    room.put(kube.PROVISIONING_REQUESTS, {**foreign, "status": provisioned})
    owner = {**request["metadata"]["ownerReferences"][0], "uid": "someone"}
    meta = {**request["metadata"], "name": "wl-nodes-3", "uid": "y", "ownerReferences": [owner]}
    room.put(kube.PROVISIONING_REQUESTS, {**request, "metadata": meta, "status": provisioned})
    assert room.act() == []
    assert room.row()["state"] == "Pending"


def test_templates_of_a_request_that_names_itself_as_its_owner_are_nobodys() -> None:
    room = Room()
    loop = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "name": "r",
        "uid": "r",
        "controller": True,
    }
    meta = {"name": "r", "namespace": "team", "uid": "r", "ownerReferences": [loop]}
    room.put(kube.PROVISIONING_REQUESTS, {"metadata": meta, "spec": {}})
    room.put(kube.POD_TEMPLATES, {"metadata": {**meta, "name": "t", "uid": "t"}, "template": {}})
    assert room.mirror.get(kube.POD_TEMPLATES, "team/t") is not None


def test_a_deleted_workload_is_forgotten() -> None:
    room = requested()
    room.mirror.remove(kube.WORKLOADS, KEY)
    assert room.act() == [], "its requests go with it"


async def test_a_workload_that_cannot_be_handled_costs_itself_alone() -> None:
    room = Room()
    bad = workload()
    bad["metadata"] = {**bad["metadata"], "name": "a", "uid": "bad"}
    bad["spec"] = {"podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": "none"}}}]}
    room.put(kube.WORKLOADS, bad)
    room.part.lead()
    assert room.act() == ["status AdmissionCheck nodes", "create PodTemplate ppt-wl-nodes-1-main"]
