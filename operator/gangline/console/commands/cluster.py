"""`gangline cluster`: a local control plane that runs in the background."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.table import Table

from gangline.devcluster import build, clusters
from gangline.devcluster.clusters import DEFAULT_NAME, NamedCluster, Status
from gangline.devcluster.components import Options
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.nodes import NodePool, create_pools_in

named = click.option(
    "--name", default=DEFAULT_NAME, show_default=True, metavar="NAME", help="Name of the control plane."
)


@click.group()
def command() -> None:
    """Manage a local control plane (etcd, kube-apiserver, …) with simulated nodes."""


@command.command()
@named
@click.option("--nodes", default=0, show_default=True, type=click.IntRange(0, 5000), help="Simulated nodes to create.")
@click.option("--gpus", default=8, show_default=True, type=click.IntRange(0, 1000), help="GPUs per simulated node.")
def up(name: str, nodes: int, gpus: int) -> None:
    """Start the control plane in the background. Does nothing if it is already up."""
    with plain_errors():
        cluster = NamedCluster(name)
        before = cluster.status().up
        status = cluster.up(Options(), _say_waiting)
        if nodes:
            create_pools_in(cluster.kubeconfig, [NodePool("node", nodes, {"nvidia.com/gpu": gpus})])
    out = Console(highlight=False)
    out.print(f"Control plane [bold]{name}[/] {'was already up' if before else 'is up'}.")
    out.print(f"export KUBECONFIG={status.kubeconfig}", soft_wrap=True)


@command.command()
@named
@click.option("--keep-data", is_flag=True, help="Keep the stored objects for the next `up`.")
def down(name: str, keep_data: bool) -> None:
    """Stop the control plane and remove its data."""
    with plain_errors():
        existed = NamedCluster(name).down(forget=not keep_data, waiting=_say_waiting)
    Console(highlight=False).print(
        f"Control plane [bold]{name}[/] is down." if existed else f"There is no control plane [bold]{name}[/]."
    )


@command.command()
@click.option("--name", default=None, metavar="NAME", help="Only this control plane.")
def status(name: str | None) -> None:
    """Show the components and whether they run. Exit status 1 unless all of them run."""
    with plain_errors():
        found = [NamedCluster(each).status() for each in ([name] if name else clusters.names())]
    if not found:
        Console(highlight=False).print("There is no control plane. Start one with: gangline cluster up")
    for each in found:
        _print_status(each)
    sys.exit(0 if found and all(each.up for each in found) else 1)


@command.command()
@named
def kubeconfig(name: str) -> None:
    """Print the path of the control plane's kubeconfig, for `export KUBECONFIG=$(gangline cluster kubeconfig)`."""
    with plain_errors():
        found = NamedCluster(name).status().kubeconfig
        if found is None:
            raise DevClusterError(
                f"there is no control plane {name!r}; start one with: gangline cluster up --name {name}"
            )
    click.echo(found)


@command.command("build")
def build_command() -> None:
    """Compile the control plane's programs now (once, takes minutes), so that later starts take seconds."""
    with plain_errors():
        click.echo(f"The control plane's programs are in {build.ensure_servers()}")
        click.echo(f"kubectl is {build.kubectl()}")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Report a DevClusterError as one message and exit status 1, without a traceback."""
    try:
        yield
    except DevClusterError as error:
        raise click.ClickException(str(error)) from error


def _say_waiting(pid: str) -> None:
    click.echo(f"Waiting for process {pid}, which is starting or stopping the same control plane …", err=True)


def _print_status(status: Status) -> None:
    table = Table(title=f"{status.name}: {_word(status)}", title_justify="left", title_style="bold", box=None)
    table.add_column("component")
    table.add_column("pid", justify="right")
    for component, pid in status.pids.items():
        table.add_row(component, str(pid) if pid is not None else "[red]not running[/]")
    out = Console(highlight=False)
    out.print(table)
    out.print(f" logs: {status.directory}/*.log\n", soft_wrap=True)


def _word(status: Status) -> str:
    return "up" if status.up else "down" if status.down else "partly up (`gangline cluster up` starts the rest)"
