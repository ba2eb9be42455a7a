"""Parses Kueue's pending messages and summarises them.

The message of a Workload's QuotaReserved=False condition is part of the Kueue-compatible API. All views use this parser, so
that tables and `gangline why` agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gangline import bounded
from gangline.api import quantity

#: characters of the longest message that is parsed; longer ones are shown as they are
LONGEST: Final = 8192


@dataclass(frozen=True, slots=True)
class ReportedObstacle:
    """One reason why a flavor (or the whole pod set, flavor "") can't be assigned.

    `kind`: short | too-big | nodes | affinity | taint | missing | undeclared | topology | other. `amount` is the missing
    amount (short) or the maximum capacity (too-big), in the engine's units, or for how many pods nodes have room (nodes).
    """

    kind: str
    text: str
    pod_set: str = ""
    flavor: str = ""
    resource: str = ""
    amount: int = 0
    requested: int = 0


_FRAME = re.compile(r"couldn't assign flavors to pod set (?P<pod_set>[^:;]+): ")
_SUFFIX = re.compile(
    r"\. (?:Pending the preemption of (?P<pending>\d+) workload\(s\)"
    r"|Preempting (?P<failed>\d+) workload\(s\) failed, will retry\.?)$"
)
#: what the engine adds about nodes (`engine/nodes/capacity_request.py`)
_REMARK = re.compile(r"\. (?P<remark>\d+ whole nodes? of [^.]+ needed: .+|Preemption can free room for \d+ more)$")
#: … and about a flavor that a workload waits for though another one is free (`engine/queues/workload_parts.py`)
_WAIT = re.compile(r"\. (?P<remark>Waits for flavor [^\s:]+ until about .+)$")
_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "too-big",
        re.compile(
            r"insufficient quota for (?P<resource>\S+) in flavor (?P<flavor>\S+), "
            r"previously considered podsets requests \((?P<before>[^)]*)\) "
            r"\+ current podset request \((?P<now>[^)]*)\) > maximum capacity \((?P<amount>[^)]*)\)"
        ),
    ),
    (
        "short",
        re.compile(
            r"insufficient unused quota for (?P<resource>\S+) in flavor (?P<flavor>[^\s,]+), "
            r"(?P<amount>\S+) more needed"
        ),
    ),
    (
        "nodes",
        re.compile(
            r"insufficient healthy capacity in flavor (?P<flavor>[^:;]+): "
            r"room for (?P<amount>\d+) out of (?P<now>\d+) pods of pod set [^\s,;.]+"
        ),
    ),
    ("undeclared", re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")),
    ("affinity", re.compile(r"flavor (?P<flavor>\S+) doesn't match node affinity")),
    ("taint", re.compile(r"untolerated taint (?P<taint>.+?) in flavor (?P<flavor>[^\s,;]+)")),
    ("missing", re.compile(r"flavor (?P<flavor>\S+) not found")),
    ("topology", re.compile(r"topology \"[^\"]*\" (?:doesn't allow|allows) to fit[^;]*")),
)


@dataclass(frozen=True, slots=True)
class PendingMessage:
    obstacles: tuple[ReportedObstacle, ...]
    preempting: int = 0  # workloads that are being preempted for this one
    text: str = ""


@bounded.parser(
    LONGEST,
    instead=PendingMessage(()),
    worst=("couldn't assign flavors to pod set a: ", "insufficient quota for a in flavor b, ("),
)
def parse(message: str) -> PendingMessage:
    """Parse a pending message; text that does not have Kueue's format gives no obstacles."""
    suffix = _SUFFIX.search(message)
    body = message[: suffix.start()] if suffix else message
    preempting = int(suffix["pending"] or 0) if suffix else 0
    obstacles = tuple(obstacle for pod_set, text in _frames(body) for obstacle in _obstacles(text, pod_set))
    return PendingMessage(obstacles, preempting, message)


def _frames(body: str) -> Iterator[tuple[str, str]]:
    starts = list(_FRAME.finditer(body))
    for index, match in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(body)
        yield match["pod_set"], body[match.end() : end].removesuffix("; ")


@bounded.parser(
    LONGEST, instead=(), worst=("insufficient quota for a in flavor b, previously considered podsets requests (",)
)
def _obstacles(text: str, pod_set: str = "") -> Iterator[ReportedObstacle]:
    found: list[tuple[int, ReportedObstacle]] = []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            found.append((match.start(), _obstacle(kind, pod_set, match)))
    if found:
        yield from (obstacle for _, obstacle in sorted(found, key=lambda pair: pair[0]))
    else:
        yield ReportedObstacle("other", text, pod_set)


