"""The API client: requests as they should be, errors by type."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kube.fake_server import Answer, FakeServer

from gangline.kube import client as kube
from gangline.kube.client import ApiClient, Resource
from gangline.kube.config import Login, LoginError
from gangline.kube.errors import from_response, from_status
from gangline.kube.resources import BY_KIND, NODES, PODS, WORKLOADS
from gangline.kube.transport import tell_refusals

THINGS = Resource("example.com", "v1", "things", kind="Thing")
HERE = "/apis/example.com/v1/namespaces/here/things"


@asynccontextmanager
async def connected(**options: Any):
    async with FakeServer() as server, ApiClient(server.login(), **options) as client:
        yield server, client


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("a") == "/api/v1/namespaces/a/pods"
    assert PODS.path("a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert NODES.path(None, "n") == "/api/v1/nodes/n"
    assert NODES.path("ignored", "n") == "/api/v1/nodes/n"
    assert WORKLOADS.path("a", "b", "status") == "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads/b/status"
    assert PODS.path("a", "../../secrets") == "/api/v1/namespaces/a/pods/..%2F..%2Fsecrets"
    with pytest.raises(ValueError, match="namespace"):
        PODS.path(None, "b")


def test_every_kind_has_its_name() -> None:
    assert BY_KIND["Workload"] is WORKLOADS
    assert "" not in BY_KIND


@pytest.mark.parametrize("name", ["", ".", "..", "a/status", "../b", "a%2fstatus"])
async def test_a_name_that_leads_to_something_else_is_not_found_and_not_asked_for(name: str) -> None:
    """Anybody may write such a name into a reference, for one that of a queue into a label."""
    async with connected() as (_, client):
        await client.create(THINGS, "here", {"metadata": {"name": "a"}})
        before = dict(client.requests)
        for where, what in (("here", name), (name or ".", "a")):
            with pytest.raises(kube.NotFound, match="no object can have this name"):
                await client.get(THINGS, where, what)
            with pytest.raises(kube.NotFound):
                await client.delete(THINGS, where, what)
            with pytest.raises(kube.NotFound):
                await client.patch(THINGS, where, what, {"spec": {}})
        assert client.requests == before


async def test_round_trip() -> None:
    async with connected() as (_, client):
        made = await client.create(THINGS, "here", {"metadata": {"name": "a"}, "spec": {"n": 1}})
        assert await client.get(THINGS, "here", "a") == made
        changed = await client.patch(THINGS, "here", "a", {"spec": {"m": 2}})
        assert changed["spec"] == {"n": 1, "m": 2}
        changed["spec"] = {"n": 3}
        assert (await client.replace(THINGS, "here", "a", changed))["spec"] == {"n": 3}
        await client.delete(THINGS, "here", "a", propagation="Background")
        with pytest.raises(kube.NotFound):
            await client.get(THINGS, "here", "a")
        assert client.requests == {
            ("create", "things"): 1,
            ("get", "things"): 2,
            ("patch", "things"): 1,
            ("replace", "things"): 1,
            ("delete", "things"): 1,
        }


async def test_list_pages_are_one_list() -> None:
    async with connected() as (server, client):
        for n in range(7):
            server.put(HERE, f"t{n}")
        version = str(server.version)
        listing = await client.list(THINGS, limit=3)
        assert [item["metadata"]["name"] for item in listing.items] == [f"t{n}" for n in range(7)]
        assert listing.resource_version == version
        assert listing.items[0]["kind"] == "Thing"
        assert server.requests["list things"] == 3
        assert len((await client.list(THINGS, "elsewhere")).items) == 0


async def test_a_page_of_large_objects_has_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.kube.client.PAGE_BYTES", 100_000)
    async with connected() as (server, client):
        for n in range(20):
            server.put(HERE, f"t{n:02}", spec={"text": "x" * 20_000})
        server.put(HERE, "t99", spec={"text": "x" * 200_000})
        sizes = [len(page.items) async for page in client.pages(THINGS)]
        listing = await client.list(THINGS)
        assert [item["metadata"]["name"] for item in listing.items] == [*(f"t{n:02}" for n in range(20)), "t99"]
        assert max(sizes) * 20_000 <= 100_000, "one page at a time is in memory"


async def test_a_line_longer_than_every_buffer_is_read() -> None:
    async with connected() as (server, client):
        async with asyncio.timeout(10):
            stream = client.watch(THINGS, resource_version=str(server.version))
            server.put(HERE, "big", spec={"text": "x" * 3_000_000})
            event = await anext(stream)
            assert len(event.object["spec"]["text"]) == 3_000_000
            await stream.aclose()


STATUSES = [
    (400, "BadRequest", kube.Invalid, False),
    (401, "Unauthorized", kube.Unauthorized, True),
    (403, "Forbidden", kube.Forbidden, False),
    (404, "NotFound", kube.NotFound, False),
    (405, "MethodNotAllowed", kube.ApiError, False),
    (409, "Conflict", kube.Conflict, False),
    (409, "AlreadyExists", kube.AlreadyExists, False),
    (410, "Expired", kube.Expired, False),
    (413, "RequestEntityTooLarge", kube.Invalid, False),
    (422, "Invalid", kube.Invalid, False),
    (429, "TooManyRequests", kube.TooManyRequests, True),
    (500, "InternalError", kube.Unavailable, True),
    (503, "ServiceUnavailable", kube.Unavailable, True),
    (504, "Timeout", kube.Unavailable, True),
]


@pytest.mark.parametrize(("status", "reason", "error", "retryable"), STATUSES)
async def test_errors_by_type(status: int, reason: str, error: type[kube.ApiError], retryable: bool) -> None:
    async with connected() as (server, client):
        server.script.append(Answer(status, reason, retry_after="3" if status == 429 else ""))
        with pytest.raises(kube.ApiError) as caught:
            await client.patch(THINGS, "here", "a", {})
        assert type(caught.value) is error
        assert caught.value.status == status
        assert caught.value.reason == reason
        assert caught.value.message == "as scripted"
        assert caught.value.retryable is retryable
        assert caught.value.retry_after == (3.0 if status == 429 else None)


async def test_no_connection_is_unavailable() -> None:
    async with FakeServer() as server:
        login = server.login()
    async with ApiClient(login) as client:
        with pytest.raises(kube.Unavailable) as caught:
            await client.get(THINGS, "here", "a")
        assert caught.value.status == 0
        assert not caught.value.timeout


async def test_a_cut_connection_is_unavailable() -> None:
    async with connected() as (server, client):
        server.script.append(Answer(0))
        with pytest.raises(kube.Unavailable) as caught:
            await client.patch(THINGS, "here", "a", {})
        assert not caught.value.timeout


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"{}", b"{"])
async def test_an_answer_by_someone_else_is_unavailable(body: bytes) -> None:
    async with connected() as (server, client):
        server.script += [Answer(200, body=body)] * 2
        with pytest.raises(kube.Unavailable):
            await client.list(THINGS)
        with pytest.raises(kube.Unavailable):
            async for _ in client.watch(THINGS, resource_version="1"):
                pass


async def test_a_slow_answer_times_out() -> None:
    async with connected() as (server, client):
        server.script.append(Answer(200, delay=1.0))
        with pytest.raises(kube.Unavailable) as caught:
            await client.patch(THINGS, "here", "a", {}, within=0.05)
        assert caught.value.timeout


def test_an_answer_that_is_no_status_is_survived() -> None:
    error = from_response(502, b"<html>Bad Gateway</html>")
    assert isinstance(error, kube.Unavailable)
    assert error.message == "the request was answered with 502 Bad Gateway: <html>Bad Gateway</html>"
    error = from_response(404, b"", asked="GET https://api/apis/x")
    assert (
        isinstance(error, kube.NotFound) and error.message == "GET https://api/apis/x was answered with 404 Not Found"
    )
    assert not error.kind_is_unknown and from_response(404, b"404 page not found\n").kind_is_unknown  # type: ignore[attr-defined]
    error = from_response(503, b"[1, 2]", "Wed, 21 Oct 2026 07:28:00 GMT")
    assert isinstance(error, kube.Unavailable) and error.retry_after is None


async def test_causes_name_the_fields() -> None:
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.queue"}]
    body = {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no", "details": {"causes": causes}}
    error = from_status(body)
    assert error.causes[0]["field"] == "spec.queue"


class Tokens:
    def __init__(self, *values: str) -> None:
        self.values = list(values)

    async def token(self) -> str:
        return self.values[0]

    def reject(self) -> None:
        if len(self.values) > 1:
            self.values.pop(0)


async def test_a_rejected_token_is_renewed_once() -> None:
    async with FakeServer(token="new") as server:
        server.put(HERE, "a")
        async with ApiClient(Login(server.url, tokens=Tokens("old", "new"))) as client:
            assert (await client.get(THINGS, "here", "a"))["metadata"]["name"] == "a"
            assert server.requests["get things"] == 2
        async with ApiClient(Login(server.url, tokens=Tokens("old", "older"))) as client:
            with pytest.raises(kube.Unauthorized):
                await client.get(THINGS, "here", "a")


async def test_credentials_that_cannot_be_had_are_an_api_error() -> None:
    class Broken(Tokens):
        async def token(self) -> str:
            raise LoginError("the plugin is gone")

    async with FakeServer() as server, ApiClient(Login(server.url, tokens=Broken(""))) as client:
        with pytest.raises(kube.Unauthorized, match="the plugin is gone"):
            await client.get(THINGS, "here", "a")


async def test_a_proxy_is_used() -> None:
    """To a proxy, a plain request names the whole URL; our fake server does not mind."""
    async with FakeServer() as proxy:
        proxy.put(HERE, "a")
        async with ApiClient(Login("http://api.example.test", proxy=proxy.url)) as client:
            assert (await client.get(THINGS, "here", "a"))["metadata"]["name"] == "a"


async def test_the_observer_sees_every_answer_that_is_an_error() -> None:
    seen: list[tuple[str, str, int]] = []
    watch = lambda verb, resource, error: seen.append((verb, resource.plural, error.status))  # noqa: E731
    async with connected(observe=watch) as (server, client):
        server.put(HERE, "a")
        await client.get(THINGS, "here", "a")
        with pytest.raises(kube.NotFound):
            await client.get(THINGS, "here", "b")
        assert seen == [("get", "things", 404)]


async def test_misuse_is_a_clear_error() -> None:
    client = ApiClient(Login("http://127.0.0.1:1"))
    with pytest.raises(RuntimeError, match="async with"):
        await client.get(THINGS, "here", "a")
    with pytest.raises(ValueError, match="field_manager"):
        await client.patch(THINGS, "here", "a", {}, kind="apply")
    with pytest.raises(ValueError, match="namespace"):
        await client.create(THINGS, None, {})


def test_what_is_not_granted_is_told_once_for_each_kind_and_verb() -> None:
    said: list[str] = []
    observe = tell_refusals(lambda text, *values: said.append(text % values))
    no_right = 'pods "a" is forbidden: User "system:serviceaccount:gangline-system:operator" cannot get resource "pods"'
    denied = 'admission webhook "validate.gangline.io" denied the request: spec.replicas: must not be negative'
    for verb, status, message in (
        ("watch", 403, no_right),
        ("watch", 403, no_right),
        ("patch", 403, denied),
        ("create", 403, "pods is forbidden: exceeded quota: gpus"),
        ("get", 403, no_right),
        ("list", 404, "not found"),
    ):
        observe(verb, PODS, (kube.Forbidden if status == 403 else kube.ApiError)(status, "Forbidden", message))
    assert [line.partition(" was refused")[0] for line in said] == [f"a {verb} of {PODS}" for verb in ("watch", "get")]
