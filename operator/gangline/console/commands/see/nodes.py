"""`gangline nodes`: the nodes of flavors, what is left on them, and who sits there; like Slurm's sinfo, with the jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Final, TypeAlias

import click

from gangline.api import quantity
from gangline.console.commands.see import node_cards
from gangline.console.output import presenting
from gangline.console.output.columns import Column, Listing
from gangline.console.output.presenting import Presentation
from gangline.console.views import access, asking, completing, own_rights, windows
from gangline.control.answers.workloads.words import age
from gangline.engine.model import is_accelerator
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

#: occupants that are named in a row, unless -o wide
_NAMED: Final = 3
READY: Final = "Ready"
_Column: TypeAlias = Column[Json]


@click.command("nodes")
@access.cluster_options
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="The nodes of all flavors, not only of those of your queues."
)
@click.option(
    "-q",
    "--cluster-queue",
    default="",
    help="Only the nodes of this ClusterQueue's flavors.",
    shell_complete=completing.cluster_queues,
)
@click.option("--cards", is_flag=True, help="The cards of these nodes: what is free of each, and who sits on it.")
@presenting.options("state")
def command(
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    cluster_queue: str,
    cards: bool,
    shape: Presentation,
) -> None:
    """Show the nodes of your queues' flavors: capacity, what is free, and who sits there, outside of queues as well."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            everywhere = all_namespaces or bool(cluster_queue and namespace is None)

            async def look() -> list[Json]:
                nodes = await _nodes(api, where, everywhere, {"clusterQueue": cluster_queue})
                return node_cards.of(nodes) if cards else nodes

            most = None if shape.format.kind == "wide" else _NAMED
            rows = node_cards.listing(most) if cards else listing(most, await windows.reservations(api))
            await presenting.present(rows, shape, look)

    access.run(work())


async def _nodes(api: ApiClient, namespace: str, everywhere: bool, query: dict[str, str | bool | int]) -> list[Json]:
    try:
        return await asking.in_scope(
            lambda scope: asking.listed(api, f"{scope}/flavornodes", query),
            namespace,
            everywhere=everywhere,
            shown=f"these are the nodes of {namespace}",
        )
    except own_rights.NoOperator as error:
        raise own_rights.refusal(error) from error


def listing(most: int | None = None, reserved: Sequence[Json] = ()) -> Listing[Json]:
    """One row per node; of more than `most` who sit there the others are counted. Then the next windows of Reservations."""

    def who(node: Json, _: float) -> str:
        return _who(node, most)

    return Listing(
        columns=(
            _Column("NODE", lambda node, _: _name(node), least=20),
            _Column("FLAVOR", lambda node, _: ",".join(node["flavors"]), rank=1, least=10),
            _Column("STATE", _state),
            _Column("WINDOW", windows.of_node, rank=1, least=16, sparse=True),
            _Column(
                "GPUS",
                lambda node, _: _gpus(node)[0],
                right=True,
                key=lambda node, _: accelerators_in(node["capacity"]),
            ),
            _Column("FREE", lambda node, _: _gpus(node)[1], right=True, key=_free),
            _Column("CPU", lambda node, _: _use(node, "cpu"), right=True, rank=3),
            _Column("MEMORY", lambda node, _: _use(node, "memory"), right=True, rank=4),
            _Column("PODS", lambda node, _: str(_pods(node)), right=True, rank=2, key=lambda node, _: _pods(node)),
            _Column("WHO", who),
        ),
        as_json=lambda node: node,
        instants=("until", "window.announced", "window.from", "window.to"),
        name=lambda node: f"node/{_name(node)}",
        empty="No node has the labels of a flavor of these queues.",
        style=lambda node: "red" if node["trouble"] else "",
        state=lambda node: (node["trouble"] or READY,),
        remarks=lambda nodes: windows.lines(reserved, time.time(), float("inf")),
    )


def _name(node: Json) -> str:
    return node["metadata"]["name"]


def _pods(node: Json) -> int:
    return sum(each["pods"] for each in node["occupants"])


def _free(node: Json, _now: float = 0.0) -> int:
    return max(0, accelerators_in(node["capacity"]) - accelerators_in(node["used"]))


def _state(node: Json, now: float) -> str:
    until = node["until"]
    soaking = f" {age(until - now)}" if until is not None and until > now else ""
    return f"{node['trouble']}{soaking}" if node["trouble"] else READY


def _gpus(node: Json) -> tuple[str, str]:
    """The GPUs of a node as text: used of all, and free."""
    total, used = accelerators_in(node["capacity"]), accelerators_in(node["used"])
    return (f"{used}/{total}", str(_free(node))) if total else ("–", "–")


def accelerators_in(amounts: Mapping[str, str]) -> int:
    """The accelerators among the amounts of a node, whatever their resource."""
    return sum(quantity.parse(text, resource) for resource, text in amounts.items() if is_accelerator(resource))


def _use(node: Json, resource: str) -> str:
    """The use of a resource on a node as text: used of all, both in the one unit that the column has: cores, or Gi."""
    used, total = (quantity.exact(node[which].get(resource, "0")) for which in ("used", "capacity"))
    unit, suffix = (1024**3, "Gi") if quantity.is_bytes(resource) else (1, "")
    return f"{_rounded(used / unit)}/{_rounded(total / unit)}{suffix}"


def _rounded(amount: Fraction) -> str:
    """The amount with one decimal at most; a small amount is not shown as nothing."""
    if 0 < amount < Fraction(1, 20):
        return "<0.1"
    return f"{float(amount):.1f}".removesuffix(".0")


def _who(node: Json, most: int | None) -> str:
    with_devices = bool(accelerators_in(node["capacity"]))
    pods = [each for each in node["occupants"] if not with_devices or accelerators_in(each["amounts"])]
    awaited = [{**each, "awaited": True} for each in node.get("awaited") or ()]  # an older operator says nothing
    pods = [*awaited, *pods]
    named = [*_named(pods[:most])]
    return ", ".join(named) + (f" and {len(pods) - len(named)} more" if len(pods) > len(named) else "")


def _named(occupants: Sequence[Json]) -> Iterator[str]:
    for each in occupants:
        devices = accelerators_in(each["amounts"])
        what = ["outside queues"] * each["outside"] + [str(devices)] * bool(devices)
        what += ["not bound yet"] * each.get("awaited", False)
        where = f"{each['namespace']}/" if each["namespace"] else ""
        yield f"{where}{each['job']}" + (f" ({', '.join(what)})" if what else "")
