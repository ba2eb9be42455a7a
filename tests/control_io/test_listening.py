"""Connections are counted where they are accepted: handshakes included, and by the address of their client."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from gangline.control.process import front_door
from gangline.control.process.front_door import bind
from gangline.tls import certificates
from gangline.tls.connections import LiveContext
from gangline.tls.listening import _SHORT, Listening, bound


class Lines(asyncio.Protocol):
    """Sends back what it gets."""

    open = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        Lines.open += 1

    def connection_lost(self, exc: Exception | None) -> None:
        Lines.open -= 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


def over_tls() -> ssl.SSLContext:
    tls = LiveContext()
    tls.load(certificates.create(certificates.service_names("s", "n"), datetime.now(UTC)).serving)
    return tls.context


@contextlib.asynccontextmanager
async def serving(most: int, context: ssl.SSLContext | None = None) -> AsyncIterator[Listening]:
    listening = bound("0.0.0.0", 0, most)
    server = await asyncio.get_running_loop().create_server(Lines, sock=listening, ssl=context)
    try:
        yield listening
    finally:
        server.close()


async def connected(listening: Listening, address: str) -> socket.socket:
    """A connection from an address of this machine, which says nothing."""
    client = socket.socket()
    client.setblocking(False)
    client.bind((address, 0))
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", listening.getsockname()[1]))
    await asyncio.sleep(0.002)
    return client


async def is_open(client: socket.socket) -> bool:
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(0.05):
            return await asyncio.get_running_loop().sock_recv(client, 1) != b""
    return client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


@pytest.mark.parametrize("context", [None, over_tls()], ids=["plain", "without a handshake"])
async def test_whoever_opens_many_connections_loses_their_own(context: ssl.SSLContext | None) -> None:
    async with serving(20, context) as listening:
        others = [await connected(listening, "127.0.0.2") for _ in range(5)]
        flood = [await connected(listening, "127.0.0.3") for _ in range(100)]
        others += [await connected(listening, "127.0.0.4") for _ in range(5)]
        await asyncio.sleep(0.05)
        assert listening.connections.displaced == 5
        assert listening.connections.refused == 85
        assert [await is_open(each) for each in others] == [True] * 10
        assert sum([await is_open(each) for each in flood]) == 10
        for each in (*others, *flood):
            each.close()


async def test_of_an_address_the_longest_silent_one_is_closed() -> None:
    async with serving(3) as listening:
        first, second, third = [await connected(listening, "127.0.0.1") for _ in range(3)]
        loop = asyncio.get_running_loop()
        await asyncio.sleep(_SHORT / 1000 + 0.1)
        for used in (first, third):
            await loop.sock_sendall(used, b"a")
            assert await loop.sock_recv(used, 1) == b"a"
        fourth = await connected(listening, "127.0.0.1")
        assert await loop.sock_recv(second, 1) == b""
        assert listening.connections.displaced == 1
        for each in (first, second, third, fourth):
            each.close()


async def test_closed_connections_do_not_count() -> None:
    async with serving(5) as listening:
        for _ in range(30):
            client = await connected(listening, "127.0.0.1")
            client.close()
            await asyncio.sleep(0.005)
        assert listening.connections.displaced == 0


def test_every_socket_of_a_server_counts_the_same_connections() -> None:
    listening = bound("127.0.0.1", 0)
    again = listening.dup()
    assert isinstance(again, Listening)
    assert again.connections is listening.connections
    doors = bind("", 0)
    assert {door.connections.most for door in doors} == {front_door.MOST}
    assert len({id(door.connections) for door in doors}) == 1
    for each in (listening, again, *doors):
        each.close()
