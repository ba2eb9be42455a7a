"""Keeps the floor's process fed with facts, and puts ClusterQueues into the modes that it finds best.

The process is started once a policy has a floor and there are enough workloads to compare. It gets the facts of a minute at a
time, and rests for three times as long as it worked. If it fails, or falls too far behind, another one begins with the present
facts: nothing is lost but the comparison so far. The modes themselves are in the status of the QueuePolicies, where the next
process of the operator finds them.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from gangline.api.queue_orders import known_from
from gangline.api.read import policy_reader
from gangline.api.read.parse import ParseError
from gangline.control.feed.mirror import Mirror
from gangline.control.floor.floor_process import Beginning, FloorProcess, FloorVerdict, Turn
from gangline.control.parts.messages import FactObserved, Messages
from gangline.control.parts.part import Part
from gangline.control.writes.status import fallen_back as statuses
from gangline.engine import FLOOR_LEAST, POLICY, Comparison, Engine, Mode, PolicyFallback, has_floor, model
from gangline.kube import resources as kube
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: facts are handed on this often, in seconds, …
EVERY: Final = 60.0
#: … and not before this many times what the last turn took
REST: Final = 4.0
#: after a failure another process is started after this time, in seconds
PAUSE: Final = 600.0
#: with more facts waiting, or more workloads, no counterfactual is played
MOST_FACTS: Final = 200_000
MOST_WORKLOADS: Final = 50_000

_FAILURES: Final = (OSError, ValueError, subprocess.SubprocessError, pickle.PickleError, EOFError)


class Player(Protocol):
    """The interface of `FloorProcess`."""

    def turn(self, turn: Turn) -> FloorVerdict: ...

    def end(self) -> None: ...


class FloorWatch(Part):
    """The part that feeds the floor's process and follows its verdicts. There is one per operator."""

    name = "floor"

    def __init__(
        self,
        engine: Engine,
        mirror: Mirror,
        messages: Messages,
        *,
        now: Callable[[], int],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        play: Callable[[Beginning], Player] = FloorProcess,
    ) -> None:
        self._engine = engine
        self._mirror = mirror
        self._now = now
        self._wake = wake
        self._clock = clock
        self._play = play
        #: the ClusterQueues that are in another mode than their policy
        self.fallen_back: Mapping[str, PolicyFallback] = {}
        self.comparisons: Mapping[str, Comparison] = {}
        #: seconds of CPU that the processes took
        self.cpu = 0.0
        self._player: Player | None = None
        self._feeding = False  # the process has all facts, or gets them
        self._facts: list[tuple[model.Millis, model.Change]] = []
        self._verdict: FloorVerdict | None = None
        self._task: asyncio.Task[None] | None = None
        self._after = float("-inf")  # no turn before this time
        mirror.mode_of = self.mode_of
        messages.subscribe(FactObserved, lambda message: self.note(message.change))

    def mode_of(self, cluster_queue: str) -> Mode:
        found = self.fallen_back.get(cluster_queue)
        return found.mode if found is not None else POLICY

    # --- facts --------------------------------------------------------------------------------------------------------

    def note(self, change: model.Change) -> None:
        """Record a fact that the engine observed, for the process."""
        if not self._feeding or isinstance(change, model.WriteFailed):
            return
        if isinstance(change, model.Put) and isinstance(change.item, model.WorkloadPods):
            return
        if len(self._facts) >= MOST_FACTS:
            self._give_up("too many facts wait")
            return
        self._facts.append((self._now(), self._as_configured(change)))

    def _as_configured(self, change: model.Change) -> model.Change:
        """The change with a ClusterQueue as its policy says, whatever its mode."""
        if not isinstance(change, model.Put) or not isinstance(change.item, model.ClusterQueue):
            return change
        queue = change.item
        raw = self._mirror.objects[kube.CLUSTER_QUEUES].get(queue.name)
        if not queue.fallen_back or raw is None:
            return change
        strategy = raw.spec.get("queueingStrategy") or queue.strategy
        as_written = policy_reader.with_policy(queue, self._mirror.policy_of(raw), known_from(self._now()))
        return model.Put(replace(as_written, strategy=strategy))

    # --- turns --------------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Go on in the modes that the status of the QueuePolicies names."""
        found: dict[str, PolicyFallback] = {}
        for name, policy in self._mirror.objects[kube.QUEUE_POLICIES].items():
            try:
                found.update(statuses.recorded(policy))
            except (AttributeError, TypeError, ValueError) as error:
                log.warning("QueuePolicy %s: the modes in its status can't be read: %r", name, error)
        self._turn_to(found)

    def act(self, now: int) -> None:
        if self._verdict is not None:
            verdict, self._verdict = self._verdict, None
            self.comparisons = verdict.comparisons
            self.cpu += verdict.cpu
            self._turn_to(verdict.fallen_back)
        if self._task is not None or self._clock() < self._after:
            return
        self._after = self._clock() + EVERY
        self.due = None
        if not self._wanted():
            self._give_up("")
            if self.fallen_back:
                self._turn_to({})
            return
        workloads = len(self._mirror.workloads)
        if workloads > MOST_WORKLOADS:
            self._give_up(f"{workloads} workloads are too many")
        elif self._feeding or workloads >= FLOOR_LEAST:
            self.due = now + round(EVERY * 1000)
            self._task = asyncio.ensure_future(self._take_turn())

    def _wanted(self) -> bool:
        """Whether some queue has a floor."""
        if not self._mirror.objects[kube.QUEUE_POLICIES]:
            return False
        return any(self._has_floor(name, queue) for name, queue in self._mirror.objects[kube.CLUSTER_QUEUES].items())

    def _has_floor(self, name: str, queue: Stored) -> bool:
        try:
            return has_floor(policy_reader.with_policy(model.ClusterQueue(name), self._mirror.policy_of(queue)))
        except ParseError:  # that policy is in force nowhere
            return False

    async def _take_turn(self) -> None:
        """Hand on the facts, off the event loop."""
        begun = self._clock()
        try:
            if self._player is None:
                now, self._feeding = self._now(), True
                self._facts = [(now, self._as_configured(fact)) for fact in self._engine.facts()]
                beginning = Beginning(self._engine.settings, self.fallen_back)
                self._player = await asyncio.to_thread(self._play, beginning)
            facts, self._facts = self._facts, []
            self._verdict = await asyncio.to_thread(self._player.turn, Turn(facts, self._now()))
        except _FAILURES as error:
            self._give_up(repr(error))
        else:
            took = self._clock() - begun
            self._after = begun + max(EVERY, REST * took)
            self.due = self._now() + round(max(0.0, self._after - self._clock()) * 1000) + 1
        finally:
            self._task = None
            self._wake()

    def _give_up(self, why: str) -> None:
        """End the process; if there is a reason, it may begin again after a pause."""
        if why:
            log.warning("the floor's counterfactuals begin anew: %s", why)
            self._after = self._clock() + PAUSE
        player, self._player = self._player, None
        self._facts, self._feeding = [], False
        if player is not None:
            player.end()

    def _turn_to(self, fallen_back: Mapping[str, PolicyFallback]) -> None:
        """Put the queues into these modes."""
        before, self.fallen_back = self.fallen_back, dict(fallen_back)
        for name in sorted(before.keys() | fallen_back.keys()):
            if before.get(name) != fallen_back.get(name):
                why = fallen_back[name].why if name in fallen_back else ""
                log.info(
                    "ClusterQueue %s follows %s from now on: %s", name, self.mode_of(name), why or "its floor allows it"
                )
                self._mirror.read_again(kube.CLUSTER_QUEUES, name)
                self._mirror.changes.policies.add(name)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._give_up("")
