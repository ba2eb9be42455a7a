"""`gangline reserve`: keeps nodes for a queue, or for nobody, in windows of time; like Slurm's `scontrol create reservation`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import click

from gangline.api import names
from gangline.api.schedules import DAYS
from gangline.console.output import presenting, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, denied, stopped_jobs, targets, windows
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, Forbidden, Invalid
from gangline.kube.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NODES,
    RESERVATIONS,
    RESOURCE_FLAVORS,
    Json,
)
from gangline.objects import Stored

_Column: TypeAlias = Column[Json]
_dry_run = click.option("--dry-run", is_flag=True, help="Only check, and say what it would mean.")
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.group("reserve")
def command() -> None:
    """Keep nodes for a queue, or for nobody, in windows of time."""


@command.command("create")
@click.argument("name")
@access.cluster_options
@click.option("--start", default="", metavar="TIME", help="Beginning of the only window, such as 2026-12-01T17:40:00Z.")
@click.option("--end", default="", metavar="TIME", help="End of the only window.")
@click.option("--days", default="", metavar="DAY,…", help="Days of the week on which a window begins, such as Sunday.")
@click.option("--time", "at", default="", metavar="HH:MM", help="Time of day at which it begins.")
@click.option("--duration", default="", metavar="TIME", help="How long it lasts, such as 6h.")
@click.option("--time-zone", default="UTC", show_default=True, help="Time zone of --time, such as Europe/Berlin.")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="A node to reserve; can be repeated.")
@click.option("-l", "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Nodes with all these labels.")
@click.option("--flavor", default="", help="Nodes of this ResourceFlavor, as many as --count or --amount says.")
@click.option("--count", type=click.IntRange(1), default=None, help="How many nodes of the flavor.")
@click.option(
    "--amount",
    "amounts",
    multiple=True,
    metavar="RESOURCE=QUANTITY",
    help="How much of the flavor instead, such as nvidia.com/gpu=16: as many nodes as offer that.",
)
@click.option(
    "--for",
    "owners",
    multiple=True,
    metavar="WHOM",
    help="clusterqueue/NAME, localqueue/NAMESPACE/NAME or user/NAME; can be repeated.",
)
@click.option(
    "--soft", is_flag=True, help="Others may use the nodes, too, until a job whom the window is for needs them."
)
@click.option(
    "-m", "--maintenance", is_flag=True, help="Reserve the nodes for nobody: they are cordoned in the windows."
)
@click.option(
    "--notice",
    default="",
    metavar="TIME",
    help="Time before a window at which the event SaveBy announces it; 30m by default.",
)
@click.option(
    "--stop-before",
    default="",
    metavar="TIME",
    help="Time before a window at which jobs on its nodes are stopped; 1m by default.",
)
@click.option(
    "--start-with-checkpoints",
    "shortest_run",
    default="",
    metavar="TIME",
    help="Jobs that save checkpoints may start though they will be stopped, if they can run for so long until then.",
)
@_dry_run
@_yes
def create(
    name: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    start: str,
    end: str,
    days: str,
    at: str,
    duration: str,
    time_zone: str,
    nodes: tuple[str, ...],
    labels: tuple[str, ...],
    flavor: str,
    count: int | None,
    amounts: tuple[str, ...],
    owners: tuple[str, ...],
    soft: bool,
    maintenance: bool,
    notice: str,
    stop_before: str,
    shortest_run: str,
    dry_run: bool,
    yes: bool,
) -> None:
    """Keep nodes free of other jobs in a window, once (--start, --end) or every week (--days, --time, --duration).

    Other jobs start there only if their maximum execution time, or their forecast, ends before, or as --start-with-checkpoints
    says. An event asks what still runs to save its work; it is stopped when the window begins.
    """
    if bool(owners) == maintenance:
        raise click.UsageError("say whom it is for by --for WHOM, or that it is for nobody by --maintenance")
    if soft and maintenance:
        raise click.UsageError("--soft: nobody could need the nodes of a maintenance")
    body: Json = {
        "apiVersion": RESERVATIONS.api_version,
        "kind": RESERVATIONS.kind,
        "metadata": {"name": name},
        "spec": {
            "window": _window(start, end, days, at, duration, time_zone),
            "nodes": _nodes(nodes, labels, flavor, count, amounts),
            **({"for": _owners(owners)} if owners else {}),
            **({"firm": "Soft"} if soft else {}),
            **({"notice": notice} if notice else {}),
            **({"stopBefore": stop_before} if stop_before else {}),
            **({"startWithCheckpoints": shortest_run} if shortest_run else {}),
        },
    }

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            await _created(api, body, dry_run=True)  # what is wrong with it is said before anybody is asked
            terminal.say(*await _meaning(api, body))
            if dry_run:
                terminal.say("Nothing is changed (dry run)")
                return
            if not yes:
                terminal.confirm(f"Create Reservation {name}?")
            await _created(api, body, dry_run=False)
            terminal.say(f"Reservation {name} is created")

    access.run(work())


def _window(start: str, end: str, days: str, at: str, duration: str, time_zone: str) -> Json:
    if start or end:
        if days or at or duration:
            raise click.UsageError("a window is once (--start, --end) or weekly (--days, --time, --duration), not both")
        if not (start and end):
            raise click.UsageError("a window that comes once needs --start and --end")
        return {"start": start, "end": end}
    if not (days and at and duration):
        raise click.UsageError("give --start and --end, or --days, --time and --duration")
    return {
        "schedule": {
            "days": [_day(day) for day in days.split(",")],
            "time": at,
            "duration": duration,
            "timeZone": time_zone,
        }
    }


def _day(text: str) -> str:
    """The day of the week that a text means; its first three letters are enough."""
    wanted = text.strip().lower()
    found = [day for day in DAYS if len(wanted) >= 3 and day.lower().startswith(wanted)]
    if len(found) != 1:
        raise click.UsageError(f"--days: {text.strip()!r} is no day of the week")
    return found[0]


def _nodes(nodes: Sequence[str], labels: Sequence[str], flavor: str, count: int | None, amounts: Sequence[str]) -> Json:
    if bool(flavor) != (count is not None or bool(amounts)):
        raise click.UsageError("--flavor and --count, or --amount, belong together")
    if count is not None and amounts:
        raise click.UsageError("--count and --amount are two answers to one question: choose one")
    chosen: Json = {}
    if nodes:
        chosen["names"] = list(dict.fromkeys(nodes))
    if labels:
        chosen["matchLabels"] = _pairs("--label", labels, "KEY=VALUE")
    if amounts:
        chosen["anyOf"] = {"flavor": flavor, "resources": _pairs("--amount", amounts, "RESOURCE=QUANTITY")}
    elif flavor:
        chosen["anyOf"] = {"flavor": flavor, "count": count}
    if not chosen:
        raise click.UsageError("say which nodes: --node, --label, or --flavor with --count or --amount")
    return chosen


def _pairs(option: str, texts: Sequence[str], form: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    if bad := next((text for text, pair in zip(texts, pairs, strict=True) if not (pair[0] and pair[1])), None):
        raise click.UsageError(f"{option}: {bad!r} is not {form}")
    return {key: value for key, _, value in pairs}


def _owners(owners: Sequence[str]) -> Json:
    cluster_queues: list[str] = []
    local_queues: list[Json] = []
    users: list[str] = []
    for owner in owners:
        kind, _, user = owner.partition("/")
        if kind == "user" and user:
            users.append(user)
            continue
        found = targets.queue_of(owner)
        if found is None:
            raise click.UsageError(
                f"--for: {owner!r} is none of clusterqueue/NAME, localqueue/NAMESPACE/NAME and user/NAME"
            )
        resource, name = found
        where, slash, plain = name.partition("/")
        if resource == CLUSTER_QUEUES:
            cluster_queues.append(name)
        elif slash:
            local_queues.append({"namespace": where, "name": plain})
        else:
            raise click.UsageError(f"--for: a LocalQueue is named with its namespace: localqueue/NAMESPACE/{name}")
    return {
        **({"clusterQueues": cluster_queues} if cluster_queues else {}),
        **({"localQueues": local_queues} if local_queues else {}),
        **({"users": users} if users else {}),
    }


async def _created(api: ApiClient, body: Json, *, dry_run: bool) -> None:
    name = body["metadata"]["name"]
    try:
        await api.create(RESERVATIONS, None, body, query={"dryRun": "All"} if dry_run else {})
    except AlreadyExists:
        raise click.ClickException(f"there is a Reservation {name} already: `gangline reserve delete {name}`") from None
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error
    except Invalid as error:
        raise click.ClickException(str(error)) from error


async def _meaning(api: ApiClient, body: Json) -> list[str]:
    """What a Reservation that is not created yet would mean: its nodes, its windows, and what keeps it from being honoured."""
    from gangline.api.read import alternatives, expansion  # much that a list does not need

    now = round(time.time() * 1000)
    found: dict[str, dict[str, Stored]] = {}
    for resource in (RESERVATIONS, NODES, RESOURCE_FLAVORS, CLUSTER_QUEUES, LOCAL_QUEUES):
        try:
            listed = [Stored(each) for each in (await api.list(resource)).items]
        except Forbidden:
            return [f"You may not list {resource.plural}: what it means is in its status, once it is created"]
        found[resource.plural] = {each.key: each for each in listed}
    own = expansion.beside(
        body["metadata"]["name"],
        body["spec"],
        found[RESERVATIONS.plural].values(),
        found[NODES.plural],
        found[RESOURCE_FLAVORS.plural],
        found[CLUSTER_QUEUES.plural],
        found[LOCAL_QUEUES.plural],
        now,
    )
    shown = {
        **body,
        "status": {
            "nodes": list(own.nodes),
            "nodeCount": len(own.nodes),
            "windows": [windows.as_status(span) for span in own.spans],
        },
    }
    lines = windows.lines([shown], now / 1000, float("inf")) or ["The Reservation has no window ahead: it is over"]
    lines += alternatives.said(own.troubles, own.advice)
    jobs = await stopped_jobs.on(api, own.nodes) if own.facts is not None else []
    if jobs is None:
        return [*lines, "No operator says which jobs would be stopped"]
    first = own.spans[0] if own.spans else None
    return [*lines, *(stopped_jobs.lines(own.facts, first, jobs, now / 1000) if own.facts is not None else ())]


# --- list and delete --------------------------------------------------------------------------------------------------


@command.command("list")
@access.cluster_options
@presenting.options("state")
def listed(kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Presentation) -> None:
    """Show Reservations: their windows, their nodes, whom they are for, and what keeps them from being honoured."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:

            async def look() -> list[Json]:
                try:
                    return sorted((await api.list(RESERVATIONS)).items, key=_name)
                except Forbidden as error:
                    raise click.ClickException(denied.said(error)) from error

            await presenting.present(listing(), shape, look)

    access.run(work())


