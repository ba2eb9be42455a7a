"""The operator's port: probes are answered here, in the lifeline's thread; other connections go to the server in the main loop.

A connection is sorted by the first bytes that it sends, which stay in its socket. kubelet opens a connection for each probe, so a
probe is answered even while the main loop is busy. All limits on connections are the server's: one that says nothing for a
moment is handed over. If many wait for the main loop already, the next one is closed.

The probes of the operator: /healthz fails when the process should be restarted, /readyz while it cannot do its work.

A standby is ready: it has listed everything and would lead at once. /readyz says who leads instead. Neither depends on the
webhooks, which are processes with probes of their own: an operator that restarted because of them would help nobody.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from gangline.kube.transport import steady
from gangline.tls import listening
from gangline.tls.apps import add_get
from gangline.tls.listening import Connections, Listening

log = logging.getLogger(__name__)


#: Seconds for which the control loop may make no progress. After that /healthz fails, and the lease is not renewed. A round takes
#: a fraction of a second; only a fault, or a machine that stood still, takes longer.
LONGEST_ROUND: Final = 30.0
#: seconds between two signs of life
BEAT: Final = 0.5


class Pulse:
    """The pulse of the main loop, which says whether it makes progress: its event loop runs, and its control loop takes the
    rounds that are due.

    `behind`: the seconds for which a round of the control loop has been due. `run` beats in the main loop, everything else may be
    called from any thread.
    """

    def __init__(self, behind: Callable[[], float], clock: Callable[[], float] = steady) -> None:
        self._behind = behind
        self._clock = clock
        self._beat = clock()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT)

    def beat(self) -> None:
        self._beat = self._clock()

    def still(self) -> float:
        """The seconds since the last progress, as far as it is overdue."""
        return max(self._clock() - self._beat - BEAT, self._behind(), 0.0)

    def alive(self) -> bool:
        return self.still() <= LONGEST_ROUND


@dataclass(frozen=True, slots=True)
class Probes:
    """Answers probes. `unlisted`: kinds that were never listed; `still`: seconds for which the main loop has made no progress;
    `standing`: whether this process leads, or why not, in words. They are called from any thread.
    """

    unlisted: Callable[[], list[str]]
    still: Callable[[], float]
    standing: Callable[[], str]

    def answer(self, path: str) -> tuple[int, str] | None:
        """Status and text for the path of a probe; None for other paths."""
        return self._healthz() if path == "/healthz" else self._readyz() if path == "/readyz" else None

    def _healthz(self) -> tuple[int, str]:
        still = self.still()
        if still > LONGEST_ROUND:
            return 500, f"the control loop has made no progress for {still:.0f} s\n"
        return 200, "ok\n"

    def _readyz(self) -> tuple[int, str]:
        if missing := self.unlisted():
            return 503, f"waiting for the first list of {', '.join(missing)}\n"
        return 200, f"ok\n{self.standing()}\n"

    def add_to(self, app: FastAPI) -> None:
        """Answer on connections that began with another request, too."""
        alive = "Whether the control loop makes progress; 500 where the process should be restarted"
        ready = "Whether everything is listed, so that this process leads or could lead; 503 until then"
        add_get(app, "/healthz", self._get, summary=alive, response_class=PlainTextResponse)
        add_get(app, "/readyz", self._get, summary=ready, response_class=PlainTextResponse)

    async def _get(self, request: Request) -> Response:
        status, text = self.answer(request.url.path) or (404, "")
        return PlainTextResponse(text, status)


#: Connections that wait at most: in the kernel until they are accepted, here until they are sorted, and then for the main loop.
BACKLOG: Final = 128
#: connections in all: those that the server has, as others of our servers, and those that wait
MOST: Final = listening.MOST + 2 * BACKLOG
#: seconds for a connection to say what it wants
PATIENCE: Final = 1.0
#: bytes of a probe's request
_LONGEST: Final = 8192
_NO_ADDRESS: Final = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def bind(host: str, port: int) -> list[Listening]:
    """Listen at every address of a host, "" = of this machine. Port 0 chooses one. The addresses share one number of connections.
    Raises OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    opened: list[Listening] = []
    connections = Connections(MOST)
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(found):
        try:
            server = socket.create_server(address, family=family, backlog=BACKLOG)
            # asyncio disables Nagle's algorithm only if the protocol is given; with it every answer takes 40 ms more
            opened.append(Listening(server.family, server.type, socket.IPPROTO_TCP, fileno=server.detach()))
            opened[-1].connections = connections
        except OSError as error:
            failure = failure or error
            if error.errno not in _NO_ADDRESS:
                break
    if failure is not None and (not opened or failure.errno not in _NO_ADDRESS):
        for each in opened:
            each.close()
        raise failure
    for each in opened:
        each.setblocking(False)
    return opened


class FrontDoor:
    """Accepts connections. `serve` makes the protocol of one that the main loop `main` serves."""

    def __init__(
        self, health: Probes, main: asyncio.AbstractEventLoop, serve: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._health = health
        self._main = main
        self._serve = serve
        self._room = threading.Semaphore(BACKLOG)  # for connections that wait for the main loop
        #: connections to be sorted, oldest first; the event: it has said something, or has to go
        self._unsorted: dict[asyncio.Task[None], asyncio.Event] = {}
        self._served: set[asyncio.Task[None]] = set()

    # --- in the lifeline's thread ---

    async def run(self, listening: socket.socket) -> None:
        """Accept connections until cancelled, then stop listening."""
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listening)
                except OSError as error:  # no more files: some are closed by and by
                    log.warning("a connection could not be accepted: %s", error)
                    await asyncio.sleep(PATIENCE)
                    continue
                said = asyncio.Event()
                task = loop.create_task(self._sort(connection, said))
                self._unsorted[task] = said
                task.add_done_callback(self._unsorted.pop)
                if len(self._unsorted) > BACKLOG:
                    next(iter(self._unsorted.values())).set()

    async def _sort(self, connection: socket.socket, said: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(connection, said.set)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await said.wait()
        loop.remove_reader(connection)
        try:
            head = connection.recv(_LONGEST, socket.MSG_PEEK)
        except OSError:  # it has said nothing, or is gone
            head = b""
        answer = self._health.answer(_path(head))
        if answer is None:
            self._hand_over(connection)
            return
        with connection, suppress(TimeoutError, OSError):
            async with asyncio.timeout(PATIENCE):
                await _answer(connection, *answer)

    def _hand_over(self, connection: socket.socket) -> None:
        if not self._room.acquire(blocking=False):
            connection.close()
            return
        self._main.call_soon_threadsafe(self._take, connection)

    # --- in the main loop ---

    def _take(self, connection: socket.socket) -> None:
        self._room.release()
        task = self._main.create_task(self._connect(connection))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def _connect(self, connection: socket.socket) -> None:
        try:
            await self._main.connect_accepted_socket(self._serve, connection)
        except OSError:  # it is gone
            connection.close()


def _path(head: bytes) -> str:
    """The path of a GET request whose head is complete; "" for anything else."""
    line, _, _ = head.partition(b"\r\n")
    words = line.split(b" ")
    if len(words) != 3 or words[0] != b"GET" or b"\r\n\r\n" not in head:
        return ""
    return words[1].partition(b"?")[0].decode("ascii", "replace")


async def _answer(connection: socket.socket, status: int, text: str) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_recv(connection, _LONGEST)
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    await loop.sock_sendall(connection, head.encode() + body)
