"""Kueue's pending messages, read back into data and put into words.

The message of a Workload's QuotaReserved=False condition is a contract with Kueue's users and tools; this module reads
it the same way everywhere, so that a table's cell and `gangline why` never disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gangline.api import quantity


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One cause why one flavor (or the whole pod set, flavor "") can't be had.

    `kind`: short | too-big | affinity | taint | missing | undeclared | topology | other. `amount` is what is missing
    (short) or the most that could ever be had (too-big), in the engine's units.
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
    ("undeclared", re.compile(r"resource (?P<resource>\S+) unavailable in ClusterQueue")),
    ("affinity", re.compile(r"flavor (?P<flavor>\S+) doesn't match node affinity")),
    ("taint", re.compile(r"untolerated taint (?P<taint>.+?) in flavor (?P<flavor>[^\s,;]+)")),
    ("missing", re.compile(r"flavor (?P<flavor>\S+) not found")),
    ("topology", re.compile(r"topology \"[^\"]*\" (?:doesn't allow|allows) to fit[^;]*")),
)


@dataclass(frozen=True, slots=True)
class PendingMessage:
    obstacles: tuple[Obstacle, ...]
    preempting: int = 0  # workloads that are being preempted for this one
    text: str = ""


def parse(message: str) -> PendingMessage:
    """Reads a pending message; text that is not in Kueue's frame gives no obstacles."""
    suffix = _SUFFIX.search(message)
    body = message[: suffix.start()] if suffix else message
    preempting = int(suffix["pending"] or 0) if suffix else 0
    obstacles = tuple(obstacle for pod_set, text in _frames(body) for obstacle in _obstacles(pod_set, text))
    return PendingMessage(obstacles, preempting, message)


def _frames(body: str) -> Iterator[tuple[str, str]]:
    starts = list(_FRAME.finditer(body))
    for index, match in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(body)
        yield match["pod_set"], body[match.end() : end].removesuffix("; ")


def _obstacles(pod_set: str, text: str) -> Iterator[Obstacle]:
    found: list[tuple[int, Obstacle]] = []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            found.append((match.start(), _obstacle(kind, pod_set, match)))
    if found:
        yield from (obstacle for _, obstacle in sorted(found, key=lambda pair: pair[0]))
    else:
        yield Obstacle("other", text, pod_set)


def _obstacle(kind: str, pod_set: str, match: re.Match[str]) -> Obstacle:
    parts = match.groupdict()
    resource = parts.get("resource") or ""
    before, now = parts.get("before"), parts.get("now")
    return Obstacle(
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
class Preemption:
    """Who a workload was preempted for, and why: `uid` is that of the other Workload."""

    uid: str
    cause: str


_PREEMPTED = re.compile(
    r"Preempted to accommodate a workload \(UID: (?P<uid>[^,)]+), JobUID: [^)]*\) due to (?P<cause>[^;]+)"
)


def preemption(message: str) -> Preemption | None:
    """Reads the message of a Preempted condition; None for any other text."""
    found = _PREEMPTED.search(message)
    return Preemption(found["uid"], found["cause"]) if found else None


def brief(reason: str, message: str) -> str:
    """The cause in a few words, for a table's cell."""
    parsed = parse(message)
    if parsed.preempting:
        return f"waits for {parsed.preempting} preempted workload{'s' if parsed.preempting > 1 else ''} to stop"
    if not parsed.obstacles:
        return message or reason
    if reason == "ExceedsMaxQuota":
        parsed_big = [o for o in parsed.obstacles if o.kind == "too-big"]
        if parsed_big:
            return "; ".join(_brief_one(o) for o in parsed_big)
    return "; ".join(dict.fromkeys(_brief_one(o) for o in parsed.obstacles))


def _brief_one(o: Obstacle) -> str:
    amount = quantity.format(o.amount, o.resource) if o.resource else ""
    match o.kind:
        case "short":
            return f"{o.flavor}: {amount} more {unit(o.resource)} needed"
        case "too-big":
            asked = quantity.format(o.requested, o.resource)
            return f"{o.flavor}: asks {asked} {unit(o.resource)}, can never get more than {amount}"
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


def unit(resource: str) -> str:
    """A resource in a reader's words: `nvidia.com/gpu` is GPUs."""
    short = resource.rpartition("/")[2]
    return {"gpu": "GPUs", "tpu": "TPUs"}.get(short, resource)
