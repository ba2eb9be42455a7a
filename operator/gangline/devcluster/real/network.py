"""The addresses of real nodes, and the commands that connect them. All of them lie inside namespaces of our own."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangline.devcluster.errors import StartError

HUB: Final = "10.88.0.1"
BRIDGE: Final = "br0"
#: of the hub and the nodes; every node's pods have a /24 of their own beside it
NODES_PREFIX: Final = 24
MOST_NODES: Final = 100
_NAMESPACE_WITHIN: Final = 10.0  # seconds in which a new process is in its own network namespace


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """The addresses of the node with this number (from 1)."""

    number: int

    @property
    def address(self) -> str:
        return f"10.88.0.{self.number + 10}"

    @property
    def pods(self) -> str:
        """The network of the node's pods."""
        return f"10.88.{self.number}.0/24"

    @property
    def link(self) -> str:
        """The node's network interface in the hub."""
        return f"node{self.number}"


def namespace_of(pid: int) -> Path:
    """The network namespace of a process, to be entered by nsenter."""
    return Path(f"/proc/{pid}/ns/net")


def enter(pid: int) -> list[str]:
    """The prefix of a command that runs in the network namespace of a process."""
    return ["nsenter", f"--net={namespace_of(pid)}", "--"]


def connect(hub: int, node: int, address: NodeAddress) -> None:
    """Give the node (a process in a network namespace of its own) a link to the hub's bridge. Raises StartError."""
    _wait_for_namespace(hub, node)
    deadline = time.monotonic() + _NAMESPACE_WITHIN
    while True:  # the link of a node that just died goes away with a delay
        answer = _ip(hub, "link", "add", address.link, "type", "veth", "peer", "name", "eth0", "netns", str(node))
        if answer.returncode == 0:
            break
        if time.monotonic() > deadline:
            raise StartError(f"node {address.number} gets no network: {answer.stderr.strip()}")
        time.sleep(0.05)
    _must(hub, "link", "set", address.link, "master", BRIDGE, "up")
    _must(hub, "route", "replace", address.pods, "via", address.address)


def set_link(hub: int, address: NodeAddress, *, up: bool) -> None:
    """Connect the node to the hub, or cut it off. Raises StartError."""
    _must(hub, "link", "set", address.link, "up" if up else "down")
    if up:  # the kernel forgets the route when the link goes down
        _must(hub, "route", "replace", address.pods, "via", address.address)


def link_is_up(hub: int, address: NodeAddress) -> bool:
    """Whether the node is connected to the hub."""
    return ",UP" in _ip(hub, "-o", "link", "show", address.link).stdout.partition(">")[0]


def _wait_for_namespace(hub: int, node: int) -> None:
    """A process that runs `unshare` is in the namespace of its parent at first."""
    ours = {namespace_of(pid).readlink() for pid in (hub, os.getpid())}
    deadline = time.monotonic() + _NAMESPACE_WITHIN
    while namespace_of(node).readlink() in ours:
        if time.monotonic() > deadline:
            raise StartError(f"process {node} got no network namespace of its own")
        time.sleep(0.01)


def _must(hub: int, *arguments: str) -> None:
    answer = _ip(hub, *arguments)
    if answer.returncode != 0:
        raise StartError(f"ip {' '.join(arguments)}: {answer.stderr.strip()}")


def _ip(hub: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*enter(hub), "ip", *arguments], capture_output=True, text=True, check=False)
