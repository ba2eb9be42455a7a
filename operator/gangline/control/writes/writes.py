"""The writes that are not resolved yet, and the state of the mirror that follows from them.

All changes of one Workload's status that are due together are sent as one patch, computed at the time of sending from the newest
known version and fenced by its resourceVersion. A conflict means that another writer was faster: the object is read again, and
the submitter decides again from the current state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import orjson

from gangline.api.read import conditions, merge
from gangline.control.feed.changes import JobRef
from gangline.control.feed.mirror import Mirror
from gangline.control.feed.tracking import Tracking
from gangline.control.parts.messages import Messages, WriteResolved
from gangline.control.writes.outgoing import Priority, Verb, Write
from gangline.control.writes.status import older_words
from gangline.control.writes.status.change import Change
from gangline.control.writes.writer import Writer
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from gangline.kube.reflector import Backoff
from gangline.kube.resources import Json, ObjectKey, Resource, revision
from gangline.objects import view

log = logging.getLogger(__name__)

Body: TypeAlias = Json | Callable[[], Json | None]
#: called with the object as the server has it now, or None where nothing had to be written
Done: TypeAlias = Callable[[Any], None]
Failed: TypeAlias = Callable[[ApiError], None]
#: for each submitter of a write: the job for which it was planned, and its callbacks
Waiting: TypeAlias = list[tuple[JobRef | None, Done | None, Failed | None]]

#: How long the watch may take to show the change that a write collided with, in steps of 20 ms.
WATCH_PATIENCE = 100
#: Seconds between attempts to read an object, growing from the first to the second value.
FIRST_REREAD, LONGEST_REREAD = 0.2, 5.0


@dataclass(frozen=True, slots=True)
class _Asked:
    """A write in flight, or part of one, and its submitters."""

    key: ObjectKey
    base: int  #: the version of the object from which it was computed
    doubt: bool
    waiting: Waiting


@dataclass(slots=True)
class _Change:
    """A status change that waits for the next patch."""

    change: Change
    priority: Priority
    doubt: bool
    not_before: float
    waiting: Waiting


@dataclass(slots=True)
class _Bundle:
    """The status changes of one Workload: those that wait for the next patch, and those in the patch in flight."""

    queued: dict[str, _Change] = field(default_factory=dict[str, _Change])
    sent: list[_Change] = field(default_factory=list[_Change])
    base: int = 0  # the version from which the patch in flight was computed


class Writes:
    """The writes in flight. `tracking` knows which version of each object is the newest; `messages` publishes each resolved write
    (`WriteResolved`).

    `older_words`: statuses have the reasons of Kueue up to 0.19.
    """

    def __init__(
        self,
        client: ApiClient,
        writer: Writer,
        mirror: Mirror,
        tracking: Tracking,
        *,
        now: Callable[[], int],
        messages: Messages,
        older_words: bool = False,
    ) -> None:
        self._client = client
        self._writer = writer
        self._mirror = mirror
        self._now = now
        self._messages = messages
        self.older_words = older_words
        self._tracking = tracking
        self._bundles: dict[ObjectKey, _Bundle] = {}
        self._refreshing: set[asyncio.Task[None]] = set()

    def in_doubt(self, resource: Resource, key: str) -> bool:
        return self._tracking.in_doubt(ObjectKey.parse(resource, key))

    @staticmethod
    def expected(error: ApiError) -> bool:
        """Whether an error only means that the object has changed or was deleted meanwhile."""
        return isinstance(error, Conflict | NotFound)

    # --- plain writes ---

    def send(
        self,
        key: ObjectKey,
        verb: Verb,
        body: Body,
        *,
        priority: Priority,
        owner: JobRef | None = None,
        doubt: bool = False,
        not_before: float = 0.0,
        slot: str = "",
        strict: bool = False,
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Submit a write. `verb`: create, patch, status (merge patch of the status) or delete. Times are time.monotonic().

        `strict`: a patch with a field that the API server would drop is refused.

        A newer write of this object in the same `slot` replaces it while it waits; by default one of the same owner with the same
        verb. The result of the newer one is then that of both, but for `done`, which is not called.
        """
        asked = _Asked(key, self._begin(key, doubt=doubt), doubt, [(owner, done, failed)])
        self._submit(
            Write(
                key=key,
                verb=verb,
                body=body,
                priority=priority,
                slot=slot,
                owner=owner,
                not_before=not_before,
                strict=strict,
                on_done=lambda answer: self._finish(asked, answer),
                on_error=lambda error: self._refused(asked, error),
                on_replaced=lambda by: self._replaced(asked, by),
                tag=asked,
            )
        )

    def _replaced(self, asked: _Asked, by: Write) -> None:
        """Let a newer write in the same slot answer for this one, too."""
        if isinstance(by.tag, _Asked):
            by.tag.waiting[:0] = _still_concerned(asked.waiting)
        self._end_quietly(asked.key, doubt=asked.doubt)

    def _submit(self, write: Write) -> None:
        """Submit a write whose `done` is also called if there is nothing to write; the writer alone would not call it."""
        render, done = write.body, cast("Done", write.on_done)
        if not callable(render):
            self._writer.submit(write)
            return

        def rendered() -> Any:
            body = render()
            if body is None:
                asyncio.get_running_loop().call_soon(done, None)
            return body

        write.body = rendered
        self._writer.submit(write)

    def pending(self, resource: Resource, key: str) -> bool:
        """Whether a write of this object is waiting or in flight."""
        return self._writer.pending(ObjectKey.parse(resource, key))

    def delete(
        self,
        key: ObjectKey,
        *,
        uid: str,
        priority: Priority,
        owner: JobRef | None = None,
        propagation: str = "",
        done: Done | None = None,
    ) -> None:
        options = {"uid": uid} | ({"propagation": propagation} if propagation else {})
        self.send(key, "delete", options, priority=priority, owner=owner, done=done)

    def end_pod(
        self, pod: str, uid: str, *, owner: JobRef | None = None, done: Done | None = None, failed: Failed | None = None
    ) -> None:
        """Delete a pod and give it its grace period. Pods are not in the mirror: their watch says what becomes of them."""
        key = ObjectKey.parse(kube.PODS, pod)

        def ended(answer: Json | None) -> None:
            if done is not None:
                done(answer)
            self._messages.publish(WriteResolved(owner, None, key))

        def refused(error: ApiError) -> None:
            if failed is not None:
                failed(error)
            self._messages.publish(WriteResolved(owner, error, key))

        self._writer.submit(
            Write(
                key,
                "delete",
                {"uid": uid},
                Priority.START_STOP,
                slot="end",
                owner=owner,
                on_done=ended,
                on_error=refused,
            )
        )

    # --- changes of a Workload's status ---

    def change(
        self,
        workload: str,
        slot: str,
        change: Change,
        *,
        priority: Priority,
        owner: JobRef | None = None,
        doubt: bool = False,
        not_before: float = 0.0,
        done: Done | None = None,
        failed: Failed | None = None,
    ) -> None:
        """Change the status with the next patch. A newer change in the same `slot` replaces a waiting one."""
        key = ObjectKey.parse(kube.WORKLOADS, workload)
        bundle = self._bundles.setdefault(key, _Bundle())
        entry = _Change(change, priority, doubt, not_before, [(owner, done, failed)])
        old = bundle.queued.pop(slot, None)
        if old is not None:
            entry.waiting = _still_concerned(old.waiting) + entry.waiting
            entry.doubt = entry.doubt or old.doubt
        self._begin(key, doubt=entry.doubt)
        if old is not None:  # only now: otherwise the object would briefly not be in doubt
            self._end_quietly(key, doubt=old.doubt)
        bundle.queued[slot] = entry
        self._submit_bundle(key, bundle)

    def _submit_bundle(self, key: ObjectKey, bundle: _Bundle) -> None:
        self._submit(
            Write(
                key=key,
                verb="status",
                body=lambda: self._render(key, bundle),
                priority=min(entry.priority for entry in bundle.queued.values()),
                slot="status",
                not_before=min(entry.not_before for entry in bundle.queued.values()),
                on_done=lambda answer: self._bundle_done(key, bundle, answer),
                on_error=lambda error: self._bundle_refused(key, bundle, error),
            )
        )

    def _render(self, key: ObjectKey, bundle: _Bundle) -> Json | None:
        """One patch with all waiting changes on the newest version; None when it would change nothing."""
        bundle.sent += bundle.queued.values()  # after those of an unanswered attempt: their submitters still wait
        bundle.queued.clear()
        raw = self._mirror.get(key.resource, key.text)
        if raw is None:
            bundle.base = 0
            return None
        bundle.base = raw.revision
        old = raw.status
        new: Json = orjson.loads(orjson.dumps(old))  # a deep copy, in a tenth of the time of copy.deepcopy
        now = self._now()
        for entry in bundle.sent:
            entry.change(new, now)
        conditions.mark_observed(old, new, raw.generation)
        if self.older_words:
            older_words.translate(old, new)
        patch = merge.difference(old, new)
        if not patch:
            return None
        return {"metadata": {"resourceVersion": raw.resource_version}, "status": patch}

    def _bundle_done(self, key: ObjectKey, bundle: _Bundle, answer: Json | None) -> None:
        for asked in self._take_sent(key, bundle):
            self._finish(asked, answer)

    def _bundle_refused(self, key: ObjectKey, bundle: _Bundle, error: ApiError) -> None:
        """Refuse the waiting changes, too: they were decided on the assumption that this patch succeeds (an admission, say)."""
        bundle.sent += bundle.queued.values()
        bundle.queued.clear()
        for asked in self._take_sent(key, bundle):
            self._refused(asked, error)

    def _take_sent(self, key: ObjectKey, bundle: _Bundle) -> list[_Asked]:
        sent, bundle.sent = bundle.sent, []
        if not bundle.queued and self._bundles.get(key) is bundle:
            del self._bundles[key]
        return [_Asked(key, bundle.base, entry.doubt, entry.waiting) for entry in sent]

    # --- results of writes ---

    def _begin(self, key: ObjectKey, *, doubt: bool) -> int:
        base = revision(self._mirror.get(key.resource, key.text))
        self._tracking.begin(key, base=base, doubt=doubt)
        return base

    def _end_quietly(self, key: ObjectKey, *, doubt: bool) -> None:
        newest = self._tracking.end(key, None, doubt=doubt)
        if newest is not None:
            self._mirror.upsert(key.resource, newest, assumed=doubt)

    def _finish(self, asked: _Asked, answer: Json | None, error: ApiError | None = None) -> None:
        key, doubt = asked.key, asked.doubt
        answer = view(key.resource, answer) if answer is not None else None
        is_object = answer is not None and answer.get("kind") != "Status"
        newest = self._tracking.end(key, answer if is_object else None, doubt=doubt)
        if error is not None:
            for _, _, failed in asked.waiting:
                if failed is not None:
                    failed(error)
        decides = not self._tracking.in_doubt(key)
        if newest is not None:
            self._mirror.upsert(key.resource, newest, decides=decides, assumed=doubt)
        elif answer is not None and not is_object:  # the Status of a completed deletion
            self._mirror.remove(key.resource, key.text)
        elif doubt and decides:
            self._mirror.settle(key.resource, key.text)
        for owner, done, _ in asked.waiting:
            if error is None and done is not None:
                done(answer if is_object else None)
            self._messages.publish(WriteResolved(owner, error, key))

    def _refused(self, asked: _Asked, error: ApiError) -> None:
        """Read the object again before its submitters decide again, so that they see the current version."""
        if not isinstance(error, Conflict | AlreadyExists | NotFound):
            self._finish(asked, None, error)
            return
        task = asyncio.get_running_loop().create_task(self._refresh(asked, error))
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    async def _refresh(self, asked: _Asked, error: ApiError) -> None:
        answer = None if await self._overtaken(asked) else await self._read_anew(asked, error)
        self._finish(asked, answer, error)

    async def _overtaken(self, asked: _Asked) -> bool:
        """Whether the watch shows, now or in a moment, the change that the write collided with: then nothing has to be read."""
        for _ in range(WATCH_PATIENCE):
            if self._tracking.has_news(asked.key, asked.base):
                return True
            await asyncio.sleep(0.02)
        return False

    async def _read_anew(self, asked: _Asked, refusal: ApiError) -> Json | None:
        """The object as stored in the server, retried until it can be read: a reservation whose answer was lost holds quota, and
        must not count as free. None where the watch was faster, or where reading is forbidden."""
        key, backoff = asked.key, Backoff(FIRST_REREAD, LONGEST_REREAD)
        while not self._tracking.has_news(key, asked.base):
            try:
                return await self._client.get(key.resource, key.namespace or None, key.name)
            except NotFound:
                return {"kind": "Status"}
            except ApiError as trouble:
                log.info("%s could not be read after %s: %s", key, refusal, trouble)
                if not trouble.retryable:
                    return None
                await asyncio.sleep(max(backoff.next(), trouble.retry_after or 0.0))
        return None


def _still_concerned(replaced: Waiting) -> Waiting:
    """The submitters of a write that a newer one replaced, as far as that one's result concerns them."""
    return [(owner, None, failed) for owner, _, failed in replaced if owner is not None or failed is not None]
