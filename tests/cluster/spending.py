"""Whether a start was ever granted to who had used their budget, by every revision of Workloads. No code is Gangline's.

Each start is judged twice: by the instants that conditions have, and by this machine's clock when their revisions arrived, which
no operator can have set. The second count allows for the whole seconds of instants and for the time that a revision takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from bench.evidence import WORKLOADS
from bench.official import BOOKMARK, OfficialClient

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
#: seconds by which the instants of a stretch and the arrivals of its revisions may differ
OFF = 3.0


@dataclass(slots=True)
class Stretch:
    """One stretch in which a Workload held quota. `seen` and `over` are when that arrived, by this machine's clock."""

    owners: tuple[str, ...]
    gpus: int
    since: float
    seen: float
    until: float | None = None
    over: float | None = None


@dataclass
class Spending:
    """`hours`: the GPU-hours of each owner who has a budget. `owners_of`: all who use GPUs with a Workload."""

    hours: Mapping[str, float]
    owners_of: Callable[[Json], tuple[str, ...]]
    violations: list[str] = field(default_factory=list)
    #: how many starts each owner was granted
    granted: Counter[str] = field(default_factory=Counter[str])
    stretches: list[Stretch] = field(default_factory=list)
    _open: dict[str, Stretch] = field(default_factory=dict)

    @contextlib.asynccontextmanager
    async def watching(self, client: OfficialClient) -> AsyncIterator[None]:
        """Take every revision from now on. There must be no Workload yet."""
        listing = await client.list(WORKLOADS)
        assert not listing.items

        async def follow() -> None:
            async for event in client.watch(WORKLOADS, listing.version):
                if event.type != BOOKMARK:
                    self.take(event.object, gone=event.type == "DELETED", at=time.time())

        task = asyncio.ensure_future(follow())
        try:
            yield
            assert not task.done(), "the watch has ended before all was seen"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def take(self, workload: Json, *, gone: bool, at: float) -> None:
        uid, status = workload["metadata"]["uid"], workload.get("status") or {}
        rows = {row["type"]: row for row in status.get("conditions") or ()}
        reserved, finished = rows.get("QuotaReserved", {}), rows.get("Finished", {})
        since = _instant(reserved) if reserved.get("status") == "True" else None
        ended = finished.get("status") == "True"
        running = self._open.get(uid)
        if running is not None and (gone or ended or since != running.since):
            del self._open[uid]
            running.over = at
            running.until = _instant(finished) if ended else at if gone else _instant(reserved)
        if since is not None and not ended and not gone and uid not in self._open:
            self._grant(workload, since, at)

    def _grant(self, workload: Json, since: float, at: float) -> None:
        owners = self.owners_of(workload)
        for owner in owners:
            self.granted[owner] += 1
            hours = self.hours.get(owner)
            if hours is None:
                continue
            name = workload["metadata"]["name"]
            if (used := self.used(owner, since)) >= hours:
                self.violations.append(f"{name} got quota at {since}: {owner} had used {used:.4f} of {hours} GPU-hours")
            if (used := self._seen(owner, at)) >= hours:
                self.violations.append(
                    f"{name} was seen with quota at {at}: {owner} had used {used:.4f} of {hours} GPU-hours"
                )
        rows = workload["status"]["admission"]["podSetAssignments"]
        gpus = sum(int(row.get("resourceUsage", {}).get(GPU, 0)) for row in rows)
        stretch = Stretch(owners, gpus, since, at)
        self._open[workload["metadata"]["uid"]] = stretch
        self.stretches.append(stretch)

    def used(self, owner: str, now: float) -> float:
        """GPU-hours that an owner has used, by the instants in conditions."""
        found = (each for each in self.stretches if owner in each.owners)
        return sum(each.gpus * max(0.0, (each.until or now) - each.since) for each in found) / 3600

    def _seen(self, owner: str, now: float) -> float:
        """GPU-hours that an owner has used at least, by the arrivals of revisions."""
        found = (each for each in self.stretches if owner in each.owners)
        return sum(each.gpus * max(0.0, (each.over or now) - each.seen - OFF) for each in found) / 3600


def _instant(row: Json) -> float:
    return datetime.fromisoformat(row["lastTransitionTime"]).timestamp()
