"""The listening socket of our servers."""

from __future__ import annotations

import socket


def bound(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; port 0 chooses a port.

    Raises OSError, with a text that names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given explicitly; with it every answer takes 40 ms more
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
