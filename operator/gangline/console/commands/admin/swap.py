"""`gangline admin swap`: lists node failures of gangs, the recovery and its duration."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from gangline.api import names as api_names
from gangline.api.read.workloads import swap_record
from gangline.api.read.workloads.swap_record import SwapRecord
from gangline.console.output import clock, presenting, remarks, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import OutputFormat, answer_option, dated, document
from gangline.console.output.layout import wrapped
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights, targets
from gangline.console.views.nodes import node_named, node_of
from gangline.control.answers.of_record import swap_row
from gangline.control.answers.workloads.snapshot import workload_view
from gangline.control.answers.workloads.words import age
from gangline.kube.client import ApiClient, ApiError, Forbidden
from gangline.kube.resources import NODES, WORKLOADS, Json, controller_of
from gangline.objects import WorkloadObject

# --- swap now ---------------------------------------------------------------------------------------------------------
#
# `gangline admin swap now` and `dry-run`: the gangs of a node move to other nodes, now, or what would become of them.
#
# The request is a taint on the node. Whichever operator leads acts on it for as long as it is there: nothing is lost if this
# command or the operator is killed at any moment.


TAINT: Final[Json] = {"key": api_names.VACATE, "effect": "NoSchedule"}


@click.command("now")
@click.argument("names", metavar="NODE…", nargs=-1, required=True, shell_complete=completing.nodes)
@access.cluster_options
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def now_command(
    names: tuple[str, ...], kubeconfig: Path | None, context: str | None, namespace: str | None, yes: bool
) -> None:
    """Move gangs off nodes as if these had failed, but only gangs for which other nodes have room: nobody is preempted.

    Gangs of kinds that restart as a whole start again, from their last checkpoint. The nodes get the taint gangline.io/vacate.
    Until `gangline admin uncordon NODE` they take no new pods, and gangs without room leave as soon as there is some.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            nodes = [node_of(name) for name in names]
            for node in nodes:
                await node_named(api, node)  # of several, all exist before one is changed
            if not yes:
                await _tell(api, where, nodes)
                them = ", ".join(nodes)
                terminal.confirm(f"Move the gangs of {'node' if len(nodes) == 1 else 'nodes'} {them} now?")
            for node in nodes:
                terminal.say(await vacated(api, node))
            if await _nobody_leads(api):
                terminal.say(
                    "Nobody moves them yet: no operator leads. The next leader does, while the taint is there."
                )

    access.run(work())


async def _nobody_leads(api: ApiClient) -> bool:
    """Whether no operator leads that would act on a taint: none answers, and nobody has the Lease. False: unknown, too."""
    try:
        await asking.get(api, "/operatorstates")
    except asking.NotServedError:
        from gangline.console.commands.admin.to_kueue import leader

        try:
            return not await leader(api)
        except ApiError:
            return False
    except (asking.NotAllowedError, asking.NoAnswerError):
        return False  # an operator has answered, or the API server before it
    return False


@click.command("dry-run")
@click.argument("names", metavar="NODE…", nargs=-1, required=True, shell_complete=completing.nodes)
@access.cluster_options
@presenting.options("user", "queue", "state")
def dry_run_command(
    names: tuple[str, ...], kubeconfig: Path | None, context: str | None, namespace: str | None, shape: Presentation
) -> None:
    """Show which gangs would leave nodes at `gangline admin swap now`, and why others would stay. Nothing is moved.

    The operator plays one round of its own decisions for each node alone, with nobody else waiting.
    """

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            nodes = [node_of(name) for name in names]

            async def look() -> list[Json]:
                return [row for node in nodes for row in await moves(api, where, node)]

            await presenting.present(MOVES, shape, look)

    access.run(work())


async def _tell(api: ApiClient, namespace: str, nodes: list[str]) -> None:
    """Print what would become of the gangs, before the user is asked; without an operator, print that nobody knows."""
    try:
        found = [row for node in nodes for row in await moves(api, namespace, node)]
    except click.ClickException as error:
        remarks.remark(f"{error.message}: nobody says what would become of the gangs")
        return
    presenting.show(MOVES, Presentation(), found)


async def moves(api: ApiClient, namespace: str, node: str) -> list[Json]:
    """The operator's answer. Raises click.ClickException."""
    try:
        answer = await asking.get(api, f"/namespaces/{quote(namespace)}/flavornodes/{quote(node, safe='')}/moves")
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error
    return [{"node": node, **row} for row in answer["gangs"]]


