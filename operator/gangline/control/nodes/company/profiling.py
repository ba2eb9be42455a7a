"""JobProfiles: the engine gets them, and what to expect of pairs that nobody measured.

Profiles are facts like any other, so they are in the audit record, and a standby knows them before it leads. Priors follow from
them alone: whoever leads next learns the same. They are learned in a thread, as that takes a second for a hundred classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gangline.api.profiles import (
    LONGEST_GPU,
    MOST_PAIRS,
    MOST_PROFILES,
    ProfileFacts,
    profile,
    written_pair,
)
from gangline.api.spec_fields import SpecError
from gangline.control.kernel.context import Context
from gangline.control.nodes.company.pair_watch import PairWatch, Sample, Seat, with_sample
from gangline.control.parts.messages import FactObserved, StepReported
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import status_write
from gangline.control.writes.status import profile_status
from gangline.engine import card_name, model
from gangline.kube import resources as kube
from gangline.kube.reflector import Event
from gangline.kube.resources import Json, ObjectKey, Resource
from gangline.objects import Stored

if TYPE_CHECKING:
    from gangline.forecast.pairs.priors import Learned

log = logging.getLogger(__name__)

#: priors are learned again so long after profiles changed, at the earliest, in milliseconds; and so often it is looked whether
#: the thread is done
PERIOD: Final = 60_000
POLL: Final = 500
#: directions that are learned from: the first by name. The time that it takes grows with their number
_MOST_DIRECTIONS: Final = 20_000
#: measurements of a class that wait to be written
_MOST_WAITING: Final = 100


@dataclass(frozen=True, slots=True)
class _Profile:
    """A JobProfile as it was read: `trouble` says why it does not count, "" = it counts."""

    obj: Stored
    facts: ProfileFacts | None
    trouble: str = ""


class Profiling(Part):
    """The part. `observe_fact` gives a change to the engine."""

    name = "profiles"
    kinds = (kube.JOB_PROFILES,)

    def __init__(self, context: Context, observe_fact: Callable[[model.Change], None]) -> None:
        self._mirror = context.mirror
        self._writer = context.writer
        self._now = context.now
        self._observe_fact = observe_fact
        self._stale = True
        self._read: dict[str, _Profile] = {}
        #: what the engine has, by class and by name
        self._known: dict[str, model.JobProfile] = {}
        self._priors: dict[str, model.CompanyPrior] = {}
        #: by class: the verdicts on the prior of each model of card; the same for all
        self._verdicts: tuple[str, ...] = ()
        self._learning: Future[Learned] | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._learn_at: int | None = None
        self._unwritten = False
        #: what is learned of running jobs: their seats, the cards, and what is to be written
        self._watch = PairWatch()
        self._seats: dict[str, tuple[Seat, ...]] = {}
        self._started: set[str] = set()
        self._cards: dict[str, model.Device] = {}
        self._cards_of: dict[str, tuple[str, ...]] = {}
        self._moved = False
        self._samples: dict[str, list[Sample]] = {}
        context.messages.subscribe(FactObserved, self._note)
        context.messages.subscribe(StepReported, self._reported)

    # --- running jobs -------------------------------------------------------------------------------------------------

    def _note(self, message: FactObserved) -> None:
        """Take in who sits on which card."""
        change = message.change
        if isinstance(change, model.Put) and isinstance(change.item, model.NodeCards):
            self._put_cards(change.item.node, change.item.devices)
        elif isinstance(change, model.Gone) and change.kind is model.NodeCards:
            self._put_cards(change.key, ())
        elif not self._known:
            return
        elif isinstance(change, model.Put) and isinstance(change.item, model.Workload):
            self._put_workload(change.item)
        elif isinstance(change, model.Gone) and change.kind is model.Workload:
            self._moved = self._seats.pop(change.key, None) is not None or self._moved
            self._started.discard(change.key)

    def _put_cards(self, node: str, devices: Iterable[model.Device]) -> None:
        for card in self._cards_of.pop(node, ()):
            self._cards.pop(card, None)
        found = {card_name(each.uuid): each for each in devices}
        self._cards |= found
        self._cards_of[node] = tuple(found)

    def _put_workload(self, workload: model.Workload) -> None:
        seats = () if workload.finished or workload.evicted else tuple(self._seats_of(workload))
        started = bool(seats) and workload.pods_ready
        if seats == self._seats.get(workload.key, ()) and started == (workload.key in self._started):
            return
        self._moved = True
        self._seats.pop(workload.key, None)
        self._started.discard(workload.key)
        if seats:
            self._seats[workload.key] = seats
        if started:
            self._started.add(workload.key)

    def _seats_of(self, workload: model.Workload) -> Iterator[Seat]:
        kinds = {each.name: each.traits.kind for each in workload.pod_sets}
        for pod_set in workload.admission.pod_sets if workload.admission is not None else ():
            for domain in pod_set.topology.domains if pod_set.topology is not None else ():
                for seat in (seat for pod in domain.cards for seat in pod):
                    device = self._cards.get(seat.card)
                    if device is not None and device.model.isprintable():
                        yield Seat(seat.card, device.model[:LONGEST_GPU], device.mode, kinds.get(pod_set.name, ""))

    def _reported(self, message: StepReported) -> None:
        if self._known:
            self._settle_seats()
            self._watch.reported(message.workload, message.at, message.step)

    def _settle_seats(self) -> None:
        if not self._moved:
            return
        self._moved = False
        for sample in self._watch.seated(self._seats, self._started):
            if sample.kind in self._known and len(self._samples.setdefault(sample.kind, [])) < _MOST_WAITING:
                self._samples[sample.kind].append(sample)
                self._unwritten = True

    # --- facts --------------------------------------------------------------------------------------------------------

    def observe(self, resource: Resource, event: Event) -> None:
        self._stale = True

    def settle(self) -> None:
        if self._stale:
            self._stale, before = False, bool(self._known)
            self._read_all()
            if self._known and not before:
                for key in self._mirror.workloads:
                    value = self._mirror.workload_value(key)
                    if value is not None:
                        self._put_workload(value)
        if self._moved:
            self._settle_seats()
        if self._learning is None and self._learn_at is None:
            self.due = None
            return
        now = self._now()
        if self._learning is not None and self._learning.done():
            self._take(self._learning)
            self._learning = None
        if self._learning is None and self._learn_at is not None and now >= self._learn_at:
            self._learn_at = None
            self._learn()
        self.due = now + POLL if self._learning is not None else self._learn_at

    def _read_all(self) -> None:
        objects = sorted(
            self._mirror.objects[kube.JOB_PROFILES].values(),
            key=lambda each: (each.created, each.name),
        )
        if not objects and not self._read:
            return
        self._read = {}
        by_class: dict[str, str] = {}
        for number, obj in enumerate(objects):
            self._read[obj.name] = found = _judged(obj, number, by_class)
            if found.facts is not None and not found.trouble:
                by_class[found.facts.profile.name] = obj.name
        wanted = {
            each.profile.name: each.whole for each in sorted(self._in_force(), key=lambda facts: facts.profile.name)
        }
        changes = [*model.changes_between(model.JobProfile, self._known, wanted)]
        for change in changes:
            self._observe_fact(change)
        self._known = wanted
        if changes:
            self._learn_at = self._now() + (PERIOD if self._verdicts or self._learning is not None else 0)
        self._unwritten = True

    def _in_force(self) -> list[ProfileFacts]:
        """What counts, by JobProfile."""
        return [each.facts for each in self._read.values() if each.facts is not None and not each.trouble]

    # --- priors -------------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        from gangline.forecast.pairs.priors import learn  # numpy, which few clusters need

        profiles = _first_directions(self._known)
        families = {each.profile.name: each.family for each in self._in_force()}
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gangline-pairs")
        self._learning = self._thread.submit(learn, profiles, families)

    def _take(self, done: Future[Learned]) -> None:
        try:
            learned = done.result()
        except Exception:
            log.exception("priors of pairs could not be learned")
            return
        wanted = {each.name: each for each in sorted(learned.priors, key=lambda prior: prior.name)}
        for change in model.changes_between(model.CompanyPrior, self._priors, wanted):
            self._observe_fact(change)
        self._priors = wanted
        self._verdicts = (*(score.verdict for score in learned.scores), *learned.refused)
        self._unwritten = True

    # --- statuses -----------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        self._unwritten = True

    def act(self, now: int) -> None:
        if not self._unwritten:
            return
        self._unwritten = False
        for each in self._read.values():
            key = ObjectKey(kube.JOB_PROFILES, "", each.obj.name)
            if self._writer.pending(key):
                self._unwritten = True
                continue
            status = profile_status.status(each.obj, each.trouble, self._verdicts, used=bool(self._priors), now=now)
            if each.facts is not None and not each.trouble:
                self._add_learned(status, each.facts)
            if (write := status_write(key, each.obj.status, status)) is not None:
                self._writer.submit(write)

    def _add_learned(self, status: Json, facts: ProfileFacts) -> None:
        """What was learned of the class since its status was written last."""
        pairs = facts.learned
        for sample in self._samples.pop(facts.profile.name, ()):
            pairs = with_sample(pairs, sample)
        if pairs != facts.learned:
            status["pairs"] = [written_pair(pair) for pair in pairs[:MOST_PAIRS]]

    async def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


def _judged(obj: Stored, number: int, by_class: Mapping[str, str]) -> _Profile:
    if number >= MOST_PROFILES:
        return _Profile(obj, None, f"{MOST_PROFILES} older JobProfiles are there, and no more are read")
    try:
        facts = profile(obj)
    except SpecError as error:
        return _Profile(obj, None, str(error))
    other = by_class.get(facts.profile.name, "")
    return _Profile(obj, facts, f"JobProfile {other} is older and of the same class" if other else "")


def _first_directions(profiles: Mapping[str, model.JobProfile]) -> dict[str, model.JobProfile]:
    """The profiles with so many pairs only that learning from them takes seconds."""
    left = _MOST_DIRECTIONS
    found: dict[str, model.JobProfile] = {}
    for name, each in sorted(profiles.items()):
        found[name] = model.JobProfile(name, each.pairs[:left], each.alone)
        left -= min(left, len(each.pairs))
    return found
