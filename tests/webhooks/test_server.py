"""The server without a cluster."""

from __future__ import annotations

import asyncio
import socket

from gangline.tls.listening import bound
from gangline_webhooks.server import Options, _endpoint, _names  # pyright: ignore[reportPrivateUsage]


async def test_answers_do_not_wait_for_acknowledgements():
    """Nagle's algorithm costs 40 ms per answer, and asyncio switches it off only on some sockets."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    def on_connect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.put_nowait(writer)  # it closes the connection when nobody holds it any more

    listener = bound("127.0.0.1", 0)
    server = await asyncio.start_server(on_connect, sock=listener)
    _, writer = await asyncio.open_connection(*listener.getsockname())
    other_end = await accepted.get()
    assert other_end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    writer.close()
    server.close()


def test_the_certificate_covers_how_we_are_reached():
    local = _names(Options("127.0.0.1", 0, url_host="127.0.0.1"))
    assert "127.0.0.1" in local.addresses
    assert "gangline-webhooks.gangline-system.svc" in local.dns
    assert "10.0.0.7" in _names(Options("0.0.0.0", 0, url_host="10.0.0.7")).addresses
    assert "::1" in _names(Options("::", 0, url_host="::1")).addresses
    assert "hooks.example.com" in _names(Options("0.0.0.0", 0, url_host="hooks.example.com")).dns


def test_how_we_are_registered():
    assert _endpoint(Options("0.0.0.0", 0, url_host="127.0.0.1"), 4711).url == "https://127.0.0.1:4711"
    assert _endpoint(Options("0.0.0.0", 0, url_host="::1"), 4711).url == "https://[::1]:4711"
    inside = _endpoint(Options("0.0.0.0", 9443), 9443)
    assert (inside.url, inside.service, inside.port) == ("", "gangline-webhooks", 443)
