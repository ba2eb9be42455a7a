"""The connection to one cluster: its login, watches of what it holds of ours, a regular question whether it answers, and writes.

Everything about one cluster runs in tasks of its own, with a limit on time, size and number, so that a cluster that hangs or lies
costs nobody else. After any failure the whole connection is made anew, with pauses as Kueue makes them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline import tenants
from gangline.api import names
from gangline.api.read import conditions
from gangline.control.checks.multikueue.clusters import remote_queues
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.control.checks.multikueue.clusters.remote_queues import RemoteQueues
from gangline.control.checks.multikueue.clusters.remote_store import RemoteStore, TooManyError
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.config import Login, LoginError
from gangline.kube.discovery import ServedVersions
from gangline.kube.errors import ApiError, Unavailable
from gangline.kube.reflector import Reflector, ReflectorGroup
from gangline.kube.resources import Json, Resource

log = logging.getLogger(__name__)

#: kinds of jobs that every cluster has
_REQUIRED: Final = frozenset({kube.JOBS})
#: seconds within which all that a cluster holds of ours has to be listed
ESTABLISH: Final = 60.0
#: seconds between questions whether it answers, and within which it has to
PROBE: float = 10.0
#: seconds after which a kind that a cluster lacked is looked for again
ABSENT_RETRY: float = 30.0
#: seconds for one write
WRITE: Final = 15.0
#: writes at the same time
CONCURRENT: Final = 8
#: bytes of one answer, or of one event
MOST_BYTES: Final = 16 * 2**20
PAGE: Final = 100
#: Pauses between attempts are 5, 10, 20, … seconds, at most this.
FIRST_PAUSE: float = 5.0
LONGEST_PAUSE: Final = 320.0
#: seconds after which a kubeconfig is read again, whether it serves or has failed
REREAD: float = 5.0
SOONEST_REREAD: float = 0.5

#: reads the kubeconfig now; raises KubeconfigError
ReadLogin: TypeAlias = Callable[[], Awaitable[tuple[str, Callable[[], Login]]]]
#: a write to this cluster
Work: TypeAlias = Callable[[ApiClient, RemoteStore], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """The condition Active of a cluster."""

    active: bool
    reason: str
    message: str


CONNECTED = ConnectionState(True, "Active", "Connected")


class RemoteCluster:
    """One cluster, in which jobs of these `kinds` are followed. `read` returns the text of its kubeconfig and a function that
    makes a login of it. `changed` is called with keys of Workloads, `moved` when the connection is made or lost, or when the
    cluster takes other kinds of jobs than before. `quotas` is called when the quotas of its queues may have changed; without it
    its queues are not followed. `now`: ms since the epoch."""

    def __init__(
        self,
        name: str,
        origin: str,
        read: ReadLogin,
        *,
        kinds: Sequence[RunsOnOtherCluster],
        changed: Callable[[str], None],
        moved: Callable[[], None],
        may_write: Callable[[], bool],
        now: Callable[[], int],
        quotas: Callable[[], None] | None = None,
        patience: float = 900.0,
        is_known: Callable[[str], bool] = lambda key: True,
    ) -> None:
        """Prepare a connection. `patience`: the seconds after which the cluster counts as lost; `is_known`: see `RemoteStore`."""
        self.name = name
        self._patience = patience
        self.store = RemoteStore(lambda key: None)
        self.queues = RemoteQueues(lambda: None)
        #: when it was lost, in ms; from the beginning until it is connected for the first time
        self.lost_at = now()
        self.connected = False
        self.state: ConnectionState | None = None
        self._origin = origin
        self._read = read
        self._kinds = kinds
        self._quotas = quotas
        self._jobs: dict[Resource, Reflector] = {}
        self._queues: dict[Resource, Reflector] = {}
        self._shown_kinds: frozenset[Resource] = frozenset()  # the kinds that can run there, as last shown
        self._changed = changed
        self._moved = moved
        self._may_write = may_write
        self._now = now
        self._client: ApiClient | None = None
        self._tried = ""  # the kubeconfig of the last attempt; "" = it could not be read
        self._is_known = is_known
        self._waiting: tenants.InTurn[tuple[Work, Callable[[ApiError | None], None]]] = tenants.InTurn()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again = asyncio.Event()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"cluster {name}")

    async def close(self) -> None:
        tasks = [self._keeper, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look_again(self) -> None:
        """Connect now, without the pause: the source of the kubeconfig may have changed."""
        self._again.set()

    def refuses(self, resource: Resource) -> str:
        """Why jobs of this kind cannot run in the cluster; "" if they can, as far as is known."""
        reflector = self._jobs.get(resource)
        return _why_hidden(resource, reflector) if reflector is not None else ""

    def hides_queues(self) -> str:
        """Why the quotas of the cluster's queues are not known; "" if they are."""
        return next(filter(None, (_why_hidden(*each) for each in self._queues.items())), "")

    # --- the connection ---

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._again.clear()
            try:
                await self._connect()
                failures = 0  # its kubeconfig has changed
                continue
            except KubeconfigError as error:
                self._lose(error.reason, f"load client config failed: {error}")
                pause = min(self._reread(), self._pause(failures))
            except Exception as error:
                failures = 0 if self.connected else failures
                self._lose("ClientConnectionFailed", _words(error))
                pause = self._pause(failures)
            failures += 1
            if await self._hears(pause):
                failures = 0

    async def _hears(self, pause: float) -> bool:
        """Wait for so long. Returns at once, and True, when the cluster's source or its kubeconfig has changed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + pause
        while (left := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, self._reread())):
                    await self._again.wait()
                return True
            except TimeoutError:
                pass
            if self._tried and end > loop.time():
                with suppress(KubeconfigError, ApiError):
                    if (await self._read())[0] != self._tried:
                        return True
        return False

    def _reread(self) -> float:
        """The seconds between two looks at the kubeconfig: another one is seen before the cluster counts as lost."""
        return min(REREAD, max(SOONEST_REREAD, self._patience / 4))

    @staticmethod
    def _pause(failures: int) -> float:
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 16))

    async def _connect(self) -> None:
        """Connect, and stay connected. Returns when the kubeconfig has changed; raises what ends the connection."""
        self._tried = ""
        text, make = await self._read()
        self._tried = text
        login = await asyncio.to_thread(make)
        async with ApiClient(
            login,
            connections=CONCURRENT + len(self._kinds) + len(remote_queues.KINDS) + 2,
            timeout=ESTABLISH / 2,
            most_bytes=MOST_BYTES,
        ) as client:
            self.store = store = RemoteStore(self._changed, self._kinds, is_known=self._is_known, name=self.name)
            reflectors = ReflectorGroup()
            follow = _Follow(client, ServedVersions(client, ABSENT_RETRY / 2))
            reflectors.add(self._follow_ours(follow, store, kube.WORKLOADS), store.sink(kube.WORKLOADS))
            self._jobs = {kind.resource: self._follow_ours(follow, store, kind.resource) for kind in self._kinds}
            for resource, reflector in self._jobs.items():
                reflectors.add(reflector, store.sink(resource))
            queues, followed = self._follow_queues(follow, reflectors)
            await self._ask(client)  # tells at once, and with its words, what a reflector would only repeat
            following = asyncio.get_running_loop().create_task(reflectors.run(), name=f"follow {self.name}")
            try:
                await self._established(reflectors, following)
                self._client = client
                self.queues, self._queues = queues, followed  # only now: until it is listed, nothing would be summed up
                self._gain()
                await self._watch_over(client, following, text)
            finally:
                self._client = None
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    def _follow_ours(self, follow: _Follow, store: RemoteStore, resource: Resource) -> Reflector:
        """Follow the objects of a kind that have our label. A cluster may lack a kind of jobs, and the account
        the right to them.
        """
        optional = resource != kube.WORKLOADS and resource not in _REQUIRED
        selector = f"{names.MULTIKUEUE_ORIGIN}={self._origin}"
        return follow(resource, store.decode(resource), selector, optional=optional)

    def _follow_queues(
        self, follow: _Follow, reflectors: ReflectorGroup
    ) -> tuple[RemoteQueues, dict[Resource, Reflector]]:
        queues = RemoteQueues(self._quotas or (lambda: None))
        followed = {
            resource: follow(resource, queues.decode, "", optional=True)
            for resource in (remote_queues.KINDS if self._quotas is not None else ())
        }
        for resource, reflector in followed.items():
            reflectors.add(reflector, queues.sink(resource))
        return queues, followed

    async def _ask(self, client: ApiClient) -> None:
        """Ask the cluster whether it answers. Raises what its answer says. A program that fetches its credentials has a time
        limit of its own.
        """
        await client.login.headers()
        pages = client.pages(kube.WORKLOADS, label_selector=f"{names.MULTIKUEUE_ORIGIN}={self._origin}", limit=1)
        try:
            async with asyncio.timeout(PROBE):
                await anext(pages)
        except TimeoutError:
            raise Unavailable(0, "Timeout", f"no answer within {PROBE:g} s") from None
        finally:
            await pages.aclose()

    async def _established(self, reflectors: ReflectorGroup, following: asyncio.Task[None]) -> None:
        synced = asyncio.get_running_loop().create_task(reflectors.wait_synced())
        try:
            await asyncio.wait((synced, following), timeout=ESTABLISH, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
            if not synced.done():
                missing = ", ".join(map(str, reflectors.missing()))
                raise Unavailable(0, "Timeout", f"no list of {missing} within {ESTABLISH:g} s")
        finally:
            synced.cancel()

    async def _watch_over(self, client: ApiClient, following: asyncio.Task[None], text: str) -> None:
        """Returns when the kubeconfig has changed; raises when the cluster does not answer."""
        loop = asyncio.get_running_loop()
        reread, probe = loop.time() + self._reread(), loop.time() + PROBE
        while True:
            again = loop.create_task(self._again.wait())
            soon = max(0.0, min(reread, probe) - loop.time())
            try:
                await asyncio.wait((again, following), timeout=soon, return_when=asyncio.FIRST_COMPLETED)
            finally:
                again.cancel()
            if following.done():
                following.result()
            if self._again.is_set() or loop.time() >= reread:
                self._again.clear()
                if (await self._read())[0] != text:
                    return
                reread = loop.time() + self._reread()
            if loop.time() < probe:
                continue
            probe = loop.time() + PROBE
            await self._ask(client)
            if self._taken() != self._shown_kinds:
                self._gain()

    def _gain(self) -> None:
        self.connected, self.state, self._shown_kinds = True, self._connected(), self._taken()
        self._moved()

    def _taken(self) -> frozenset[Resource]:
        """The kinds of jobs that can run in the cluster."""
        return frozenset(resource for resource in self._jobs if not self.refuses(resource))

    def _connected(self) -> ConnectionState:
        """The state of a cluster that is connected. A kind that it does not have is usual; one that the account may not list is
        likely an oversight.
        """
        refused = sorted(str(resource) for resource, reflector in self._jobs.items() if reflector.refusal)
        if not refused:
            return CONNECTED
        text = f"Connected; its account may not list {', '.join(refused)}: such jobs are not sent there"
        log.warning("cluster %s: %s", self.name, text)
        return ConnectionState(True, CONNECTED.reason, conditions.cut(text))

    def _lose(self, reason: str, message: str) -> None:
        if self.connected:
            self.lost_at = self._now()
        self.connected, self.state = False, ConnectionState(False, reason, message)
        log.info("cluster %s: %s: %s", self.name, reason, message)
        self._moved()

    # --- writes ---

    def write(self, namespace: str, work: Work, done: Callable[[ApiError | None], None]) -> None:
        """Write to the cluster when there is room, namespaces in turn, and call `done` with what failed."""
        self._waiting.put(namespace, (work, done))
        self._start_writes()

    def _start_writes(self) -> None:
        while len(self._waiting) and len(self._tasks) < CONCURRENT:
            task = asyncio.get_running_loop().create_task(self._write(*self._waiting.take()))
            self._tasks.add(task)
            task.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            self._start_writes()

    async def _write(self, work: Work, done: Callable[[ApiError | None], None]) -> None:
        failure: ApiError | None = None
        client, store = self._client, self.store
        try:
            if client is None or not self._may_write():
                raise Unavailable(0, "Disconnected", "there is no connection")
            await work(client, store)
        except ApiError as error:
            failure = error
        except (KeyError, TypeError, AttributeError, RuntimeError) as error:
            failure = Unavailable(0, type(error).__name__, f"the answer cannot be used: {error}")
        done(failure)


@dataclass(frozen=True, slots=True)
class _Follow:
    """Makes the reflectors of one connection."""

    client: ApiClient
    served: ServedVersions

    def __call__(
        self, resource: Resource, decode: Callable[[Json], object], selector: str, *, optional: bool
    ) -> Reflector:
        return Reflector(
            self.client,
            resource,
            label_selector=selector,
            decode=decode,
            optional=optional,
            refusable=optional,
            page_size=PAGE,
            absent_retry=ABSENT_RETRY,
            served=self.served,
        )


def _why_hidden(resource: Resource, reflector: Reflector) -> str:
    """Why the cluster shows no objects of this kind; "" if it does."""
    if not reflector.absent:
        return ""
    return f"its account may not list {resource}" if reflector.refusal else f"{resource} are not served there"


def _words(error: BaseException) -> str:
    """The text of an error for the cluster's condition; of an exception group, that of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error)[:500]
    return text if isinstance(error, ApiError | LoginError | TooManyError) else f"{type(error).__name__}: {text}"
