"""What probes of the operator are told: /healthz fails when the process should be restarted, /readyz while it cannot do its work.

A standby is ready: it has listed everything and would lead at once. /readyz says who leads instead. Neither depends on the
webhooks, which are processes with probes of their own: an operator that restarted because of them would help nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import web

#: seconds for which the control loop may leave events unread; a hung event loop does not even answer
LONGEST_ROUND: Final = 60.0


@dataclass(frozen=True, slots=True)
class Health:
    """`unlisted`: kinds that were never listed; `behind`: seconds for which the loop has not read an event that came; `standing`:
    whether this process leads, or why not, in words."""

    unlisted: Callable[[], list[str]]
    behind: Callable[[], float]
    standing: Callable[[], str]

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)

    async def _healthz(self, _: web.Request) -> web.Response:
        behind = self.behind()
        if behind > LONGEST_ROUND:
            return web.Response(status=500, text=f"the control loop has read no event for {behind:.0f} s\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if missing := self.unlisted():
            return web.Response(status=503, text=f"waiting for the first list of {', '.join(missing)}\n")
        return web.Response(text=f"ok\n{self.standing()}\n")
