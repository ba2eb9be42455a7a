"""`gangline cluster`: a local control plane that runs in the background."""

from __future__ import annotations

import sys

import click
from rich.console import Console
from rich.table import Table

from gangline.console.commands.run.cluster_nodes import image, named, node
from gangline.console.node_counts import NodeCounts, NodeCountsType
from gangline.console.options import kubernetes_version
from gangline.console.plain_errors import plain_errors
from gangline.console.stack.processes import running
from gangline.devcluster import build, clusters
from gangline.devcluster.clusters import NamedCluster, Status
from gangline.devcluster.components import Options
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import private_directory
from gangline.devcluster.nodes import NodePool, create_pools_in
from gangline.devcluster.programs import HELM, NEWEST, VERSIONS, default_version
from gangline.devcluster.real import preflight, programs
from gangline.devcluster.real.pool import GPU, GPUS


@click.group()
def command() -> None:
    """Manage a local control plane (etcd, kube-apiserver, …) with simulated nodes, or with real ones."""


command.add_command(node)
command.add_command(image)


@command.command()
@named
@click.option(
    "--nodes",
    default="0",
    show_default=True,
    type=NodeCountsType(),
    help="Nodes to create: a number of simulated ones, or real:3,simulated:100. Real ones (kubelets with containerd) need root.",
)
@click.option(
    "--gpus",
    default=None,
    type=click.IntRange(0, 1000),
    help="GPUs per node. [default: 8; of real nodes the machine's, if it has any]",
)
@kubernetes_version
def up(name: str, nodes: NodeCounts, gpus: int | None, version: str | None) -> None:
    """Start the control plane in the background. Does nothing if it is already up."""
    with plain_errors():
        cluster = NamedCluster(name)
        before = cluster.status().up
        status = cluster.up(Options(real=nodes.real_pool(gpus), version=version), _say_waiting)
        if nodes.simulated:
            each = GPUS if gpus is None else gpus
            create_pools_in(cluster.kubeconfig, [NodePool("node", nodes.simulated, {GPU: each})])
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
    """Show the components and whether they run, Gangline's own too. Exit status 1 unless all of them run."""
    with plain_errors():
        found = [NamedCluster(each).status() for each in ([name] if name else clusters.names())]
    if not found:
        Console(highlight=False).print("There is no control plane. Start one with: gangline cluster up")
    for each in found:
        _print_status(each)
    alive = all(pid is not None for each in found for pid in _gangline(each).values())
    sys.exit(0 if found and alive and all(each.up for each in found) else 1)


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
@click.option("--real", is_flag=True, help="Also what real nodes need: kubelet, containerd, runc, …")
@click.option("--where-possible", is_flag=True, help="With --real: where real nodes can't run, say why and go on.")
@click.option(
    "--version",
    "versions",
    multiple=True,
    type=click.Choice(VERSIONS),
    help=f"Of Kubernetes; may be given several times. [default: {NEWEST}]",
)
@click.option("--helm", is_flag=True, help="Also Helm, for the tests of the chart.")
def build_command(real: bool, where_possible: bool, helm: bool, versions: tuple[str, ...]) -> None:
    """Compile the control plane's programs now (once, takes minutes), so that later starts take seconds."""
    with plain_errors():
        refusal = preflight.refused(private_directory("planes")) if real and where_possible else ""
        if refusal:
            click.echo(f"Real nodes can't run here: {refusal}")
        elif real:
            click.echo(f"The programs of real nodes are beside {programs.ensure().node}")
        for version in versions or [default_version()]:
            servers = build.ensure_servers(version)
            click.echo(
                f"The control plane's programs of Kubernetes {version} are in {servers['kube-apiserver'].parent}"
            )
        click.echo(f"kubectl is {build.kubectl()}")
        if helm:
            click.echo(f"Helm is in {build.ensure(HELM)}")


def _say_waiting(pid: str) -> None:
    click.echo(f"Waiting for process {pid}, which is starting or stopping the same control plane …", err=True)


def _print_status(status: Status) -> None:
    table = Table(title=f"{status.name}: {_word(status)}", title_justify="left", title_style="bold", box=None)
    table.add_column("component")
    table.add_column("pid", justify="right")
    for component, pid in status.pids.items():
        table.add_row(component, str(pid) if pid is not None else "[red]not running[/]")
    gangline = _gangline(status)
    for service, pid in gangline.items():
        table.add_row(f"gangline {service}", str(pid) if pid is not None else "[red]not running[/]")
    out = Console(highlight=False)
    out.print(table)
    if "operator" in gangline and gangline["operator"] is None:
        log = status.directory / "services" / "operator.log"
        out.print(f" [red]the operator has ended: nothing is admitted[/]; the end of {log} says why", soft_wrap=True)
    out.print(f" logs: {status.directory}/*.log\n", soft_wrap=True)


def _gangline(status: Status) -> dict[str, int | None]:
    """Gangline's processes beside a control plane; the stand-in for JobSet may have ended by itself."""
    found = running(status.directory / "services")
    return {name: pid for name, pid in found.items() if pid is not None or name != "jobset"}


def _word(status: Status) -> str:
    return "up" if status.up else "down" if status.down else "partly up (`gangline cluster up` starts the rest)"
