"""Facts about single workloads that only matter while Reservations ask for them: who submitted them, how long their pods take to
end. The engine has them for the workloads that are there, and none while nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.parts.changed_keys import KeySet
from gangline.engine import model
from gangline.objects import WorkloadObject

F = TypeVar("F", model.Submitter, model.SaveTime)


class WorkloadFacts(Generic[F]):
    """Keeps one kind of fact up to date. `fact_of` is what is known of a Workload, None = nothing."""

    def __init__(
        self,
        mirror: Mirror,
        observe_fact: Callable[[model.Change], None],
        kind: type[F],
        fact_of: Callable[[WorkloadObject], F | None],
    ) -> None:
        self._mirror = mirror
        self._observe_fact = observe_fact
        self._kind = kind
        self._fact_of = fact_of
        #: what the engine has, by workload
        self.known: dict[str, F] = {}
        #: Workloads that changed, and jobs; None until somebody asks for the first time
        self._changed: tuple[KeySet[str], KeySet[JobRef]] | None = None

    def settle(self, *, wanted: bool, anew: bool) -> None:
        """Look at what changed; `anew`: at all Workloads. Where it is not wanted the engine forgets all of them."""
        if not wanted:
            for key in sorted(self.known):
                self._put(key, None)
            if self._changed is not None:
                for changed in self._changed:
                    changed.take()
            return
        changes, mirror = self._mirror.changes, self._mirror
        if self._changed is None:
            workloads = changes.workloads.subscribe(worth=lambda key: key in mirror.workloads)
            jobs = changes.jobs.subscribe(worth=lambda ref: ref[1] in mirror.objects[ref[0]])
            self._changed, anew = (workloads, jobs), True
        keys = self._changed[0].take()
        for ref in self._changed[1].take():
            if (job := mirror.job(ref)) is not None:
                keys.update(each.key for each in mirror.workloads_of(job))
        for key in sorted({*mirror.workloads, *self.known} if anew else keys):
            raw = mirror.workloads.get(key)
            self._put(key, self._fact_of(raw) if raw is not None and not raw.finished else None)

    def _put(self, key: str, fact: F | None) -> None:
        if fact == self.known.get(key):
            return
        if fact is None:
            del self.known[key]
            self._observe_fact(model.Gone(self._kind, key))
        else:
            self.known[key] = fact
            self._observe_fact(model.Put(fact))
