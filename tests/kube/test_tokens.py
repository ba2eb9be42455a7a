"""Tokens that rotate: from files, from exec plugins, from the issuer of an OIDC login."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import json
import logging
import ssl
import stat
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.kube.fake_server import FakeServer
from tests.kube.kubeconfigs import kubeconfig

from gangline.kube import config, tokens
from gangline.kube.client import ApiClient, Unauthorized
from gangline.kube.config import Login, LoginError
from gangline.kube.resources import PODS

Json = dict[str, Any]
SECRET = "never-to-be-logged"


@pytest.fixture(autouse=True)
def nothing_secret_is_said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """In any test of this file."""
    with caplog.at_level(logging.DEBUG):
        yield
    output = capfd.readouterr()
    assert SECRET not in caplog.text + output.out + output.err


@pytest.fixture(scope="module")
def pair() -> tuple[bytes, bytes]:
    """A self-signed certificate for 127.0.0.1 and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


async def bearer(login: Login) -> str:
    return (await login.headers())["Authorization"].removeprefix("Bearer ")


# --- files ------------------------------------------------------------------------------------------------------------


async def test_a_token_file_is_read_again_when_it_is_older_than_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(tokens.time, "monotonic", lambda: now)
    path = tmp_path / "token"
    path.write_text("one\n")
    token = tokens.FileToken(path)
    assert await token.token() == "one"
    path.write_text("two\n")
    now += tokens.TOKEN_FILE_PERIOD - 1
    assert await token.token() == "one"
    now += 1
    assert await token.token() == "two"


async def test_a_request_that_is_refused_is_sent_again_with_the_rotated_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    async with FakeServer() as server, ApiClient(Login(server.url, tokens=tokens.FileToken(path))) as client:
        server.token = "one"
        await client.list(PODS)
        server.token = "two"
        with pytest.raises(Unauthorized):
            await client.list(PODS)
        path.write_text("two")
        await client.list(PODS)


# --- exec plugins -----------------------------------------------------------------------------------------------------


def plugin(tmp_path: Path, body: str) -> dict[str, Any]:
    """An exec plugin that counts its calls in a file and then does `body`."""
    path = tmp_path / "plugin"
    count = tmp_path / "count"
    head = f"#!{sys.executable}\nimport json, os, sys\nopen({str(count)!r}, 'a').write('x')\n"
    path.write_text(head + body)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return {"exec": {"command": "./plugin", "apiVersion": "client.authentication.k8s.io/v1", "args": ["arg"]}}


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "count").read_text())


def answer(**status: Any) -> str:
    return f"print(json.dumps({{'kind': 'ExecCredential', 'status': {status!r}}}))"


async def test_exec_token_is_kept_until_rejected(tmp_path: Path) -> None:
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, answer(token="t"))))
    assert await login.headers() == await login.headers() == {"Authorization": "Bearer t"}
    assert calls(tmp_path) == 1
    assert login.reject()
    await login.headers()
    assert calls(tmp_path) == 2


async def test_exec_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    for seconds, expected in ((30, 2), (3600, 1)):
        (tmp_path / "count").unlink(missing_ok=True)
        expiry = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
        login = config.load(kubeconfig(tmp_path, plugin(tmp_path, answer(token="t", expirationTimestamp=expiry))))
        await login.headers()
        await login.headers()
        assert calls(tmp_path) == expected


async def test_exec_plugin_is_told_what_it_needs(tmp_path: Path) -> None:
    user = plugin(
        tmp_path, "print(json.dumps({'status': {'token': os.environ['KUBERNETES_EXEC_INFO'] + sys.argv[1]}}))"
    )
    user["exec"] |= {"provideClusterInfo": True, "env": [{"name": "A", "value": "b"}], "interactiveMode": "Never"}
    login = config.load(kubeconfig(tmp_path, user))
    token = (await login.headers())["Authorization"].removeprefix("Bearer ")
    info = json.loads(token.removesuffix("arg"))
    assert info["apiVersion"] == "client.authentication.k8s.io/v1"
    assert info["spec"] == {"interactive": False, "cluster": {"server": "https://example.test:6443/"}}