def listing() -> Listing[Json]:
    """One row per Reservation."""
    return Listing(
        columns=(
            _Column("RESERVATION", lambda each, _: _name(each), least=12),
            _Column("STATE", lambda each, _: _state(each)),
            _Column("WINDOW", _next, least=16),
            _Column("FOR", lambda each, _: windows.owner(each), rank=1, least=12),
            _Column("NODES", lambda each, _: windows.nodes(each), rank=2, least=12),
            _Column("TROUBLE", lambda each, _: _trouble(each)),
        ),
        as_json=lambda each: each,
        name=lambda each: f"reservation/{_name(each)}",
        empty="There is no Reservation.",
        style=lambda each: "red" if _trouble(each) else "",
        state=lambda each: (_state(each),),
    )


def _name(reservation: Json) -> str:
    return reservation["metadata"]["name"]


def _next(reservation: Json, now: float) -> str:
    found = (reservation.get("status") or {}).get("windows") or ()
    return windows.span(found[0], now) if found else ""


def _state(reservation: Json) -> str:
    """Open, Draining or Scheduled; Over when no window comes any more; Unknown until an operator has seen it."""
    stored = Stored(reservation)
    if (active := stored.true_condition(names.ACTIVE)) is not None:
        return active["reason"]
    if stored.is_true(names.SCHEDULED):
        return "Scheduled"
    return (stored.condition(names.SCHEDULED) or {}).get("reason") or "Unknown"


def _trouble(reservation: Json) -> str:
    conflict = Stored(reservation).true_condition(names.CONFLICT)
    return conflict["message"] if conflict is not None else ""


@command.command("delete")
@click.argument("name")
@access.cluster_options
@_dry_run
@_yes
def delete(
    name: str, kubeconfig: Path | None, context: str | None, namespace: str | None, dry_run: bool, yes: bool
) -> None:
    """Delete a Reservation: other jobs may use its nodes at once, and nodes that it had cordoned are uncordoned."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            found = await targets.existing(api, RESERVATIONS, None, name)
            terminal.say(
                *(windows.lines([found], time.time(), float("inf")) or [f"Reservation {name} has no window ahead"])
            )
            if dry_run:
                terminal.say(f"Reservation {name} would be deleted (dry run: nothing is changed)")
                return
            if not yes:
                terminal.confirm(f"Delete Reservation {name}?")
            try:
                await api.delete(RESERVATIONS, None, name, uid=found["metadata"]["uid"])
            except Forbidden as error:
                raise click.ClickException(denied.said(error)) from error
            terminal.say(f"Reservation {name} is deleted")

    access.run(work())
