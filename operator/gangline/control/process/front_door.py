"""The operator's port: probes are answered here, in the lifeline's thread; other connections go to the server in the main loop.

A connection is sorted by the first bytes that it sends, which stay in its socket. kubelet opens a connection for each probe, so a
probe is answered even while the main loop is busy. All limits on connections are the server's: one that says nothing for a
moment is handed over. If many wait for the main loop already, the next one is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from gangline.control.process.health import Health
from gangline.tls import listening
from gangline.tls.listening import Connections, Listening

log = logging.getLogger(__name__)

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
        self, health: Health, main: asyncio.AbstractEventLoop, serve: Callable[[], asyncio.BaseProtocol]
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
