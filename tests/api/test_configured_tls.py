"""`tls` of Kueue's configuration file: read, and what a server with it accepts."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest

from gangline.api.read.configuration import file
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.sections import ALWAYS, CIPHERS
from gangline.tls import certificates
from gangline.tls.certificates import service_names
from gangline.tls.connections import USUAL, Handshakes, LiveContext

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
GCM = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def read(section: Any, **more: Any) -> file.Configuration:
    written = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "tls": section, **more}
    return file.load(written)


@pytest.mark.parametrize(
    ("section", "handshakes"),
    [
        (None, USUAL),
        ({"minVersion": "VersionTLS12"}, USUAL),
        ({"minVersion": "VersionTLS13"}, Handshakes(V13)),
        ({"cipherSuites": [GCM, ALWAYS[0]]}, Handshakes(V12, ("ECDHE-ECDSA-AES128-GCM-SHA256",))),
        ({"cipherSuites": [ALWAYS[0]]}, Handshakes(V12, ())),
    ],
)
def test_what_servers_accept(section: Any, handshakes: Handshakes) -> None:
    found = read(section)
    assert found.tls == handshakes
    assert not [path for path in found.ignored if path.startswith("tls")]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"minVersion": "VersionTLS11"}, "tls.minVersion: VersionTLS12 or VersionTLS13 is wanted, not 'VersionTLS11'"),
        (
            {"cipherSuites": [GCM, "TLS_RSA_WITH_RC4_128_SHA"]},
            "tls.cipherSuites[1]: 'TLS_RSA_WITH_RC4_128_SHA' is none of",
        ),
        (
            {"minVersion": "VersionTLS13", "cipherSuites": [GCM]},
            "tls.cipherSuites: may not be specified when `minVersion` is 'VersionTLS13'",
        ),
        ({"ciphers": []}, "tls.ciphers: there is no such field"),
    ],
)
def test_what_is_refused(section: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(section)
    assert str(error.value).startswith(said)


def test_without_the_gate_it_has_no_effect() -> None:
    found = read(
        {"minVersion": "VersionTLS13"}, featureGates={"TLSOptions": False}, gangline={"kueueCompatibility": "0.19"}
    )
    assert found.tls == USUAL
    assert "tls" in found.ignored


def test_curves_are_known_and_have_no_effect() -> None:
    found = read({"minVersion": "VersionTLS13", "curvePreferences": [29]})
    assert found.tls == Handshakes(V13)
    assert "tls.curvePreferences" in found.ignored


def test_this_openssl_has_every_cipher() -> None:
    Handshakes(V12, tuple(CIPHERS.values())).demand(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


async def shaken(handshakes: Handshakes, newest: ssl.TLSVersion) -> tuple[str, str]:
    """Version and cipher of a handshake with a client that speaks no newer version. Raises OSError."""
    live = LiveContext(handshakes)
    names = service_names("server", "default")
    live.load(certificates.create(names, datetime.now(UTC)).serving)

    async def ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(ended, "127.0.0.1", 0, ssl=live.context)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode, client.maximum_version = False, ssl.CERT_NONE, newest
    try:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client)
        name, version, _ = writer.get_extra_info("cipher")
        writer.close()
        return version, name
    finally:
        server.close()


async def test_a_server_accepts_no_other_handshakes() -> None:
    assert (await shaken(USUAL, V12))[0] == "TLSv1.2"
    assert (await shaken(Handshakes(V13), V13))[0] == "TLSv1.3"
    only = Handshakes(V12, ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"))
    assert (await shaken(only, V12))[1] in (only.ciphers or ())
    for refusing in (Handshakes(V13), Handshakes(V12, ())):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await shaken(refusing, V12)