async def vacated(api: ApiClient, name: str) -> str:
    """Taint a node so that gangs leave it. Returns what was done, as a sentence."""

    async def attempt() -> str:
        node = await node_named(api, name)
        taints: list[Json] = node["spec"].get("taints") or []
        if any(taint["key"] == api_names.VACATE for taint in taints):
            return f"Gangs are to leave node {name} already"
        await targets.patched(api, NODES, node, {"spec": {"taints": [*taints, dict(TAINT)]}})
        return f"Gangs are to leave node {name} as far as other nodes have room; `gangline admin uncordon {name}` uses it again"

    return await targets.until_unchanged(attempt)


MOVE: Final = "Moves"
STAY: Final = "Stays"


def _state(row: Json) -> str:
    return MOVE if row["moves"] else STAY


#: what becomes of a gang, by how it is healed
_SWAP_WORDS: Final = {"Replace": "its pods there are made anew on other nodes", "Restart": "all of it starts again"}


def _what(row: Json) -> str:
    if not row["moves"]:
        return str(row["obstacle"])
    to = f", on {', '.join(row['to'])}" if row["to"] else ""
    return f"{_SWAP_WORDS.get(row['how'], row['how'])}{to}"


MOVES: Final[Listing[Json]] = Listing(
    columns=(
        Column("NODE", lambda row, _: row["node"], rank=1, least=16),
        Column("NAMESPACE", lambda row, _: row["namespace"], rank=2, least=10),
        Column("JOB", lambda row, _: row["job"], least=20),
        Column("USER", lambda row, _: row["user"], rank=3, least=8, sparse=True),
        Column("QUEUE", lambda row, _: row["clusterQueue"], rank=4, least=10),
        Column("GPUS", lambda row, _: str(row["gpus"] or "–"), right=True, key=lambda row, _: row["gpus"]),
        Column("STATE", lambda row, _: _state(row)),
        Column("WHAT", lambda row, _: _what(row)),
    ),
    as_json=lambda row: row,
    name=lambda row: row["job"],
    empty="No gang sits there.",
    style=lambda row: "" if row["moves"] else "yellow",
    user=lambda row: tuple(name for name in (row["user"], row["namespace"]) if name),
    state=lambda row: (_state(row),),
    queue=lambda row: tuple(name for name in (row["queue"], row["clusterQueue"]) if name),
    states=(MOVE, STAY),
)


_Column = Column[Json]


@click.group("swap")
def command() -> None:
    """Show node failures of running gangs and how the gangs recovered, and move gangs off nodes by hand."""


command.add_command(now_command)
command.add_command(dry_run_command)


@command.command("list")
@access.cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Gangs of all namespaces.")
@click.option("--open", "only_open", is_flag=True, help="Only gangs that have not recovered yet.")
@presenting.options("user", "state", "queue")
def list_command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    only_open: bool,
    shape: Presentation,
) -> None:
    """List recoveries from node failures, latest first: the time of each stage and the new nodes."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace

            async def look() -> list[Json]:
                found = await _swaps(api, where, all_namespaces)
                return [row for row in found if row["state"] == "Recovering" or not only_open]

            place = "any namespace that you may read" if all_namespaces else f"namespace {where} (-A: all)"
            empty = f"No gang {'is recovering' if only_open else 'has lost nodes'} in {place}."
            await presenting.present(replace(LISTING, empty=empty), shape, look)

    access.run(work())


@command.command("show")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@answer_option
def show_command(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: OutputFormat
) -> None:
    """Show every recorded recovery of JOB: a name, kind/name or a Workload's name."""

    async def work() -> tuple[list[Json], str]:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            return await _workloads(api, where, False), where

    workloads, where = access.run(work())
    matching = [
        workload for workload in workloads if job in (_job(workload), _job(workload).partition("/")[2], _name(workload))
    ]
    if not matching:
        raise click.ClickException(f"no job {job!r} with a Workload in namespace {where}")
    if output.kind:
        rows = [dated(row, LISTING.instants) for row in rows_of(matching)]
        terminal.say(document(output.kind, rows))
        return
    for workload in matching:
        for line in story(workload, time.time()):
            terminal.say(*wrapped(line, presenting.width()))


async def _swaps(api: ApiClient, namespace: str, everywhere: bool) -> list[Json]:
    """The recorded swaps as the operator answers; where it does not, those that the user may read in the Workloads."""
    try:
        return await asking.in_scope(
            lambda scope: asking.listed(api, f"{scope}/gangswaps"), namespace, everywhere=everywhere
        )
    except (asking.NotServedError, asking.NotAllowedError) as error:
        remarks.remark(f"{error}: from the Workloads that you may read")
        return rows_of(await _workloads(api, namespace, everywhere))


