"""`gangline admin swap now` and `dry-run`: the gangs of a node move elsewhere, now, or what would become of them.

The request is a taint on the node. Whichever operator leads acts on it for as long as it is there: nothing is lost if this
command or the operator is killed at any moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

import click

from gangline.api import names as api_names
from gangline.console.output import presenting, remarks, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights, targets
from gangline.console.views.nodes import node_named, node_of
from gangline.kube.client import ApiClient
from gangline.kube.resources import NODES, Json

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
                terminal.confirm(f"Move the gangs of {'node' if len(nodes) == 1 else 'nodes'} {them} now?", abort=True)
            for node in nodes:
                terminal.say(await vacated(api, node))

    access.run(work())


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
        told = await asking.get(api, f"/namespaces/{quote(namespace)}/flavornodes/{quote(node, safe='')}/moves")
    except own_rights.NoOperator as error:
        raise click.ClickException(str(error)) from error
    return [{"node": node, **row} for row in told["gangs"]]


async def vacated(api: ApiClient, name: str) -> str:
    """Taint a node so that gangs leave it. Returns what was done, as a sentence."""

    async def attempt() -> str:
        node = await node_named(api, name)
        taints: list[Json] = node["spec"].get("taints") or []
        if any(taint["key"] == api_names.VACATE for taint in taints):
            return f"Gangs are to leave node {name} already"
        await targets.patched(api, NODES, node, {"spec": {"taints": [*taints, dict(TAINT)]}})
        return (
            f"Gangs leave node {name} as far as other nodes have room; `gangline admin uncordon {name}` uses it again"
        )

    return await targets.until_unchanged(attempt)


MOVE: Final = "Moves"
STAY: Final = "Stays"


def _state(row: Json) -> str:
    return MOVE if row["moves"] else STAY


#: what becomes of a gang, by how it is healed
_WORDS: Final = {"Replace": "its pods there are made anew on other nodes", "Restart": "all of it starts again"}


def _what(row: Json) -> str:
    if not row["moves"]:
        return str(row["obstacle"])
    to = f", on {', '.join(row['to'])}" if row["to"] else ""
    return f"{_WORDS.get(row['how'], row['how'])}{to}"


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
