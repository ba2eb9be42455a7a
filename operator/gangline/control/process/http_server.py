"""The operator's HTTP server: health checks, metrics, forecasts, progress reports, and an extender of kube-scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from gangline.control.answers.api.pending_view import Visibility
from gangline.control.controller import Controller
from gangline.control.nodes.placing.extender import Extender
from gangline.control.nodes.stall import progress_reports
from gangline.control.process import metrics_endpoint
from gangline.control.process.front_door import FrontDoor, bind
from gangline.control.process.health import Health
from gangline.control.process.lifeline import Lifeline
from gangline.control.process.metrics_endpoint import MetricsPage
from gangline.control.process.progress_endpoint import ProgressEndpoint
from gangline.tls.connections import of_aiohttp, runner_of


class HttpServer:
    """Serves plain HTTP, and probes in the thread of `lifeline`. `page`: None where metrics are served elsewhere. `leading` says
    whether this process accepts progress reports."""

    def __init__(
        self,
        controller: Controller,
        health: Health,
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
        self._watch: asyncio.Future[None] | None = None

    def app(self) -> web.Application:
        app = web.Application(client_max_size=progress_reports.LONGEST)
        self._health.add_to(app)
        if self._page is not None:
            app.router.add_get(metrics_endpoint.PATH, self._page.get)
        self._visibility.add_to(app)
        ProgressEndpoint(self._controller.stalls, self._leading).add_to(app)
        Extender(self._controller.mirror, self._controller.engine).add_to(app)
        return app

    async def start(self, listen: tuple[str, int]) -> int:
        """Serve at a host and port; port 0 chooses one. Returns the port."""
        runner = runner_of(self.app())
        await runner.setup()
        if (server := runner.server) is None:
            raise RuntimeError("the server was not set up")
        self._watch = asyncio.ensure_future(of_aiohttp(server).run())
        listening = bind(*listen)
        door = FrontDoor(self._health, asyncio.get_running_loop(), server)
        self._doors = [self._lifeline.run(door.run(each)) for each in listening]
        return listening[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening and watching connections. The process ends after this."""
        for door in self._doors:
            door.cancel()
        if self._watch is not None:
            self._watch.cancel()
