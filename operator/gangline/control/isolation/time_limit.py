"""A limit on the CPU time that work on one object may take.

Everything runs on one event loop, so an object that takes forever to read or plan would stop it. Only functions without side
effects run under the limit, because they can be interrupted at any point. Work that exceeded the limit is not done again until
one of its objects has changed.
"""

from __future__ import annotations

import atexit
import gc
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Final, TypeAlias, TypeVar

from gangline.kube.resources import Json

T = TypeVar("T")

#: CPU seconds for one object. Of the largest objects that an API server accepts, a pod with 24,000 variables takes 0.03 s, and
#: one with 8,000 containers, which no node could run, 0.18 s.
LIMIT: Final = 0.5
#: Seconds after which the work is interrupted again if it goes on all the same: Python drops exceptions in callbacks of weak
#: references and in finalizers.
_AGAIN: Final = 0.05
#: how many versions of objects are remembered that exceeded the limit
MOST: Final = 10_000

#: uid and resourceVersion of each object on which the work depends
_Versions: TypeAlias = tuple[tuple[str, str], ...]


class TookTooLongError(Exception):
    """The work took more CPU time than one object may cost."""


@dataclass(slots=True)
class _Alarm:
    """The only timer of the process. `started` is the CPU time at which the work began; None: no work is timed.

    The timer stays set from one piece of work to the next: most work takes less time than setting it. If it rings while nothing
    is timed, it is not set again.
    """

    started: float | None = None
    limit: float = LIMIT
    clock: Callable[[], float] = time.thread_time
    #: the time at which a collection of all garbage began; None: none goes on
    collecting: float | None = None

    def ring(self, number: int, frame: FrameType | None) -> None:
        """Handle the timer's signal: raise if the CPU time is used up, else set the timer again."""
        if self.started is None:
            return
        if self.collecting is not None or (frame is not None and frame.f_code in _LOSING_EXCEPTIONS):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        if self._left(self.started) <= 0:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            raise TookTooLongError(_text(self.limit))
        self._set(self.started)

    def begin(self, limit: float, clock: Callable[[], float]) -> None:
        """Time work from now on, and see to it that the timer rings when the limit may be reached, or before."""
        self.clock, self.limit = clock, limit
        self.started = clock()  # before the look at the timer, which could ring in between for the last time
        if not 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= limit:
            signal.signal(signal.SIGALRM, self.ring)
            signal.setitimer(signal.ITIMER_REAL, limit)

    def _left(self, started: float) -> float:
        return self.limit - (self.clock() - started)

    def _set(self, started: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, max(self._left(started), 0.01))

    def collects(self, phase: str, info: dict[str, int]) -> None:
        """A collection begins or ends. One of all garbage looks through the objects of the whole process: that is not the
        work's time. Smaller ones look through what the work has just made.
        """
        if info["generation"] < 2 or threading.current_thread() is not threading.main_thread():
            return
        if phase == "start":
            self.collecting = self.clock()
        elif self.collecting is not None:
            if self.started is not None:
                self.started += self.clock() - self.collecting
            self.collecting = None  # last: until then the timer only rings again
            if self.started is not None:
                self._set(self.started)


#: Python drops what is raised in them when a collection begins or ends
_LOSING_EXCEPTIONS: Final = {each.__code__ for each in (_Alarm.collects, _Alarm._set, _Alarm._left)}
_ALARM: Final = _Alarm()
gc.callbacks.append(_ALARM.collects)
# a process that ends has no handler any more: the signal would kill it
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
#: the versions of objects on which work exceeded the limit, oldest first
_EXCEEDED: Final = OrderedDict[_Versions, str]()


def limited(work: Callable[[], T], limit: float = LIMIT, *, wall: bool = False, of: Sequence[Json] = ()) -> T:
    """Returns the result of `work`. Raises TookTooLongError after `limit` CPU seconds (`wall`: seconds), and at once if it
    exceeded the limit before on the same versions of the objects `of`. Unlimited outside the main thread.
    """
    if _EXCEEDED and of and (said := _EXCEEDED.get(_versions(of))):
        raise TookTooLongError(said)
    if _ALARM.started is not None or threading.get_ident() != threading.main_thread().ident:
        return work()
    try:
        _ALARM.begin(limit, time.monotonic if wall else time.thread_time)
        try:
            return work()
        finally:
            _ALARM.started = None
    except TookTooLongError as error:
        if of:
            _EXCEEDED[_versions(of)] = str(error)
            while len(_EXCEEDED) > MOST:
                _EXCEEDED.popitem(last=False)
        raise
    finally:  # also where the signal came within the other one
        _ALARM.started = None


def _versions(objects: Sequence[Json]) -> _Versions:
    metas = [each["metadata"] for each in objects]
    return tuple((meta.get("uid") or "", meta.get("resourceVersion") or "") for meta in metas)


def _text(limit: float) -> str:
    return f"working on it took more than {limit:g} s of CPU time; it is tried again when it changes"
