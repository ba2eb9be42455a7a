"""`gangline admin to-kueue`: takes out of admissions and pods what Kueue does not know, while neither decides. Pods run on."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from gangline.api.read.conditions import millis_of
from gangline.api.read.configuration.manager import KUEUES
from gangline.api.read.workloads import admissions
from gangline.api.read.workloads.admissions import SlicesError
from gangline.console.output import terminal
from gangline.console.views import access
from gangline.control.feed.pod import claimed_workload, read_pod, waits_at_node_gate
from gangline.control.nodes.gates.node_gates import ungated
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Conflict, NotFound
from gangline.kube.resources import Json, key_of
from gangline.objects import PodObject

#: times that a Workload is read again which somebody has changed meanwhile
_TRIES: Final = 5
_MOST_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class ToKueueResult:
    changed: tuple[str, ...] = ()
    #: Workload and why
    failed: tuple[tuple[str, str], ...] = ()
    #: pods that lost a gate
    pods: tuple[str, ...] = ()
    #: pod and why it keeps its gate
    failed_pods: tuple[tuple[str, str], ...] = ()


@click.command()
@access.login_options
@click.option("--dry-run", is_flag=True, help="Only say which Workloads would change.")
@click.option("--force", is_flag=True, help="Go on while somebody holds the lease of the operator.")
def command(kubeconfig: Path | None, context: str | None, dry_run: bool, force: bool) -> None:
    """Prepare a change back to Kueue: cards go out of topology assignments, and pods lose the gate at which they wait for a node.

    Stop the operator first. Running pods go on, on the cards that they have. A job that was running at the change creates its
    pods behind that gate until it ends: run the command again if one of its pods is replaced. Exit status 1 if a Workload or a
    pod could not be changed.
    """

    async def work() -> ToKueueResult:
        async with access.client(kubeconfig, context) as api:
            if not (force or dry_run) and (holder := await leader(api)):
                raise click.ClickException(
                    f"{holder} holds Lease {KUEUES}: stop the operator first (an operator would give the cards away again)"
                )
            return await prepared(api, dry_run=dry_run)

    outcome = access.run(work())
    for name in outcome.changed:
        terminal.say(f"workload/{name}: {'would name no cards' if dry_run else 'names no cards any more'}")
    for name, why in outcome.failed:
        terminal.say(f"workload/{name}: {why}", err=True)
    if not outcome.changed and not outcome.failed:
        terminal.say("No admission names cards.")
    for name in outcome.pods:
        terminal.say(f"pod/{name}: {'would wait' if dry_run else 'waits'} for no node any more")
    for name, why in outcome.failed_pods:
        terminal.say(f"pod/{name}: {why}", err=True)
    if outcome.failed or outcome.failed_pods:
        sys.exit(1)


async def leader(api: ApiClient) -> str:
    """The identity of the present leader; "" = nobody leads."""
    try:
        found = await api.get(kube.LEASES, KUEUES.namespace, KUEUES.name)
    except NotFound:
        return ""
    spec = found.get("spec") or {}
    lasts = 1000 * float(spec.get("leaseDurationSeconds") or KUEUES.lease_duration)
    over = millis_of(spec.get("renewTime")) + lasts < 1000 * time.time()
    return "" if over else str(spec.get("holderIdentity") or "")


async def prepared(api: ApiClient, *, dry_run: bool = False) -> ToKueueResult:
    """Prepare the Workloads and pods of all namespaces for Kueue. One Workload's trouble costs that Workload alone."""
    gate = asyncio.Semaphore(_MOST_AT_ONCE)
    changed: list[str] = []
    failed: list[tuple[str, str]] = []

    async def one(workload: Json) -> None:
        async with gate:
            try:
                if await _converted(api, workload, dry_run=dry_run):
                    changed.append(key_of(workload))
            except (SlicesError, ApiError) as error:
                failed.append((key_of(workload), str(error)))

    listed = await api.list(kube.WORKLOADS)
    await asyncio.gather(*(one(workload) for workload in listed.items))
    pods: list[str] = []
    failed_pods: list[tuple[str, str]] = []

    async def free(pod: PodObject) -> None:
        async with gate:
            try:
                if not dry_run:
                    await api.patch(kube.PODS, pod.namespace, pod.name, ungated(pod, None))
                pods.append(pod.key)
            except NotFound:
                return
            except ApiError as error:
                failed_pods.append((pod.key, str(error)))

    waiting = await api.list(kube.PODS, field_selector="status.phase=Pending")
    await asyncio.gather(*(free(pod) for pod in map(PodObject, waiting.items) if waits_for_a_node(pod)))
    return ToKueueResult(tuple(sorted(changed)), tuple(sorted(failed)), tuple(sorted(pods)), tuple(sorted(failed_pods)))


def waits_for_a_node(pod: PodObject) -> bool:
    """Whether the operator would have sent the pod to a node, now or once it lost its other gate: Kueue opens no such gate."""
    return waits_at_node_gate(pod) or read_pod(pod, claimed_workload(pod) or "").at_node_gate


async def _converted(api: ApiClient, workload: Json, *, dry_run: bool) -> bool:
    meta = workload["metadata"]
    for _ in range(_TRIES):
        rows = without_cards(workload)
        if rows is None or dry_run:
            return rows is not None
        body = {
            "metadata": {"resourceVersion": workload["metadata"]["resourceVersion"]},
            "status": {"admission": {"podSetAssignments": rows}},
        }
        try:
            await api.patch(kube.WORKLOADS, meta["namespace"], meta["name"], body, subresource="status")
            return True
        except NotFound:
            return False
        except Conflict:
            workload = await api.get(kube.WORKLOADS, meta["namespace"], meta["name"])
    raise SlicesError("status", "somebody else changes it all the time: is an operator running?")


def without_cards(workload: Json) -> list[Any] | None:
    """The rows of its admission without cards; None where it names none. Raises SlicesError where cards are written otherwise."""
    rows = ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []
    found = [
        {**row, "topologyAssignment": admissions.stripped(row["topologyAssignment"])}
        if row.get("topologyAssignment")
        else row
        for row in rows
    ]
    return found if found != rows else None
