"""A thread with an event loop of its own, for what must not wait for the main loop: the lease and the answers to probes.

It shares the interpreter with the main loop, which it interrupts every few milliseconds, whatever Python code runs there. Only a
single call into C that holds the interpreter can delay it: such calls get inputs of bounded size.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: seconds that the thread has for its end
_END: Final = 5.0
#: signals that are for the main thread: the end of the process, and limits on time (`control.isolation.time_limit`)
_OF_MAIN: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


class Lifeline:
    """Runs coroutines in its thread. Every method is called in the main loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _OF_MAIN)
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run this in the thread. Returns its result for the main loop; if that is cancelled, so is the work."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._serve, args=(self._loop,), name="lifeline", daemon=True)
            self._thread.start()
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call(self, function: Callable[[], object]) -> None:
        """Call this in the thread, soon. Does nothing where nothing runs there."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    async def close(self) -> None:
        """Cancel what still runs there, and end the thread. May be called twice."""
        if self._loop is not None and self._thread is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, _END)