async def test_exec_plugin_is_told_what_its_cluster_has_for_it(tmp_path: Path) -> None:
    user = plugin(tmp_path, "print(json.dumps({'status': {'token': os.environ['KUBERNETES_EXEC_INFO']}}))")
    user["exec"]["provideClusterInfo"] = True
    path = kubeconfig(tmp_path, user)
    written = yaml.safe_load(path.read_text())
    other = {"name": "another", "extension": {"a": 1}}
    own = {"name": tokens.CONFIG_EXTENSION, "extension": {"audience": "us"}}
    written["clusters"][0]["cluster"]["extensions"] = [other, own]
    path.write_text(yaml.safe_dump(written))
    token = (await config.load(path).headers())["Authorization"].removeprefix("Bearer ")
    assert json.loads(token)["spec"]["cluster"] == {
        "server": "https://example.test:6443/",
        "config": {"audience": "us"},
    }


async def test_exec_plugin_may_give_a_certificate(tmp_path: Path, pair: tuple[bytes, bytes]) -> None:
    body = answer(clientCertificateData=pair[0].decode(), clientKeyData=pair[1].decode())
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, body)))
    assert await login.headers() == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [("sys.exit(3)", "exit status 3"), ("print('x')", "not JSON"), ("print('{}')", "no status.token")],
)
async def test_exec_plugin_that_fails_is_named(tmp_path: Path, body: str, message: str) -> None:
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, body)))
    with pytest.raises(LoginError, match=f"plugin.*{message}"):
        await login.headers()


async def test_exec_plugin_that_is_absent_gives_its_hint(tmp_path: Path) -> None:
    user = {"exec": {"command": "no-such-plugin-here", "apiVersion": "client.authentication.k8s.io/v1beta1"}}
    user["exec"]["installHint"] = "install it"
    login = config.load(kubeconfig(tmp_path, user))
    with pytest.raises(LoginError, match=r"no-such-plugin-here.*install it"):
        await login.headers()


BAD_ANSWERS = {
    f"print('[\"{SECRET}\"]')": "not an ExecCredential",
    f"print(json.dumps({{'status': '{SECRET}'}}))": "not an ExecCredential",
    f"print('{SECRET}', file=sys.stderr); sys.exit('{SECRET}')": "exit status 1",
    f"print('{{{SECRET}')": "not JSON",
    f"print(json.dumps({{'status': {{'token': '{SECRET}\\n'}}}}))": "can't be sent",
    f"print(json.dumps({{'status': {{'token': 't', 'expirationTimestamp': '{SECRET}'}}}}))": "expirationTimestamp",
    f"print(json.dumps({{'status': {{'clientCertificateData': '{SECRET}', 'clientKeyData': 'k'}}}}))": "don't fit",
}


@pytest.mark.parametrize(("body", "message"), BAD_ANSWERS.items())
async def test_what_a_plugin_says_is_in_no_error(tmp_path: Path, body: str, message: str) -> None:
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, body)))
    with pytest.raises(LoginError, match=message) as caught:
        await login.headers()
    assert SECRET not in str(caught.value)


async def test_a_plugin_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "EXEC_TIMEOUT", 4.0)
    child = f"import subprocess; c = subprocess.Popen(['sleep', '60']); open({str(tmp_path / 'pids')!r}, 'w')"
    body = f"{child}.write(f'{{os.getpid()}} {{c.pid}}'); c.wait()"
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, body)))
    with pytest.raises(LoginError, match="no answer within 4 s"):
        await login.headers()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        await gone(pid)


async def test_a_plugin_that_does_not_stop_talking_is_ended(tmp_path: Path) -> None:
    pid = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, f"{pid}\nwhile True: sys.stdout.write('x' * 65536)")))
    with pytest.raises(LoginError, match=f"longer than {tokens.MOST_OUTPUT} bytes"):
        await login.headers()
    await gone(int((tmp_path / "pid").read_text()))


async def test_arguments_that_no_program_can_get_are_an_error_of_the_login(tmp_path: Path) -> None:
    user = plugin(tmp_path, answer(token="t"))
    user["exec"]["args"] = ["a\0b"]
    with pytest.raises(LoginError, match="can't be passed on"):
        await config.load(kubeconfig(tmp_path, user)).headers()


async def gone(pid: int) -> None:
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"process {pid} still runs")


async def test_a_plugin_that_failed_is_left_alone_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    login = config.load(kubeconfig(tmp_path, plugin(tmp_path, "sys.exit(1)")))
    found = await asyncio.gather(*(login.headers() for _ in range(10)), return_exceptions=True)
    assert all(isinstance(error, LoginError) for error in found) and calls(tmp_path) == 1
    monkeypatch.setattr(tokens, "PAUSE", 0.0)
    with pytest.raises(LoginError):
        await login.headers()
    assert calls(tmp_path) == 2


