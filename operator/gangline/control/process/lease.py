"""Leader election on a coordination.k8s.io/v1 Lease, with client-go's rules and times (15 s / 10 s / 2 s).

The Lease is the one that Kueue's leader holds: of all replicas of Kueue and Gangline, one decides.

A candidate never compares its clock with another's: it records when *it* saw the Lease change, and takes over once a whole lease
duration has passed without a change, on its own clock. Each write replaces exactly the version that was read (resourceVersion),
so two candidates cannot win. The leader stops leading `renew_deadline` seconds after it *sent* its last successful renewal, which
is before any other process may take over, even if its event loop stalled meanwhile: `leading()` reads the clock. The clock goes
on while the machine sleeps.

The candidate runs in a thread of its own, so that no work of the main loop delays a renewal. A renewal also says that this
process does its work: `alive` tells whether the main loop makes progress, and without that the lease is left to expire. Both are
safe. While the lease is renewed, nobody else may lead, however long the main loop is busy. Once it is not, `leading()` turns
false `renew_deadline` seconds after the last renewal, whether the main loop goes on by then or not, and what it still plans is
not written.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import uuid
from collections.abc import Awaitable, Callable

from gangline.api.read.configuration.manager import JITTER, KUEUES, LeaseSettings
from gangline.bounded import shown
from gangline.kube.client import ApiClient, ApiError, Conflict, Json, NotFound
from gangline.kube.resources import LEASES
from gangline.kube.transport import steady
from gangline.objects import Stored

logger = logging.getLogger(__name__)


def default_identity() -> str:
    """An identity that is unique per process: a restarted pod of the same name must not mistake itself for its predecessor."""
    return f"{os.environ.get('HOSTNAME') or socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """One candidate. `run()` waits for the lease, holds it, and returns when it is lost or `stop()` was called.

    A clean shutdown first flushes its writes and then stops the elector: another process may lead from that moment on.
    `on_started` is called when leadership begins, `on_lost` when it ends for any reason; neither may block. If the Lease is older
    than it was, the store was restored from a backup: the candidate stops, and `on_rewind` is called with what shows it. `alive`:
    whether this process makes progress. `clock` and `sleep` are for tests.

    `leading`, `holder`, `waiting` and `lost_because` may be read from any thread.
    """

    def __init__(
        self,
        client: ApiClient,
        lease: LeaseSettings = KUEUES,
        *,
        identity: str | None = None,
        on_started: Callable[[], object] | None = None,
        on_lost: Callable[[], object] | None = None,
        on_rewind: Callable[[str], object] = lambda what: None,
        alive: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = steady,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.identity = identity or default_identity()
        self._client = client
        self._settings = lease
        self._on_started = on_started
        self._on_lost = on_lost
        self._on_rewind = on_rewind
        self._clock = clock
        self._sleep = sleep
        self._alive = alive
        #: why this process leads no more; "" if it does, or has left
        self.lost_because = ""
        self._lease: Stored | None = None  # the record as last seen
        self._changed_at = 0.0  # when we saw it change, on our clock
        self._renewed_at: float | None = None  # when we sent the last renewal that succeeded
        self._started = False
        self._stopping = asyncio.Event()
        self._waiting = ""

    def leading(self) -> bool:
        """Whether this process certainly holds the lease at this moment. Cheap; gates every write."""
        return self._started and self._time_left() > 0

    @property
    def holder(self) -> str:
        """The lease's holder as far as we know; empty = none."""
        return self._spec.get("holderIdentity") or ""

    @property
    def _spec(self) -> Json:
        """What the record says; empty without one."""
        return self._lease.spec if self._lease is not None else {}

    @property
    def waiting(self) -> str:
        """Why this process does not lead: who holds the lease, or what the API server answers; "" where nothing is in the way."""
        return "" if self.leading() else self._waiting

    async def run(self) -> None:
        """Become the leader, then lead until the lease is lost. Cancelling or `stop()` releases the lease."""
        try:
            while not self._stopping.is_set():
                if self._makes_progress() and await self._attempt():
                    return await self._lead()
                await self._pause(self._settings.retry_period * random.uniform(1.0, JITTER))
        finally:
            await self._leave()

    def stop(self) -> None:
        """Make `run()` release the lease and return."""
        self._stopping.set()

    # --- leading ------------------------------------------------------------------------------------------------------

    async def _lead(self) -> None:
        logger.info("leading as %s", self.identity)
        self._started = True
        if self._on_started:
            self._on_started()
        while not self._stopping.is_set():
            await self._pause(min(self._settings.retry_period, max(0.0, self._time_left())))
            if self._time_left() <= 0 or self._stopping.is_set():
                break
            if not self._makes_progress():  # others may lead soon
                continue
            if not await self._attempt() and self.holder != self.identity:
                break
        if not self._stopping.is_set():
            self.lost_because = self._why_lost()
            logger.error("%s", self.lost_because)

    def _makes_progress(self) -> bool:
        alive = self._alive()
        if not alive:
            self._wait_because("the control loop makes no progress")
        return alive

    def _why_lost(self) -> str:
        if self.holder and self.holder != self.identity:
            return f"Lease {self._settings} is lost to {shown(self.holder)}"
        why = self._waiting or "this process stood still"
        return f"Lease {self._settings} was not renewed within {self._settings.renew_deadline:g} s: {why}"

    def _time_left(self) -> float:
        renewed_at = self._renewed_at
        return 0.0 if renewed_at is None else renewed_at + self._settings.renew_deadline - self._clock()

    async def _leave(self) -> None:
        started, self._started = self._started, False
        if started and self._on_lost:
            self._on_lost()
        if self._renewed_at is not None and self.holder == self.identity:
            self._renewed_at = None
            await asyncio.shield(self._release())

    async def _release(self) -> None:
        """Let another process take over at once; if this fails, it has to wait for the lease to expire."""
        try:
            await self._write(holder=None, duration=1.0)
        except ApiError as error:
            logger.info("the lease could not be released: %s", error)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but at most until `stop()`."""
        sleeping = asyncio.ensure_future(self._sleep(seconds))
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((sleeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()
            stopping.cancel()

    # --- the record ---------------------------------------------------------------------------------------------------

    async def _attempt(self) -> bool:
        """Take or renew the lease. Returns True where this process holds it now."""
        sent_at = self._clock()
        try:
            if self.holder != self.identity:  # the leader knows the record, and resourceVersion catches foreign changes
                await self._look()
                if self._stopping.is_set():
                    return False
                if not self._free():
                    self._wait_for_holder()
                    return False
            await self._write(holder=self.identity, duration=self._settings.lease_duration)
        except Conflict:
            await self._look_quietly()
            return False
        except NotFound as error:  # the lease was deleted, or its namespace does not exist
            self._lease = None
            self._wait_because(str(error))
            return False
        except ApiError as error:  # if the write succeeded all the same, the next one conflicts, and we read again
            self._wait_because(str(error))
            return False
        self._renewed_at, self._waiting = sent_at, ""
        return True

    def _wait_for_holder(self) -> None:
        """Say once who holds the lease: it may be a replica of Kueue, which renews it for months."""
        since = shown(str(self._spec.get("acquireTime") or "an unknown time"))
        waiting = f"{shown(self.holder)} holds Lease {self._settings} since {since}"
        if waiting != self._waiting:
            logger.info("waiting: %s", waiting)
        self._waiting = waiting

    def _wait_because(self, trouble: str) -> None:
        """Note why this process does not lead. Attempts are repeated every two seconds, and the same trouble is logged once."""
        if trouble != self._waiting:
            logger.warning("Lease %s: %s", self._settings, trouble)
        self._waiting = trouble

    def _free(self) -> bool:
        if not self.holder or self.holder == self.identity or self._lease is None:
            return True
        duration = float(self._spec.get("leaseDurationSeconds") or self._settings.lease_duration)
        return self._clock() >= self._changed_at + duration

    async def _look_quietly(self) -> None:
        try:
            await self._look()
        except ApiError as error:
            logger.info("Lease %s: %s", self._settings, error)

    async def _look(self) -> None:
        try:
            found = await self._client.get(
                LEASES, self._settings.namespace, self._settings.name, within=self._request_timeout()
            )
        except NotFound:
            self._lease = None
            return
        self._see(found)

    def _see(self, found: Json) -> None:
        lease, last = Stored(found), self._lease.revision if self._lease is not None else 0
        if 0 < lease.revision < last:
            self.stop()
            self._on_rewind(f"Lease {self._settings} is at version {lease.revision} after {last}")
        if self._lease is None or self._lease.spec != lease.spec:
            self._changed_at = self._clock()
        self._lease = lease

    async def _write(self, *, holder: str | None, duration: float) -> None:
        now = self._client.clock.utc().isoformat(timespec="microseconds").replace("+00:00", "Z")
        old = self._spec
        passing_on = old.get("holderIdentity") != holder
        spec = {
            "holderIdentity": holder,
            "leaseDurationSeconds": max(1, round(duration)),
            "renewTime": now,
            "acquireTime": now if passing_on else old.get("acquireTime", now),
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (passing_on and holder is not None),
        }
        within = self._request_timeout()
        if self._lease is None:
            body = {
                "metadata": {"name": self._settings.name, "namespace": self._settings.namespace},
                "spec": {**spec, "leaseTransitions": 0},
            }
            self._see(await self._client.create(LEASES, self._settings.namespace, body, within=within))
            return
        body = {**self._lease, "spec": {**old, **spec}}
        replaced = self._client.replace(LEASES, self._settings.namespace, self._settings.name, body, within=within)
        self._see(await replaced)

    def _request_timeout(self) -> float:
        """The seconds for one request: half of the deadline, so that a hanging request leaves time for a second one, and never
        beyond it.
        """
        half = self._settings.renew_deadline / 2
        return max(0.1, min(half, self._time_left())) if self._started else half
