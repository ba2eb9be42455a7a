"""How reviews come in: within limits of bytes, and large ones in turn, so that no namespace takes the time of the others.

A small review is answered at once. What it costs beyond a usual one counts, and a namespace that sent too many such is refused
further small ones for a while. A large one waits for its turn: addresses take turns, and of the reviews of one address,
those of the namespace that has used least time of late go first. Each namespace has an allowance of CPU time for large objects,
which refills steadily; where it is used up, further ones are refused before they are read. The allowance counts by address, too:
a review says itself which namespace it is about, and anybody may send one. What is refused is answered as a review, so that its
author gets the reason, and a 429 with the time after which clients send it again by themselves.
"""

from __future__ import annotations

import asyncio
import re
import time
import types
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from gangline.tls.requests import Bodies, BusyError, TooLargeError
from gangline_webhooks.envelope import TooLargeReviewError

T = TypeVar("T")

#: seconds in which the body of a review has to arrive
BODY_WITHIN: Final = 10.0
#: bytes of a review that is answered at once: those of usual jobs have about 8 KiB
SMALL: Final = 16 * 2**10
#: bytes of all bodies at a time, and of those that one address sends about one namespace
TOGETHER: Final = 64 * 2**20
PER_NAMESPACE: Final = 16 * 2**20
#: large reviews that are judged at a time: they share one thread, but may wait for facts of the cluster
AT_ONCE: Final = 2
#: seconds that a large review waits for its turn, and a large conversion: API servers wait 2 at least, and 30 for conversions
PATIENCE: Final = 1.0
MORE_PATIENCE: Final = 15.0
#: CPU seconds of a small review that count for nothing: more than those of usual jobs take (docs/performance.md)
USUAL: Final = 0.005
#: CPU seconds for large reviews that an account may use at once, and those that it gets back in a second; and so for small ones
ALLOWANCE: Final = 2.0
REFILL: Final = 0.1
#: accounts whose use is known; the use of further ones counts from the beginning
MOST_ACCOUNTS: Final = 10_000
#: bytes at the beginning of a review in which its uid and namespace stand: before the user and the object
_HEAD: Final = 4096

_UID: Final = re.compile(rb'"request"\s{0,8}:\s{0,8}\{\s{0,8}"uid"\s{0,8}:\s{0,8}"([A-Za-z0-9-]{1,64})"')
_NAMESPACE: Final = re.compile(rb'"namespace"\s{0,8}:\s{0,8}"([a-z0-9-]{1,63})"')


@dataclass(frozen=True, slots=True)
class Head:
    """What a review is about, as far as its beginning says it: "" for what it does not. It decides about order alone."""

    uid: str = ""
    namespace: str = ""

    @classmethod
    def of(cls, beginning: bytes) -> Head:
        if len(beginning) > _HEAD:
            beginning = beginning[:_HEAD]
        beginning = beginning.partition(b'"userInfo"')[0]
        uid, namespace = _UID.search(beginning), _NAMESPACE.search(beginning)
        return cls(uid[1].decode() if uid else "", namespace[1].decode() if namespace else "")


class ReviewAccount(NamedTuple):
    """Who is charged for a review."""

    address: str
    namespace: str


@dataclass(slots=True)
class Allowances:
    """The CPU time for reviews of a kind ("large", "costly") that each account has left."""

    kind: str
    clock: Callable[[], float] = time.monotonic
    #: what an account has used of its allowance, and when that was true
    _used: dict[ReviewAccount, tuple[float, float]] = field(default_factory=dict[ReviewAccount, tuple[float, float]])

    def used(self, account: ReviewAccount) -> float:
        used, at = self._used.get(account, (0.0, 0.0))
        return max(0.0, used - REFILL * (self.clock() - at))

    def charge(self, account: ReviewAccount, seconds: float) -> None:
        self._used[account] = (self.used(account) + seconds, self.clock())
        if len(self._used) > MOST_ACCOUNTS:
            self._used = {each: known for each, known in self._used.items() if self.used(each)}
            while len(self._used) > MOST_ACCOUNTS:
                del self._used[next(iter(self._used))]

    def check(self, account: ReviewAccount) -> None:
        """Check that an account has something left of its allowance. Raises BusyError where nothing is left."""
        over = self.used(account) - ALLOWANCE
        if over < 0:
            return
        where = f"of namespace {account.namespace}" if account.namespace else "without a namespace"
        seconds = max(1, ceil(over / REFILL))
        raise BusyError(f"too many {self.kind} objects {where} are being checked: try again in {seconds} s", seconds)


