"""`gangline admin cordon` and `gangline admin uncordon`: nodes take no new pods, and queues start no jobs; what runs goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import click

from gangline.api import names as api_names
from gangline.console.output import terminal
from gangline.console.views import access, completing, targets
from gangline.console.views.nodes import node_named, node_of
from gangline.kube.client import ApiClient
from gangline.kube.resources import NODES, Json

_names = click.argument("names", metavar="NODE|QUEUE…", nargs=-1, required=True, shell_complete=completing.cordoned)
_dry_run = click.option("--dry-run", is_flag=True, help="Only check whether the change could be made.")


@click.command("cordon")
@_names
@access.cluster_options
@_dry_run
def cordon(
    names: tuple[str, ...], kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool
) -> None:
    """Let no new work onto nodes (NAME or node/NAME), or out of queues (localqueue/NAME, clusterqueue/NAME).

    What runs goes on; `gangline admin swap now` also moves the gangs of a node.
    """
    _each(names, kubeconfig, context, namespace, cordoned, dry_run=dry_run)


@click.command("uncordon")
@_names
@access.cluster_options
@_dry_run
def uncordon(
    names: tuple[str, ...], kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool
) -> None:
    """Use nodes and queues again that were cordoned, or emptied by `gangline admin swap now`."""
    _each(names, kubeconfig, context, namespace, uncordoned, dry_run=dry_run)


def _each(
    names: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    change: Callable[..., Awaitable[str]],
    *,
    dry_run: bool,
) -> None:
    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            for name in names:
                message = await change(api, where, name, dry_run=dry_run)
                terminal.say(message + (" (dry run: nothing is changed)" if dry_run else ""))

    access.run(work())


async def cordoned(api: ApiClient, namespace: str, name: str, *, dry_run: bool = False) -> str:
    """Cordon a node, or hold a queue. Returns what was done, as a sentence."""
    if (queue := targets.queue_of(name)) is not None:
        return await targets.stop_policy(api, namespace, *queue, "Hold", dry_run=dry_run)
    name = node_of(name, or_queue=True)

    async def attempt() -> str:
        node = await node_named(api, name)
        if node["spec"].get("unschedulable"):
            return f"Node {name} takes no new pods already"
        await targets.patched(api, NODES, node, {"spec": {"unschedulable": True}}, dry_run=dry_run)
        return f"Node {name} takes no new pods; those on it go on"

    return await targets.until_unchanged(attempt)


async def uncordoned(api: ApiClient, namespace: str, name: str, *, dry_run: bool = False) -> str:
    """Uncordon a node, or let a queue go on. Returns what was done, as a sentence."""
    if (queue := targets.queue_of(name)) is not None:
        return await targets.stop_policy(api, namespace, *queue, "None", dry_run=dry_run)
    name = node_of(name, or_queue=True)

    async def attempt() -> str:
        node = await node_named(api, name)
        taints: list[Json] = node["spec"].get("taints") or []
        rest = [taint for taint in taints if taint["key"] != api_names.VACATE]
        if not node["spec"].get("unschedulable") and rest == taints:
            return f"Node {name} is not cordoned"
        spec: Json = {"unschedulable": None} | ({"taints": rest or None} if rest != taints else {})
        await targets.patched(api, NODES, node, {"spec": spec}, dry_run=dry_run)
        keys = ", ".join(taint["key"] for taint in rest if taint["key"] != _OF_CORDON and taint["effect"] != _PREFERS)
        return f"Node {name} takes new pods again" + (f", as far as they tolerate its taints ({keys})" if keys else "")

    return await targets.until_unchanged(attempt)


#: the taint that Kubernetes itself adds to and takes from a node by `spec.unschedulable`
_OF_CORDON: Final = "node.kubernetes.io/unschedulable"
_PREFERS: Final = "PreferNoSchedule"
