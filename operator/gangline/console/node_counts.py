"""Options of a local cluster: the version of Kubernetes, and the numbers of nodes by kind, `5` or `real:3,simulated:100`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click

from gangline.devcluster.building.build import NEWEST, VERSIONS
from gangline.devcluster.real.network import MOST_NODES
from gangline.devcluster.real.settings import GPUS, RealPool, machine_gpus

#: of commands that start a local control plane
kubernetes_version = click.option(
    "--version",
    default=None,
    type=click.Choice(VERSIONS),
    help=f"Local only: the version of Kubernetes. [default: that of the control plane's data, else {NEWEST}]",
)

_MOST: Final = {"real": MOST_NODES, "simulated": 5000}


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Numbers of nodes."""

    real: int = 0
    simulated: int = 0

    def real_pool(self, gpus: int | None = None) -> RealPool | None:
        """The real nodes; each shows `gpus` GPUs, by default its part of the machine's, or 8 where there are none."""
        if not self.real:
            return None
        return RealPool(self.real, (machine_gpus() // self.real or GPUS) if gpus is None else gpus)


class NodeCountsType(click.ParamType[NodeCounts]):
    """`N` (simulated nodes), or `real:N,simulated:N` in any order."""

    name = "nodes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> NodeCounts:
        if isinstance(value, NodeCounts):
            return value
        counts: dict[str, int] = {}
        for part in value.split(","):
            kind, colon, number = part.strip().rpartition(":")
            kind = kind if colon else "simulated"
            if kind not in _MOST or kind in counts or not number.isascii() or not number.isdecimal() or len(number) > 6:
                self.fail(f"{part!r} is neither a number nor real:NUMBER or simulated:NUMBER, each once", param, ctx)
            counts[kind] = int(number)
            if counts[kind] > _MOST[kind]:
                self.fail(f"{kind}: {number} is more than {_MOST[kind]}", param, ctx)
        return NodeCounts(**counts)
