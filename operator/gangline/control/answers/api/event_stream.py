"""Events as a stream, in the form of a Kubernetes watch: one JSON object a line, until the client, or its time, ends it.

A stream begins after the resourceVersion of a list, or with the next event. Where that is forgotten the client gets a 410 and
lists again. It ends with a 403 soon after its user has lost the right, and is broken off where nobody reads it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import orjson
from aiohttp import web

from gangline.control.answers.usage.happenings import ForgottenError, Log
from gangline.kube.resources import Json

#: streams of all users, and of one
STREAMS: Final = 64
PER_USER: Final = 8
#: seconds between two lines at most: a bookmark where nothing happens, and the user's right is checked again
BEAT: Final = 30.0
#: seconds in which a client has to read what it was sent
PATIENCE: Final = 10.0
#: seconds in which events are gathered before they are sent
GATHERING: Final = 0.1
#: events that are looked at before other tasks get their turn
AT_ONCE: Final = 200


async def stream(
    request: web.Request,
    log: Log,
    after: int,
    seconds: float,
    *,
    shown: Callable[[int, int], Awaitable[tuple[list[Json], int]]],
    allowed: Callable[[], Awaitable[bool]],
    bookmark: Callable[[int], Json],
    ending: asyncio.Event,
) -> web.StreamResponse:
    """Send the events after this number, for so many seconds.

    `shown` returns what the user may see of the next events after a number, and the number of the last one that was looked at.
    """
    until, sent = time.monotonic() + seconds, time.monotonic()
    async with begun(request) as response:
        while not ending.is_set() and (left := until - time.monotonic()) > 0:
            if not await allowed():
                await send(response, NO_RIGHT)
                break
            try:
                found, after = await shown(after, AT_ONCE)
            except ForgottenError as error:
                await send(response, failure(410, "Expired", str(error)))
                break
            if found:
                await send(response, *({"type": "ADDED", "object": each} for each in found))
            elif time.monotonic() - sent >= BEAT:
                await send(response, {"type": "BOOKMARK", "object": bookmark(after)})
            else:
                await _more(log, after, max(0.0, min(sent + BEAT - time.monotonic(), left)), ending)
                continue
            sent = time.monotonic()
    return response


async def _more(log: Log, after: int, seconds: float, ending: asyncio.Event) -> None:
    """Returns shortly after there are more events, after so many seconds, or when the server ends."""
    waits = [asyncio.ensure_future(log.more(after, seconds)), asyncio.ensure_future(ending.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
    if not ending.is_set():
        await asyncio.sleep(GATHERING)


@asynccontextmanager
async def begun(request: web.Request) -> AsyncIterator[web.StreamResponse]:
    """A stream of JSON lines, which ends with the block. It is broken off where the client is gone, or does not read."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    try:
        yield response
        await response.write_eof()
    except (ConnectionError, TimeoutError):
        if request.transport is not None:
            request.transport.abort()


async def send(response: web.StreamResponse, *events: Json) -> None:
    await send_lines(response, b"".join(orjson.dumps(event) + b"\n" for event in events))


async def send_lines(response: web.StreamResponse, lines: bytes) -> None:
    """Raises TimeoutError where nobody reads."""
    async with asyncio.timeout(PATIENCE):
        await response.write(lines)


def failure(code: int, reason: str, message: str) -> Json:
    """The last event of a stream that ends early."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {"type": "ERROR", "object": {**status, "code": code, "reason": reason, "message": message}}


#: the last event for a user who has lost the right
NO_RIGHT: Final = failure(403, "Forbidden", "you may not watch this any more")
