"""The questions of all namespaces about CEL selectors, which a thread takes to the process that evaluates them.

Nobody waits here: what is not known yet is unavailable, and `wake` is called when an answer has come. Namespaces take turns, and
each has so much CPU time per second: one with expensive selectors waits for its own, and for nobody else's.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from gangline.api.selecting import DeviceGroup, Judge, UnavailableError, Verdict
from gangline.control.feed.selector_process import SelectorProcess

log = logging.getLogger(__name__)

#: CPU milliseconds for the selectors of one namespace: per second, and at once after a quiet time
RATE: Final = 200.0
BURST: Final = 10_000.0
#: slices of one question: others wait for its end
_TOGETHER: Final = 16
#: questions of a namespace that wait, and answers for it that were not asked for again yet
_MOST_QUESTIONS: Final = 1024
_MOST_ANSWERS: Final = 16_384
#: seconds between two calls of `wake` while there are more questions, and until a process is tried again that cannot be started
_PAUSE: Final = 0.1
_RETRY: Final = 1.0
#: seconds after which a namespace without questions is forgotten, with answers that it did not ask for again
_QUIET: Final = 60.0
#: seconds for which the end of the thread is waited for
_PATIENCE: Final = 5.0
_LATER: Final = "its CEL selectors are being evaluated"
_SPENT: Final = f"the CEL selectors of its namespace take more than {RATE:g} ms of CPU time per second: they wait"


class Evaluator(Protocol):
    """The evaluator that the thread asks. `spent`: CPU milliseconds of the last answer."""

    spent: float

    def fault(self, expression: str) -> str: ...
    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> Sequence[tuple[Verdict, ...]]: ...
    def kill(self) -> None: ...
    def close(self) -> None: ...


class _Question(NamedTuple):
    """A question: which devices of these groups an expression selects; without groups, why it does not compile."""

    expression: str
    groups: tuple[DeviceGroup, ...] = ()


@dataclass(slots=True)
class _Asker:
    """A namespace, its questions in their order, and the answers. `budget`: CPU milliseconds that it has at the time `at`;
    `active`: when it asked, or was answered, last."""

    at: float
    active: float
    budget: float = BURST
    questions: OrderedDict[_Question, None] = field(default_factory=OrderedDict[_Question, None])
    #: the groups of these questions
    asked: set[tuple[str, DeviceGroup]] = field(default_factory=set[tuple[str, DeviceGroup]])
    faults: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])
    verdicts: OrderedDict[tuple[str, DeviceGroup], tuple[Verdict, ...]] = field(
        default_factory=OrderedDict[tuple[str, DeviceGroup], tuple[Verdict, ...]]
    )

    def refill(self, now: float) -> None:
        self.budget, self.at = min(BURST, self.budget + (now - self.at) * RATE), now

    def is_idle(self) -> bool:
        return not self.questions and self.budget >= BURST and self.at - self.active > _QUIET


class SelectorQueue:
    """A `selecting.Judges`: the judges of all namespaces. `wake` is called in the loop that asked first, after answers came."""

    def __init__(
        self,
        process: Evaluator | None = None,
        *,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._process = process or SelectorProcess(pause=0.0)
        self._wake = wake
        self._clock = clock
        self._changed = threading.Condition()
        self._askers: OrderedDict[str, _Asker] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._trouble = ""
        self._answered = False
        self._woken_at = 0.0

    def of(self, namespace: str) -> Judge:
        return _Voice(self, namespace)

    def take_answered(self) -> bool:
        """Whether answers came since this was last asked."""
        with self._changed:
            answered, self._answered = self._answered, False
            return answered

    def close(self) -> None:
        """End the thread and the process. Questions stay unanswered from now on."""
        with self._changed:
            self._closed = True
            thread = self._thread
            self._changed.notify_all()
        if thread is not None:
            self._process.kill()
            thread.join(_PATIENCE)
        self._process.close()

    # --- the loop's side ---

    def fault(self, namespace: str, expression: str) -> str:
        with self._changed:
            asker = self._asker(namespace)
            if expression in asker.faults:
                return asker.faults.pop(expression)
            self._ask(asker, _Question(expression))
            raise UnavailableError(self._why(asker))

    def judge(self, namespace: str, expression: str, groups: Sequence[DeviceGroup]) -> list[tuple[Verdict, ...] | None]:
        with self._changed:
            asker = self._asker(namespace)
            found = [asker.verdicts.pop((expression, group), None) for group in groups]
            missing = [
                group
                for group, row in zip(groups, found, strict=True)
                if row is None and (expression, group) not in asker.asked
            ]
            for start in range(0, len(missing), _TOGETHER):
                self._ask(asker, _Question(expression, tuple(missing[start : start + _TOGETHER])))
            if found and not any(row is not None for row in found):
                raise UnavailableError(self._why(asker))
            return found

    def _asker(self, namespace: str) -> _Asker:
        found, now = self._askers.get(namespace), self._clock()
        if found is None:
            found = self._askers[namespace] = _Asker(now, now)
            self._askers.move_to_end(namespace, last=False)  # it has not had its turn
        found.active = now
        return found

    def _why(self, asker: _Asker) -> str:
        return self._trouble or (_LATER if asker.budget > 0 else _SPENT)

    def _ask(self, asker: _Asker, question: _Question) -> None:
        if self._closed or len(asker.questions) >= _MOST_QUESTIONS:
            return
        asker.questions.setdefault(question)
        asker.asked.update((question.expression, group) for group in question.groups)
        if self._loop is None:
            self._loop = _running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="CEL selectors", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    # --- the thread's side ---

    def _run(self) -> None:
        while (found := self._next()) is not None:
            namespace, question = found
            try:
                self._store(namespace, question, self._asked(question))
            except UnavailableError as error:
                self._fail(str(error))
            except Exception as error:
                log.exception("a CEL selector could not be evaluated")
                self._fail(f"CEL selectors cannot be evaluated: {type(error).__name__}")

    def _asked(self, question: _Question) -> str | Sequence[tuple[Verdict, ...]]:
        if not question.groups:
            return self._process.fault(question.expression)
        return self._process.judge(question.expression, question.groups)

    def _next(self) -> tuple[str, _Question] | None:
        """The next question: of the namespace that was served longest ago, among those with CPU time left. Waits until there is
        one; None, and the thread ends, when nobody has a question, or when the queue is closed."""
        with self._changed:
            while not self._closed:
                now, soonest = self._clock(), None
                for namespace, asker in list(self._askers.items()):
                    asker.refill(now)
                    if asker.questions and asker.budget > 0:
                        self._askers.move_to_end(namespace)
                        return namespace, next(iter(asker.questions))
                    if asker.questions:
                        wait = 1 / RATE - asker.budget / RATE
                        soonest = wait if soonest is None else min(soonest, wait)
                    elif asker.is_idle():
                        del self._askers[namespace]
                if soonest is None:
                    break
                self._changed.wait(soonest)
            self._thread = None
            return None

    def _store(self, namespace: str, question: _Question, answer: str | Sequence[tuple[Verdict, ...]]) -> None:
        with self._changed:
            self._trouble = ""
            asker = self._asker(namespace)
            asker.budget -= self._process.spent
            asker.questions.pop(question, None)
            asker.asked.difference_update((question.expression, group) for group in question.groups)
            if isinstance(answer, str):
                asker.faults[question.expression] = answer
            else:
                for group, row in zip(question.groups, answer, strict=True):
                    asker.verdicts[question.expression, group] = row
            while len(asker.faults) > _MOST_ANSWERS:
                asker.faults.popitem(last=False)
            while len(asker.verdicts) > _MOST_ANSWERS:
                asker.verdicts.popitem(last=False)
            self._answered = True
            more = any(each.questions and each.budget > 0 for each in self._askers.values())
        now = self._clock()
        if not more or now - self._woken_at >= _PAUSE:
            self._woken_at = now
            self._call_wake()

    def _fail(self, why: str) -> None:
        """Drop all questions, since nothing can be evaluated for now: whoever asked asks again."""
        with self._changed:
            self._trouble = why
            for asker in self._askers.values():
                asker.questions.clear()
                asker.asked.clear()
            if not self._closed:
                self._changed.wait(_RETRY)

    def _call_wake(self) -> None:
        loop = self._loop
        try:
            if loop is not None:
                loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # the loop is closed
            log.debug("nobody waits for answers about CEL selectors any more")


@dataclass(frozen=True, slots=True)
class _Voice:
    """The judge of one namespace."""

    queue: SelectorQueue
    namespace: str

    def fault(self, expression: str) -> str:
        return self.queue.fault(self.namespace, expression)

    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> Sequence[tuple[Verdict, ...] | None]:
        return self.queue.judge(self.namespace, expression, groups)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
