"""The rows about nodes in the status of a QuotaPlan, by which a new operator goes on: written and read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from gangline.api import quantity
from gangline.api.followed_capacity import Damped, FlavorResource, Follow
from gangline.api.read import conditions
from gangline.engine.model import Millis
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class Usable:
    """What a flavor's nodes have of a resource: as far as new work may go there, on so many of so many nodes."""

    amount: int
    usable_nodes: int
    nodes: int


def row(follow: Follow, usable: Usable, state: Damped, notice: Millis) -> Json:
    """The entry of `status.follow`."""
    due, resource = state.due(follow, notice), follow.resource
    found: Json = {
        "flavor": follow.flavor,
        "resource": resource,
        "nodes": usable.nodes,
        "usableNodes": usable.usable_nodes,
        "usableCapacity": quantity.format(usable.amount, resource),
        "capacity": quantity.format(state.capacity, resource),
        "nominalQuota": quantity.format(follow.quota(state.capacity), resource),
    }
    if state.pending is not None and due is not None:
        found["pendingCapacity"] = quantity.format(state.pending, resource)
        found["pendingSince"] = conditions.timestamp(state.since)
        found["changesAt"] = conditions.timestamp(due)
    return found


def remembered(rows: Any) -> dict[FlavorResource, Damped]:
    """What `status.follow` of an earlier operator says. Rows that cannot be read count as missing."""
    found: dict[FlavorResource, Damped] = {}
    for each in cast("list[Any]", rows) if isinstance(rows, list) else ():
        try:
            flavor, resource = str(each["flavor"]), str(each["resource"])
            state = Damped(quantity.parse(each["capacity"], resource))
            if each.get("pendingCapacity") is not None:
                since = conditions.millis_of(each["pendingSince"])
                state = Damped(state.capacity, quantity.parse(each["pendingCapacity"], resource), since)
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
        found[flavor, resource] = state
    return found
