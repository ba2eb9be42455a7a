"""The listening sockets of our servers, and how many connections they keep.

A connection costs memory and a file from the moment when it is accepted, before its client has sent a byte. So connections are
counted here, handshakes included. Whoever opens many loses their own: beyond the limit, a connection of the address that has most
is closed, an old one on which nothing was sent for long, or else the new one.
"""

from __future__ import annotations

import errno
import socket
import struct
from asyncio.sslproto import SSLProtocol
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

#: connections at a time
MOST: Final = 256
#: the oldest connections of an address, of which the longest silent one is closed
_OLDEST: Final = 16
#: milliseconds of silence from which on a connection gives way to another of its own address: a handshake takes fewer
_SHORT: Final = 1000
#: connections that are refused at a time, before other tasks get their turn
_REFUSED: Final = 100
#: bytes of asyncio's buffer for each connection with TLS, which it has from the beginning: those of the longest records, where
#: asyncio takes 256 KiB
_BUFFER: Final = 32 * 2**10
#: where the kernel's description of a connection says for how many ms nothing was sent, and nothing received
_SENT: Final = 44
_RECEIVED: Final = 52


SSLProtocol.max_size = _BUFFER


@dataclass(slots=True)
class Connections:
    """The open connections of a server, by the addresses of their clients."""

    most: int = MOST
    #: number of connections that were closed for others, and of those that were refused
    displaced: int = 0
    refused: int = 0
    _of: dict[str, list[socket.socket]] = field(default_factory=dict[str, list[socket.socket]])
    _known: int = 0

    def admits(self, connection: socket.socket, address: str) -> bool:
        """Count one more. False: it has to be closed, since its address has most, and has opened these just now."""
        if self._known >= self.most:
            self._forget_closed()
        if self._known >= self.most and not self._displace(address):
            self.refused += 1
            return False
        self._of.setdefault(address, []).append(connection)
        self._known += 1
        return True

    def _forget_closed(self) -> None:
        still = {address: [each for each in held if each.fileno() >= 0] for address, held in self._of.items()}
        self._of = {address: held for address, held in still.items() if held}
        self._known = sum(map(len, self._of.values()))

    def _displace(self, newcomer: str) -> bool:
        address = max(self._of, key=lambda address: len(self._of[address]) + (address == newcomer))
        held = self._of[address]
        silence, silent = max(((_silence(each), each) for each in held[:_OLDEST]), key=lambda found: found[0])
        if address == newcomer and silence < _SHORT:
            return False
        held.remove(silent)
        if not held:
            del self._of[address]
        self._known -= 1
        self.displaced += 1
        with suppress(OSError):  # it has ended already
            silent.shutdown(socket.SHUT_RDWR)  # its server reads the end, and closes it
        return True


def _silence(connection: socket.socket) -> int:
    """The milliseconds for which nothing was sent or received; long where the system does not say."""
    option = getattr(socket, "TCP_INFO", None)
    if option is None:
        return _SHORT
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, option, _RECEIVED + 4)
        return min(struct.unpack_from("I", info, place)[0] for place in (_SENT, _RECEIVED))
    except (OSError, struct.error):
        return _SHORT


class Listening(socket.socket):
    """A listening socket that keeps so many connections, together with others of the same `connections`."""

    connections: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        for _ in range(_REFUSED):
            connection, address = super().accept()
            if self.connections.admits(connection, address[0]):
                return connection, address
            connection.close()
        raise BlockingIOError(errno.EAGAIN, "the rest waits")

    def dup(self) -> Listening:
        again = super().dup()
        again.connections = self.connections
        return again


def bound(host: str, port: int, most: int = MOST) -> Listening:
    """A bound socket that does not listen yet; port 0 chooses a port.

    Raises OSError, with a text that names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given explicitly; with it every answer takes 40 ms more
    bound = Listening(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.connections = Connections(most)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