def _obstacle(kind: str, pod_set: str, match: re.Match[str]) -> ReportedObstacle:
    parts = match.groupdict()
    resource = parts.get("resource") or ""
    before, now = parts.get("before"), parts.get("now")
    return ReportedObstacle(
        kind=kind,
        text=match.group(0),
        pod_set=pod_set,
        flavor=parts.get("flavor") or "",
        resource=resource,
        amount=_amount(parts.get("amount"), resource),
        requested=_amount(before, resource) + _amount(now, resource),
    )


def _amount(text: str | None, resource: str) -> int:
    return quantity.parse(text, resource) if text else 0


@dataclass(frozen=True, slots=True)
class PreemptionCause:
    """Cause of a preemption; `uid` is that of the preemptor's Workload, `job_uid` that of its job."""

    uid: str
    cause: str
    job_uid: str = ""


_PREEMPTED = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>[^,)]+), JobUID: (?P<job>[^)]*)\) due to (?P<cause>[^;]+)"
)


@bounded.parser(LONGEST, instead=None, worst=("Preempted to accommodate a workload (UID: a, JobUID: ",))
def preemption(message: str) -> PreemptionCause | None:
    """Parse the message of a Preempted condition; None for any other text."""
    found = _PREEMPTED.search(message)
    return PreemptionCause(found["uid"], found["cause"], found["job"]) if found else None


def brief(reason: str, message: str) -> str:
    """A short form of the cause, for a table cell."""
    parsed = parse(message)
    if parsed.preempting:
        return f"waits for {parsed.preempting} preempted workload{'s' if parsed.preempting > 1 else ''} to stop"
    obstacles = in_question(reason, parsed.obstacles)
    if not obstacles:
        return message or reason
    several = len({o.pod_set for o in obstacles}) > 1
    words: dict[str, list[str]] = {}
    for o in obstacles:
        words.setdefault(o.pod_set if several else "", []).append(_brief_one(o))
    parts = {pod_set: "; ".join(dict.fromkeys(each)) for pod_set, each in words.items()}
    if len(set(parts.values())) == 1:
        text = next(iter(parts.values()))
    else:
        text = " | ".join(f"{pod_set}: {each}" for pod_set, each in parts.items())
    on_nodes = _REMARK.search(message) if any(o.kind == "nodes" for o in obstacles) else None
    remark = on_nodes or _WAIT.search(message)
    return f"{text}. {remark['remark']}" if remark else text


def in_question(reason: str, obstacles: tuple[ReportedObstacle, ...]) -> tuple[ReportedObstacle, ...]:
    """The obstacles that bind: what a queue has no quota for at all, or never enough of, outranks what is in use now."""
    lasting = "too-big" if reason == "ExceedsMaxQuota" else "undeclared"
    return tuple(o for o in obstacles if o.kind == lasting) or obstacles


def _brief_one(o: ReportedObstacle) -> str:
    match o.kind:
        case "short":
            return f"{o.flavor}: {count(o.amount, o.resource, more=True)} needed"
        case "too-big":
            most = quantity.format(o.amount, o.resource)
            return f"{o.flavor}: asks {count(o.requested, o.resource)}, can never get more than {most}"
        case "nodes":
            return f"{o.flavor}: its nodes have room for {o.amount} of {o.requested} pods"
        case "undeclared":
            return f"the queue has no quota for {o.resource}"
        case "affinity":
            return f"{o.flavor}: not selected by its node selector"
        case "taint":
            return f"{o.flavor}: its taint is not tolerated"
        case "missing":
            return f"{o.flavor}: no such ResourceFlavor"
        case _:
            return o.text


_UNITS = {"gpu": ("GPU", "GPUs"), "tpu": ("TPU", "TPUs")}


def count(amount: int, resource: str, *, more: bool = False) -> str:
    """An amount with its unit: `1 GPU`, `8 more GPUs`, `2Gi memory`."""
    words = [quantity.format(amount, resource), *(["more"] if more else [])]
    one, many = _UNITS.get(resource.rpartition("/")[2], (resource, resource))
    return " ".join([*words, one if amount == 1 else many])
