"""The HTTP endpoint to which running jobs post progress reports (`gangline.progress`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from gangline.control.stall import progress_reports
from gangline.control.stall.progress_reports import BadReportError
from gangline.control.stall.stall_watch import StallWatch

#: The body of a report has to arrive within this time, in seconds.
BODY_WITHIN: Final = 5.0


class ProgressEndpoint:
    """Handles posted reports. `leading` says whether this process accepts reports."""

    def __init__(self, stalls: StallWatch, leading: Callable[[], bool]) -> None:
        self._stalls = stalls
        self._leading = leading

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/progress/{namespace}/{name}/{uid}", self._post)

    async def _post(self, request: web.Request) -> web.Response:
        if not self._leading():
            return _answer(503, "this process is not the leader")
        where = request.match_info
        try:
            report = progress_reports.load(await _body(request))
            self._stalls.report(where["namespace"], where["name"], where["uid"], report)
        except _TooLargeError:
            return _answer(413, f"a report has at most {progress_reports.LONGEST} bytes")
        except TimeoutError:
            return _answer(408, f"the report did not arrive within {BODY_WITHIN:g} s")
        except (BadReportError, ValueError) as error:
            return _answer(400, str(error))
        except LookupError as error:
            return _answer(404, str(error))
        return web.Response(status=204)


class _TooLargeError(Exception):
    """A report is larger than allowed."""


async def _body(request: web.Request) -> bytes:
    """The body of a report, whatever its transfer encoding. Raises _TooLargeError and TimeoutError."""
    read = bytearray()
    async with asyncio.timeout(BODY_WITHIN):
        async for chunk in request.content.iter_any():
            read += chunk
            if len(read) > progress_reports.LONGEST:
                raise _TooLargeError
    return bytes(read)


def _answer(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)
