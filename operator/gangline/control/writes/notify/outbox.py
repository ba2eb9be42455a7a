"""Delivers notices: bundled, rate-limited, retried, and without delaying anything else.

Each receiver has a box and, while notices wait in it, one task. All notices that wait in a box when it is due leave as one
message. The addresses come from a Secret that is read when needed and cached for a minute; its content is never logged. The
`apprise` library blocks, so it runs in threads of its own.

Everything that the jobs of a namespace can fill is bounded in sum for that namespace: its addresses, its waiting notices, its
messages. What is over costs that namespace alone, and is reported by the name of the bound.

Reads the Secrets with the addresses of receivers, as far as RBAC lets the operator read them.
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
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from gangline.control.parts.part import Part
from gangline.control.writes.notify.notices import Message, Notice, Receiver, Terms, compose
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden

log = logging.getLogger(__name__)


class SecretReader:
    """Reads Secrets one by one, by their names."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def read(self, namespace: str, name: str) -> Mapping[str, str]:
        """The data of a Secret. Where reading is forbidden, the error names the command that grants it."""
        try:
            return (await self._client.get(kube.SECRETS, namespace, name)).get("data") or {}
        except Forbidden as error:
            grant = f"gangline admin rbac --notify-secret {namespace}/{name} | kubectl apply -f -"
            raise Forbidden(error.status, error.reason, f"{error.message}; to grant it: {grant}") from error


#: seconds between the attempts to deliver one message; after the last attempt it is given up
PAUSES: Final = (2.0, 10.0, 60.0)
#: how many notices of one namespace wait, over all receivers; further ones are dropped and counted
MOST_WAITING: Final = 1000
#: addresses of one namespace's jobs to which messages went within an hour; notices for further ones are dropped and counted
MOST_ADDRESSES: Final = 100
#: namespaces of which the messages of the last hour are remembered before idle ones are forgotten
MANY_TENANTS: Final = 1000
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
class _Sent:
    """The messages of the last hour: when each began to leave, and the namespace of all its notices ("": of several)."""

    rows: deque[tuple[float, str]] = field(default_factory=deque[tuple[float, str]])

    def free(self, now: float, most: int, namespace: str | None = None) -> float:
        """The time at which fewer than `most` messages are less than an hour old; counted are those of one namespace alone, or
        all.
        """
        while self.rows and self.rows[0][0] <= now - HOUR:
            self.rows.popleft()
        times = [at for at, of in self.rows if namespace is None or of == namespace]
        return times[len(times) - most] + HOUR if len(times) >= most else now


@dataclass(slots=True)
class _Box:
    """The notices that wait for one receiver, and the state of its delivery."""

    terms: Terms
    waiting: deque[Notice] = field(default_factory=deque[Notice])
    sent: _Sent = field(default_factory=_Sent)
    first: float = 0.0  # since when notices wait
    task: asyncio.Task[None] | None = None
    failing: bool = False
    due_anew: asyncio.Event = field(default_factory=asyncio.Event)  # set when the box may be due earlier than it was


@dataclass(slots=True)
class _Tenant:
    """The part of the outbox that belongs to one namespace. `boxes`: of the addresses that its jobs gave."""

    waiting: int = 0
    boxes: dict[Receiver, _Box] = field(default_factory=dict[Receiver, _Box])
    sent: _Sent = field(default_factory=_Sent)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # held by the box that may send next
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)  # one thread at a time is busy with its messages
    reported: dict[str, float] = field(default_factory=dict[str, float])  # bound -> when it was last reported