class ReviewTurns:
    """Takes large reviews in turns: so many are judged at a time. Of those that wait, one is next of the address that has waited
    for its turn for longest, and of its namespaces the one that has used least.
    """

    def __init__(self, allowances: Allowances, patience: float) -> None:
        self._allowances = allowances
        self._patience = patience
        self._free = AT_ONCE
        #: addresses in the order of their turns -> what waits of each, oldest first
        self._waiting: dict[str, dict[ReviewAccount, deque[asyncio.Future[None]]]] = {}

    @asynccontextmanager
    async def turn(self, account: ReviewAccount) -> AsyncIterator[None]:
        """Wait for an account's turn and hold it for the length of a `with`. Raises BusyError."""
        self._allowances.check(account)
        if not self._free:
            await self._wait(account)
        else:
            self._free -= 1
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, account: ReviewAccount) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(account.address, {}).setdefault(account, deque()).append(turn)
        try:
            async with asyncio.timeout(self._patience):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._pass_on()  # it came too late
            else:
                self._leave(account, turn)
            if isinstance(error, TimeoutError):
                raise BusyError("too many large objects are being checked: try again in a moment") from None
            raise

    def _leave(self, account: ReviewAccount, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(account.address, {}).get(account)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            self._forget_empty(account)

    def _forget_empty(self, account: ReviewAccount) -> None:
        of_address = self._waiting[account.address]
        if not of_address[account]:
            del of_address[account]
        if not of_address:
            del self._waiting[account.address]

    def _pass_on(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            of_address = self._waiting[address]
            account = min(of_address, key=self._allowances.used)
            turn = of_address[account].popleft()
            self._forget_empty(account)
            if self._waiting.pop(address, None) is not None:
                self._waiting[address] = of_address  # after the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class ReviewRefusedError(Exception):
    """A review that is not judged. `uid`: "" where it is not known."""

    def __init__(self, uid: str, status: int, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.uid = uid
        self.status = status
        self.retry_after = retry_after


#: makes the answer to the body of a review
Judge: TypeAlias = Callable[[bytes], Coroutine[Any, Any, bytes]]


class ReviewIntake:
    """Reads reviews of at most `longest` bytes that arrive within `within` seconds and has them judged, large ones in turn."""

    def __init__(
        self,
        longest: int,
        *,
        by_namespace: bool = True,
        within: float = BODY_WITHIN,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """`by_namespace` False: reviews of no namespace in particular, which have no allowance and are not refused for it."""
        self.within = within
        self._cpu = cpu
        self._by_namespace = by_namespace
        self._bodies = Bodies(longest, within, TOGETHER, PER_NAMESPACE if by_namespace else TOGETHER)
        self._allowances = Allowances("large", clock)
        self._of_small = Allowances("costly", clock)
        self._turns = ReviewTurns(self._allowances, PATIENCE if by_namespace else MORE_PATIENCE)

    async def answer(self, chunks: AsyncIterable[bytes], judge: Judge, address: str = "") -> bytes:
        """Read a review and let the judge answer it, a large one in its turn. `address`: of the client. Raises RefusedError,
        TimeoutError, and what the judge raises.
        """
        chunks = aiter(chunks)
        beginning = b""
        async with asyncio.timeout(self.within):
            while len(beginning) <= SMALL and (chunk := await anext(chunks, None)) is not None:
                beginning += chunk
        if len(beginning) <= SMALL and not self._by_namespace:
            return await _judged(judge, beginning)
        head = Head.of(beginning)
        account = ReviewAccount(address, head.namespace if self._by_namespace else "")
        try:
            if len(beginning) <= SMALL:
                return await self._answer_small(beginning, judge, account)
            if self._by_namespace:
                self._allowances.check(account)
            client = f"{address} {account.namespace}"
            async with self._bodies.read(_joined(beginning, chunks), client) as body, self._turns.turn(account):
                return await metered(_judged(judge, body), self._cpu, partial(self._charge, account))
        except TooLargeError as error:
            raise ReviewRefusedError(head.uid, 413, str(error)) from None
        except BusyError as error:
            raise ReviewRefusedError(head.uid, 429, str(error), error.retry_after) from None

    async def _answer_small(self, body: bytes, judge: Judge, account: ReviewAccount) -> bytes:
        self._of_small.check(account)
        spent: list[float] = []
        try:
            return await metered(_judged(judge, body), self._cpu, spent.append)
        finally:
            if (beyond := sum(spent) - USUAL) > 0:
                self._of_small.charge(account, beyond)

    def _charge(self, account: ReviewAccount, seconds: float) -> None:
        if self._by_namespace:
            self._allowances.charge(account, seconds)


async def _judged(judge: Judge, body: bytes) -> bytes:
    try:
        return await judge(body)
    except TooLargeReviewError as error:
        raise ReviewRefusedError(Head.of(body).uid, 413, str(error)) from None


async def _joined(beginning: bytes, rest: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    yield beginning
    async for chunk in rest:
        yield chunk


@types.coroutine
def metered(
    work: Coroutine[Any, Any, T], cpu: Callable[[], float], charge: Callable[[float], None]
) -> Generator[Any, Any, T]:
    """The result of `work`. The CPU time of its steps is charged, not that of other tasks for which it waits."""
    step: Callable[[], Any] = partial(work.send, None)
    while True:
        start = cpu()
        try:
            awaited = step()
        except StopIteration as end:
            return end.value
        finally:
            charge(cpu() - start)
        try:
            sent = yield awaited
        except BaseException as error:  # a cancelled task, for one
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
