"""Room on nodes: which pods the scheduler has not placed and why, what the nodes of a job's flavors have left, and who is there.

Quota says how much a queue may use; whether nodes have it is another question. Pods outside of any queue, nodes that cannot be
used and flavors without nodes are seen here only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.control.answers.nodes import card_room
from gangline.control.answers.nodes.machines import Machine
from gangline.control.answers.workloads.reasons import count
from gangline.control.answers.workloads.words import age, amount, counted
from gangline.control.feed.pod import Pod, by_obstacle
from gangline.engine import is_accelerator, minute_text
from gangline.engine.model import Share

#: reasons of workloads that wait for room on nodes, not for quota
FOR_NODES: Final = frozenset({"WaitingForCapacity", "TopologyPlacementFailed"})
#: names in one line
NAMED: Final = 5
#: characters of a scheduler's message that is read
LONGEST: Final = 1024
_LACKS: Final = re.compile(r"Insufficient ([\w./-]{1,128})")


@dataclass(frozen=True, slots=True)
class Unscheduled:
    """Pods of a job that the scheduler has placed nowhere, for one reason."""

    pods: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class UnscheduledLimit:
    """Since when pods of a job are unscheduled, and when it is requeued because of that, in seconds since the epoch."""

    since: float
    until: float
    #: the job is the cause, so that it loses its place
    by_job: bool

    def text(self, now: float) -> str:
        place = (
            "behind those that waited, since the job is the cause" if self.by_job else "at its old place in the queue"
        )
        at = minute_text(round(self.until * 1000))
        return f"at {at} if pods are still unscheduled, as they are for {age(now - self.since)} by now; {place}"


@dataclass(frozen=True, slots=True)
class JobRoom:
    """The room that a job finds on nodes. `pods`: how many of the job's exist. `machines`: the nodes of `flavors`, as the asker
    may see them. `shares`: what its pods ask of cards.
    """

    flavors: tuple[str, ...] = ()
    machines: tuple[Machine, ...] = ()
    unscheduled: tuple[Unscheduled, ...] = ()
    pods: int = 0
    shares: tuple[Share, ...] = ()
    limit: UnscheduledLimit | None = None


#: of a job that does not wait for nodes
NO_ROOM: Final = JobRoom()


def unscheduled(pods: Iterable[Pod]) -> tuple[Unscheduled, ...]:
    """The pods without a node, by the scheduler's reason, most pods first."""
    return tuple(Unscheduled(tuple(pod.name for pod in each), why) for why, each in by_obstacle(pods))


@bounded.parser(LONGEST, instead=frozenset(), worst=("Insufficient a", "Insufficient "))
def _lacking(message: str) -> frozenset[str]:
    """The resources of which a scheduler's message says that nodes have too little."""
    return frozenset(found.rstrip(".,") for found in _LACKS.findall(message))


def needed(room: JobRoom, wanted: Iterable[str]) -> str:
    """The changes after which the scheduler would place the pods, as text; "" if there is nothing to say."""
    if not room.unscheduled:
        return ""
    lacking = {resource for each in room.unscheduled for resource in _lacking(each.why)}
    resources, ways = sorted(lacking) or _main(wanted), list[str]()
    for flavor in room.flavors:
        found = [each for each in room.machines if flavor in each.flavors]
        if not found:
            ways.append(f"nodes with the labels of flavor {flavor}")
            continue
        if sick := sum(1 for each in found if each.trouble):
            ways.append(f"{counted(sick, 'node')} of {flavor} to be usable again")
        for resource in resources:
            outside = sum(
                occupant.amounts.get(resource, 0)
                for each in found
                for occupant in each.occupants
                if occupant.outside and not each.trouble
            )
            if outside:
                ways.append(f"the pods outside of any queue to leave {count(outside, resource)} of {flavor}")
    return "; or ".join(ways) or "what the scheduler says to change: its nodes have to fit the pods"


def lines(room: JobRoom, wanted: Iterable[str], own: str, now: float) -> Iterator[tuple[str, str]]:
    """Lines about the room, each a label and a text. `wanted`: the resources that the job asks for; `own`: the key of its
    Workload.
    """
    for each in room.unscheduled:
        total = max(room.pods, len(each.pods))
        named = bounded.some(each.pods, NAMED)
        yield "pods", f"{len(each.pods)} of {total} pods not scheduled ({named}): {each.why}"
    if room.limit is not None:
        yield "requeued", room.limit.text(now)
    lacking = {resource for each in room.unscheduled for resource in _lacking(each.why)}
    resources = sorted(lacking) or _main(wanted)
    for flavor in room.flavors:
        nodes = [each for each in room.machines if flavor in each.flavors]
        yield from _flavor_lines(flavor, nodes, resources, own, now)
        usable = [each for each in nodes if not each.trouble]
        yield from (("cards", said) for said in card_room.lines(flavor, usable, room.shares))


def _main(wanted: Iterable[str]) -> list[str]:
    asked = sorted(wanted)
    return [resource for resource in asked if is_accelerator(resource)] or asked


def _flavor_lines(
    flavor: str, nodes: Sequence[Machine], resources: Sequence[str], own: str, now: float
) -> Iterator[tuple[str, str]]:
    if not nodes:
        yield "nodes", f"no node has the labels of flavor {flavor}"
        return
    usable = [each for each in nodes if not each.trouble]
    for resource in resources:
        free, most = (
            sum(each.free(resource) for each in usable),
            max((each.free(resource) for each in usable), default=0),
        )
        all_of_it = sum(each.capacity.get(resource, 0) for each in nodes)
        text = (
            f"{flavor}: {count(free, resource)} of {amount(all_of_it, resource)} free on {counted(len(usable), 'node')}"
        )
        yield "nodes", f"{text}, at most {amount(most, resource)} on one of them" if len(usable) > 1 else text
    if sick := [each for each in nodes if each.trouble]:
        named = bounded.some((_sick(each, now) for each in sick[:NAMED]), NAMED, of=len(sick))
        yield "nodes", f"{flavor}: {len(sick)} of {counted(len(nodes), 'node')} can't be used: {named}"
    for resource in resources:
        for outside in (True, False):
            if held := _held(usable, resource, outside, own):
                where = "outside of any queue" if outside else "in queues"
                yield "on nodes", f"{flavor}, {where}: {held}"


def _held(nodes: Iterable[Machine], resource: str, outside: bool, own: str) -> str:
    held: Counter[str] = Counter()
    for each in nodes:
        for occupant in each.occupants:
            if occupant.outside is outside and (occupant.workload != own or not own):
                held[str(occupant)] += occupant.amounts.get(resource, 0)
    rows = [(name, n) for name, n in held.most_common() if n]
    return bounded.some((f"{name} ({count(n, resource)})" for name, n in rows[:NAMED]), NAMED, of=len(rows))


def _sick(machine: Machine, now: float) -> str:
    soaking = f" for {age(machine.until - now)} more" if machine.until is not None and machine.until > now else ""
    return f"{machine.name} ({machine.trouble}{soaking})"
