"""The operator's HTTP server: health checks, metrics, forecasts, progress reports, and an extender of kube-scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import FastAPI

from gangline.control.answers.api.pending_view import Visibility
from gangline.control.controller import Controller
from gangline.control.nodes.placing.extender import Extender
from gangline.control.process.front_door import FrontDoor, bind
from gangline.control.process.health import Probes
from gangline.control.process.lifeline import Lifeline
from gangline.control.process.metrics_endpoint import MetricsPage
from gangline.control.process.progress_endpoint import ProgressEndpoint
from gangline.tls.apps import new_app
from gangline.tls.asgi import AsgiServer


class HttpServer:
    """Serves plain HTTP, and probes in the thread of `lifeline`. `page`: None where metrics are served elsewhere. `leading` says
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