class Outbox(Part):
    """The notices that are to be delivered.

    `outcome` counts the outcome of each notice; `complain` is called once when a receiver begins to fail; `limited` is called
    with a Workload's key and a sentence when its namespace reaches a bound, at most once an hour for each bound.
    """

    name = "notifications"

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        outcome: Outcome = lambda kind, outcome: None,
        complain: Callable[[Receiver, str], None] = lambda receiver, why: None,
        limited: Callable[[str, str], None] = lambda workload, why: None,
        send: Send | None = None,
        pauses: Sequence[float] = PAUSES,
        clock: Callable[[], float] = time.monotonic,
        most_time: float = MOST_TIME,
    ) -> None:
        self._read_secret = read_secret
        self._outcome = outcome
        self._complain = complain
        self._limited = limited
        self._send: Send = send or send_with_apprise
        self._pauses = pauses
        self._clock = clock
        self._most_time = most_time
        self._tenants: dict[str, _Tenant] = {}
        self._shared: dict[Receiver, _Box] = {}  # of receivers that administrators alone chose
        self._secrets: dict[tuple[str, str], tuple[float, Mapping[str, str]]] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._closing = asyncio.Event()

    def put(self, receiver: Receiver, terms: Terms, notice: Notice) -> None:
        """Queue a notice. Returns at once; needs a running event loop."""
        tenant = self._tenant(notice.namespace)
        bound = self._bound_reached(receiver, notice.namespace, tenant)
        if bound:
            self._outcome(notice.kind, "dropped")
            self._report(tenant, notice, f"{bound}; its further notifications are dropped")
            return
        boxes = tenant.boxes if receiver.to else self._shared
        box = boxes.setdefault(receiver, _Box(terms))
        box.terms = terms
        if not box.waiting:
            box.first = self._clock()
        elif box.waiting[-1].namespace != notice.namespace:
            box.due_anew.set()
        box.waiting.append(notice)
        tenant.waiting += 1
        if box.task is None:
            box.task = asyncio.get_running_loop().create_task(self._serve(receiver, box, tenant))

    async def close(self, patience: float = CLOSE_WITHIN) -> None:
        """Send waiting notices without further delay, for at most `patience` seconds; the rest is dropped."""
        self._closing.set()
        for box in self._boxes():
            box.due_anew.set()
        tasks = [box.task for box in self._boxes() if box.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        for task in tasks:
            task.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _boxes(self) -> list[_Box]:
        return [*self._shared.values(), *(box for tenant in self._tenants.values() for box in tenant.boxes.values())]

    # --- bounds of a namespace ----------------------------------------------------------------------------------------

    def _tenant(self, namespace: str) -> _Tenant:
        if namespace not in self._tenants and len(self._tenants) >= MANY_TENANTS:
            for name, tenant in [*self._tenants.items()]:
                self._forget_idle_boxes(tenant)
                if not tenant.waiting and not tenant.boxes and tenant.sent.free(self._clock(), 1) <= self._clock():
                    del self._tenants[name]
        return self._tenants.setdefault(namespace, _Tenant())

    def _bound_reached(self, receiver: Receiver, namespace: str, tenant: _Tenant) -> str:
        """The bound that keeps a notice from being queued, as the beginning of a sentence; "" for none."""
        if tenant.waiting >= MOST_WAITING:
            return f"{MOST_WAITING} notifications of namespace {namespace} wait already"
        if receiver.to and receiver not in tenant.boxes and len(tenant.boxes) >= MOST_ADDRESSES:
            self._forget_idle_boxes(tenant)
            if len(tenant.boxes) >= MOST_ADDRESSES:
                return f"jobs of namespace {namespace} gave {MOST_ADDRESSES} addresses (gangline.io/notify-to) within an hour"
        return ""

    def _forget_idle_boxes(self, tenant: _Tenant) -> None:
        """Delete the boxes of addresses that got no notice for an hour."""
        limit = self._clock() - HOUR
        for receiver in [r for r, box in tenant.boxes.items() if box.task is None and box.first <= limit]:
            del tenant.boxes[receiver]

    def _report(self, tenant: _Tenant, notice: Notice, why: str) -> None:
        now = self._clock()
        if tenant.reported.get(why, now - HOUR) <= now - HOUR:
            tenant.reported[why] = now
            log.warning("notifications: %s", why)
            self._limited(notice.workload, why)

    # --- one receiver -------------------------------------------------------------------------------------------------

    async def _serve(self, receiver: Receiver, box: _Box, tenant: _Tenant) -> None:
        try:
            while box.waiting:
                await self._until_due(receiver, box)
                may_leave = not receiver.to or await self._in_turn(box, tenant)
                batch = list(box.waiting)
                box.waiting.clear()
                for notice in batch:
                    self._tenant(notice.namespace).waiting -= 1
                if may_leave:
                    await self._deliver(receiver, box, batch, tenant.sending if receiver.to else nullcontext())
                else:
                    self._count(batch, "dropped")
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("notifications to Secret %s/%s", receiver.namespace, receiver.name)
        finally:
            box.task = None

    async def _until_due(self, receiver: Receiver, box: _Box) -> None:
        """Wait for the end of the digest period, and for the rate."""
        while True:
            box.due_anew.clear()
            pause = self._due(receiver, box) - self._clock()
            if pause <= 0 or self._closing.is_set():
                return
            await self._pause(pause, box.due_anew)

    def _due(self, receiver: Receiver, box: _Box) -> float:
        """The time at which the next message may leave. Where namespaces share the receiver, none of them alone uses the whole
        rate.
        """
        now, most = self._clock(), box.terms.max_per_hour
        due = max(box.first + box.terms.digest, box.sent.free(now, most))
        namespaces = {notice.namespace for notice in box.waiting}
        if receiver.to or len(namespaces) > 1:
            return due
        return max(due, box.sent.free(now, most - most // 4, namespaces.pop()))

    async def _in_turn(self, box: _Box, tenant: _Tenant) -> bool:
        """Wait until the namespace may send to one more of its addresses; False where the process ends before that."""
        async with tenant.turn:
            free = tenant.sent.free(self._clock(), box.terms.max_per_namespace)
            if free > self._clock():
                namespace, most = box.waiting[0].namespace, box.terms.max_per_namespace
                why = f"jobs of namespace {namespace} sent {most} messages to their addresses within an hour (maxPerNamespace)"
                self._report(tenant, box.waiting[0], f"{why}; its further notifications wait")
                await self._pause(free - self._clock())
                if self._closing.is_set():
                    return False
            tenant.sent.rows.append((self._clock(), ""))
            return True

    async def _deliver(
        self, receiver: Receiver, box: _Box, batch: Sequence[Notice], turn: AbstractAsyncContextManager[None]
    ) -> None:
        message, left, why = compose(batch), None, ""
        namespaces = {notice.namespace for notice in batch}
        box.sent.rows.append((self._clock(), namespaces.pop() if len(namespaces) == 1 else ""))
        for pause in (*self._pauses, None):
            try:
                left = await self._urls(receiver) if left is None else left
                if not left:
                    self._count(batch, "unaddressed")
                    return
                async with turn:
                    left, why = await self._try(left, message)
            except DeliveryError as error:
                why = str(error)
            if left == []:
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

    async def _pause(self, seconds: float, woken: asyncio.Event | None = None) -> None:
        """Sleep; cut short when `woken` is set, without which at shutdown."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await (woken or self._closing).wait()
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
