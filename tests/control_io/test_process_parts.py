"""The answers to probes, where the leader says it is, and namespaces that are not there."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from tests.kube.fake_server import Answer, FakeServer

from gangline.control.process import leader_endpoint, options
from gangline.control.process.front_door import LONGEST_ROUND, Probes
from gangline.control.process.token_review import AT_ONCE, PER_ADDRESS, REMEMBERED, WAITING, TokenReviews
from gangline.kube.client import ApiClient
from gangline.tls.apps import new_app
from gangline.tls.requests import BusyError


@pytest.mark.parametrize(
    ("unlisted", "still", "standing", "healthz", "readyz"),
    [
        (["pods", "nodes"], 0.0, "", (200, "ok\n"), (503, "waiting for the first list of pods, nodes\n")),
        ([], 1.0, "leading", (200, "ok\n"), (200, "ok\nleading\n")),
        ([], 0.0, "waiting: 'x' holds Lease a/b", (200, "ok\n"), (200, "ok\nwaiting: 'x' holds Lease a/b\n")),
        (
            [],
            LONGEST_ROUND + 1,
            "leading",
            (500, "the control loop has made no progress for 31 s\n"),
            (200, "ok\nleading\n"),
        ),
    ],
)
def test_probes(
    unlisted: list[str], still: float, standing: str, healthz: tuple[int, str], readyz: tuple[int, str]
) -> None:
    app = new_app()
    Probes(lambda: unlisted, lambda: still, lambda: standing).add_to(app)
    client = TestClient(app)
    for path, expected in (("/healthz", healthz), ("/readyz", readyz)):
        answer = client.get(path)
        assert (answer.status_code, answer.text) == expected
        assert (client.head(path).status_code, client.head(path).text) == (expected[0], "")


@pytest.mark.parametrize(
    ("host", "pod", "expected"),
    [
        ("127.0.0.1", {}, {"port": "80", "url": "http://127.0.0.1:80"}),
        ("0.0.0.0", {}, {"port": "80", "url": ""}),
        (
            "0.0.0.0",
            {"POD_IP": "fd00::7", "POD_NAME": "operator-x", "POD_NAMESPACE": "gpu"},
            {"port": "80", "url": "http://[fd00::7]:80", "pod": "operator-x", "namespace": "gpu"},
        ),
    ],
)
async def test_a_leader_in_a_pod_is_found_by_its_pod(
    monkeypatch: pytest.MonkeyPatch, host: str, pod: dict[str, str], expected: dict[str, str]
) -> None:
    for name in ("POD_IP", "POD_NAME", "POD_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in pod.items():
        monkeypatch.setenv(name, value)
    async with FakeServer() as server, ApiClient(server.login()) as client:
        server.put("/apis/rbac.authorization.k8s.io/v1/clusterroles", "gangline-operator")
        server.put("/api/v1/namespaces/gpu/configmaps", leader_endpoint.CONFIG_MAP)
        await leader_endpoint.publish(client, "gpu", host, 80)
        written = server.objects[f"/api/v1/namespaces/gpu/configmaps/{leader_endpoint.CONFIG_MAP}"].obj
        assert written["data"] == expected
        assert written["metadata"]["ownerReferences"][0]["name"] == "gangline-operator"


async def test_a_namespace_that_may_not_be_created_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    messages: list[str] = []
    async with FakeServer() as server, ApiClient(server.login()) as client:
        server.script += [Answer(403, "Forbidden", verb="create", plural="namespaces")] * 2
        ensured = asyncio.ensure_future(options.ensure_namespace(client, "kueue-system", report=messages.append))
        while server.script:
            await asyncio.sleep(0.05)
        server.put("/api/v1/namespaces", "kueue-system")
        await asyncio.wait_for(ensured, 10)
    assert messages == [messages[0], ""] and "kubectl create namespace kueue-system" in messages[0]
    assert caplog.text.count("no right to create it") == 1, "it is said once"


async def test_a_token_is_reviewed_once_in_a_while() -> None:
    now = 0.0
    async with FakeServer() as server, ApiClient(server.login()) as client:
        tokens = TokenReviews(client, clock=lambda: now)

        async def user(token: str, **status: Any) -> str:
            body = {"kind": "TokenReview", "status": status}
            server.script[:] = [Answer(201, verb="create", plural="tokenreviews", body=orjson.dumps(body))]
            found = await tokens.user(token, "10.0.0.1")
            return found.name if found is not None else ""

        assert await user("a", authenticated=True, user={"username": "alice", "groups": ["g"]}) == "alice"
        assert await user("b", user={"username": "bob"}) == "", "not authenticated"
        assert await user("a") == "alice" and await user("b") == "", "from the cache"
        now = 11.0
        assert await user("a", authenticated=False) == ""


class SlowReviewer:
    """In place of an API server, which answers reviews once it may, and knows the tokens that begin with "valid"."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []
        self.may = asyncio.Event()

    async def create(self, _: object, __: object, body: Any, within: float) -> Any:
        token = body["spec"]["token"]
        self.reviewed.append(token)
        await self.may.wait()
        known = token.startswith("valid")
        return {"status": {"authenticated": known, **({"user": {"username": token}} if known else {})}}


async def test_a_known_token_does_not_wait_behind_invented_ones() -> None:
    server: Any = SlowReviewer()
    tokens = TokenReviews(server)
    server.may.set()
    assert await tokens.user("valid", "10.0.0.1")
    server.may.clear()
    slow = [asyncio.ensure_future(tokens.user(f"x{n}", f"10.0.1.{n}")) for n in range(AT_ONCE)]
    await asyncio.sleep(0)
    assert await asyncio.wait_for(tokens.user("valid", "10.0.0.1"), 5)
    server.may.set()
    assert await asyncio.gather(*slow) == [None] * AT_ONCE


async def test_one_address_has_few_reviews_at_a_time_and_few_wait_in_all() -> None:
    server: Any = SlowReviewer()
    tokens = TokenReviews(server)
    held = [asyncio.ensure_future(tokens.user(f"x{n}", "10.6.6.6")) for n in range(PER_ADDRESS)]
    await asyncio.sleep(0)
    with pytest.raises(BusyError):
        await tokens.user("y", "10.6.6.6")
    other = asyncio.ensure_future(tokens.user("valid", "10.0.0.1"))
    await asyncio.sleep(0.01)
    assert server.reviewed == [*(f"x{n}" for n in range(PER_ADDRESS)), "valid"]
    rest = [
        asyncio.ensure_future(tokens.user(f"z{n}", f"10.1.1.{n}")) for n in range(AT_ONCE + WAITING - PER_ADDRESS - 1)
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(BusyError):
        await tokens.user("late", "10.2.2.2")
    server.may.set()
    assert (await other) is not None
    assert set(await asyncio.gather(*held, *rest)) == {None}


async def test_invented_tokens_take_no_room_from_valid_ones_and_a_token_is_asked_for_once() -> None:
    server: Any = SlowReviewer()
    tokens = TokenReviews(server)
    both = [asyncio.ensure_future(tokens.user("valid", "10.0.0.1")) for _ in range(50)]
    await asyncio.sleep(0.01)
    server.may.set()
    assert all(await asyncio.gather(*both))
    for number in range(REMEMBERED + 10):
        assert await tokens.user(f"x{number}", "10.6.6.6") is None
    assert await tokens.user("valid", "10.0.0.1")
    assert server.reviewed.count("valid") == 1
    assert len(tokens._invalid) == REMEMBERED
