"""What the operator's port serves, and how it describes that; and metrics over TLS for those who may read them."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from fastapi import FastAPI, Response
from fastapi.testclient import TestClient
from starlette.routing import Route
from tests.fuzz.operator_http import RUNNING, operator_http
from tests.kube.fake_server import Answer, FakeServer

from gangline.control.metrics.operator_metrics import Metrics
from gangline.control.process.front_door import Probes
from gangline.control.process.http_server import HttpServer
from gangline.control.process.lifeline import Lifeline
from gangline.control.process.metrics_endpoint import MetricsEndpointOptions, MetricsPage, SecuredMetrics
from gangline.kube.client import ApiClient
from gangline.tls.apps import add_get, new_app

SERVED = {
    "/accuracy": "get",
    "/cluster": "get",
    "/extender/{policy}/filter": "post",
    "/extender/{policy}/prioritize": "post",
    "/extender/{policy}/{key}/filter": "post",
    "/extender/{policy}/{key}/prioritize": "post",
    "/forecasts": "get",
    "/healthz": "get",
    "/metrics": "get",
    "/progress/{namespace}/{name}/{uid}": "post",
    "/readyz": "get",
}


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return operator_http().operator.app()


def test_the_description_has_every_endpoint(app: FastAPI) -> None:
    document = TestClient(app).get("/openapi.json").json()
    assert {path: [*methods] for path, methods in document["paths"].items()} == {
        path: [method] for path, method in SERVED.items()
    }
    for methods in document["paths"].values():
        for described in methods.values():
            assert described["summary"] and "422" not in described["responses"], described
    served = {re.sub(r":\w+}", "}", route.path) for route in app.routes if isinstance(route, Route)}
    assert served == {*SERVED, "/openapi.json", "/docs"}


def test_the_page_for_people_loads_nothing(app: FastAPI) -> None:
    answer = TestClient(app).get("/docs")
    assert answer.headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert all(f"{method.upper()} {path}" in answer.text for path, method in SERVED.items())
    assert re.findall(r'(?:src|href|action)="([^"]*)"', answer.text) == ["openapi.json"]
    assert "<script" not in answer.text and "@import" not in answer.text


def test_the_page_escapes_what_it_shows() -> None:
    async def get() -> Response:
        return Response()

    app = new_app("<b>", "a & b")
    add_get(app, "/x", get, summary="<script>")
    text = TestClient(app).get("/docs").text
    assert "<b>" not in text and "<script>" not in text and "a &amp; b" in text


def test_an_app_without_a_title_describes_nothing() -> None:
    client = TestClient(new_app())
    assert [client.get(path).status_code for path in ("/docs", "/openapi.json")] == [404, 404]


@pytest.mark.parametrize(
    ("method", "path", "status", "text", "allowed"),
    [
        ("GET", "/nothing", 404, "404: Not Found", None),
        ("GET", "/healthz/", 404, "404: Not Found", None),
        ("POST", "/healthz", 405, "405: Method Not Allowed", "GET, HEAD"),
        ("GET", "/progress/a/b/c", 405, "405: Method Not Allowed", "POST"),
        ("POST", "/extender/p/bind", 404, "404: Not Found", None),
    ],
)
def test_what_is_not_served_is_answered_in_a_line(
    app: FastAPI, method: str, path: str, status: int, text: str, allowed: str | None
) -> None:
    answer = TestClient(app).request(method, path, follow_redirects=False)
    assert (answer.status_code, answer.text) == (status, text)
    named = answer.headers.get("allow")
    assert (named and ", ".join(sorted(re.split(", *", named)))) == allowed


async def test_the_port_answers_probes_reports_and_questions_until_it_is_closed() -> None:
    operator, lifeline = operator_http().operator, Lifeline()
    health = Probes(list, lambda: 0.0, lambda: "leading")
    page = MetricsPage(operator.metrics)
    served = HttpServer(operator.controller, health, page, operator.visibility, lambda: True, lifeline)
    port = await served.start(("127.0.0.1", 0))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.get("/readyz") as answer:
            assert await answer.text() == "ok\nleading\n"
        async with session.get("/cluster") as answer:
            assert answer.content_type == "application/json" and [*await answer.json()] == ["cluster"]
        for step in (1, 2):
            async with session.post(f"/progress/team/{RUNNING}/{RUNNING}", json={"step": step}) as answer:
                assert (answer.status, await answer.text()) == (204, "")
        async with session.get("/metrics") as answer:
            text = await answer.text()
            assert "gangline_" in text and answer.headers["Content-Length"] == str(len(text.encode()))
        served.close()
        await lifeline.close()
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get("/cluster")


async def test_metrics_over_tls_are_for_those_who_may_read_them() -> None:
    class Few(Metrics):
        async def parts(self) -> AsyncIterator[bytes]:
            yield b"a 1\n"

    def answers(server: FakeServer, user: str, allowed: bool) -> None:
        known: dict[str, Any] = {"authenticated": True, "user": {"username": user}} if user else {}
        for plural, status in (("tokenreviews", known), ("subjectaccessreviews", {"allowed": allowed})):
            server.script.append(Answer(201, verb="create", plural=plural, body=orjson.dumps({"status": status})))

    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    async with FakeServer() as server, ApiClient(server.login()) as client:
        secured = SecuredMetrics(client, MetricsPage(Few()), MetricsEndpointOptions(("127.0.0.1", 0)), "system")
        running = asyncio.ensure_future(secured.run())
        base = f"https://127.0.0.1:{secured.port}"
        while secured._server is None:
            await asyncio.sleep(0.01)
        try:
            async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=unverified)) as session:

                async def get(path: str, token: str = "") -> tuple[int, str]:
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    async with session.get(path, headers=headers) as answer:
                        assert ("WWW-Authenticate" in answer.headers) == (answer.status == 401)
                        return answer.status, await answer.text()

                assert await get("/metrics") == (401, "a bearer token is wanted\n")
                answers(server, "", False)
                assert await get("/metrics", "invented") == (401, "the token is not valid\n")
                server.script.clear()
                answers(server, "bob", False)
                assert await get("/metrics", "bobs") == (403, "user bob may not get /metrics\n")
                answers(server, "alice", True)
                assert await get("/metrics", "alices") == (200, "a 1\n")
                assert (await get("/openapi.json"))[0] == 404
        finally:
            running.cancel()
            await secured.close()
            await secured.close()
