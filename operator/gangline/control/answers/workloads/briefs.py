"""The few facts of a Workload that sorting and counting of all of them need, read once per version. So an answer reads in full
only what it shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.control.answers.workloads.snapshot import FINISHED, HOLDING, JobState, judge, requested, seconds
from gangline.control.answers.workloads.snapshot import held as held_by
from gangline.engine import accelerators
from gangline.objects import WorkloadObject

log = logging.getLogger(__name__)

Routes: TypeAlias = Mapping[tuple[str, str], str]
#: sort key of a Workload, as `snapshot.display_order`
Order: TypeAlias = tuple[int, str, int, float, str]
#: Workloads that are read, or looked up, before other tasks get their turn: about 2 ms
_READ: Final = 50
_LOOKED_UP: Final = 1000


@dataclass(frozen=True, slots=True)
class Brief:
    """One version of a Workload. `admitted_to`: the ClusterQueue whose quota it holds, "" = none."""

    raw: WorkloadObject
    state: JobState
    namespace: str
    queue: str
    admitted_to: str
    priority: int
    since: float
    created: float
    uid: str
    gpus: int

    def cluster_queue(self, routes: Routes) -> str:
        return self.admitted_to or routes.get((self.namespace, self.queue), "")

    def order(self, routes: Routes, position: int | None) -> Order:
        """The sort key, the same as `display_order` of the Workload's view."""
        queue = self.cluster_queue(routes)
        if self.state in HOLDING:
            return 0, queue, -self.priority, self.since, self.uid
        if self.state in FINISHED or self.state is JobState.INACTIVE:
            return 2, queue, 0, self.since, self.uid
        return 1, queue, position or 0, self.created, self.uid


class Briefs:
    """The briefs of all Workloads, by key. One that can't be read has none."""

    def __init__(self) -> None:
        self._known: dict[str, Brief] = {}

    async def of(self, workloads: Iterable[tuple[str, WorkloadObject]]) -> dict[str, Brief]:
        """The briefs of these Workloads."""
        found: dict[str, Brief] = {}
        read = looked = 0
        for key, raw in workloads:
            brief = self._known.get(key)
            if brief is None or brief.raw is not raw:
                brief = self._read(key, raw)
                if (read := read + 1) % _READ == 0:
                    await asyncio.sleep(0)
            elif (looked := looked + 1) % _LOOKED_UP == 0:
                await asyncio.sleep(0)
            if brief is not None:
                found[key] = brief
        return found

    def forget(self, present: Mapping[str, object]) -> None:
        """Drop what is gone, once that is more than what is there."""
        if len(self._known) > 2 * len(present) + _LOOKED_UP:
            self._known = {key: brief for key, brief in self._known.items() if key in present}

    def _read(self, key: str, raw: WorkloadObject) -> Brief | None:
        self._known.pop(key, None)
        try:
            brief = brief_of(raw)
        except Exception as error:  # one object's trouble must not cost the answers about all others
            log.warning("%s is left out of an answer: %r", key, error)
            return None
        self._known[key] = brief
        return brief


def brief_of(raw: WorkloadObject) -> Brief:
    state, _, _, since = judge(raw)
    held = held_by(raw)
    amounts: dict[str, int] = {}
    for (_, resource), amount in held.items():
        amounts[resource] = amounts.get(resource, 0) + amount
    return Brief(
        raw=raw,
        state=state,
        namespace=raw.namespace,
        queue=raw.queue_name,
        admitted_to=raw.admitted_by,
        priority=raw.priority,
        since=since,
        created=seconds(raw.created),
        uid=raw.uid,
        gpus=accelerators(amounts or requested(raw)),
    )
