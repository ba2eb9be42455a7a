"""Sign-in with an OIDC issuer: the way there and back, and those who would take a short cut."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from tests.builders import clusters
from tests.ui.test_server import INDEX, Browser, browsing
from tests.ui.upstream import Cluster

from gangline.ui.oidc import Issuer, OidcLogin
from gangline.ui.pages import Pages
from gangline.ui.sessions import TokenSessions

Json = dict[str, Any]
CLIENT = "gangline"


def token(**claims: Any) -> str:
    """A token as an issuer makes it; nobody here checks its signature."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in ({"alg": "none"}, claims))
    return b".".join([*parts, b"signature"]).decode()


class FakeIssuer:
    """`claims`: over those of the token that it gives."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.url = cluster, ""
        self.claims: Json = {}
        self.described: Json = {}
        self.answer: Json | None = None
        self.asked: list[Json] = []
        self.codes: dict[str, Json] = {}

    def enter(self, page: str, code: str = "code-1") -> str:
        """A person signs in at this page. Returns the query with which the browser is sent back."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
        self.codes[code] = asked
        return f"?code={code}&state={asked['state']}"

    async def describe(self, _: web.Request) -> web.Response:
        known = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
        }
        return web.json_response({**known, **self.described})

    async def give(self, request: web.Request) -> web.Response:
        given = dict(await request.post())
        self.asked.append(given)
        begun = self.codes.pop(str(given.get("code")), None)
        if self.answer is not None:
            return web.json_response(self.answer, status=400)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(str(given["code_verifier"]).encode()).digest())
        if begun is None or begun["code_challenge"] != challenge.decode().rstrip("="):
            return web.json_response({"error": "invalid_grant"}, status=400)
        made = token(**{"iss": self.url, "aud": CLIENT, "nonce": begun["nonce"], "sub": "jane", **self.claims})
        self.cluster.tokens[made] = "jane"
        return web.json_response({"access_token": "a", "token_type": "Bearer", "id_token": made})


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(clusters.busy().answers()).serving() as found:
        yield found


@pytest.fixture
async def issuer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeIssuer]:
    monkeypatch.setenv("OAUTHLIB_INSECURE_TRANSPORT", "1")  # the issuer of the test has no certificate
    made = FakeIssuer(cluster)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", made.describe)
    app.router.add_post("/token", made.give)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def browser(cluster: Cluster, issuer: FakeIssuer, tmp_path: Path) -> AsyncIterator[Browser]:
    (tmp_path / "index.html").write_text(INDEX)
    kept = TokenSessions(cluster.login, secure=False, kinds=("oidc", "token"))
    login = OidcLogin(Issuer(issuer.url, CLIENT, "http://dashboard.example/", client_secret="s3cret"), secure=False)
    async with browsing(kept, Pages(tmp_path), oidc=login) as found:
        yield found


async def begun(browser: Browser, after: str = "") -> str:
    """The issuer's page to which the browser is led."""
    async with browser._http.get(
        f"{browser.root}/api/login/oidc", params={"next": after}, allow_redirects=False
    ) as answer:
        assert answer.status == 303, await answer.text()
        return answer.headers["Location"]


async def back(browser: Browser, query: str) -> tuple[int, str]:
    async with browser._http.get(f"{browser.root}/login/callback{query}", allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Location", "") or html.unescape(await answer.text())


async def test_a_person_is_led_to_the_issuer_and_back(browser: Browser, issuer: FakeIssuer) -> None:
    assert (await browser.get("/api/session"))[1]["login"] == ["oidc", "token"]
    page = await begun(browser, "jobs?state=Pending")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(page).query).items()}
    assert page.startswith(f"{issuer.url}/authorize?")
    assert (asked["client_id"], asked["response_type"]) == (CLIENT, "code")
    assert asked["redirect_uri"] == "http://dashboard.example/login/callback"
    assert asked["scope"].split() == ["openid", "email", "groups"] and asked["code_challenge_method"] == "S256"
    assert await back(browser, issuer.enter(page)) == (303, "http://dashboard.example/jobs?state=Pending")
    assert issuer.asked[0]["client_secret"] == "s3cret" and issuer.asked[0]["grant_type"] == "authorization_code"
    status, body = await browser.get("/api/session")
    assert (status, body["user"]) == (200, "jane")
    assert [each.key for each in browser.cookies()] == ["gangline"], "what led there and back is forgotten"


async def test_nobody_is_led_to_another_site(browser: Browser, issuer: FakeIssuer) -> None:
    for after in ("https://evil.example/", "//evil.example/", "\\\\evil.example", "javascript:alert(1)", "/elsewhere"):
        assert await back(browser, issuer.enter(await begun(browser, after))) == (303, "http://dashboard.example/")


async def test_a_sign_in_ends_where_it_began(browser: Browser, issuer: FakeIssuer) -> None:
    query = issuer.enter(await begun(browser))
    stranger = Browser(browser.root)
    status, body = await back(stranger, query)
    assert status == 403 and "not begun in this browser" in body
    await stranger.close()
    assert (await back(browser, query.replace("state=", "state=x")))[0] == 403
    assert (await back(browser, "?error=access_denied&state=" + query.partition("state=")[2]))[0] == 403
    assert (await browser.get("/api/session"))[0] == 401
    assert (await back(browser, query))[0] == 303
    assert (await back(browser, query))[0] == 403, "a code counts once"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "another"}, "another sign-in"),
        ({"aud": "another"}, "another application"),
        ({"iss": "https://evil.example"}, "another issuer"),
    ],
)
async def test_a_token_for_somebody_else_signs_nobody_in(
    browser: Browser, issuer: FakeIssuer, claims: Json, words: str
) -> None:
    issuer.claims = claims
    status, body = await back(browser, issuer.enter(await begun(browser)))
    assert status == 403 and words in body
    assert (await browser.get("/api/session"))[0] == 401


async def test_a_token_that_the_api_server_refuses_signs_nobody_in(
    browser: Browser, issuer: FakeIssuer, cluster: Cluster
) -> None:
    query = issuer.enter(await begun(browser))
    monkey = cluster.tokens
    cluster.tokens = type("Nobody", (dict,), {"__setitem__": lambda *_: None})()
    assert (await back(browser, query))[0] == 401
    cluster.tokens = monkey


async def test_an_issuer_that_is_odd_is_named(browser: Browser, issuer: FakeIssuer) -> None:
    issuer.described = {"issuer": "https://evil.example"}
    status, body = await browser.get("/api/login/oidc")
    assert status == 403 and "describes another issuer" in body["text"]
    issuer.described = {"token_endpoint": "file:///etc/passwd"}
    status, body = await browser.get("/api/login/oidc")
    assert status == 403 and "token_endpoint" in body["text"]
    issuer.described = {}
    query = issuer.enter(await begun(browser))
    issuer.answer = {"error": "invalid_client", "error_description": "<script>"}
    status, said = await back(browser, query)
    assert status == 403 and "gave no token" in said


async def test_a_failure_is_a_page_on_which_nothing_runs(browser: Browser, issuer: FakeIssuer) -> None:
    state = parse_qs(urlsplit(await begun(browser)).query)["state"][0]
    wrong = {"error": "<script>alert(1)</script>", "error_description": "<img src=x onerror=alert(1)>", "state": state}
    async with browser._http.get(f"{browser.root}/login/callback", params=wrong, allow_redirects=False) as answer:
        text = await answer.text()
        assert answer.status == 403 and answer.content_type == "text/html"
        assert "<script" not in text and "<img" not in text and '<a href="http://dashboard.example/">' in text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
