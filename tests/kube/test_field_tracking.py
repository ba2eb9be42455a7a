"""Whoever may spare the API server the account of fields does; nobody minds where that cannot be."""

from __future__ import annotations

from tests.kube.fake_server import Answer, FakeServer

from gangline.kube import field_tracking, ownership
from gangline.kube.client import ApiClient

POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
MAY = b'{"kind": "SelfSubjectAccessReview", "status": {"allowed": true}}'
MAY_NOT = b'{"kind": "SelfSubjectAccessReview", "status": {"allowed": false}}'


async def end(server: FakeServer, *answers: Answer) -> None:
    server.script += answers
    async with ApiClient(server.login()) as client:
        await field_tracking.end(client, ownership.WEBHOOKS, after=0.0)


def review(body: bytes) -> Answer:
    return Answer(201, verb="create", plural="selfsubjectaccessreviews", body=body)


async def test_policy_and_binding_are_made_once() -> None:
    async with FakeServer() as server:
        await end(server, review(MAY), review(MAY))
        made = {f"{path}/{field_tracking.NAME}" for path in (POLICIES, BINDINGS)}
        assert set(server.objects) == made
        before = server.version
        await end(server)
        assert server.version == before


async def test_whoever_may_not_make_them_does_not_try() -> None:
    async with FakeServer() as server:
        await end(server, review(MAY_NOT), review(MAY_NOT))
        assert not server.objects
        assert server.requests["create mutatingadmissionpolicies"] == 0


async def test_a_refusal_is_not_repeated() -> None:
    async with FakeServer() as server:
        await end(server, Answer(403, "Forbidden", verb="get"))
        assert sum(server.requests.values()) == 1


async def test_a_server_that_does_not_know_them_is_left_alone() -> None:
    async with FakeServer() as server:
        await end(server, review(MAY), Answer(404, "NotFound", verb="create", plural="mutatingadmissionpolicies"))
        assert not server.objects
