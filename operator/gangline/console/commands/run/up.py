"""`gangline up`: starts a cluster with Gangline for as long as the command runs (or in the background with --detach)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import click

from gangline.console.node_counts import NodeCounts, kubernetes_version
from gangline.console.options import read_configuration
from gangline.console.output import exit_codes, terminal
from gangline.console.run import example as examples
from gangline.console.run.example import ExampleError
from gangline.console.stack import stack
from gangline.console.stack.processes import end
from gangline.console.stack.stack import Stack, Wishes
from gangline.devcluster.clusters import DEFAULT_NAME, NamedCluster
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connect import ClusterChoice
from gangline.devcluster.connection import Connection, Source
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.nodes import POOL_LABEL, EqualNodes, create_pools
from gangline.devcluster.progress import narrate
from gangline.devcluster.real.network import MOST_NODES
from gangline.install.kinds import InstallError
from gangline.kube.client import ApiError
from gangline.kube.config import LoginError
from gangline.kube.resources import NODES


@click.command("up")
@click.option("--local", is_flag=True, help="A real control plane on this machine with simulated nodes.")
@click.option("--kind", is_flag=True, help="A kind cluster (needs Docker and kind).")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use the cluster of this kubeconfig: the CRDs are installed on it, the operator runs on this machine.",
)
@click.option("--context", default=None, help="Context in the kubeconfig.")
@click.option("--name", default=None, help="Local only: name of a control plane whose data are kept.")
@click.option(
    "--webhook-url", default=None, help="URL (https://…) at which the cluster reaches this machine; with --kubeconfig."
)
@click.option(
    "--nodes",
    default=0,
    type=click.IntRange(0, MOST_NODES),
    help="Local only: real nodes (kubelets with containerd) on this machine; needs root. Default: simulated nodes only.",
)
@kubernetes_version
@click.option("--no-jobset", is_flag=True, help="Local only: don't start the stand-in that runs JobSets.")
@click.option(
    "--track-fields",
    is_flag=True,
    help="Keep metadata.managedFields on Workloads; this costs the API server more CPU and memory.",
)
@click.option(
    "--config",
    "configuration",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Kueue's configuration file, for webhooks and operator: it enables kinds of jobs, among others.",
)
@click.option("--detach", is_flag=True, help="Local only: return when everything is up; `gangline down` ends it.")
def command(
    local: bool,
    kind: bool,
    kubeconfig: Path | None,
    context: str | None,
    name: str | None,
    webhook_url: str | None,
    nodes: int,
    version: str | None,
    no_jobset: bool,
    track_fields: bool,
    configuration: Path | None,
    detach: bool,
) -> None:
    """Start a cluster with Gangline on it. Without an option: kind if Docker works, else --local.

    Runs until Ctrl-C or SIGTERM and then ends what it started.
    """
    if local and kind:
        raise click.UsageError("--local and --kind are two clusters: choose one")
    source: Source | None = "local" if local else "kind" if kind else None
    remote = kubeconfig is not None or context is not None
    if remote and source is not None:
        raise click.UsageError(f"--kubeconfig and --context exclude --{source}")
    if (name or detach) and (remote or source == "kind"):
        raise click.UsageError("--name and --detach are for the local control plane")
    if nodes and (remote or source == "kind"):
        raise click.UsageError("--nodes is for the local control plane; the others have nodes")
    if version and (remote or source == "kind"):
        raise click.UsageError("--version is for the local control plane; the others have a version")
    if no_jobset and (remote or source == "kind"):
        raise click.UsageError("--no-jobset is for the local control plane: other clusters have no stand-in")
    if webhook_url is not None:
        _check_webhook_url(webhook_url, remote)
    read_configuration(configuration, tell=False)  # a mistake in it is said before a cluster is started
    wishes = Wishes(webhook_url, not no_jobset and not remote and source != "kind", track_fields, configuration)
    options = ControlPlaneOptions(real=NodeCounts(real=nodes).real_pool(), version=version)
    with readable_errors():
        if detach:
            _detached(name or DEFAULT_NAME, wishes, options)
        elif name:
            _stay(lambda: stack.named(name, say, wishes, options))
        else:
            chosen = "local" if nodes or version else source
            choice = ClusterChoice(source=chosen, kubeconfig=kubeconfig, context=context, local=options)
            _stay(lambda: stack.standing(choice, say, wishes))


@click.command("down")
@click.option("--name", default=DEFAULT_NAME, show_default=True, help="Name of the control plane.")
@click.option("--keep-data", is_flag=True, help="Keep the cluster's objects for the next `up --name`.")
def down(name: str, keep_data: bool) -> None:
    """End a cluster started by `gangline up --detach` and remove its data."""
    with readable_errors():
        cluster = NamedCluster(name)
        ended = end(cluster.directory / "services")
        was_up = cluster.down(forget=not keep_data)
    terminal.say(f"{name} is down." if ended or was_up else f"There is no control plane {name!r}.")


def _check_webhook_url(url: str, remote: bool) -> None:
    if not remote:
        raise click.UsageError("--webhook-url needs --kubeconfig: for other clusters the address is known")
    try:
        stack.parse_webhook_url(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--webhook-url") from error


def _detached(name: str, wishes: Wishes, local: ControlPlaneOptions) -> None:
    cluster = NamedCluster(name)
    connection = stack.start_named(cluster, say, local)
    services = stack.services_of(connection, detached=True)
    try:
        standing = stack.bring_up(connection, services, say, wishes)
    except BaseException:
        services.stop()
        raise
    equip(connection)
    services.leave()
    say(hint(connection))
    say(stack.dashboard_hint(standing))
    say(f"`gangline down --name {name}` ends it; logs are in {services.directory}")


def _stay(bring_up: Callable[[], AbstractContextManager[Stack]]) -> None:
    """Keep the stack up until Ctrl-C; fail when one of its processes ends."""
    ready = False
    try:
        with stack.ended_by_signals(), bring_up() as standing:
            equip(standing.connection)
            say(hint(standing.connection))
            say(stack.dashboard_hint(standing))
            say(f"Logs are in {standing.services.directory}. Ctrl-C ends it.")
            ready = True
            standing.services.hold()
    except KeyboardInterrupt:
        if not ready:
            raise click.exceptions.Exit(exit_codes.INTERRUPTED) from None
        say("ended")


def equip(connection: Connection) -> None:
    """Simulate the nodes that the quickstart needs, on a cluster of ours that has no simulated ones yet."""
    pools = quickstart_pools()
    if connection.source == "kubeconfig" or not pools:
        return

    async def create() -> int:
        async with connection.client() as api:
            if (await api.list(NODES, label_selector=POOL_LABEL)).items:
                return 0
            return len(await create_pools(api, pools))

    with narrate("Starting simulated nodes"):
        count = asyncio.run(create())
    if count:
        say(f"✓ {count} nodes: " + ", ".join(f"{pool.count} × {pool.name}" for pool in pools))


def quickstart_pools() -> list[EqualNodes]:
    try:
        return examples.load(examples.bundled()).node_pools()
    except ExampleError:
        return []  # an installation without examples


def hint(connection: Connection) -> str:
    """Text that says what to type next. It names the quickstart only where its nodes are, and webhooks, which read its v1beta1
    manifests.
    """
    words = f"\nPoint kubectl at it:\n  {connection.kubectl_hint}\n"
    if connection.source == "kubeconfig":
        return f"{words}Then see whether all is in order:\n  gangline admin doctor --cluster\n"
    try:
        example = examples.bundled()
    except ExampleError:
        return words
    here = example.relative_to(Path.cwd()) if example.is_relative_to(Path.cwd()) else example
    return f"{words}Then for example:\n  kubectl apply -f {here}/ && gangline queue -A\n"


def say(text: str) -> None:
    terminal.say(text)
    sys.stdout.flush()


@contextmanager
def readable_errors() -> Iterator[None]:
    """Report errors as one message and exit status 1, without a traceback."""
    try:
        yield
    except (DevClusterError, InstallError, LoginError) as error:
        raise click.ClickException(str(error)) from error
    except ApiError as error:
        raise click.ClickException(f"the API server refused: {error}") from error
