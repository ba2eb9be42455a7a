"""Nodes that a command is to change: found by name, with the user's own rights."""

from __future__ import annotations

from typing import Final

import click

from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.resources import NODES, Json

_KINDS: Final = frozenset({"node", "nodes", "no"})


def node_of(name: str, *, or_queue: bool = False) -> str:
    """`NAME` or `node/NAME`. Raises click.ClickException for another kind; `or_queue`: a queue would have been one."""
    kind, slash, plain = name.rpartition("/")
    if slash and kind.lower() not in _KINDS:
        queue = " nor a queue (localqueue/NAME, clusterqueue/NAME)" if or_queue else ""
        raise click.ClickException(f"{name!r} is {'neither' if queue else 'not'} a node (NAME or node/NAME){queue}")
    return plain


async def node_named(api: ApiClient, name: str) -> Json:
    """The node of this name. Raises click.ClickException if there is none."""
    try:
        return await api.get(NODES, None, name)
    except NotFound:
        raise click.ClickException(f"there is no node {name!r}") from None
