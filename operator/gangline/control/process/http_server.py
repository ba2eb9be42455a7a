"""The operator's HTTP server: metrics, health checks, forecasts and progress reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from gangline.control.controller import Controller
from gangline.control.operator_metrics import Metrics
from gangline.control.process.progress_endpoint import ProgressEndpoint
from gangline.control.stall import progress_reports
from gangline.control.visibility.pending_view import Visibility
from gangline.kube import resources as kube
from gangline.tls.connections import of_aiohttp, runner_of


class HttpServer:
    """Serves plain HTTP. `leading` says whether this process accepts progress reports."""

    def __init__(
        self, controller: Controller, metrics: Metrics, visibility: Visibility, leading: Callable[[], bool]
    ) -> None:
        self._controller = controller
        self._metrics = metrics
        self._visibility = visibility
        self._leading = leading
        self._watch: asyncio.Future[None] | None = None

    def app(self) -> web.Application:
        """/metrics, /healthz (the loop runs), /readyz (all kinds are listed), reports, forecasts."""
        app = web.Application(client_max_size=progress_reports.LONGEST)
        app.router.add_get("/metrics", self._render_metrics)
        app.router.add_get("/healthz", ok)
        app.router.add_get("/readyz", ok)
        self._visibility.add_to(app)
        ProgressEndpoint(self._controller.stalls, self._leading).add_to(app)
        return app

    async def start(self, listen: tuple[str, int]) -> int:
        """Serve at a host and port; port 0 chooses one. Returns the port."""
        runner = runner_of(self.app())
        await runner.setup()
        if runner.server is not None:
            self._watch = asyncio.ensure_future(of_aiohttp(runner.server).run())
        site = web.TCPSite(runner, *listen)
        await site.start()
        return runner.addresses[0][1]

    def close(self) -> None:
        """Stop watching connections. The process ends after this."""
        if self._watch is not None:
            self._watch.cancel()

    async def _render_metrics(self, _: web.Request) -> web.Response:
        controller = self._controller
        self._metrics.queues(controller.engine, sorted(controller.mirror.objects[kube.CLUSTER_QUEUES]))
        return web.Response(body=await self._metrics.text(), content_type="text/plain")


async def ok(_: web.Request) -> web.Response:
    return web.Response(text="ok")
