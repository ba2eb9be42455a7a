"""The swap record: what became of a gang when nodes failed under it, as an annotation of its Workload.

The record is the source of truth on a swap, also for the process that has to finish it after a crash: the attempt that the gang
has to be in, the nodes that it lost, and the time of each stage. Conditions, events and metrics follow from it. Times are
milliseconds since the epoch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import names
from gangline.api.jobkinds.node_loss import REPLACE as REPLACE
from gangline.api.jobkinds.node_loss import RESTART as RESTART
from gangline.engine.model import SWAP_WINDOW
from gangline.kube.resources import Json

log = logging.getLogger(__name__)


#: characters of our annotation: the API server's limit for all of an object's annotations together
_LONGEST: Final = 256 * 1024
#: levels of objects and lists in a record
_DEEPEST: Final = 6
_MOST_TIME: Final = 253_402_300_800_000

#: beside Replace and Restart: it lost its admission and is requeued
REQUEUE: Final = "Requeue"
#: a job may also ask for this on lost nodes: it fails with them
FAIL: Final = "Fail"
#: number of swaps that are kept, and of nodes of each …
MOST_SWAPS: Final = 8
MOST_NODES: Final = 64
#: … and of the one in progress, of which none may be dropped
MOST_OPEN: Final = 1024
#: number of replacement times that are kept; of more within a window the oldest are counted as one
MOST_DATES: Final = 64


@dataclass(frozen=True, slots=True)
class RecordedSwap:
    """One loss of nodes and its outcome."""

    how: str
    cause: str
    lost: tuple[str, ...]
    detected: int
    decided: int
    #: all pods of the gang exist again, on live nodes
    created: int | None = None
    #: all pods of the gang are ready again
    running: int | None = None
    #: its new nodes, known once it runs
    to: tuple[str, ...] = ()
    #: nodes that it had and did not lose; kept until it runs
    kept: tuple[str, ...] = ()
    #: when the move off each of `lost` was decided, if that was later than `decided`
    later: tuple[tuple[str, int], ...] = ()
    #: of a Requeue, the start of the admission that it loses, 0 = unknown
    admitted: int = 0
    #: those of `lost` that only pods leave which were sent there and can't be bound; those that are bound there stay
    refusing: tuple[str, ...] = ()

    @property
    def open(self) -> bool:
        return self.running is None

    def left_at(self, node: str) -> int | None:
        """When the move off the node was decided; None for a node that is not lost."""
        return dict(self.later).get(node, self.decided) if node in self.lost else None

    def stages(self) -> dict[str, float]:
        """Seconds from each known stage to the next, and `total` from detected to running."""
        times = {"decided": self.decided, "created": self.created, "running": self.running}
        found: dict[str, float] = {}
        before = self.detected
        for stage, at in times.items():
            if at is not None:
                found[stage] = max(0, at - before) / 1000
                before = max(before, at)
        if self.running is not None:
            found["total"] = max(0, self.running - self.detected) / 1000
        return found


@dataclass(frozen=True, slots=True)
class SwapRecord:
    """`attempt` counts the starts of the whole gang after its first one, `swaps` all replaced nodes."""

    attempt: int = 0
    swaps: int = 0
    at: int = 0  # the last decision that is recorded here
    log: tuple[RecordedSwap, ...] = ()  # oldest first
    #: when nodes were replaced under it, and how many, within the window of budgets; oldest first
    replaced: tuple[tuple[int, int], ...] = ()

    @property
    def current(self) -> RecordedSwap | None:
        """The swap in progress."""
        return self.log[-1] if self.log and self.log[-1].open else None

    @property
    def avoid(self) -> tuple[str, ...]:
        """Nodes that failed the workload since it last ran: its retry must avoid them."""
        current = self.current
        return current.lost if current is not None else ()

    def with_loss(self, swap: RecordedSwap) -> SwapRecord:
        """Another loss. While the gang has not recovered from the last one it extends the same swap."""
        if self._knows(swap):
            return self
        current = self.current
        if current is not None and current.how == RESTART and swap.how == REPLACE:
            swap = replace(swap, how=RESTART)  # the whole gang is starting: single pods cannot be replaced meanwhile
        fresh = [node for node in swap.lost if current is None or node not in current.lost]
        count = len(fresh) if swap.lost else 1
        return SwapRecord(
            attempt=self.attempt + (swap.how == RESTART),
            swaps=self.swaps + count,
            at=max(self.at, swap.decided),
            log=_latest((*self.log, _bounded(swap)) if current is None else (*self.log[:-1], _grown(current, swap))),
            replaced=_dated(self.replaced, swap.decided, count) if swap.how != REQUEUE and count else self.replaced,
        )

    def _knows(self, swap: RecordedSwap) -> bool:
        """Whether the decision is recorded already. Decisions may arrive late, and from clocks that differ, so their content is
        compared.
        """
        if swap.decided > self.at:
            return False
        known = {
            node for each in self.log if each.running is None or each.running >= swap.decided for node in each.lost
        }
        return known.issuperset(swap.lost)

    def with_current(self, swap: RecordedSwap) -> SwapRecord:
        """The record with the present state of the swap in progress; completed ones are kept in brief."""
        known = swap if swap.open else replace(swap, lost=swap.lost[:MOST_NODES], kept=(), later=(), refusing=())
        return replace(self, log=(*self.log[:-1], known))


def _grown(current: RecordedSwap, swap: RecordedSwap) -> RecordedSwap:
    """More nodes are lost before the gang has recovered. The newer loss decides what is done."""
    how = current.how if (current.how, swap.how) == (REQUEUE, REPLACE) else swap.how
    fresh = [node for node in swap.lost if node not in current.lost]
    kept = tuple(node for node in current.kept if node not in swap.lost)
    lost = (*current.lost, *fresh)[:MOST_OPEN]
    later = {**dict(current.later), **dict.fromkeys(swap.lost, swap.decided)}
    failed = {node for each in (current, swap) for node in each.lost if node not in each.refusing}
    return replace(
        current,
        how=how,
        lost=lost,
        created=None,
        kept=kept,
        later=tuple((node, at) for node, at in later.items() if node in lost),
        admitted=swap.admitted,
        refusing=tuple(node for node in lost if node not in failed),
    )


def _dated(dates: tuple[tuple[int, int], ...], at: int, count: int) -> tuple[tuple[int, int], ...]:
    recent = [(when, number) for when, number in dates if when > at - SWAP_WINDOW]
    recent.append((at, count))
    while len(recent) > MOST_DATES:
        (_, first), (when, second), *rest = recent
        recent = [(when, first + second), *rest]
    return tuple(recent)


def _bounded(swap: RecordedSwap) -> RecordedSwap:
    cut = {"lost": swap.lost[:MOST_OPEN], "refusing": swap.refusing[:MOST_OPEN], "kept": swap.kept[:MOST_NODES]}
    return replace(swap, **cut)


def _latest(log: Iterable[RecordedSwap]) -> tuple[RecordedSwap, ...]:
    return tuple(log)[-MOST_SWAPS:]


# --- as JSON ----------------------------------------------------------------------------------------------------------


_NONE: Final = SwapRecord()


def read(annotations: Mapping[str, str]) -> SwapRecord:
    """The record of a Workload. An unreadable record counts as none: a broken annotation must not hide a running gang."""
    text = annotations.get(names.RECOVERY)
    return _read(text) if text else _NONE


@lru_cache(maxsize=128)
def _read(text: str) -> SwapRecord:
    try:
        return _record(text)
    except ValueError as error:
        log.warning("an annotation %s is no record and is ignored: %s", names.RECOVERY, bounded.shown(str(error)))
        return SwapRecord()


@bounded.parser(_LONGEST, worst=("[", '{"log":', '{"attempt":1', "9", '"', ","))
def _record(text: str) -> SwapRecord:
    found = bounded.load_json(text, most_bytes=_LONGEST, most_depth=_DEEPEST)
    try:
        attempt, swaps, at = (_whole(found.get(key, 0)) for key in ("attempt", "swaps", "at"))
        replaced = tuple((_whole(when), _whole(number)) for when, number in found.get("replaced", [])[-MOST_DATES:])
        return SwapRecord(attempt, swaps, at, tuple(map(_swap, found.get("log", [])[-MOST_SWAPS:])), replaced)
    except (TypeError, AttributeError, KeyError) as error:
        raise _misshapen(error) from None


def of(workload: Json) -> SwapRecord:
    return read(workload["metadata"].get("annotations") or {})


def write(record: SwapRecord) -> str:
    body: Json = {"attempt": record.attempt, "swaps": record.swaps, "at": record.at}
    body["log"] = [_json(swap) for swap in record.log]
    if record.replaced:
        body["replaced"] = record.replaced
    return json.dumps(body, separators=(",", ":"))


def _swap(body: Json) -> RecordedSwap:
    return RecordedSwap(
        how=str(body["how"]),
        cause=str(body.get("cause", "")),
        lost=_nodes(body.get("lost")),
        detected=_whole(body["detected"]),
        decided=_whole(body["decided"]),
        created=_time(body.get("created")),
        running=_time(body.get("running")),
        to=_nodes(body.get("to")),
        kept=_nodes(body.get("kept")),
        later=tuple((str(node), _whole(at)) for node, at in body.get("later", {}).items()),
        admitted=_time(body.get("admitted")) or 0,
        refusing=_nodes(body.get("refusing")),
    )


def _nodes(value: Any) -> tuple[str, ...]:
    return tuple(str(node) for node in cast("list[Any]", value or [])[:MOST_OPEN])


def _time(value: Any) -> int | None:
    return None if value is None else _whole(value)


def _whole(value: Any) -> int:
    """A count, or a time before the year 10000: results computed from it stay within 64 bits."""
    if type(value) is not int or not 0 <= value < _MOST_TIME:
        raise ValueError(f"{bounded.shown(value)} is no count and no time")
    return value


def _json(swap: RecordedSwap) -> Json:
    body: Json = {"how": swap.how, "cause": swap.cause, "lost": list(swap.lost)}
    body |= {"detected": swap.detected, "decided": swap.decided}
    optional: Json = {"created": swap.created, "running": swap.running, "to": list(swap.to), "kept": list(swap.kept)}
    optional |= {"later": dict(swap.later), "admitted": swap.admitted, "refusing": list(swap.refusing)}
    return body | {key: value for key, value in optional.items() if value}


# --- pods that take whole domains -------------------------------------------------------------------------------------


def whole_domains(annotations: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Pod set -> the node label of which it takes domains for itself alone, and how many. Unreadable: none."""
    text = annotations.get(names.WHOLE_DOMAINS)
    return _domains(text) if text else {}


@lru_cache(maxsize=128)
def _domains(text: str) -> dict[str, tuple[str, int]]:
    try:
        return _rows(text)
    except ValueError as error:
        log.warning("an annotation %s can't be read and is ignored: %s", names.WHOLE_DOMAINS, bounded.shown(str(error)))
        return {}


@bounded.parser(_LONGEST, worst=("[", '{"a":', '{"a":{"by":"b","count":1}', "9", '"', ","))
def _rows(text: str) -> dict[str, tuple[str, int]]:
    found = cast("dict[str, Json]", bounded.load_json(text, most_bytes=_LONGEST, most_depth=_DEEPEST))
    try:
        return {name: (str(row["by"]), _whole(row["count"])) for name, row in found.items()}
    except (TypeError, AttributeError, KeyError) as error:
        raise _misshapen(error) from None


def _misshapen(error: Exception) -> ValueError:
    return ValueError(f"a field is missing or of the wrong type: {error}")
