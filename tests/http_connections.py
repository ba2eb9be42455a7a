"""A client's connection that is used, and then idle, as a server's `ConnectionWatch` sees it."""

from __future__ import annotations

import asyncio
import contextlib

from gangline.tls.connections import ConnectionWatch


async def stays_open_while_used(port: int, watch: ConnectionWatch) -> None:
    """Short requests for four times as long as the watch, of 0.3 s, lets a connection wait: it closes this one only after the
    last of them.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(12):
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in await asyncio.wait_for(reader.readline(), 10)
        await asyncio.sleep(0.1)
        await reader.read(4096)
    assert watch.closed == 0
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 10) == b""
    assert watch.closed == 1
    writer.close()
