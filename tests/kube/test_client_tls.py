"""Certificates of the login that are renewed while the client runs."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.kube.kubeconfigs import kubeconfig

from gangline.kube import client_tls, config
from gangline.kube.client import ApiClient, Unauthorized, Unavailable
from gangline.tls import certificates
from gangline.tls.certificates import KeyPair, Life
from gangline.tls.connections import LiveContext


def _life() -> Life:
    return Life(datetime.now(UTC) - timedelta(minutes=1), datetime.now(UTC) + timedelta(hours=1))


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _server_pair(authority: KeyPair) -> KeyPair:
    return certificates.signed(authority, _name("server"), _life(), [ExtendedKeyUsageOID.SERVER_AUTH], ["127.0.0.1"])


class Server:
    """Takes only the client certificate whose name is `accepted`, as one that has expired gets a 401."""

    def __init__(self) -> None:
        self.authority = certificates.authority(_name("first CA"), _life())
        self.accepted = "first"
        self.tls = LiveContext()
        self.tls.load(_server_pair(self.authority))
        self.tls.context.verify_mode = ssl.CERT_REQUIRED
        self.tls.context.load_verify_locations(cadata=self.authority.certificate.decode())

    def client(self, name: str) -> KeyPair:
        return certificates.signed(self.authority, _name(name), _life(), [ExtendedKeyUsageOID.CLIENT_AUTH])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = dict(row[0] for row in request.transport.get_extra_info("peercert")["subject"])
        if subject["commonName"] != self.accepted:
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.Response(text=subject["commonName"])


@pytest.fixture
async def served() -> AsyncIterator[tuple[Server, str]]:
    server = Server()
    app = web.Application()
    app.router.add_get("/{tail:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server.tls.context)
    await site.start()
    yield server, f"https://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@contextlib.asynccontextmanager
async def client_of(server: Server, url: str, directory: Path) -> AsyncIterator[ApiClient]:
    (directory / "ca.pem").write_bytes(server.authority.certificate)
    _store(directory, server.client("first"))
    files = {"client-certificate": "me.pem", "client-key": "me.key"}
    login = config.load(kubeconfig(directory, files, **{"server": url, "certificate-authority": "ca.pem"}))
    async with ApiClient(login) as client:
        yield client


def _store(directory: Path, pair: KeyPair) -> None:
    (directory / "me.pem").write_bytes(pair.certificate)
    (directory / "me.key").write_bytes(pair.key)


async def test_a_renewed_client_certificate_is_shown_once_the_old_one_is_refused(
    served: tuple[Server, str], tmp_path: Path
) -> None:
    server, url = served
    async with client_of(server, url, tmp_path) as client:
        assert await client.raw("/") == b"first"
        server.accepted = "second"
        with pytest.raises(Unauthorized):  # nobody has renewed it yet
            await client.raw("/")
        (tmp_path / "me.pem").write_bytes(server.client("second").certificate)  # its key comes a moment later
        with pytest.raises(Unauthorized):
            await client.raw("/")
        _store(tmp_path, server.client("second"))
        assert await client.raw("/") == b"second"
        for _ in range(2):  # as often as it takes for a pool to be closed
            server.accepted = f"{server.accepted}+"
            _store(tmp_path, server.client(server.accepted))
            assert await client.raw("/") == server.accepted.encode()


async def test_another_ca_of_the_server_is_trusted_once_it_is_in_the_file(
    served: tuple[Server, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, url = served
    monkeypatch.setattr(client_tls, "PERIOD", 0.0)
    second = certificates.authority(_name("second CA"), _life())
    async with client_of(server, url, tmp_path) as client:
        assert await client.raw("/") == b"first"
        server.tls.load(_server_pair(second))
        await client._present_new_certificate()  # connections of the old pool would go on
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            await client.raw("/")
        (tmp_path / "ca.pem").write_bytes(server.authority.certificate + second.certificate)
        assert await client.raw("/") == b"first"
        (tmp_path / "ca.pem").write_text("nonsense")
        assert await client.raw("/") == b"first"
