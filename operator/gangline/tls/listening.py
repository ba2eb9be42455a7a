"""The socket that a server of ours listens on."""

from __future__ import annotations

import socket


def bound(host: str, port: int) -> socket.socket:
    """A socket that has its address and does not listen yet; port 0 chooses one.

    Raises OSError, with a text that names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is spelt out; with it on every answer takes 40 ms more
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"can't listen on {host}:{port}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
