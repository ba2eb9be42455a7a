"""The orders of ClusterQueues whose QueuePolicy has several, as the status of the QueuePolicy says. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gangline.api.read import conditions
from gangline.api.unchecked import mapping
from gangline.engine.model import OrderInForce
from gangline.kube.resources import Json
from gangline.objects import Stored

#: ClusterQueues in a status, and workloads of each that keep their turn
MOST_ROWS: Final = 256
MOST_FIRST: Final = 64


def rows(orders: Iterable[OrderInForce]) -> list[Json]:
    """The rows of a status."""
    return [_row(order) for order in list(orders)[:MOST_ROWS]]


def _row(order: OrderInForce) -> Json:
    row: Json = {"clusterQueue": order.name, "key": order.key}
    if order.window:
        row["window"] = order.window
    if order.full:
        row["full"] = True
    if order.since:
        row["since"] = conditions.timestamp(order.since)
    if order.first:
        row["first"] = list(order.first[:MOST_FIRST])
    return row


def recorded(policy: Stored) -> Iterator[OrderInForce]:
    """The orders that an operator wrote. What no operator wrote is left out."""
    found: object = policy.status.get("orders")
    for row in map(mapping, found[:MOST_ROWS] if isinstance(found, list) else ()):
        name, key, first = row.get("clusterQueue"), row.get("key"), row.get("first")
        if not isinstance(name, str) or not isinstance(key, str):
            continue
        try:
            since = conditions.millis_of(row.get("since"))
        except (AttributeError, TypeError, ValueError):
            since = 0
        window, full = row.get("window"), row.get("full") is True
        kept = tuple(each for each in first if isinstance(each, str)) if isinstance(first, list) else ()
        yield OrderInForce(name, key, window if isinstance(window, str) else "", full, since, kept[:MOST_FIRST])
