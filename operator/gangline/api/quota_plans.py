"""QuotaPlans as plain values, and the quotas that they give a ClusterQueue at any instant. Pure functions on JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gangline import bounded
from gangline.api.followed_capacity import Damped, FlavorResource, Follow, followed
from gangline.api.schedules import Span, Weekly, deadline, when, windows
from gangline.api.spec_fields import SpecError, a_list, a_text, an_amount, an_object
from gangline.engine.model import (
    ClusterQueue,
    Deadline,
    FlavorQuotas,
    Millis,
    Quota,
    QuotaAhead,
    QuotaStep,
    ResourceGroup,
)
from gangline.kube.resources import Json

#: overrides of a plan, and quotas of each
MOST_OVERRIDES: Final = 32
MOST_QUOTAS: Final = 64
#: QuotaPlans that are in force at the same time; the oldest are, so that a new one takes no place of another
MOST_PLANS: Final = 256
#: changes that are known ahead: so many, and none that is farther away
MOST_STEPS: Final = 16
HORIZON: Final[Millis] = 14 * 86_400_000
#: a change that is longer past is not known any more
PAST: Final[Millis] = 86_400_000


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """What replaces the quota of one resource of a flavor; None leaves a part of it as it is."""

    nominal: int | None = None
    borrowing_limit: int | None = None
    lending_limit: int | None = None

    def over(self, other: QuotaChange) -> QuotaChange:
        """This change after another one."""
        return QuotaChange(
            other.nominal if self.nominal is None else self.nominal,
            other.borrowing_limit if self.borrowing_limit is None else self.borrowing_limit,
            other.lending_limit if self.lending_limit is None else self.lending_limit,
        )


Changes: TypeAlias = Mapping[FlavorResource, QuotaChange]
#: changes from instants on, in order; the first instant is not after the present
Course: TypeAlias = Sequence[tuple[Millis, Changes]]
_NO_CHANGES: Final[Changes] = {}


@dataclass(frozen=True, slots=True)
class QuotaOverride:
    """Other quotas in a window of time."""

    name: str
    when: Span | Weekly
    changes: Changes


@dataclass(frozen=True, slots=True)
class QuotaPlanFacts:
    """A QuotaPlan's spec."""

    cluster_queue: str
    #: those that come later in the list win
    overrides: tuple[QuotaOverride, ...]
    recall: Deadline | None
    #: quotas that are shares of what nodes have
    follow: tuple[Follow, ...] = ()

    @property
    def notice(self) -> Millis:
        """How long before a quota falls workloads learn of it, so that they have the whole notice before they are stopped."""
        return self.recall.notice + self.recall.stop_before if self.recall is not None else 0

    @property
    def about(self) -> frozenset[FlavorResource]:
        """What the plan changes at any time."""
        return frozenset(fr for each in self.overrides for fr in each.changes) | {each.about for each in self.follow}


@dataclass(frozen=True, slots=True)
class Stage:
    """What a plan changes from an instant on, and the names of the overrides that are active then."""

    at: Millis
    active: tuple[str, ...]
    changes: Changes


def quota_plan(obj: Json) -> QuotaPlanFacts:
    """A QuotaPlan. Raises SpecError, which names the field."""
    spec = an_object(obj.get("spec"), "spec")
    found = a_list(spec.get("overrides"), "spec.overrides", MOST_OVERRIDES)
    overrides = tuple(_override(each, f"spec.overrides[{i}]") for i, each in enumerate(found))
    names: set[str] = set()
    for i, each in enumerate(overrides):
        if each.name in names:
            raise SpecError(f"spec.overrides[{i}].name", "is the name of another override, too")
        names.add(each.name)
    recall = spec.get("recall")
    return QuotaPlanFacts(
        a_text(spec.get("clusterQueue"), "spec.clusterQueue"),
        overrides,
        None if recall is None else deadline(an_object(recall, "spec.recall"), "spec.recall"),
        followed(spec.get("follow"), "spec.follow"),
    )