def exec_login(tmp_path: Path, server: FakeServer, **status: Any) -> Login:
    """A plugin that hands out what the file `now` holds."""
    status["token"] = "PLACE"
    body = answer(**status).replace("'PLACE'", f"open({str(tmp_path / 'now')!r}).read()")
    return config.load(kubeconfig(tmp_path, plugin(tmp_path, body), server=server.url))


async def test_the_plugin_is_asked_once_after_the_server_refuses_its_token(tmp_path: Path) -> None:
    (tmp_path / "now").write_text("one")
    async with FakeServer() as server, ApiClient(exec_login(tmp_path, server)) as client:
        server.token = "one"
        await client.list(PODS)
        server.token = "two"
        (tmp_path / "now").write_text("two")
        await asyncio.gather(*(client.list(PODS) for _ in range(20)))
        assert calls(tmp_path) == 2
        server.token = "three"
        with pytest.raises(Unauthorized):
            await client.list(PODS)


def test_the_official_client_reads_the_same_token_from_a_plugin(tmp_path: Path) -> None:
    """It asks more of the plugin's answer than ours, and swallows what goes wrong."""
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import load_kube_config

    expiry = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"token": "t", "expirationTimestamp": expiry}
    whole = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    path = kubeconfig(tmp_path, plugin(tmp_path, f"print(json.dumps({whole!r}))"))
    found = Configuration()
    load_kube_config(str(path), client_configuration=found)
    assert found.api_key == {"BearerToken": "Bearer t"}
    assert asyncio.run(config.load(path).headers()) == {"Authorization": "Bearer t"}


# --- OIDC -------------------------------------------------------------------------------------------------------------


def jwt(name: str, seconds: float) -> str:
    """A token that nobody has signed; it expires after so many seconds."""
    claims = {"sub": name, "secret": SECRET, "exp": int(time.time() + seconds)}
    parts = ({"alg": "none"}, claims, {})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)


def subject(token: str) -> str:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["sub"]


@dataclass
class Issuer:
    """Gives tokens for refresh-tokens, each of which it takes once."""

    url: str = ""
    refresh_token: str = f"{SECRET}-0"
    given: int = 0
    #: what it answers instead
    fails: Json = field(default_factory=dict)
    hangs: bool = False

    @asynccontextmanager
    async def at_work(self, pair: tuple[bytes, bytes], directory: Path) -> AsyncIterator[Issuer]:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_post("/token", self._token)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        (directory / "issuer.pem").write_bytes(b"\n".join(pair))
        context.load_cert_chain(directory / "issuer.pem")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.url = f"https://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
        yield self
        await runner.cleanup()

    async def _discovery(self, _: web.Request) -> web.Response:
        if self.hangs:
            await asyncio.sleep(60)
        return web.json_response({"issuer": self.url, "token_endpoint": f"{self.url}/token"})

    async def _token(self, request: web.Request) -> web.Response:
        form = await request.post()
        user = base64.b64decode(request.headers["Authorization"].removeprefix("Basic ")).decode()
        if self.fails or form["refresh_token"] != self.refresh_token or not user.startswith("gangline:"):
            body = self.fails or {"error": "invalid_grant", "error_description": SECRET}
            return web.json_response(body, status=400)
        self.given += 1
        self.refresh_token = f"{SECRET}-{self.given}"
        token = {"access_token": SECRET, "token_type": "Bearer", "refresh_token": self.refresh_token}
        return web.json_response({**token, "id_token": jwt(f"token-{self.given}", 3600)})


@pytest.fixture
async def issuer(pair: tuple[bytes, bytes], tmp_path: Path) -> AsyncIterator[Issuer]:
    async with Issuer().at_work(pair, tmp_path) as found:
        yield found


def oidc(issuer: Issuer, pair: tuple[bytes, bytes], **more: Any) -> Json:
    settings = {
        "idp-issuer-url": issuer.url,
        "client-id": "gangline",
        "client-secret": SECRET,
        "refresh-token": issuer.refresh_token,
        "idp-certificate-authority-data": base64.b64encode(pair[0]).decode(),
        **more,
    }
    given = {name: value for name, value in settings.items() if value is not None}
    return {"auth-provider": {"name": "oidc", "config": given}}


