"""The live rows as a stream, in the form of a Kubernetes watch that begins with all objects (`sendInitialEvents`).

Each row is ADDED, MODIFIED and DELETED under a number that names it for the length of the stream. A BOOKMARK ends the first rows
and each set of changes: what came before it is the state at one moment, which it names. The stream ends with a 403 when its user
has lost the right, and with a 410 when the user's sight or the queues of the namespace have changed: the client begins anew.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from gangline.control.answers.api import event_stream
from gangline.control.answers.live.rows import Scope
from gangline.control.answers.live.table import Entry, LiveTable
from gangline.control.answers.sight import Sight
from gangline.kube.resources import Json

#: streams of all users, and of one
STREAMS: Final = 256
PER_USER: Final = 32
#: seconds between two lines at most
BEAT: Final = 5.0
#: seconds after which the user's rights are asked for again
RIGHTS: Final = 30.0
#: rows that are encoded before other tasks get their turn
AT_ONCE: Final = 100
_FIRST_ROWS_END: Final = {"k8s.io/initial-events-end": "true"}


@dataclass(slots=True)
class _ClientView:
    """What one client knows: the numbers and tables of its rows, as they were at a revision."""

    scope: Scope
    sight: Sight
    jobs: Mapping[str, str]
    head: bytes
    revision: int = 0
    rows: dict[int, str] = field(default_factory=dict[int, str])

    def line(self, entry: Entry) -> bytes:
        """The line about a changed row; b"" if the client need not know."""
        row, number = entry.row, entry.number
        encoded = entry.encoded(self.sight, self.jobs) if row.is_in(self.scope) else b""
        if not encoded:
            return self.gone(number)
        kind = b"MODIFIED" if number in self.rows else b"ADDED"
        self.rows[number] = row.table
        return b'{"type":"%b",%b"metadata":{"name":"r%x","resourceVersion":"%d"},"table":"%b","row":%b}}\n' % (
            *(kind, self.head, number, entry.since),
            *(row.table.encode(), encoded),
        )

    def gone(self, number: int) -> bytes:
        table = self.rows.pop(number, "")
        return (
            b'{"type":"DELETED",%b"metadata":{"name":"r%x"},"table":"%b"}}\n' % (self.head, number, table.encode())
            if table
            else b""
        )


async def stream(
    request: web.Request,
    table: LiveTable,
    seconds: float,
    *,
    seen: Callable[[], Awaitable[tuple[Scope, Sight]]],
    jobs: Mapping[str, str],
    allowed: Callable[[], Awaitable[bool]],
    head: Json,
    ending: asyncio.Event,
) -> web.StreamResponse:
    """Send all rows, and then what changes of them, for so many seconds. `seen` returns the scope and the asker's sight."""
    until = time.monotonic() + seconds
    async with table.watched():
        scope, sight = await seen()
        client = _ClientView(scope, sight, jobs, b'"object":{"kind":"%b","apiVersion":"%b",' % _texts(head))
        async with event_stream.begun(request) as response:
            await _send_rows(response, table, client, head, first=True)
            sent = checked = time.monotonic()
            while not ending.is_set() and (now := time.monotonic()) < until:
                if now - checked >= RIGHTS:
                    if not await allowed():
                        await event_stream.send(response, event_stream.NO_RIGHT)
                        break
                    if await seen() != (scope, sight):
                        await event_stream.send(
                            response, event_stream.failure(410, "Expired", "what you may see has changed")
                        )
                        break
                    checked = now
                await table.next_look(min(BEAT, until - now))
                if table.gone(client.revision) is None:
                    await event_stream.send(response, event_stream.failure(410, "Expired", "too much has changed"))
                    break
                if table.revision != client.revision or time.monotonic() - sent >= BEAT:
                    await _send_rows(response, table, client, head)
                    sent = time.monotonic()
    return response


async def _send_rows(
    response: web.StreamResponse, table: LiveTable, client: _ClientView, head: Json, *, first: bool = False
) -> None:
    """Send what changed since the last rows that the client got, and the moment at which all of it was so."""
    revision, at = table.revision, table.at
    changed, gone = table.rows(client.revision), table.gone(client.revision) or []
    lines = [client.gone(each.number) for each in gone]
    for number, entry in enumerate(changed):
        if number % AT_ONCE == AT_ONCE - 1:
            await event_stream.send_lines(response, b"".join(lines))
            lines = []
            await asyncio.sleep(0)
        lines.append(client.line(entry))
    client.revision = revision
    meta: Json = {"resourceVersion": str(revision), **({"annotations": _FIRST_ROWS_END} if first else {})}
    await event_stream.send_lines(response, b"".join(lines))
    await event_stream.send(response, {"type": "BOOKMARK", "object": {**head, "metadata": meta, "at": at}})


def _texts(head: Json) -> tuple[bytes, bytes]:
    return head["kind"].encode(), head["apiVersion"].encode()
