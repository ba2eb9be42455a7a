"""One write to the cluster: what is sent, how urgent it is, and how it is sent.

The writes of one object that wait: slots, of which the newest write counts. And whose turn it is: that of each namespace.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, TypeAlias

from gangline.api.read import merge
from gangline.control.feed.changes import JobRef
from gangline.kube.client import ApiClient, ApiError, Body, Json, ObjectKey, PatchKind

log = logging.getLogger(__name__)

Verb: TypeAlias = Literal["create", "patch", "status", "apply", "replace", "replace-status", "delete"]
Render: TypeAlias = Callable[[], "Body | None"]


class Priority(IntEnum):
    """The priority of a write; smaller goes first."""

    ADMISSION = 0
    START_STOP = 1
    LIFECYCLE = 2
    STATUS = 3
    PENDING_REASON = 4
    EVENT = 5


@dataclass(slots=True)
class Write:
    """One intended write. Not to be changed after `submit`.

    `body`: JSON (bytes or a mapping), or a callable that renders it at the time of sending and returns None where there is
    nothing to write (then no callback is called). "patch" and "status" send a `patch` of that kind, "status" to the status
    subresource. For "delete" it holds keyword arguments of `ApiClient.delete` (propagation, uid, …) or nothing. `not_before` is a
    `time.monotonic()` for throttling. `strict`: a "patch" with a field that the API server would drop is refused. `slot` names
    what a newer submit for this object replaces: by default what has the same verb and the same `owner`, the job for which it was
    planned. `on_replaced` gets the newer one. `tag` is the submitter's own.
    """

    key: ObjectKey
    verb: Verb
    body: Body | Render | None = None
    priority: Priority = Priority.LIFECYCLE
    on_done: Callable[[Any], object] | None = None
    on_error: Callable[[ApiError], object] | None = None
    on_replaced: Callable[[Write], object] | None = None
    not_before: float = 0.0
    slot: str = ""
    owner: JobRef | None = None
    patch: PatchKind = "merge"
    strict: bool = False
    field_manager: str = "gangline"
    tag: object = None

    @property
    def place(self) -> str:
        """The slot in which the write waits."""
        if self.slot or self.owner is None:
            return self.slot or self.verb
        kind, key = self.owner
        return f"{self.verb} for {kind.plural}.{kind.group} {key}"

    @property
    def label(self) -> str:
        plural = self.key.resource.plural
        return f"{plural}/status" if self.verb.endswith("status") else plural

    def render(self) -> Body | None:
        """The body to send now; None where there is nothing to write."""
        return self.body() if callable(self.body) else self.body

    async def send(self, client: ApiClient, body: Any, *, within: float) -> Json:
        """Send the write with this body, for at most `within` seconds. Raises ApiError."""
        resource, namespace, name = self.key
        match self.verb:
            case "create":
                return await client.create(resource, namespace, body, within=within)
            case "delete":
                return await client.delete(resource, namespace, name, within=within, **(body or {}))
            case "replace" | "replace-status":
                sub = "status" if self.verb == "replace-status" else ""
                return await client.replace(resource, namespace, name, body, subresource=sub, within=within)
            case "apply":
                return await client.patch(
                    resource,
                    namespace,
                    name,
                    body,
                    kind="apply",
                    field_manager=self.field_manager,
                    force=True,
                    within=within,
                )
            case "patch" | "status":
                sub = "status" if self.verb == "status" else ""
                query = {"fieldValidation": "Strict"} if self.strict else {}
                return await client.patch(
                    resource, namespace, name, body, kind=self.patch, subresource=sub, query=query, within=within
                )


def status_write(key: ObjectKey, before: Json, after: Json) -> Write | None:
    """The write that makes one status another; None where they are equal. An error is only logged."""
    patch = merge.difference(before, after)
    if not patch:
        return None
    kind, name = key.resource.kind, key.name

    def failed(error: ApiError) -> None:
        log.info("status of %s %s: %s", kind, name, error)

    return Write(key, "status", {"status": patch}, priority=Priority.STATUS, on_error=failed)


# --- lanes ------------------------------------------------------------------------------------------------------------


#: namespaces whose last turn is remembered before those that have had it are forgotten
_MANY: Final = 10_000


@dataclass(slots=True)
class WaitingWrite:
    """A waiting write: `rank` and `not_before` are the most urgent of all writes that it replaced.

    `turn`: its place among the writes of `turn_of`, a rank; `low_turn`: its place among all of low priority. None while unknown.
    """

    write: Write
    slot: str
    age: int
    rank: int
    not_before: float
    retry_at: float = 0.0
    failures: int = 0
    #: urgent and ready to be sent: counted by `Writer.urgent`
    counted: bool = False
    #: in no heap: its turn came while another write of its object was in the way
    parked: bool = False
    turn: int | None = None
    turn_of: int = -1
    low_turn: int | None = None

    @property
    def due(self) -> float:
        return max(self.not_before, self.retry_at)


@dataclass(slots=True)
class ObjectLane:
    """The writes of one object."""

    waiting: dict[str, WaitingWrite] = field(default_factory=dict[str, WaitingWrite])
    busy: WaitingWrite | None = None

    def blocked(self, item: WaitingWrite) -> bool:
        """Whether this write must wait for another write of the same object."""
        if self.busy is not None:
            return True
        return item.write.verb != "create" and any(other.write.verb == "create" for other in self.waiting.values())


class NamespaceTurns:
    """Places in a queue in which namespaces take turns, however many writes of each of them wait (start-time fair queuing)."""

    def __init__(self) -> None:
        self._now = 0
        self._last: dict[str, int] = {}

    def next(self, namespace: str) -> int:
        """The place of one more write: behind the other ones of its namespace, and not behind all of others."""
        turn = self._last[namespace] = max(self._now, self._last.get(namespace, -1) + 1)
        if len(self._last) > _MANY:
            self._last = {name: last for name, last in self._last.items() if last >= self._now}
        return turn

    def reached(self, turn: int) -> None:
        """The write in this place is sent."""
        self._now = max(self._now, turn)
