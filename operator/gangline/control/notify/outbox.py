"""Delivers notices: bundled, rate-limited, retried, and without delaying anything else.

Each receiver has a box and, while notices wait in it, one task. All notices that wait in a box when it is due leave as one
message. The addresses come from a Secret that is read when needed and cached for a minute; its content is never logged. The
`apprise` library blocks, so it runs in threads of its own.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from gangline.control.notify.notices import Message, Notice, Receiver, Terms, compose
from gangline.control.parts.part import Part

log = logging.getLogger(__name__)

#: seconds between the attempts to deliver one message; after the last attempt it is given up
PAUSES: Final = (2.0, 10.0, 60.0)
#: how many notices wait per receiver; further ones are dropped and counted
MOST_WAITING: Final = 2000
#: receivers that are remembered, each with the address of a job; notices for further ones are dropped and counted
MOST_BOXES: Final = 10_000
#: seconds for one message to one receiver, however slowly it answers
MOST_TIME: Final = 60.0
#: seconds for which the content of a Secret is cached
SECRET_AGE: Final = 60.0
#: how long waiting notices may take at shutdown, in seconds
CLOSE_WITHIN: Final = 3.0
#: messages that are delivered at the same time, over all receivers
THREADS: Final = 2
HOUR: Final = 3600.0

#: reads the data of a Secret (namespace, name): key -> base64. Raises for one that can't be read.
ReadSecret: TypeAlias = Callable[[str, str], Awaitable[Mapping[str, str]]]
#: sends a message to a URL, blocking. Raises DeliveryError.
Send: TypeAlias = Callable[[str, Message], None]
#: (kind, outcome) of a notice: sent, failed, dropped, unaddressed
Outcome: TypeAlias = Callable[[str, str], None]


class DeliveryError(Exception):
    """A message was not delivered. The error says why, without anything secret."""


@dataclass(slots=True)
class _Box:
    """The notices that wait for one receiver, and the state of its delivery."""

    terms: Terms
    waiting: deque[Notice] = field(default_factory=deque[Notice])
    sent: deque[float] = field(default_factory=deque[float])  # times of the messages sent within the last hour
    first: float = 0.0  # since when notices wait
    task: asyncio.Task[None] | None = None
    failing: bool = False


class Outbox(Part):
    """The notices that are to be delivered.

    `outcome` counts the outcome of each notice; `complain` is called once when a receiver begins to fail.
    """

    name = "notifications"

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        outcome: Outcome = lambda kind, outcome: None,
        complain: Callable[[Receiver, str], None] = lambda receiver, why: None,
        send: Send | None = None,
        pauses: Sequence[float] = PAUSES,
        clock: Callable[[], float] = time.monotonic,
        most_time: float = MOST_TIME,
    ) -> None:
        self._read_secret = read_secret
        self._outcome = outcome
        self._complain = complain
        self._send: Send = send or send_with_apprise
        self._pauses = pauses
        self._clock = clock
        self._most_time = most_time
        self._boxes: dict[Receiver, _Box] = {}
        self._secrets: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._closing = asyncio.Event()

    def put(self, receiver: Receiver, terms: Terms, notice: Notice) -> None:
        """Queue a notice. Returns at once; needs a running event loop."""
        if receiver not in self._boxes and len(self._boxes) >= MOST_BOXES:
            self._outcome(notice.kind, "dropped")
            return
        box = self._boxes.setdefault(receiver, _Box(terms))
        box.terms = terms
        if len(box.waiting) >= MOST_WAITING:
            self._outcome(notice.kind, "dropped")
            return
        if not box.waiting:
            box.first = self._clock()
        box.waiting.append(notice)
        if box.task is None:
            box.task = asyncio.get_running_loop().create_task(self._serve(receiver, box))

    async def close(self, patience: float = CLOSE_WITHIN) -> None:
        """Send waiting notices without further delay, for at most `patience` seconds; the rest is dropped."""
        self._closing.set()
        tasks = [box.task for box in self._boxes.values() if box.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # --- one receiver -------------------------------------------------------------------------------------------------

    async def _serve(self, receiver: Receiver, box: _Box) -> None:
        try:
            while box.waiting:
                await self._pause(self._due(box) - self._clock())
                batch = list(box.waiting)
                box.waiting.clear()
                await self._deliver(receiver, box, batch)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("notifications to Secret %s/%s", receiver.namespace, receiver.name)
        finally:
            box.task = None
            self._tidy()

    def _due(self, box: _Box) -> float:
        """When the next message may leave: at the end of the digest period, and within the rate."""
        now = self._clock()
        while box.sent and box.sent[0] <= now - HOUR:
            box.sent.popleft()
        over = len(box.sent) - box.terms.max_per_hour
        free = box.sent[over] + HOUR if over >= 0 else now
        return max(box.first + box.terms.digest, free)

    def _tidy(self) -> None:
        """Delete boxes of receivers that got no notice for an hour."""
        if len(self._boxes) < 1000:
            return
        limit = self._clock() - HOUR
        for receiver in [r for r, box in self._boxes.items() if box.task is None and box.first < limit]:
            del self._boxes[receiver]

    async def _deliver(self, receiver: Receiver, box: _Box, batch: Sequence[Notice]) -> None:
        message, left, why = compose(batch), None, ""
        for pause in (*self._pauses, None):
            try:
                left = await self._urls(receiver) if left is None else left
                if not left:
                    self._count(batch, "unaddressed")
                    return
                left, why = await self._try(left, message)
            except DeliveryError as error:
                why = str(error)
            if left == []:
                box.sent.append(self._clock())
                box.failing = False
                self._count(batch, "sent")
                return
            if pause is None or self._closing.is_set():
                break
            await self._pause(pause)
        self._count(batch, "failed")
        log.warning("a notification to Secret %s/%s was given up: %s", receiver.namespace, receiver.name, why)
        if not box.failing:
            box.failing = True
            self._complain(receiver, why)

    async def _try(self, urls: Sequence[str], message: Message) -> tuple[list[str], str]:
        """Send to each URL. Returns the URLs that refused, which alone are tried again, and the last refusal's reason."""
        refused: list[str] = []
        why = ""
        for url in urls:
            try:
                await self._in_thread(url, message)
            except DeliveryError as error:
                refused.append(url)
                why = str(error)
        return refused, why

    async def _in_thread(self, url: str, message: Message) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="notify")
        sending = asyncio.get_running_loop().run_in_executor(self._threads, self._send, url, message)
        try:
            async with asyncio.timeout(self._most_time):
                await sending
        except TimeoutError:
            raise DeliveryError(f"no answer within {self._most_time:g} s") from None

    async def _pause(self, seconds: float) -> None:
        """Sleep; cut short at shutdown."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._closing.wait()
            except TimeoutError:
                pass

    def _count(self, batch: Sequence[Notice], outcome: str) -> None:
        for notice in batch:
            self._outcome(notice.kind, outcome)

    # --- addresses ----------------------------------------------------------------------------------------------------

    async def _urls(self, receiver: Receiver) -> list[str]:
        try:
            return urls_of(await self._secret(receiver), receiver.to)
        except DeliveryError as error:
            raise DeliveryError(f"Secret {receiver.namespace}/{receiver.name}: {error}") from None

    async def _secret(self, receiver: Receiver) -> Mapping[str, str]:
        key = (receiver.namespace, receiver.name)
        known = self._secrets.get(key)
        if known is not None and self._clock() - known[0] < SECRET_AGE:
            return known[1]
        try:
            data = await self._read_secret(*key)
        except Exception as error:
            raise DeliveryError(str(error)) from None
        self._secrets[key] = (self._clock(), data)
        return data


def urls_of(data: Mapping[str, str], to: str) -> list[str]:
    """The URLs in the data of a Secret; `to` is the job's own address. Raises DeliveryError."""
    if "url" not in data:
        raise DeliveryError("it has no key url")
    lines = [line.strip() for line in _decoded(data, "url").splitlines()]
    return addressed(lines, to or _decoded(data, "to").strip())


