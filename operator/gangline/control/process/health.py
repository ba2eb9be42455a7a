"""The probes of the operator: /healthz fails when the process should be restarted, /readyz while it cannot do its work.

A standby is ready: it has listed everything and would lead at once. /readyz says who leads instead. Neither depends on the
webhooks, which are processes with probes of their own: an operator that restarted because of them would help nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from gangline.control.process.lease import steady_clock
from gangline.tls.apps import add_get

#: Seconds for which the control loop may make no progress. After that /healthz fails, and the lease is not renewed. A round takes
#: a fraction of a second; only a fault, or a machine that stood still, takes longer.
LONGEST_ROUND: Final = 30.0
#: seconds between two signs of life
BEAT: Final = 0.5


class Pulse:
    """The pulse of the main loop, which says whether it makes progress: its event loop runs, and its control loop takes the
    rounds that are due.

    `behind`: the seconds for which a round of the control loop has been due. `run` beats in the main loop, everything else may be
    called from any thread.
    """

    def __init__(self, behind: Callable[[], float], clock: Callable[[], float] = steady_clock) -> None:
        self._behind = behind
        self._clock = clock
        self._beat = clock()

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT)

    def beat(self) -> None:
        self._beat = self._clock()

    def still(self) -> float:
        """The seconds since the last progress, as far as it is overdue."""
        return max(self._clock() - self._beat - BEAT, self._behind(), 0.0)

    def alive(self) -> bool:
        return self.still() <= LONGEST_ROUND


@dataclass(frozen=True, slots=True)
class Health:
    """Answers probes. `unlisted`: kinds that were never listed; `still`: seconds for which the main loop has made no progress;
    `standing`: whether this process leads, or why not, in words. They are called from any thread.
    """

    unlisted: Callable[[], list[str]]
    still: Callable[[], float]
    standing: Callable[[], str]

    def answer(self, path: str) -> tuple[int, str] | None:
        """Status and text for the path of a probe; None for other paths."""
        return self._healthz() if path == "/healthz" else self._readyz() if path == "/readyz" else None

    def _healthz(self) -> tuple[int, str]:
        still = self.still()
        if still > LONGEST_ROUND:
            return 500, f"the control loop has made no progress for {still:.0f} s\n"
        return 200, "ok\n"

    def _readyz(self) -> tuple[int, str]:
        if missing := self.unlisted():
            return 503, f"waiting for the first list of {', '.join(missing)}\n"
        return 200, f"ok\n{self.standing()}\n"

    def add_to(self, app: FastAPI) -> None:
        """Answer on connections that began with another request, too."""
        alive = "Whether the control loop makes progress; 500 where the process should be restarted"
        ready = "Whether everything is listed, so that this process leads or could lead; 503 until then"
        add_get(app, "/healthz", self._get, summary=alive, response_class=PlainTextResponse)
        add_get(app, "/readyz", self._get, summary=ready, response_class=PlainTextResponse)

    async def _get(self, request: Request) -> Response:
        status, text = self.answer(request.url.path) or (404, "")
        return PlainTextResponse(text, status)
