"""The operator's HTTP server: health checks, metrics, forecasts, an extender of kube-scheduler, and the reports of progress that
running jobs post (`gangline.progress`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from starlette.requests import ClientDisconnect

from gangline.control.answers.api.pending_view import Visibility
from gangline.control.controller import Controller
from gangline.control.nodes.placing.extender import Extender
from gangline.control.nodes.stall import progress_reports
from gangline.control.nodes.stall.progress_reports import BadReportError
from gangline.control.nodes.stall.stall_watch import StallWatch
from gangline.control.process.front_door import FrontDoor, Probes, bind
from gangline.control.process.lifeline import Lifeline
from gangline.control.process.metrics_endpoint import MetricsPage
from gangline.tls.apps import REFUSED, address_of, new_app
from gangline.tls.asgi import AsgiServer
from gangline.tls.requests import Bodies, BusyError, TooLargeError

#: The body of a report has to arrive within this time, in seconds.
BODY_WITHIN: Final = 5.0
#: bytes of all reports that arrive at a time, and of those from one address
TOGETHER: Final = 256 * progress_reports.LONGEST
PER_ADDRESS: Final = 64 * progress_reports.LONGEST
#: a report in the description of the API; `progress_reports` reads it
REPORT: Final = {
    "type": "object",
    "properties": {
        "step": {"type": "integer", "minimum": 0},
        "total": {"type": "integer", "minimum": 0},
        "phase": {"type": "string"},
        "pod": {"type": "string"},
    },
}


class ProgressEndpoint:
    """Handles posted reports. `leading` says whether this process accepts reports."""

    def __init__(self, stalls: StallWatch, leading: Callable[[], bool]) -> None:
        self._stalls = stalls
        self._leading = leading
        self._bodies = Bodies(progress_reports.LONGEST, BODY_WITHIN, TOGETHER, PER_ADDRESS)

    def add_to(self, app: FastAPI) -> None:
        app.add_api_route(
            "/progress/{namespace}/{name}/{uid}",
            self._post,
            methods=["POST"],
            status_code=204,
            summary="Report the progress of a running job, as the URL in its pods says",
            responses=REFUSED,
            openapi_extra={"requestBody": {"content": {"application/json": {"schema": REPORT}}}},
        )

    async def _post(self, request: Request, namespace: str, name: str, uid: str) -> Response:
        if not self._leading():
            return PlainTextResponse("this process is not the leader", 503)
        try:
            async with self._bodies.read(request.stream(), address_of(request)) as body:
                report = progress_reports.load(body)
            self._stalls.report(namespace, name, uid, report)
        except TooLargeError:
            return PlainTextResponse(f"a report has at most {progress_reports.LONGEST} bytes", 413)
        except BusyError as error:
            return PlainTextResponse(f"{error}\n", 429, error.headers)
        except TimeoutError:
            return PlainTextResponse(f"the report did not arrive within {BODY_WITHIN:g} s", 408)
        except ClientDisconnect:  # nobody reads the answer
            return Response(status_code=400)
        except (BadReportError, ValueError) as error:
            return PlainTextResponse(str(error), 400)
        except LookupError as error:
            return PlainTextResponse(str(error), 404)
        return Response(status_code=204)


class HttpServer:
    """Serves plain HTTP, and probes in the thread of `lifeline`. `page`: None where another server has metrics. `leading` says
    whether this process accepts progress reports."""

    def __init__(
        self,
        controller: Controller,
        health: Probes,
        page: MetricsPage | None,
        visibility: Visibility,
        leading: Callable[[], bool],
        lifeline: Lifeline,
    ) -> None:
        self._controller = controller
        self._health = health
        self._page = page
        self._visibility = visibility
        self._leading = leading
        self._lifeline = lifeline
        self._doors: list[asyncio.Future[None]] = []
        self._server: AsgiServer | None = None

    def app(self) -> FastAPI:
        app = new_app("Gangline operator", "What the operator answers to anybody who reaches its port.")
        ProgressEndpoint(self._controller.stalls, self._leading).add_to(app)  # first: it is called most
        self._health.add_to(app)
        if self._page is not None:
            self._page.add_to(app)
        self._visibility.add_to(app)
        Extender(self._controller.mirror, self._controller.engine).add_to(app)
        return app

    async def start(self, listen: tuple[str, int]) -> int:
        """Serve at a host and port; port 0 chooses one. Returns the port."""
        listening = bind(*listen)
        self._server = AsgiServer(self.app())
        self._server.start()
        door = FrontDoor(self._health, asyncio.get_running_loop(), self._server.protocol)
        self._doors = [self._lifeline.run(door.run(each)) for each in listening]
        return listening[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening and watching connections. The process ends after this."""
        for door in self._doors:
            door.cancel()
        if self._server is not None:
            self._server.close()
