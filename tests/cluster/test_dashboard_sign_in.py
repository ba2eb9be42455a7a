"""Sign-in to the dashboard by an OIDC issuer that a real API server trusts."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from playwright.async_api import Browser, expect
from tests.cluster import accounts, harness
from tests.cluster.test_dashboard import Visit, browser, visiting

from gangline.console.commands.ui import verbs
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane
from gangline.kube import config
from gangline.tls import certificates
from gangline.ui import front_end, pages
from gangline.ui.app import Dashboard
from gangline.ui.oidc import Issuer, OidcLogin
from gangline.ui.serving import Address, serving
from gangline.ui.sessions import TokenSessions

__all__ = ["browser"]

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
CLIENT, GROUP, USER = "gangline-dashboard", "gpu-team", "jane@example.com"


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


class RealIssuer:
    """An issuer with signed tokens. `seconds`: for which a token is valid; `audience`: of the next token."""

    def __init__(self) -> None:
        self.url = ""
        self.seconds = 600.0
        self.audience = CLIENT
        self._key = rsa.generate_private_key(65537, 2048)
        self._begun: dict[str, Json] = {}

    @asynccontextmanager
    async def serving(self, directory: Path) -> AsyncIterator[Path]:
        """Serve over TLS. The block gets the file of the issuer's CA."""
        made = certificates.create(certificates.ServerNames(("localhost",)), datetime.now(UTC))
        authority, chain, key = (directory / name for name in ("issuer-ca.crt", "issuer.crt", "issuer.key"))
        authority.write_bytes(made.bundle)
        chain.write_bytes(made.serving.certificate)
        key.write_bytes(made.serving.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, key)
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._describe)
        app.router.add_get("/keys", self._keys)
        app.router.add_get("/authorize", self._authorize)
        app.router.add_post("/token", self._token)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield authority
        finally:
            await runner.cleanup()

    async def _describe(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["RS256"],
            }
        )

    async def _keys(self, _: web.Request) -> web.Response:
        numbers = self._key.public_key().public_numbers()
        n, e = (encoded(each.to_bytes((each.bit_length() + 7) // 8, "big")) for each in (numbers.n, numbers.e))
        return web.json_response({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": n, "e": e}]})

    async def _authorize(self, request: web.Request) -> web.Response:
        """The person is signed in there already, and agrees."""
        asked = dict(request.query)
        code = f"code-{len(self._begun)}"
        self._begun[code] = asked
        back = urlencode({"code": code, "state": asked["state"]})
        raise web.HTTPFound(f"{asked['redirect_uri']}?{back}")

    async def _token(self, request: web.Request) -> web.Response:
        given = await request.post()
        asked = self._begun.pop(str(given["code"]))
        challenge = hashlib.sha256(str(given["code_verifier"]).encode()).digest()
        assert asked["code_challenge"] == encoded(challenge)
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": self.audience,
            "sub": "jane",
            "email": USER,
            "groups": [GROUP],
            "iat": now,
            "exp": now + int(self.seconds),
            "nonce": asked["nonce"],
        }
        parts = ".".join(encoded(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        signature = encoded(self._key.sign(parts.encode(), padding.PKCS1v15(), hashes.SHA256()))
        return web.json_response({"access_token": "-", "token_type": "Bearer", "id_token": f"{parts}.{signature}"})


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncIterator[tuple[RealIssuer, Path]]:
    made = RealIssuer()
    async with made.serving(tmp_path) as authority:
        yield made, authority


@pytest.fixture
async def root(issuer: tuple[RealIssuer, Path]) -> AsyncIterator[str]:
    """A dashboard at an API server that trusts the issuer."""
    made, authority = issuer
    flags = [
        f"--oidc-issuer-url={made.url}",
        f"--oidc-client-id={CLIENT}",
        f"--oidc-ca-file={authority}",
        "--oidc-username-claim=email",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
    ]
    plane = LocalControlPlane(ControlPlaneOptions(gogc=200, flags={"kube-apiserver": flags}))
    await asyncio.to_thread(plane.start)
    try:
        await grant(plane.kubeconfig)
        port = harness.free_port()
        login = OidcLogin(
            Issuer(made.url, CLIENT, f"http://localhost:{port}/", authority=authority.read_text()), secure=False
        )
        kept = TokenSessions(config.load(plane.kubeconfig, as_user=False), secure=False, kinds=("oidc", "token"))
        try:
            built = pages.Pages(front_end.built())
        except front_end.NotBuiltError as error:
            pytest.skip(str(error))
        dashboard = Dashboard(kept, built, verbs(), cluster="test", oidc=login)
        async with serving(dashboard, Address("127.0.0.1", port)) as found:
            yield found
    finally:
        await asyncio.to_thread(plane.stop)


async def grant(kubeconfig: Path) -> None:
    """The group may list namespaces: its members' sessions show that the API server knows of the group."""
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [rule]}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "team"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"oidc:{GROUP}"}],
    }
    async with harness.connect(kubeconfig) as api:
        for each in (role, binding):
            await api.client.create(accounts.RESOURCES[each["kind"]], None, {**each, "metadata": {"name": "team"}})


async def signs_in(visit: Visit) -> None:
    await visit.page.get_by_role("link", name=re.compile("Sign in with")).click()


async def test_a_person_signs_in_with_the_issuer_until_the_token_ends(
    issuer: tuple[RealIssuer, Path], root: str, browser: Browser
) -> None:
    made, _ = issuer
    async with visiting(browser, root, ignore_https_errors=True) as visit:
        await visit.open("queues")
        for _ in range(40):  # the API server looks for the issuer's keys once in ten seconds at its start
            await signs_in(visit)
            await visit.page.wait_for_load_state()
            if "/login/callback" not in visit.page.url:
                break
            await visit.page.wait_for_timeout(500)
            await visit.open("queues")
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile("Queues"), timeout=30_000)
        answer = await visit.page.evaluate("fetch('api/session').then((answer) => answer.json())")
        assert (answer["user"], answer["login"]) == (USER, "oidc")
        assert "kube-system" in answer["namespaces"], "the API server knows the person's group"
        (cookie,) = [each for each in await visit.page.context.cookies() if each["httpOnly"]]
        assert cookie["sameSite"] == "Strict"

        made.seconds = 5.0
        await visit.page.context.clear_cookies()
        await visit.open("jobs")
        await signs_in(visit)
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile("Jobs"), timeout=30_000)
        # the page asks again when the token has ended, and leads back to where the person was
        link = visit.page.get_by_role("link", name=re.compile("Sign in with"))
        await expect(link).to_be_visible(timeout=60_000)
        made.seconds = 600.0
        await link.click()
        await expect(visit.page.get_by_role("heading", level=1)).to_have_text(re.compile("Jobs"), timeout=30_000)

        made.audience = "another-client"
        await visit.page.context.clear_cookies()
        await visit.open("jobs")
        await signs_in(visit)
        await visit.page.wait_for_load_state()
        assert not [each for each in await visit.page.context.cookies() if each["httpOnly"] and "." in each["value"]]
