"""Listens for browsers, and serves the dashboard to them until it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gangline.tls import listening
from gangline.tls.asgi import AsgiServer
from gangline.ui.app import Dashboard, Server

#: connections that wait to be accepted
_BACKLOG: Final = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 chooses one. With a certificate, over TLS."""

    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.certificate, self.key)
        return context


@asynccontextmanager
async def serving(dashboard: Dashboard, where: Address) -> AsyncIterator[str]:
    """Serve inside the block, which gets the server's root as a URL. Raises OSError where the address is taken."""
    at = listening.bound(where.host, where.port)
    port = at.getsockname()[1]
    host = f"[{where.host}]" if ":" in where.host else where.host
    if dashboard.own:
        names = {host, "localhost", "127.0.0.1", "[::1]"}
        dashboard = replace(dashboard, hosts=frozenset(f"{name}:{port}" for name in names))
    server = Server(dashboard)
    http = AsgiServer(server.app())
    context = where.context()
    at.listen(_BACKLOG)
    await http.listen(at, context)
    try:
        shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "[::]") else host
        yield f"{'https' if context else 'http'}://{shown}:{port}"
    finally:
        http.close()
        await server.close()
        await asyncio.sleep(0)
        at.close()
