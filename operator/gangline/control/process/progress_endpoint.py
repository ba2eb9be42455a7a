"""The HTTP endpoint to which running jobs post progress reports (`gangline.progress`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web

from gangline.control.nodes.stall import progress_reports
from gangline.control.nodes.stall.progress_reports import BadReportError
from gangline.control.nodes.stall.stall_watch import StallWatch
from gangline.tls.requests import Bodies, BusyError, TooLargeError

#: The body of a report has to arrive within this time, in seconds.
BODY_WITHIN: Final = 5.0
#: bytes of all reports that arrive at a time, and of those from one address
TOGETHER: Final = 256 * progress_reports.LONGEST
PER_ADDRESS: Final = 64 * progress_reports.LONGEST


class ProgressEndpoint:
    """Handles posted reports. `leading` says whether this process accepts reports."""

    def __init__(self, stalls: StallWatch, leading: Callable[[], bool]) -> None:
        self._stalls = stalls
        self._leading = leading
        self._bodies = Bodies(progress_reports.LONGEST, BODY_WITHIN, TOGETHER, PER_ADDRESS)

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/progress/{namespace}/{name}/{uid}", self._post)

    async def _post(self, request: web.Request) -> web.Response:
        if not self._leading():
            return _answer(503, "this process is not the leader")
        where = request.match_info
        try:
            async with self._bodies.read(request.content.iter_any(), request.remote or "") as body:
                report = progress_reports.load(body)
            self._stalls.report(where["namespace"], where["name"], where["uid"], report)
        except TooLargeError:
            return _answer(413, f"a report has at most {progress_reports.LONGEST} bytes")
        except BusyError as error:
            return web.Response(status=429, text=f"{error}\n", headers=error.headers)
        except TimeoutError:
            return _answer(408, f"the report did not arrive within {BODY_WITHIN:g} s")
        except (BadReportError, ValueError) as error:
            return _answer(400, str(error))
        except LookupError as error:
            return _answer(404, str(error))
        return web.Response(status=204)


def _answer(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=text)