def _override(value: Any, path: str) -> QuotaOverride:
    section = an_object(value, path)
    changes: dict[FlavorResource, QuotaChange] = {}
    found = a_list(section.get("quotas"), f"{path}.quotas", MOST_QUOTAS)
    if not found:
        raise SpecError(f"{path}.quotas", "give at least one quota")
    for i, each in enumerate(found):
        at = f"{path}.quotas[{i}]"
        quota = an_object(each, at)
        resource = a_text(quota.get("resource"), f"{at}.resource")
        fr = a_text(quota.get("flavor"), f"{at}.flavor"), resource
        if fr in changes:
            raise SpecError(at, "is about the same resource and flavor as another one of this override")
        change = QuotaChange(
            *(
                an_amount(quota.get(k), resource, f"{at}.{k}")
                for k in ("nominalQuota", "borrowingLimit", "lendingLimit")
            )
        )
        if change == QuotaChange():
            raise SpecError(at, "give nominalQuota, borrowingLimit or lendingLimit")
        changes[fr] = change
    window = when(an_object(section.get("window"), f"{path}.window"), f"{path}.window")
    return QuotaOverride(a_text(section.get("name"), f"{path}.name"), window, changes)


# --- quotas over time -------------------------------------------------------------------------------------------------


def stages(plan: QuotaPlanFacts, now: Millis) -> list[Stage]:
    """What the plan changes now, since the last change within a day, and at the next instants at which that changes."""
    since = now - PAST
    spans = [(each, windows(each.when, since, MOST_STEPS)) for each in plan.overrides]
    # of an override with more windows than are known here, nothing is known after the last of these
    known = min((found[-1].start for _, found in spans if len(found) == MOST_STEPS), default=now + HORIZON)
    edges = {edge for _, found in spans for span in found for edge in span if since < edge <= min(known, now + HORIZON)}
    found: list[Stage] = []
    for instant in (since, *sorted(edges)):
        stage = _stage(spans, instant)
        if not found or (stage.active, stage.changes) != (found[-1].active, found[-1].changes):
            found.append(stage)
    present = max(i for i, stage in enumerate(found) if stage.at <= now)
    return found[present : present + MOST_STEPS + 1]


def _stage(spans: Sequence[tuple[QuotaOverride, Sequence[Span]]], instant: Millis) -> Stage:
    active = [each for each, found in spans if any(span.start <= instant < span.end for span in found)]
    changes: dict[FlavorResource, QuotaChange] = {}
    for each in active:
        for fr, change in each.changes.items():
            changes[fr] = change.over(changes.get(fr, QuotaChange()))
    return Stage(instant, tuple(each.name for each in active), changes)


def course(plan: QuotaPlanFacts, states: Mapping[FlavorResource, Damped], now: Millis) -> Course:
    """The quotas of a plan that follow nodes now, and from each instant on at which a smaller capacity counts that is announced.
    `states`: the capacities that count; what has none is not followed yet.
    """
    present: dict[FlavorResource, QuotaChange] = {}
    falls: dict[Millis, dict[FlavorResource, QuotaChange]] = {}
    for each in plan.follow:
        if (state := states.get(each.about)) is None:
            continue
        present[each.about] = QuotaChange(each.quota(state.capacity))
        at = state.announced(each, plan.notice, now)
        if at is not None and at > now and state.pending is not None:  # else whoever looks at nodes says when
            falls.setdefault(at, {})[each.about] = QuotaChange(each.quota(state.pending))
    found: list[tuple[Millis, Changes]] = [(0, present)]
    for at in sorted(falls):
        found.append((at, {**found[-1][1], **falls[at]}))
    return found


def with_changes(groups: tuple[ResourceGroup, ...], changes: Changes) -> tuple[ResourceGroup, ...]:
    """The quotas of a ClusterQueue with these changes. What it has no quota of is no part of it, whatever is changed."""
    if not changes:
        return groups
    return tuple(
        replace(group, flavors=tuple(_with_changes(flavor, changes) for flavor in group.flavors)) for group in groups
    )


def _with_changes(flavor: FlavorQuotas, changes: Changes) -> FlavorQuotas:
    resources = {
        resource: _changed(quota, change) if (change := changes.get((flavor.name, resource))) is not None else quota
        for resource, quota in flavor.resources.items()
    }
    return FlavorQuotas(flavor.name, resources)


def _changed(quota: Quota, change: QuotaChange) -> Quota:
    nominal = quota.nominal if change.nominal is None else change.nominal
    borrowing = quota.borrowing_limit if change.borrowing_limit is None else change.borrowing_limit
    lending = quota.lending_limit if change.lending_limit is None else change.lending_limit
    return Quota(nominal, borrowing, None if lending is None else min(lending, nominal))


