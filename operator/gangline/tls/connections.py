"""Limits on connections to our servers, so that slow clients cannot keep them, nor what waits to be sent on them: the head of a
request has to arrive within a time, and an answer has to be read. How many connections there are is limited where they are
accepted (`listening`).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gangline.tls.certificates import CertificateError, KeyPair

#: seconds in which the head of a request has to be there, from the connection or the request before: a little longer than aiohttp
#: keeps an idle connection, so that clients which keep theirs see the connection closed in the usual way
HEAD_WITHIN: Final = 80.0
#: seconds for which a client may leave a part of an answer unread, and bytes that wait on all connections to be read
READ_WITHIN: Final = 60.0
MOST_UNREAD: Final = 64 * 2**20
#: seconds between two checks
PERIOD: Final = 1.0


@dataclass(slots=True)
class ConnectionWatch:
    """Checks all connections of a server from time to time, and closes those that wait for too long.

    `connections` gives them, as objects with a `transport`; `idle` says which of them have no request in progress, and `latest`
    gives something that is another with each request: a connection that answers quickly is idle whenever it is looked at.
    """

    connections: Callable[[], Collection[Any]]
    idle: Callable[[Any], bool]
    latest: Callable[[Any], object]
    head_within: float = HEAD_WITHIN
    read_within: float = READ_WITHIN
    most_unread: int = MOST_UNREAD
    period: float = PERIOD
    #: number of closed connections
    closed: int = 0
    #: connection -> its latest request, and since when it waits for another one
    _waiting: dict[Any, tuple[object, float]] = field(default_factory=dict[Any, tuple[object, float]])
    #: connection -> since when a part of an answer waits to be read
    _unread: dict[Any, float] = field(default_factory=dict[Any, float])

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(self.period)
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        connections = list(self.connections())
        self._waiting = {each: self._since(each, now) for each in connections if self.idle(each)}
        for connection, (_, since) in self._waiting.items():
            if now - since > self.head_within:
                self._close(connection)
        sizes = {each: size for each in connections if (size := _size_unread(each))}
        self._unread = {each: self._unread.get(each, now) for each in sizes}
        surplus = sum(sizes.values()) - self.most_unread
        for connection in sorted(sizes, key=lambda each: (self._unread[each], -sizes[each])):
            if surplus > 0 or now - self._unread[connection] > self.read_within:
                surplus -= sizes[connection]
                self._close(connection)

    def _since(self, connection: Any, now: float) -> tuple[object, float]:
        latest = self.latest(connection)
        known = self._waiting.get(connection)
        return known if known is not None and known[0] is latest else (latest, now)

    def _close(self, connection: Any) -> None:
        transport = connection.transport
        if transport is not None:
            self.closed += 1
            transport.abort()


def _size_unread(connection: Any) -> int:
    """The bytes of answers that wait for the client to read."""
    transport = connection.transport
    return transport.get_write_buffer_size() if transport is not None and not transport.is_closing() else 0


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether a log record is about an error of the server. An invalid HTTP request is not: it is answered with 400, and any
    client could fill the log with it.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], HttpProcessingError)


_LOG: Final = logging.getLogger(__name__)
_LOG.addFilter(_is_ours)


def runner_of(app: web.Application, **options: Any) -> web.AppRunner:
    """A runner that serves the app, and logs its errors. It unpacks no body: one of 64 KiB may have 64 MiB, and would be unpacked
    even where nobody reads it.
    """
    return web.AppRunner(app, access_log=None, logger=_LOG, auto_decompress=False, **options)


def of_aiohttp(server: Any, head_within: float = HEAD_WITHIN, **limits: Any) -> ConnectionWatch:
    """The watch of an `aiohttp.web.Server`."""
    return ConnectionWatch(
        lambda: server.connections,
        lambda each: each._current_request is None,
        lambda each: each._next_keepalive_close_time,
        head_within,
        **limits,
    )


def of_uvicorn(server: Any, head_within: float = HEAD_WITHIN, **limits: Any) -> ConnectionWatch:
    """The watch of a `uvicorn.Server`."""
    return ConnectionWatch(
        lambda: server.server_state.connections,
        lambda each: each.cycle is None or each.cycle.response_complete,
        lambda each: each.cycle,
        head_within,
        **limits,
    )


# --- the TLS context of the running server, whose certificate can be changed without dropping a connection ------------


@dataclass(frozen=True, slots=True)
class Handshakes:
    """Which handshakes a server accepts: from which version on, and for TLS 1.2 with which ciphers, by OpenSSL's names.

    `ciphers` is None for those that Python takes; empty for none at all, which leaves TLS 1.3, whose ciphers are always the same.
    """

    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] | None = None

    def demand(self, context: ssl.SSLContext) -> None:
        """Let a context accept no others. Raises ssl.SSLError for a cipher that this OpenSSL does not have."""
        context.minimum_version = self.least if self.ciphers != () else ssl.TLSVersion.TLSv1_3
        if self.ciphers:
            context.set_ciphers(":".join(self.ciphers))


#: what servers accept where nothing is configured
USUAL: Final = Handshakes()


class LiveContext:
    """New handshakes use the certificate loaded last; open connections keep theirs."""

    def __init__(self, handshakes: Handshakes = USUAL) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        handshakes.demand(self.context)
        self._loaded: KeyPair | None = None

    def ask_for_client_certificates(self, authority: str) -> None:
        """Verify the certificate that a client shows by this CA (PEM). One that shows none is let in: the server answers it in
        words. Raises CertificateError.
        """
        self.context.verify_mode = ssl.CERT_OPTIONAL
        try:
            self.context.load_verify_locations(cadata=authority)
        except (ssl.SSLError, ValueError) as error:
            raise CertificateError(f"no certificate of a CA: {error}") from error

    def load(self, pair: KeyPair) -> bool:
        """True if the certificate changed. Raises CertificateError and keeps the previous one."""
        if pair == self._loaded:
            return False
        probe = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # the ssl module reads files only; this one is private to this process and deleted at once
        with tempfile.NamedTemporaryFile() as file:
            file.write(pair.certificate + b"\n" + pair.key)
            file.flush()
            try:
                probe.load_cert_chain(file.name)  # a broken pair must not reach the live context
                self.context.load_cert_chain(file.name)
            except (ssl.SSLError, OSError) as error:
                raise CertificateError(f"the serving certificate can't be loaded: {error}") from error
        self._loaded = pair
        return True
