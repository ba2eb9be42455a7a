"""The base of parts that look at one object after the other and write what follows from it.

Whatever a `Reconciler` does for one key, it does like this:

1. A change, an answer or a time adds the key to a set.
2. In the leader's next round the keys that are ready are reconciled in turn, each in quarantine alone. A key is not ready while
   a write for it is in flight, or while it pauses after a refusal.
3. When a write is resolved, the key is reconciled again from the state that the cluster has then. A refusal that nobody expected
   is reported, and the key pauses.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final, Generic, TypeVar

from gangline.control.isolation.quarantine import Subject
from gangline.control.kernel.context import Context
from gangline.control.parts.attempts import Attempts
from gangline.control.parts.changed_keys import KeySet
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Verb, Write
from gangline.control.writes.status.change import Change
from gangline.control.writes.writes import Done, Failed
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json, ObjectKey, Resource

log = logging.getLogger(__name__)

#: a key that is put back while it is reconciled is looked at again after this time at the latest, in milliseconds
SOON: Final = 500

#: the key of a Workload, or a reference to another object
K = TypeVar("K", str, tuple[Resource, str])


class Reconciler(Part, Generic[K]):
    """A part that reconciles keys, one after the other. Subclasses implement `_reconcile`."""

    #: the work on one object, as it is named where it fails
    doing: ClassVar[str]

    def __init__(self, context: Context, changed: KeySet[K]) -> None:
        """`changed`: the keys to reconcile. Whoever notices a change adds to it."""
        self._mirror = context.mirror
        self._writes = context.writes
        self._writer = context.writer
        self._recorder = context.recorder
        self._quarantine = context.quarantine
        self._wake = context.wake
        self._changed = changed
        self._attempts = Attempts[K](self._again)

    # --- rounds ---

    def act(self, now: int) -> None:
        self._gather(now)
        if self._changed:
            ready = self._in_order(self._changed.take(self._attempts.ready))
            for key in self._quarantine.in_turn(ready, self._changed.update):
                if not self._quarantine.attempt(self.doing, *self._subject(key), partial(self._reconcile, key, now)):
                    self._attempts.pause(key)
        times = [time for time in self._times() if time > now]
        if self._changed and any(self._attempts.ready(key) for key in self._changed):
            times.append(now + SOON)  # what was put back waits for somebody else's write, whose end wakes nobody
        self.due = min(times, default=None)

    def _gather(self, now: int) -> None:
        """Add the keys that follow from other changes, or whose time has come."""

    @abstractmethod
    def _reconcile(self, key: K, now: int, /) -> None:
        """Look at one object and write what follows. An exception quarantines the object."""

    def _times(self) -> Iterable[int]:
        """When this part has to act even if nothing happens before, in milliseconds since the epoch.

        A key whose time has come, and that is not ready, waits for an answer or the end of a pause, which wake the loop.
        """
        return ()

    def _subject(self, key: K) -> Subject:
        """The object that a key stands for: a Workload, where the key is text."""
        return (kube.WORKLOADS, key) if isinstance(key, str) else key

    def _in_order(self, keys: set[K]) -> list[K]:
        return sorted(keys, key=lambda key: (key, "") if isinstance(key, str) else (key[1], key[0].plural))

    def _again(self, key: K) -> None:
        """Reconcile a key again."""
        self._changed.add(key)
        self._wake()

    # --- writes ---

    def _send(
        self,
        key: K,
        target: ObjectKey,
        verb: Verb,
        body: Json,
        *,
        priority: Priority = Priority.LIFECYCLE,
        slot: str = "",
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Write an object for this key. `failed` is called in place of the report of a refusal."""
        self._attempts.sent(key)
        self._writes.send(
            target,
            verb,
            body,
            priority=priority,
            slot=slot or self.name,  # a write that another part's replaced would never be answered
            done=partial(self._written, key, done),
            failed=partial(self._refused, key, failed),
        )

    def _change(
        self,
        key: K,
        workload: str,
        change: Change,
        *,
        priority: Priority = Priority.LIFECYCLE,
        slot: str = "",
        done: Done | None = None,
    ) -> None:
        """Change the status of a Workload for this key."""
        self._attempts.sent(key)
        self._writes.change(
            workload,
            slot or self.name,
            change,
            priority=priority,
            done=partial(self._written, key, done),
            failed=partial(self._refused, key, None),
        )

    def _write_pod(
        self,
        key: K,
        pod: str,
        verb: Verb,
        body: Json,
        *,
        slot: str = "",
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Write a pod for this key. Pods are not in the mirror: their watch says what becomes of them."""
        self._attempts.sent(key)
        self._writer.submit(
            Write(
                ObjectKey.parse(kube.PODS, pod),
                verb,
                body,
                Priority.START_STOP,
                on_done=partial(self._written, key, done),
                on_error=partial(self._refused, key, failed),
                slot=slot or self.name,
                patch="strategic",
            )
        )

    def _written(self, key: K, done: Done | None, answer: Any) -> None:
        self._attempts.resolved(key)
        self._attempts.forgive(key)
        if done is not None:
            done(answer)
        self._again(key)

    def _refused(self, key: K, failed: Failed | None, error: ApiError) -> None:
        self._attempts.resolved(key)
        if failed is not None:
            failed(error)
        elif self._writes.expected(error):
            self._again(key)
        else:
            log.warning("%s: %s: %s", self._subject(key)[1], self.doing, error)
            self._attempts.pause(key)
