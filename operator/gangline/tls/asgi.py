"""Serves an ASGI app over HTTP/1.1, within bounds that uvicorn lacks: neither memory nor log is filled by what a client sends."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gangline.tls.connections import ConnectionWatch, of_uvicorn

#: uvicorn's log of connections. It warns of each invalid request: any client could fill the log with these.
_CONNECTIONS: Final = logging.getLogger(f"{__name__}.connections")
_CONNECTIONS.setLevel(logging.ERROR)

#: bytes of a request's head, those of its URL and headers
LONGEST_HEAD: Final = 64 * 2**10
#: seconds for which an idle connection is kept
KEEP_ALIVE: Final = 75
#: in the state of a request: its client has shown a certificate that the server trusts
CERTIFIED: Final = "certified"


class _RefusedError(Exception):
    """A request that is answered with 400: it comes before the one before it was answered, or names two hosts."""


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 of a connection: the head of a request is bounded, there is one request at a time, and what follows a body in
    pieces is dropped.

    It tells the app whether the client has shown a certificate that the server trusts.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _CONNECTIONS
        self._head_size = 0
        self._in_body = False
        self._host = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFIED: bool(transport.get_extra_info("peercert"))}

    def data_received(self, data: bytes) -> None:
        if not self._in_body:
            self._head_size += len(data)
        super().data_received(data)
        if self._head_size > LONGEST_HEAD:
            self.transport.abort()

    def on_message_begin(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            raise _RefusedError
        self._host = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return
        if name.lower() == b"host":
            if self._host:
                raise _RefusedError
            self._host = True
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_size, self._in_body = 0, True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()


def settings(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """How our servers serve an app: with `Protocol`, without WebSockets, a log of requests, and headers about the server."""
    return uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        **options,
    )


class AsgiServer:
    """Serves an app in a loop that runs already, on connections that it accepts or that others hand to it.

    `head_within` and the other limits are those of its `ConnectionWatch`.
    """

    def __init__(self, app: ASGIApp, keep_alive: int = KEEP_ALIVE, **limits: Any) -> None:
        self._config = settings(app, timeout_keep_alive=keep_alive)
        self._config.load()
        self.server_state = ServerState()
        self.watch: ConnectionWatch = of_uvicorn(self, **limits)
        self._watching: asyncio.Task[None] | None = None
        self._listening: asyncio.Server | None = None

    def protocol(self) -> Protocol:
        """The protocol of a new connection."""
        return Protocol(config=self._config, server_state=self.server_state, app_state={})

    def start(self) -> None:
        """Watch the connections, in the running loop."""
        self._watching = asyncio.get_running_loop().create_task(self.watch.run())

    async def listen(self, at: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Watch the connections, and accept them at this socket."""
        self.start()
        self._listening = await asyncio.get_running_loop().create_server(self.protocol, sock=at, ssl=context)

    def close(self) -> None:
        """Stop listening, close idle connections, and the others after their answer. May be called twice."""
        if self._watching is not None:
            self._watching.cancel()
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
