"""What the cluster is planned to have at a time: quotas by QuotaPlans, windows of Reservations, and usable nodes of flavors.

Rows are of three levels: ClusterQueues with their quotas, the Reservations that have an open window then, and flavors with what
their nodes offer. Nodes are taken as they are now, except in windows.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from gangline.api import names, quantity
from gangline.api.quota_plans import HORIZON, MOST_STEPS, Planned
from gangline.api.read import expansion, parse
from gangline.api.read.expansion import AHEAD, Expanded, offer
from gangline.api.reservations import Owners
from gangline.control.answers.nodes import machines
from gangline.control.answers.sight import Sight
from gangline.control.answers.source import Source
from gangline.control.queues import planned_quotas
from gangline.engine import is_accelerator
from gangline.engine.model import Millis, ResourceGroup
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import NodeObject

DAY: Final[Millis] = 86_400_000
#: why a time can't be asked about
TOO_FAR: Final = f"must be within the {HORIZON // DAY} days to come, for which quotas are planned"
#: names of nodes of one window that are listed
MOST_NODES: Final = 1000
#: a time that is past by so much is taken as the present: clocks differ, and a question is on its way for some time
LATE: Final[Millis] = 60_000
#: what a node is at a time, as rows count it
_USABLE, _RESERVED, _MAINTENANCE, _UNUSABLE = "usable", "reserved", "maintenance", "unusable"


class WrongTimeError(ValueError):
    """The time is past, or farther away than quotas are planned. The text says which times can be asked about."""


def checked(at: Millis, now: Millis) -> Millis:
    """A time that can be asked about. Raises WrongTimeError."""
    if not now - LATE <= at <= now + HORIZON:
        raise WrongTimeError(TOO_FAR)
    return max(at, now)


async def rows(
    source: Source, sight: Sight, queues: Collection[str], flavors: Collection[str] | None, at: Millis
) -> list[Json]:
    """The rows of these ClusterQueues and flavors (None = of all) at a time that is not past. Other tasks run in between."""
    written: dict[str, tuple[ResourceGroup, ...]] = {}
    for name in sorted(queues):
        await asyncio.sleep(0)
        written |= quotas_of(source, (name,))
    plans = plans_of(source, written)
    found: list[Json] = []
    for name, groups in written.items():
        await asyncio.sleep(0)
        found.append(_of_queue(sight, name, groups, plans.get(name), at))
    labels = machines.labels_of(source.mirror, flavors)
    nodes = {name: of for name, node in source.mirror.nodes.items() if (of := machines.flavors_of(node, labels))}
    await asyncio.sleep(0)
    reserved = expanded_until(source, at)
    found += [row for each in reserved if (row := _of_reservation(sight, each, nodes, at)) is not None]
    await asyncio.sleep(0)
    return found + _of_flavors(source, nodes, reserved, at)


# --- quotas -----------------------------------------------------------------------------------------------------------


def plans_of(source: Source, written: Mapping[str, tuple[ResourceGroup, ...]]) -> dict[str, Planned]:
    """ClusterQueue -> its QuotaPlan in force, with what that changes now and ahead. `written`: the quotas of their specs."""
    found = planned_quotas.expand(source.mirror.objects[kube.QUOTA_PLANS].values(), written, source.now())
    return {each.facts.cluster_queue: each for each in found if each.facts is not None}


def known_until(planned: Planned, at: Millis) -> Millis | None:
    """The instant from which on the changes of a plan are not known any more, if that is before a time."""
    last = planned.stages[-1].at
    return last if len(planned.stages) > MOST_STEPS and last < at else None


def quotas_of(source: Source, queues: Iterable[str]) -> dict[str, tuple[ResourceGroup, ...]]:
    """The quotas of ClusterQueues as their specs say, of those that there are and that can be read."""
    found: dict[str, tuple[ResourceGroup, ...]] = {}
    for name in queues:
        if (raw := source.mirror.get(kube.CLUSTER_QUEUES, name)) is not None:
            with suppress(parse.ParseError):
                found[name] = parse.cluster_queue(raw).groups
    return found


def _of_queue(sight: Sight, name: str, groups: tuple[ResourceGroup, ...], planned: Planned | None, at: Millis) -> Json:
    shown = sight.queue_name(name)
    own = shown == name
    if planned is None:
        return _row("ClusterQueue", shown, quotas=_quotas(groups, groups))
    steps = planned.steps(groups)
    then = next(step for step in reversed(steps) if step.at <= at)
    stage = next(stage for stage in reversed(planned.stages) if stage.at <= at)
    until = known_until(planned, at)
    return _row(
        "ClusterQueue",
        shown,
        plan=planned.name if own else "",
        overrides=list(stage.active) if own else [],
        known_until=None if until is None else until / 1000,
        quotas=_quotas(then.groups, steps[0].groups),
    )


def _quotas(groups: Sequence[ResourceGroup], now: Sequence[ResourceGroup]) -> list[Json]:
    present = {
        (flavor.name, resource): quota
        for group in now
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    }
    return [
        {
            "flavor": flavor.name,
            "resource": resource,
            "nominal": quantity.format(quota.nominal, resource),
            "nominalNow": quantity.format(present[flavor.name, resource].nominal, resource),
            "borrowingLimit": _limit(quota.borrowing_limit, resource),
            "lendingLimit": _limit(quota.lending_limit, resource),
        }
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    ]


def _limit(value: int | None, resource: str) -> str | None:
    return None if value is None else quantity.format(value, resource)


# --- windows ----------------------------------------------------------------------------------------------------------


def expanded_until(source: Source, at: Millis) -> list[Expanded]:
    """All Reservations with the windows that begin before a time: the engine knows only the next few of each."""
    reservations = source.mirror.objects[kube.RESERVATIONS].values()
    if not reservations:
        return []
    return expansion.expand(reservations, *around(source), ahead=AHEAD + -(-(at - source.now()) // DAY))


def beside(source: Source, name: str, spec: Json) -> Expanded:
    """A Reservation as it would be with this spec, beside the others that there are."""
    return expansion.beside(name, spec, source.mirror.objects[kube.RESERVATIONS].values(), *around(source))


def around(source: Source) -> tuple[Mapping[str, Json], Mapping[str, Json], Iterable[str], Iterable[str], Millis]:
    """What Reservations are about: nodes, flavors, ClusterQueues and LocalQueues; and the time."""
    objects = source.mirror.objects
    queues = objects[kube.CLUSTER_QUEUES], objects[kube.LOCAL_QUEUES]
    return source.mirror.nodes, objects[kube.RESOURCE_FLAVORS], *queues, source.now()


def _of_reservation(sight: Sight, each: Expanded, nodes: Mapping[str, object], at: Millis) -> Json | None:
    """A Reservation with a window that is open at a time, on nodes that the asker may see."""
    span, facts = each.open_at(at), each.facts
    own = [name for name in each.nodes if name in nodes]
    if span is None or facts is None or not own:
        return None
    return _row(
        "Reservation",
        each.name,
        begin=span.start / 1000,
        end=span.end / 1000,
        firm="Soft" if facts.soft else "Hard",
        owners=_owners(sight, facts.owners),
        nodes=len(own),
        node_names=own[:MOST_NODES],
    )


def _owners(sight: Sight, owners: Owners) -> list[str]:
    """Those for whom the nodes are, as words; none of a maintenance. Who may not see all learns only the number of users."""
    found = [f"ClusterQueue {sight.queue_name(each)}" for each in sorted(owners.cluster_queues)]
    for key in sorted(owners.local_queues):
        seen = sight.sees(key.partition("/")[0])
        found.append(f"LocalQueue {key if seen else sight.label(key)}")
    if owners.users and not sight.everything:
        return [*found, f"{len(owners.users)} users" if len(owners.users) > 1 else "a user"]
    return [*found, *(f"user {each}" for each in sorted(owners.users))]


# --- nodes ------------------------------------------------------------------------------------------------------------


def _of_flavors(
    source: Source, nodes: Mapping[str, tuple[str, ...]], reserved: Sequence[Expanded], at: Millis
) -> list[Json]:
    """The flavors with the accelerators of their nodes: in all, and what becomes of these at the time and now."""
    then, now = _windows(reserved, at), _windows(reserved, source.now())
    counts: dict[str, Counter[str]] = {}
    amounts: dict[str, dict[str, Counter[str]]] = {}
    for name, flavors in sorted(nodes.items()):
        node = source.mirror.nodes[name]
        state, present = _state(source, node, then, at), _state(source, node, now, source.now())
        offered = node.status.get("allocatable") or {}
        for flavor in flavors:
            counts.setdefault(flavor, Counter()).update((state,))
            of_flavor = amounts.setdefault(flavor, {})
            for resource in filter(is_accelerator, offered):
                amount = offer(node, resource)
                of_flavor.setdefault(resource, Counter()).update(
                    {"total": amount, state: amount, "usableNow": amount if present == _USABLE else 0}
                )
    fields = ("total", _USABLE, "usableNow", _RESERVED, _MAINTENANCE, _UNUSABLE)
    return [
        _row(
            "Flavor",
            flavor,
            nodes=counted.total(),
            usable_nodes=counted[_USABLE],
            amounts=[
                {"resource": resource, **{field: quantity.format(amount[field], resource) for field in fields}}
                for resource, amount in sorted(amounts[flavor].items())
            ],
        )
        for flavor, counted in sorted(counts.items())
    ]


def _windows(reserved: Sequence[Expanded], at: Millis) -> dict[str, str]:
    """What nodes are in windows that are open at a time; a maintenance counts before anything else."""
    found: dict[str, str] = {}
    for each in reserved:
        if each.facts is not None and each.open_at(at) is not None:
            for name in each.nodes:
                if each.facts.maintenance:
                    found[name] = _MAINTENANCE
                else:
                    found.setdefault(name, _RESERVED)
    return found


def _state(source: Source, node: NodeObject, windows: Mapping[str, str], at: Millis) -> str:
    if (window := windows.get(node.name)) is not None:
        return window
    trouble, until = source.engine.unusable(node.name)
    passes = names.CORDONED_FOR in node.annotations or 0 < until <= at
    return _UNUSABLE if trouble and not passes else _USABLE


def _row(
    level: str,
    name: str,
    *,
    plan: str = "",
    overrides: Sequence[str] = (),
    known_until: float | None = None,
    quotas: Sequence[Json] = (),
    begin: float | None = None,
    end: float | None = None,
    firm: str = "",
    owners: Sequence[str] = (),
    nodes: int = 0,
    usable_nodes: int = 0,
    node_names: Sequence[str] = (),
    amounts: Sequence[Json] = (),
) -> Json:
    return {
        "metadata": {"name": name},
        "level": level,
        "name": name,
        "plan": plan,
        "overrides": overrides,
        "knownUntil": known_until,
        "quotas": quotas,
        "from": begin,
        "to": end,
        "firm": firm,
        "owners": owners,
        "nodes": nodes,
        "usableNodes": usable_nodes,
        "nodeNames": node_names,
        "amounts": amounts,
    }
