"""The hub of real nodes: a network namespace with a bridge, reached from outside at ports of 127.0.0.1.

Run as a script, with the standard library only: `hub.py --ready FILE PORT…`. It listens at these ports where it is started, then
moves into a network namespace of its own, and passes every connection on to the same port there. Pods reach one of these ports at
the hub's own address. The namespace lives as long as this process or any other one in it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

CLONE_NEWNET = 0x40000000
CHUNK = 65536
#: the hub's own settings, as far as the kernel has them
SETTINGS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/bridge/bridge-nf-call-iptables": "0",  # else packets between two nodes lose the addresses of Services
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready", type=Path, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--prefix", required=True)
    parser.add_argument("--bridge", required=True)
    parser.add_argument("--services", required=True)
    parser.add_argument("--inward", type=int, required=True)
    parser.add_argument("ports", nargs="+", type=int)
    given = parser.parse_args()
    listeners = [socket.create_server(("127.0.0.1", port), backlog=512) for port in given.ports]
    unshare()
    build(given.bridge, f"{given.address}/{given.prefix}", given.services)
    listeners.append(socket.create_server((given.address, given.inward), backlog=512))
    given.ready.write_text(str(os.getpid()))
    asyncio.run(relay(listeners))


def unshare() -> None:
    """Move into a network namespace of one's own (os.unshare is there from Python 3.12 on)."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit(f"no network namespace: {os.strerror(ctypes.get_errno())}")


def build(bridge: str, address: str, services: str) -> None:
    for command in (
        "link set lo up",
        f"link add {bridge} type bridge",
        f"addr add {address} dev {bridge}",
        f"link set {bridge} up",
        f"route add {services} dev {bridge}",  # else a Service has no route, and its address is never translated
    ):
        subprocess.run(["ip", *command.split()], check=True)
    for name, value in SETTINGS.items():
        with contextlib.suppress(OSError):
            (Path("/proc/sys") / name).write_text(value)


async def relay(listeners: list[socket.socket]) -> None:
    servers = [await asyncio.start_server(passed_on(one.getsockname()[1]), sock=one) for one in listeners]
    await asyncio.gather(*(server.serve_forever() for server in servers))


def passed_on(port: int):
    """What handles one connection: its bytes go to the same port in here, and the answers back."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))
        for side in (writer, inner_writer):
            side.close()

    return handle


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection until one side ends, and let the other one know of that."""
    try:
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (OSError, RuntimeError):
        writer.close()


if __name__ == "__main__":
    main()
