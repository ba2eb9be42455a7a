"""The process that evaluates the CEL selectors of users, started when the first claim has one.

What it costs is bounded: CPU time and memory by the process itself (`selecting.child`), and the time for which an answer is
waited for. An expression that ends the process is not evaluated again, and for a while (`pause`) no other new one is. Commands
wait for the answers; the operator asks through a `SelectorQueue`, whose thread waits."""

from __future__ import annotations

import logging
import os
import selectors
import subprocess
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import orjson

from gangline import child_process
from gangline.api.selecting import DeviceGroup, UnavailableError, Verdict

log = logging.getLogger(__name__)

_COMMAND: Final = (sys.executable, "-P", "-m", "gangline.api.selecting.child")
#: seconds for which an answer is waited for: on a busy machine much more than the CPU time that it may take
PATIENCE: Final = 10.0
#: seconds without new expressions after one that ended the process
PAUSE: Final = 20.0
#: expressions that ended it, by which they are known
_MOST_BAD: Final = 1024
_COSTLY: Final = "evaluating it takes too much time or memory"
_LATER: Final = "another CEL selector took too much time or memory: new ones are evaluated again in a moment"


class SelectorProcess:
    """A `selecting.Judge` for all namespaces. `clock`, `pause`: seconds."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, command: Sequence[str] = _COMMAND, *, pause: float = PAUSE
    ) -> None:
        self._clock = clock
        self._pause = pause
        #: CPU milliseconds of the last answer
        self.spent = 0.0
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, SelectorProcess] | None = None
        self._bad: OrderedDict[str, None] = OrderedDict()
        self._paused_until = 0.0
        self._killed = False

    def of(self, namespace: str) -> SelectorProcess:
        return self

    def fault(self, expression: str) -> str:
        """Why the expression does not compile; "" if it does. Raises UnavailableError."""
        self.spent = 0.0
        if expression in self._bad:
            return _COSTLY
        answer = self._ask(expression, orjson.dumps([expression]))
        return _COSTLY if answer is None else str(answer)

    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> list[tuple[Verdict, ...]]:
        """A verdict for each device of each group. Raises UnavailableError."""
        lines = [orjson.dumps([expression, len(groups)])]
        lines += [b"[%b,%b]" % (orjson.dumps(each.driver), each.devices) for each in groups]
        question = b"\n".join(lines)
        self.spent = 0.0
        answer = None if expression in self._bad else self._ask(expression, question)
        if answer is None:
            return [(_COSTLY,) * len(orjson.loads(each.devices)) for each in groups]
        return [tuple(row) for row in cast("list[list[Verdict]]", answer)]

    @property
    def paused(self) -> float:
        """Seconds until new expressions are evaluated again; 0 if they are."""
        return max(0.0, self._paused_until - self._clock())

    def close(self) -> None:
        """End the process; the next question starts another one."""
        if self._end is not None:
            self._end()
        self._process = self._end = None

    def kill(self) -> None:
        """End the process for good, while another thread waits for its answer: that waits no longer."""
        self._killed = True
        if (process := self._process) is not None:
            process.kill()

    def _ask(self, expression: str, question: bytes) -> Any:
        """The answer; None if the process ended over it."""
        if self.paused:
            raise UnavailableError(_LATER)
        answered, began = False, time.monotonic()
        try:
            answer = self._exchange(self._running(), question + b"\n")
            answered = answer is not None
        except OSError as error:
            raise UnavailableError(f"the process for CEL selectors: {error}") from None
        finally:
            if (
                not answered
            ):  # also when the reading of an object was interrupted: the answer would be taken for another's
                self.close()
        if answer is None and self._killed:
            raise UnavailableError("the process for CEL selectors was ended")
        if answer is None:
            self.spent = (time.monotonic() - began) * 1000
            self._blame(expression)
            return None
        self.spent, found = orjson.loads(answer)
        return found

    def _blame(self, expression: str) -> None:
        log.warning("a CEL selector takes too much time or memory, and is not evaluated: %.200s", expression)
        self._bad[expression] = None
        if len(self._bad) > _MOST_BAD:
            self._bad.popitem(last=False)
        self._paused_until = self._clock() + self._pause

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:  # it ends when it is idle
            self.close()
        if self._process is None:
            process = subprocess.Popen(
                self._command,
                env=child_process.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._process, self._end = process, weakref.finalize(self, _stop, process)
            if self._killed:  # `kill` came while it was being started
                process.kill()
        return self._process

    def _exchange(self, process: subprocess.Popen[bytes], question: bytes) -> bytes | None:
        """The line that answers; None if there comes none in time."""
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(question)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        received, until = bytearray(), time.monotonic() + PATIENCE
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while (left := until - time.monotonic()) > 0 and waiting.select(left):
                part = os.read(process.stdout.fileno(), 1 << 20)
                received += part
                if received.endswith(b"\n"):
                    return bytes(received)
                if not part:
                    return None
        return None


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not written yet
                log.debug("a question to the process for CEL selectors was not written")
