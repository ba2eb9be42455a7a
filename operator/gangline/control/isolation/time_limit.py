"""A limit on the CPU time that reading one object may take.

Everything runs on one event loop, so an object that takes forever to read would stop it. Only functions without side effects run
under the limit, because they can be interrupted at any point.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Final, TypeVar

T = TypeVar("T")

#: CPU seconds for one object; the largest objects that an API server accepts take a twentieth of this
LIMIT: Final = 2.0


class TookTooLongError(Exception):
    """Reading took more CPU time than one object may cost."""


@dataclass(slots=True)
class _Alarm:
    """The only timer of the process. `started` is the CPU time at which the work began; None: no work is timed."""

    started: float | None = None
    limit: float = LIMIT
    clock: Callable[[], float] = time.thread_time

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Handle the timer's signal: raise if the CPU time is used up, else set the timer again."""
        if self.started is None:
            return
        left = self.limit - (self.clock() - self.started)
        if left <= 0:
            raise TookTooLongError(f"reading it took more than {self.limit:g} s")
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.01))


_ALARM: Final = _Alarm()


def limited(work: Callable[[], T], limit: float = LIMIT, *, wall: bool = False) -> T:
    """Returns the result of `work`. Raises TookTooLongError after `limit` CPU seconds (`wall`: seconds). Unlimited outside the
    main thread.
    """
    if threading.current_thread() is not threading.main_thread() or _ALARM.started is not None:
        return work()
    signal.signal(signal.SIGALRM, _ALARM.ring)
    _ALARM.clock = time.monotonic if wall else time.thread_time
    _ALARM.started, _ALARM.limit = _ALARM.clock(), limit
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        return work()
    finally:
        _ALARM.started = None
        signal.setitimer(signal.ITIMER_REAL, 0)