async def _workloads(api: ApiClient, namespace: str, everywhere: bool) -> list[Json]:
    try:
        return (await api.list(WORKLOADS, None if everywhere else namespace)).items
    except Forbidden:
        if not everywhere:
            raise
        return (await api.list(WORKLOADS, namespace)).items


def rows_of(workloads: Iterable[Json]) -> list[Json]:
    """The recorded swaps of these Workloads, latest first."""
    found = [
        swap_row(swap, view)
        for workload in map(WorkloadObject, workloads)
        if (view := workload_view(workload, {})) is not None
        for swap in swap_record.of(workload).log
    ]
    return sorted(found, key=lambda row: (-row["times"]["detected"], row["namespace"], row["workload"]))


def _stage(name: str, stage: str, rank: int) -> _Column:
    return _Column(
        name,
        lambda row, _: _seconds(row["seconds"].get(stage)),
        right=True,
        rank=rank,
        key=lambda row, _: row["seconds"].get(stage),
    )


def _queue(row: Json) -> str:
    """The ClusterQueue; of a workload that holds no quota any more its LocalQueue, marked as such."""
    return row["clusterQueue"] or (f"{row['queue']}?" if row["queue"] else "")


LISTING: Final[Listing[Json]] = Listing(
    columns=(
        _Column("NAMESPACE", lambda row, _: row["namespace"], rank=1, least=10),
        _Column("JOB", lambda row, _: row["job"], least=20),
        _Column("QUEUE", lambda row, _: _queue(row), rank=2, least=12),
        _Column(
            "AGE",
            lambda row, now: age(now - row["times"]["detected"]),
            right=True,
            key=lambda row, _: -row["times"]["detected"],
        ),
        _Column("HOW", lambda row, _: row["how"]),
        _Column("CAUSE", lambda row, _: row["cause"] or "–"),
        _stage("DECIDED", "decided", 4),
        _stage("CREATED", "created", 5),
        _stage("RUNNING", "running", 6),
        _stage("TOTAL", "total", 0),
        _Column("LOST AT", lambda row, now: clock.wall(row["times"]["detected"], now), wide=True),
        _Column("FROM", lambda row, _: few(row["from"]), rank=1),
        _Column("TO", lambda row, _: "…" if row["state"] == "Recovering" else few(row["to"])),
    ),
    as_json=lambda row: row,
    instants=("times.*",),
    name=lambda row: row["job"],
    empty="No gang has lost nodes.",
    style=lambda row: "yellow" if row["state"] == "Recovering" else "",
    user=lambda row: (row["user"], row["namespace"]),
    state=lambda row: (row["state"],),
    queue=lambda row: (row["queue"], row["clusterQueue"]),
    states=("Recovering", "Recovered"),
)


def story(workload: Json, now: float) -> list[str]:
    """The recorded swaps of one gang as text lines, oldest first."""
    record: SwapRecord = swap_record.of(workload)
    lines = [f"{_job(workload)} in namespace {_meta(workload)['namespace']}, workload {_name(workload)}"]
    lines.append(f"  {record.swaps} node(s) replaced while it ran, restarted {record.attempt} time(s)")
    for swap in record.log:
        at = swap.detected / 1000
        lines.append(
            f"  {clock.exact(at, now)} ({clock.distance(at, now)})  {swap.cause}: lost {', '.join(swap.lost) or 'pods'}"
        )
        lines += [f"    {_WORDS[stage]} after {seconds:.3f} s" for stage, seconds in swap.stages().items()]
        if swap.open:
            lines.append("    not recovered yet")
        elif swap.to:
            lines.append(f"    now on {', '.join(swap.to)}")
    return lines


_WORDS = {
    "decided": "decided",
    "created": "all pods existed",
    "running": "all pods were ready",
    "total": "recovered",
}


def few(nodes: Sequence[str]) -> str:
    return ", ".join(nodes[:3]) + (f" +{len(nodes) - 3}" if len(nodes) > 3 else "") if nodes else "–"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}s"


def _meta(workload: Json) -> Json:
    return workload["metadata"]


def _name(workload: Json) -> str:
    return _meta(workload)["name"]


def _job(workload: Json) -> str:
    owner = controller_of(workload)
    return f"{owner['kind'].lower()}/{owner['name']}" if owner else f"workload/{_name(workload)}"
