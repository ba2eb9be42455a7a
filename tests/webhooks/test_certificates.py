"""Certificates over ten years: what is served is always trusted by whoever has read the bundle in time."""

from __future__ import annotations

import asyncio
import base64
import copy
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from gangline.kube.client import AlreadyExists, Conflict, NotFound, Resource
from gangline.tls import certificates
from gangline.tls.certificates import CertificateError, Certificates, KeyPair, ServerNames, service_names
from gangline.tls.connections import LiveContext
from gangline_webhooks.certificate_store import DirectorySource, SecretSource

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = service_names("gangline-webhooks", "gangline-system")


def handshake(server: ssl.SSLContext, bundle: bytes, hostname: str = "127.0.0.1") -> x509.Certificate:
    """The certificate that a client sees who trusts `bundle` alone; raises what the client would."""
    client = ssl.create_default_context(cadata=bundle.decode())
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(incoming, outgoing, server_hostname=hostname)
    right = server.wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(4):
        for side in (left, right):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = left.getpeercert(binary_form=True)
    assert seen
    return x509.load_der_x509_certificate(seen)


def is_trusted(serving: bytes, bundle: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(serving)
    for issuer in x509.load_pem_x509_certificates(bundle):
        try:
            certificate.verify_directly_issued_by(issuer)
        except Exception:
            continue
        return True
    return False


def test_a_real_client_trusts_what_is_served():
    now = datetime.now(UTC)
    held = certificates.create(NAMES, now)
    live = LiveContext()
    live.load(held.serving)
    for name in ("127.0.0.1", "localhost", "gangline-webhooks.gangline-system.svc"):
        handshake(live.context, held.bundle, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(live.context, held.bundle, "example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(live.context, certificates.create(NAMES, now).bundle)


def test_what_the_certificates_say():
    held = certificates.create(ServerNames(("a.svc",), ("127.0.0.1", "::1")), START)
    serving, authority = held.serving.parsed, held.authority.parsed
    assert serving.not_valid_after_utc - START == timedelta(days=365)
    assert authority.not_valid_after_utc - START == timedelta(days=3650)
    assert serving.not_valid_before_utc < START
    san = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert san.get_values_for_type(x509.DNSName) == ["a.svc"]
    assert san.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(text) for text in ("127.0.0.1", "::1")]
    assert not serving.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0


def test_nothing_is_renewed_before_its_time():
    held = certificates.create(NAMES, START)
    assert certificates.renewed(held, NAMES, START) is None
    assert certificates.renewed(held, NAMES, START + timedelta(days=240)) is None


def test_the_served_one_is_renewed_after_two_thirds_of_its_life():
    held = certificates.create(NAMES, START)
    due = certificates.renewed(held, NAMES, START + timedelta(days=244))
    assert due is not None
    assert due.authority == held.authority
    assert due.bundle == held.bundle
    assert due.serving.parsed.not_valid_after_utc > held.serving.parsed.not_valid_after_utc


def test_other_names_need_another_certificate():
    held = certificates.create(NAMES, START)
    wider = ServerNames((*NAMES.dns, "webhooks.example.com"), NAMES.addresses)
    due = certificates.renewed(held, wider, START)
    assert due is not None
    assert certificates.renewed(due, wider, START) is None
    assert certificates.renewed(due, NAMES, START) is None  # fewer names do not


def test_twenty_five_years_without_a_gap():
    """Whoever has read the bundle within the last five minutes trusts what is served, at every moment."""
    held = certificates.create(NAMES, START)
    now, seen_authorities = START, {held.authority.certificate}
    bundle_read = held.bundle
    while now < START + timedelta(days=25 * 365):
        due = certificates.renewed(held, NAMES, now)
        previous_serving = held.serving
        held = due or held
        assert is_trusted(held.serving.certificate, bundle_read)
        assert is_trusted(previous_serving.certificate, held.bundle)  # a slow replica is still trusted
        assert held.serving.parsed.not_valid_after_utc > now
        assert held.serving.parsed.not_valid_after_utc <= held.authority.parsed.not_valid_after_utc or held.previous
        assert len(x509.load_pem_x509_certificates(held.bundle)) <= 2
        certificates.check(held)
        seen_authorities.add(held.authority.certificate)
        bundle_read = held.bundle
        is_settled = held.serving.parsed.issuer == held.authority.parsed.subject
        now += timedelta(days=20) if not held.previous else timedelta(hours=6) if is_settled else timedelta(minutes=5)
    assert len(seen_authorities) == 4  # one every 6.7 years
    assert not held.previous


def test_a_new_authority_is_published_before_it_signs_and_the_old_one_goes_last():
    held = certificates.create(NAMES, START)
    now = START + timedelta(days=3650 * 2 / 3)
    while certificates.renewed(held, NAMES, now - timedelta(days=1)) is not None:  # bring the served one up to date
        held = certificates.renewed(held, NAMES, now - timedelta(days=1)) or held
    published = certificates.renewed(held, NAMES, now)
    assert published is not None
    assert published.serving == held.serving
    assert published.bundle.count(b"BEGIN CERTIFICATE") == 2
    assert certificates.renewed(published, NAMES, now + timedelta(minutes=9)) is None
    signed = certificates.renewed(published, NAMES, now + timedelta(minutes=10))
    assert signed is not None
    assert signed.serving.parsed.issuer == signed.authority.parsed.subject
    assert certificates.renewed(signed, NAMES, now + timedelta(days=7)) is None
    last = certificates.renewed(signed, NAMES, now + timedelta(days=7, minutes=10))
    assert last is not None
    assert last.bundle == signed.authority.certificate


def test_an_authority_that_has_expired_is_replaced_at_once():
    held = certificates.create(NAMES, START)
    later = START + timedelta(days=4000)
    fresh = certificates.renewed(held, NAMES, later)
    assert fresh is not None
    assert fresh.serving.parsed.not_valid_after_utc > later
    assert certificates.renewed(fresh, NAMES, later) is None


# --- the Secret -------------------------------------------------------------------------------------------------------


class Secrets:
    """An API server with Secrets and namespaces, optimistic locking included."""

    def __init__(self, *, namespace: bool = True) -> None:
        self.namespace = namespace
        self.secret: Json | None = None
        self.version = 0
        self.writes = 0
        self.before_write: Callable[[], Awaitable[object]] | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        await asyncio.sleep(0)
        if self.secret is None or resource.plural != "secrets":
            raise NotFound(404)
        return copy.deepcopy(self.secret)

    async def create(self, resource: Resource, namespace: str | None, body: Json) -> Json:
        await self._race()
        if resource.plural == "namespaces":
            self.namespace = True
            return body
        if not self.namespace:
            raise NotFound(404)
        if self.secret is not None:
            raise AlreadyExists(409, "AlreadyExists")
        return self._store(body)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Json) -> Json:
        await self._race()
        assert self.secret is not None
        if body["metadata"].get("resourceVersion") != self.secret["metadata"]["resourceVersion"]:
            raise Conflict(409)
        return self._store(body)

    async def _race(self) -> None:
        await asyncio.sleep(0)
        if self.before_write is not None:
            race, self.before_write = self.before_write, None
            await race()

    def _store(self, body: Json) -> Json:
        self.version += 1
        self.writes += 1
        self.secret = copy.deepcopy(body)
        self.secret["metadata"]["resourceVersion"] = str(self.version)
        return self.secret


class Clock:
    now = START

    def __call__(self) -> datetime:
        return self.now


def source(server: Secrets, clock: Clock | None = None) -> SecretSource:
    return SecretSource(server, "gangline-system", "cert", NAMES, clock or Clock())  # pyright: ignore


async def test_replicas_share_one_secret():
    server = Secrets(namespace=False)
    first = await source(server).fetch()
    assert await source(server).fetch() == first
    assert server.writes == 1
    assert server.secret is not None
    assert set(server.secret["data"]) == {"ca.crt", "ca.key", "previous-ca.crt", "tls.crt", "tls.key"}


async def test_replicas_that_start_together_agree():
    server = Secrets()
    served = await asyncio.gather(*(source(server).fetch() for _ in range(5)))
    assert len({each.pair for each in served}) == 1
    assert server.writes == 1


async def test_replicas_that_renew_together_agree():
    server, clock = Secrets(), Clock()
    before = await source(server, clock).fetch()
    clock.now += timedelta(days=250)
    other = source(server, clock)
    server.before_write = other.fetch
    after = await source(server, clock).fetch()
    assert after == await other.fetch()
    assert after.pair != before.pair
    assert after.bundle == before.bundle
    assert server.writes == 2


@pytest.mark.parametrize("damage", [{"tls.key": "AAAA"}, {"ca.crt": None}, {"tls.crt": "!"}])
async def test_a_damaged_secret_is_replaced(damage: Json):
    server = Secrets()
    await source(server).fetch()
    assert server.secret is not None
    server.secret["data"] = {k: v for k, v in {**server.secret["data"], **damage}.items() if v is not None}
    served = await source(server).fetch()
    assert served.bundle is not None
    assert is_trusted(served.pair.certificate, served.bundle)
    assert await source(server).fetch() == served


async def test_keys_of_another_certificate_are_not_used():
    server = Secrets()
    await source(server).fetch()
    assert server.secret is not None
    stranger = certificates.create(NAMES, START)
    server.secret["data"]["tls.crt"] = base64.b64encode(stranger.serving.certificate).decode()
    server.secret["data"]["tls.key"] = base64.b64encode(stranger.serving.key).decode()
    served = await source(server).fetch()
    assert served.pair != stranger.serving


# --- cert-manager and the live server ---------------------------------------------------------------------------------


async def test_files_of_cert_manager_are_read_anew(tmp_path: Path):
    directory = DirectorySource(tmp_path)
    with pytest.raises(CertificateError, match=r"tls\.crt: No such file"):
        await directory.fetch()
    for held in (certificates.create(NAMES, START), certificates.create(NAMES, START)):
        (tmp_path / "tls.crt").write_bytes(held.serving.certificate)
        (tmp_path / "tls.key").write_bytes(held.serving.key)
        served = await directory.fetch()
        assert served.pair == held.serving
        assert served.bundle is None


async def test_a_certificate_that_nobody_renews_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    clock = Clock()
    directory = DirectorySource(tmp_path, clock)
    for _ in range(2):
        held = certificates.create(NAMES, clock())
        (tmp_path / "tls.crt").write_bytes(held.serving.certificate)
        (tmp_path / "tls.key").write_bytes(held.serving.key)
        await directory.fetch()
        assert not caplog.records
    clock.now += certificates.SERVING_LIFE * 0.95
    for _ in range(3):
        await directory.fetch()
    (record,) = caplog.records
    assert "the certificate ends at" in record.getMessage()


def test_a_broken_pair_does_not_replace_a_good_one():
    now = datetime.now(UTC)
    first, second = certificates.create(NAMES, now), certificates.create(NAMES, now)
    live = LiveContext()
    assert live.load(first.serving) is True
    assert live.load(first.serving) is False
    mixed = KeyPair(second.serving.certificate, first.serving.key)
    with pytest.raises(CertificateError, match="can't be loaded"):
        live.load(mixed)
    handshake(live.context, first.bundle)


async def test_a_running_server_serves_the_new_certificate_and_keeps_connections():
    now = datetime.now(UTC)
    first, second = certificates.create(NAMES, now), certificates.create(NAMES, now)
    live = LiveContext()
    live.load(first.serving)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=live.context, family=socket.AF_INET)
    port = server.sockets[0].getsockname()[1]

    async def connect(held: Certificates) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        trust = ssl.create_default_context(cadata=held.bundle.decode())
        return await asyncio.open_connection("127.0.0.1", port, ssl=trust)

    reader, writer = await connect(first)
    live.load(second.serving)
    _, newer = await connect(second)
    with pytest.raises(ssl.SSLCertVerificationError):
        await connect(first)
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    for each in (writer, newer):
        each.close()
    server.close()
