"""`gangline dev cluster`: a local control plane that runs in the background."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from gangline.console.commands.dev.cluster_nodes import image, named, node
from gangline.console.node_counts import NodeCounts, NodeCountsType, kubernetes_version
from gangline.console.output import presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.plain_errors import plain_errors
from gangline.console.stack.processes import running
from gangline.devcluster import clusters
from gangline.devcluster.building import build
from gangline.devcluster.building.build import HELM, NEWEST, VERSIONS, default_version
from gangline.devcluster.clusters import NamedCluster, Status
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import private_directory
from gangline.devcluster.nodes import EqualNodes, create_pools_in
from gangline.devcluster.real import preflight, programs
from gangline.devcluster.real.settings import GPU, GPUS

#: states of a component
RUNNING: Final = "Running"
ENDED: Final = "Not running"
#: before the names of Gangline's processes
_OURS: Final = "gangline "


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
        status = cluster.up(ControlPlaneOptions(real=nodes.real_pool(gpus), version=version), _say_waiting)
        if nodes.simulated:
            each = GPUS if gpus is None else gpus
            create_pools_in(cluster.kubeconfig, [EqualNodes("node", nodes.simulated, {GPU: each})])
    out = terminal.console(highlight=False)
    out.print(f"Control plane [bold]{name}[/] {'was already up' if before else 'is up'}.")
    out.print(f"export KUBECONFIG={status.kubeconfig}", soft_wrap=True)


@command.command()
@named
@click.option("--keep-data", is_flag=True, help="Keep the stored objects for the next `up`.")
def down(name: str, keep_data: bool) -> None:
    """Stop the control plane and remove its data."""
    with plain_errors():
        existed = NamedCluster(name).down(forget=not keep_data, waiting=_say_waiting)
    terminal.console(highlight=False).print(
        f"Control plane [bold]{name}[/] is down." if existed else f"There is no control plane [bold]{name}[/]."
    )


@command.command()
@click.option("--name", default=None, metavar="NAME", help="Only this control plane.")
@presenting.options("state")
def status(name: str | None, shape: Presentation) -> None:
    """Show the components and whether they run, Gangline's own too. Exit status 1 unless all of them run."""
    found: list[ClusterProcess] = []

    async def look() -> list[ClusterProcess]:
        with plain_errors():
            found[:] = components(name)
        return found

    asyncio.run(presenting.present(COMPONENTS, shape, look))
    sys.exit(0 if found and all(each.pid is not None for each in found) else 1)


@command.command()
@named
def kubeconfig(name: str) -> None:
    """Print the path of the control plane's kubeconfig, for `export KUBECONFIG=$(gangline dev cluster kubeconfig)`."""
    with plain_errors():
        found = NamedCluster(name).status().kubeconfig
        if found is None:
            raise DevClusterError(
                f"there is no control plane {name!r}; start one with: gangline dev cluster up --name {name}"
            )
    terminal.say(str(found))


@command.command("build")
@click.option("--real", is_flag=True, help="Also compile what real nodes need: kubelet, containerd, runc, …")
@click.option(
    "--where-possible",
    is_flag=True,
    help="Go on, and say why, on a machine on which real nodes can't run; with --real.",
)
@click.option(
    "--version",
    "versions",
    multiple=True,
    type=click.Choice(VERSIONS),
    help=f"The version of Kubernetes; repeatable. [default: {NEWEST}]",
)
@click.option("--helm", is_flag=True, help="Also fetch Helm, for the tests of the chart.")
def build_command(real: bool, where_possible: bool, helm: bool, versions: tuple[str, ...]) -> None:
    """Compile the control plane's programs now (once, takes minutes), so that later starts take seconds."""
    with plain_errors():
        refusal = preflight.refused(private_directory("planes")) if real and where_possible else ""
        if refusal:
            terminal.say(f"Real nodes can't run here: {refusal}")
        elif real:
            terminal.say(f"The programs of real nodes are beside {programs.ensure().node}")
        for version in versions or [default_version()]:
            servers = build.ensure_servers(version)
            places = dict.fromkeys(str(path.parent) for path in servers.values())
            terminal.say(f"The control plane's programs of Kubernetes {version} are in {', '.join(places)}")
        terminal.say(f"kubectl is {build.kubectl()}")
        if helm:
            terminal.say(f"Helm is in {build.ensure(HELM)}")


def _say_waiting(pid: str) -> None:
    terminal.say(f"Waiting for process {pid}, which is starting or stopping the same control plane …", err=True)


@dataclass(frozen=True, slots=True)
class ClusterProcess:
    """A process of a control plane, or of Gangline beside it. `pid`: None if it does not run."""

    plane: str
    name: str
    pid: int | None
    log: Path

    @property
    def state(self) -> str:
        return RUNNING if self.pid is not None else ENDED


def components(name: str | None) -> Iterator[ClusterProcess]:
    """The components of all control planes, or of the one with this name, with Gangline's processes where `gangline up` started
    them.
    """
    for status in [NamedCluster(each).status() for each in ([name] if name else clusters.names())]:
        if status.down and not status.directory.exists():
            continue
        for each, pid in status.pids.items():
            yield ClusterProcess(status.name, each, pid, status.directory / f"{each}.log")
        for each, pid in _gangline(status).items():
            yield ClusterProcess(status.name, _OURS + each, pid, status.directory / "services" / f"{each}.log")


def _gangline(status: Status) -> dict[str, int | None]:
    """Gangline's processes beside a control plane; the stand-in for JobSet may have ended by itself."""
    found = running(status.directory / "services")
    return {name: pid for name, pid in found.items() if pid is not None or name != "jobset"}


def _ended(found: Sequence[ClusterProcess]) -> list[str]:
    """Lines about the components that do not run, and what to do."""
    lines: list[str] = []
    for plane in dict.fromkeys(each.plane for each in found if each.pid is None):
        ended = [each for each in found if each.plane == plane and each.pid is None]
        own = [each for each in ended if not each.name.startswith(_OURS)]
        if own:
            lines.append(
                f"`gangline dev cluster up --name {plane}` starts what is missing of {plane}; logs: {own[0].log.parent}"
            )
        lines += [
            f"The {each.name} of {plane} has ended; the end of {each.log} says why."
            for each in ended
            if each not in own
        ]
        if any(each.name == f"{_OURS}operator" for each in ended):
            lines.append(f"Nothing is admitted in {plane}.")
    return lines


COMPONENTS: Final[Listing[ClusterProcess]] = Listing(
    columns=(
        Column("CONTROL PLANE", lambda each, _: each.plane, least=16),
        Column("COMPONENT", lambda each, _: each.name, least=20),
        Column("PID", lambda each, _: str(each.pid or "–"), right=True, key=lambda each, _: each.pid),
        Column("LOG", lambda each, _: str(each.log), wide=True),
        Column("STATE", lambda each, _: each.state),
    ),
    as_json=lambda each: {
        "controlPlane": each.plane,
        "component": each.name,
        "pid": each.pid,
        "state": each.state,
        "log": str(each.log),
    },
    name=lambda each: f"{each.plane}/{each.name}",
    empty="There is no control plane. Start one with: gangline dev cluster up",
    style=lambda each: "" if each.pid is not None else "red",
    state=lambda each: (each.state,),
    states=(RUNNING, ENDED),
    remarks=_ended,
)
