"""`gangline dev cluster node …` and `gangline dev cluster image load`: the real nodes of a local control plane."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gangline.console.output import presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.plain_errors import plain_errors
from gangline.devcluster.building import build
from gangline.devcluster.clusters import DEFAULT_NAME, NamedCluster
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.local import LocalControlPlane
from gangline.devcluster.real.nodes import RealNodes
from gangline.devcluster.real.settings import RealPool
from gangline.kube.resources import Json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

named = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Name of the control plane."
)


def _names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The real nodes, for a shell to complete: never an error."""
    from click.shell_completion import CompletionItem

    try:
        pool = RealPool.load(NamedCluster(ctx.params.get("name") or DEFAULT_NAME).directory)
    except (DevClusterError, OSError, ValueError):
        return []
    found = pool.addresses if pool is not None else ()
    return [CompletionItem(each) for each in found if each.startswith(incomplete)]


node_name = click.argument("node", metavar="NODE", shell_complete=_names)


@click.group("node")
def node() -> None:
    """Stop, cut off, drain and start the real nodes of a local control plane."""


@node.command("list")
@named
@presenting.options("state")
def list_nodes(name: str, shape: Presentation) -> None:
    """Show the real nodes and whether they run."""

    async def look() -> list[Json]:
        with plain_errors(), NamedCluster(name).real() as plane:
            real = _real(plane)
            return [
                {"node": each, "address": address.address, "state": real.state(each)}
                for each, address in real.pool.addresses.items()
            ]

    asyncio.run(presenting.present(NODES, shape, look))


NODES: Final[Listing[Json]] = Listing(
    columns=(
        Column("NODE", lambda each, _: each["node"], least=20),
        Column("ADDRESS", lambda each, _: each["address"]),
        Column("STATE", lambda each, _: each["state"]),
    ),
    as_json=lambda each: each,
    name=lambda each: each["node"],
    empty="The control plane has no real nodes.",
    state=lambda each: (each["state"],),
)


@node.command()
@named
@node_name
def stop(name: str, node: str) -> None:
    """Switch a node off: its kubelet and all its containers die at once."""
    with plain_errors(), NamedCluster(name).real() as plane:
        _real(plane).stop_node(node)
    terminal.say(f"{node} is off. `gangline dev cluster node start {node}` switches it on again.")


@node.command()
@named
@node_name
def cut(name: str, node: str) -> None:
    """Cut a node off from the network: its containers go on, and the cluster does not reach them."""
    with plain_errors(), NamedCluster(name).real() as plane:
        _real(plane).cut_node(node)
    terminal.say(f"{node} is cut off. `gangline dev cluster node start {node}` connects it again.")


@node.command()
@named
@node_name
def start(name: str, node: str) -> None:
    """Switch a node on, or connect it again, and wait until it is Ready. It takes pods again after a drain."""
    with plain_errors(), NamedCluster(name).real() as plane:
        plane.start_real_node(node)
        _kubectl(plane, "uncordon", node)
    terminal.say(f"{node} is Ready.")


@node.command()
@named
@node_name
@click.option(
    "--timeout",
    default=120,
    show_default=True,
    type=click.IntRange(1, 86400),
    help="Seconds that the node's pods have to end.",
)
def drain(name: str, node: str, timeout: int) -> None:
    """Evict a node's pods and let no others onto it, as before maintenance."""
    with plain_errors(), NamedCluster(name).real() as plane:
        _real(plane).state(node)  # only nodes of ours
        options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={timeout}s")
        _kubectl(plane, "drain", node, *options)
    terminal.say(f"{node} is drained. `gangline dev cluster node start {node}` lets pods onto it again.")


@click.group("image")
def image() -> None:
    """Load images on the real nodes of a local control plane, without a registry."""


@image.command()
@named
@click.argument("archive", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def load(name: str, archive: Path) -> None:
    """Import an image archive (OCI, or of `docker save`) on every real node that runs."""
    with plain_errors(), NamedCluster(name).real() as plane:
        nodes = _real(plane).load_image(archive)
    terminal.say(f"{archive.name} is on {', '.join(nodes) if nodes else 'no node: none runs'}.")


def _real(plane: LocalControlPlane) -> RealNodes:
    assert plane.real is not None  # NamedCluster.real() yields no other
    return plane.real


def _kubectl(plane: LocalControlPlane, *arguments: str) -> None:
    command = [str(build.kubectl()), f"--kubeconfig={plane.kubeconfig}", *arguments]
    answer = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise DevClusterError(f"kubectl {arguments[0]} failed: {answer.stderr.strip()[-1000:]}")