def addressed(urls: Sequence[str], to: str) -> list[str]:
    """The URLs with {to} filled in; URLs with {to} are left out if there is no address."""
    found = [url for url in urls if url and not url.startswith("#")]
    if not to:
        return [url for url in found if "{to}" not in url]
    return [url.replace("{to}", quote(to, safe="@")) for url in found]


def _decoded(data: Mapping[str, str], key: str) -> str:
    try:
        return base64.b64decode(data.get(key, "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise DeliveryError(f"its key {key} is not text") from None


def send_with_apprise(url: str, message: Message, *, quiet: bool = True) -> None:
    """Send by https://appriseit.com, which supports some hundred services. Blocks. Raises DeliveryError."""
    import apprise  # slow to import, and needed only where notices are sent

    if quiet:
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its log messages show parts of URLs
    service: Any = apprise.Apprise()
    if not service.add(url):
        raise DeliveryError("Apprise does not know a URL in it")
    kind = apprise.NotifyType.WARNING if message.warning else apprise.NotifyType.INFO
    try:
        accepted = service.notify(title=message.title, body=message.body, notify_type=kind, body_format="text")
    except Exception as error:  # apprise calls a hundred services: any error counts as failed delivery
        raise DeliveryError(f"the receiver did not accept it: {type(error).__name__}") from None
    if not accepted:
        raise DeliveryError("the receiver did not accept it")