async def test_an_id_token_is_sent_while_it_holds(tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]) -> None:
    path = kubeconfig(tmp_path, oidc(issuer, pair, **{"id-token": jwt("mine", 3600)}))
    assert subject(await bearer(config.load(path))) == "mine"
    assert issuer.given == 0


@pytest.mark.parametrize("old", [None, "not-a-token", "expired", "soon"])
async def test_an_id_token_is_refreshed_and_kept(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes], old: str | None
) -> None:
    old = jwt("old", {"expired": -10, "soon": 10}[old]) if old in ("expired", "soon") else old
    path = kubeconfig(tmp_path, oidc(issuer, pair, **{"id-token": old}))
    login = config.load(path)
    assert subject(await bearer(login)) == subject(await bearer(login)) == "token-1"
    kept = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert subject(kept["id-token"]) == "token-1"
    assert kept["refresh-token"] == issuer.refresh_token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert subject(await bearer(config.load(path))) == "token-1"
    assert issuer.given == 1, "the next process finds it in the file"


async def test_an_id_token_is_refreshed_after_a_401(tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]) -> None:
    user = oidc(issuer, pair, **{"id-token": jwt("revoked", 3600)})
    async with FakeServer() as server:
        login = config.load(kubeconfig(tmp_path, user, server=server.url))
        async with ApiClient(login) as client:
            server.token = await bearer(login)
            await client.list(PODS)
            server.token = "another"
            with pytest.raises(Unauthorized):
                await asyncio.gather(*(client.list(PODS) for _ in range(10)))
            server.token = await bearer(login)
            assert subject(server.token).startswith("token-")
            await client.list(PODS)


async def test_a_token_that_another_process_has_refreshed_is_taken(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]
) -> None:
    path = kubeconfig(tmp_path, oidc(issuer, pair, **{"id-token": jwt("old", 3600)}))
    login = config.load(path)
    assert subject(await bearer(login)) == "old"
    kubeconfig(tmp_path, oidc(issuer, pair, **{"id-token": jwt("kubectl's", 3600)}))
    login.reject()
    assert subject(await bearer(login)) == "kubectl's"
    assert issuer.given == 0


async def test_a_kubeconfig_that_cannot_be_written(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is mounted from a Secret: the tokens are kept in memory."""

    def refuse(*_: Any) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(tokens.files, "write", refuse)
    path = kubeconfig(tmp_path, oidc(issuer, pair))
    login = config.load(path)
    assert subject(await bearer(login)) == "token-1"
    path.unlink()
    login.reject()
    assert subject(await bearer(login)) == "token-2"


async def test_without_a_refresh_token(tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]) -> None:
    user = oidc(issuer, pair, **{"id-token": jwt("old", -10), "refresh-token": None})
    with pytest.raises(LoginError, match=r"u: auth-provider oidc: .* no refresh-token"):
        await config.load(kubeconfig(tmp_path, user)).headers()


async def test_an_issuer_that_refuses_is_named(tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]) -> None:
    login = config.load(kubeconfig(tmp_path, oidc(issuer, pair, **{"refresh-token": "used"})))
    with pytest.raises(LoginError, match=rf"u: auth-provider oidc: {issuer.url}: .*'invalid_grant'") as caught:
        await login.headers()
    assert SECRET not in str(caught.value)


async def test_an_issuer_without_its_certificate_is_not_trusted(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]
) -> None:
    """The official client alone would verify nothing here, and hand its refresh-token to whoever answers."""
    login = config.load(kubeconfig(tmp_path, oidc(issuer, pair, **{"idp-certificate-authority-data": None})))
    with pytest.raises(LoginError, match="MaxRetryError"):
        await login.headers()
    assert issuer.given == 0


async def test_the_certificate_of_an_issuer_may_be_in_a_file(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes]
) -> None:
    (tmp_path / "ca.pem").write_bytes(pair[0])
    files = {"idp-certificate-authority-data": None, "idp-certificate-authority": "ca.pem"}
    assert subject(await bearer(config.load(kubeconfig(tmp_path, oidc(issuer, pair, **files))))) == "token-1"


async def test_an_issuer_that_hangs(
    tmp_path: Path, issuer: Issuer, pair: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "OIDC_TIMEOUT", 2.0)
    issuer.hangs = True
    with pytest.raises(LoginError, match="no answer within 2 s"):
        await config.load(kubeconfig(tmp_path, oidc(issuer, pair))).headers()