def steps(groups: tuple[ResourceGroup, ...], plan: Sequence[Stage], beneath: Course = ()) -> list[QuotaStep]:
    """The quotas of a ClusterQueue now, and at each instant at which a plan changes them.

    `beneath` are changes from another source, such as the capacity of nodes: the plan's overrides replace these, too.
    """
    if not plan:
        return []
    begin = plan[0].at
    instants = sorted({stage.at for stage in plan} | {max(begin, at) for at, _ in beneath})
    found: list[QuotaStep] = []
    for instant in instants:
        under = next((changes for at, changes in reversed(beneath) if at <= instant), _NO_CHANGES)
        over = next(stage for stage in reversed(plan) if stage.at <= instant)
        step = QuotaStep(instant, with_changes(with_changes(groups, under), over.changes))
        if not found or step.groups != found[-1].groups:
            found.append(step)
    return found


def quotas_of(groups: tuple[ResourceGroup, ...]) -> Iterator[FlavorResource]:
    """What there are quotas of."""
    return ((flavor.name, resource) for group in groups for flavor in group.flavors for resource in flavor.resources)


def unknown_quotas(facts: QuotaPlanFacts, there: Iterable[FlavorResource]) -> tuple[str, ...]:
    """What of a plan is not honoured, as sentences: quotas that are not among those of the ClusterQueue (`there`)."""
    missing = sorted(facts.about.difference(there))
    if not missing:
        return ()
    named = bounded.some([f"{resource} in flavor {flavor}" for flavor, resource in missing], 3)
    return (f"ClusterQueue {facts.cluster_queue} has no quota of {named}",)


# --- plans among each other -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Planned:
    """A QuotaPlan with what it changes, now and ahead."""

    name: str
    #: None = it is not in force
    facts: QuotaPlanFacts | None
    stages: tuple[Stage, ...] = ()
    #: why it is not in force, or what of it is not honoured, as sentences
    troubles: tuple[str, ...] = ()
    #: what could be done instead, as sentences
    advice: tuple[str, ...] = ()
    #: the present quotas were foretold, and it is not known that those that exceed them have been stopped
    unfinished: bool = False
    #: the quotas that follow nodes, now and ahead
    course: Course = ()

    @property
    def present(self) -> object:
        """What the plan changes now."""
        return self.stages[0].changes, self.course[:1]

    def steps(self, written: tuple[ResourceGroup, ...]) -> list[QuotaStep]:
        """The quotas of the ClusterQueue now and ahead, given those that its spec has."""
        return steps(written, self.stages, self.course)

    def applied_to(self, queue: ClusterQueue) -> ClusterQueue:
        """The ClusterQueue with the quotas that it has now, given it as its spec says."""
        return replace(queue, groups=self.steps(queue.groups)[0].groups)

    def ahead(self, written: tuple[ResourceGroup, ...]) -> QuotaAhead | None:
        """What the engine gets besides the present quotas; None where nothing changes."""
        facts, known = self.facts, self.steps(written)
        later = tuple(known if self.unfinished else known[1:])
        return QuotaAhead(facts.cluster_queue, self.name, later, facts.recall) if facts and later else None


@dataclass(slots=True)
class PlansInForce:
    """Decides which plans are in force: of each ClusterQueue that there is the oldest, and so many in all.

    `written`: the quotas of each ClusterQueue, as its spec says.
    """

    written: Mapping[str, tuple[ResourceGroup, ...]]
    _of_queue: dict[str, str] = field(default_factory=dict[str, str])

    def planned(self, name: str, facts: QuotaPlanFacts, now: Millis) -> Planned:
        """The next younger plan, with what it changes if it is in force."""
        queue = facts.cluster_queue
        if (other := self._of_queue.get(queue)) is not None:
            trouble = (
                f"QuotaPlan {other} of ClusterQueue {queue} is older: as long as it exists, this one has no effect"
            )
            return Planned(
                name, None, troubles=(trouble,), advice=(f"QuotaPlan {other} could have these overrides, too",)
            )
        if len(self._of_queue) >= MOST_PLANS:
            return Planned(name, None, troubles=(f"Only the {MOST_PLANS} oldest QuotaPlans are in force",))
        if queue not in self.written:
            return Planned(name, None, troubles=(f"There is no ClusterQueue {queue}",))
        self._of_queue[queue] = name
        troubles = unknown_quotas(facts, quotas_of(self.written[queue]))
        return Planned(name, facts, tuple(stages(facts, now)), troubles)
