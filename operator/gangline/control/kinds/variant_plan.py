"""Plans one family: a parent and its variants, from their present state to the next writes. Pure and level-triggered.

The parent does what Kueue's job reconciler expects of a Workload: it is admitted when a variant is, and evicted when that is. A
variant keeps its quota until the parent has lost its own, which it does once the job has stopped: so no quota is granted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gangline.api import names
from gangline.api.read import conditions
from gangline.control.kinds import variant_bodies as bodies
from gangline.control.kinds.steps import ChangeStatus, CreateWorkload, DeleteWorkload, PatchWorkload
from gangline.control.writes.status import gate_changes, run_changes, status_changes
from gangline.engine import model
from gangline.kube.resources import Json, key_of
from gangline.objects import WorkloadObject

Step: TypeAlias = CreateWorkload | DeleteWorkload | PatchWorkload | ChangeStatus
Change: TypeAlias = Callable[[Json, int], None]

#: how long a variant with an open preemption gate may try alone, in milliseconds
PATIENCE: Final = 300_000
#: these end the whole job, as which variant it may run
_FINAL: Final = ("MaximumExecutionTimeExceeded", "RequeuingLimitExceeded")
_RETAIN: Final = "RetainFirstAdmission"


@dataclass(frozen=True, slots=True)
class VariantRule:
    """A ClusterQueue's policy, and its flavors in their order."""

    flavors: tuple[str, ...]
    mode: str
    last_acceptable: str = ""


@dataclass(frozen=True, slots=True)
class VariantFamily:
    """A parent and its variants. `rule` is None where the ClusterQueue has no policy in force."""

    parent: WorkloadObject
    variants: Sequence[WorkloadObject]
    rule: VariantRule | None


@dataclass(frozen=True, slots=True)
class VariantEvent:
    """An event on a Workload, once what it tells is written."""

    about: WorkloadObject
    happened: str
    said: str


@dataclass(slots=True)
class VariantPlan:
    """The steps to write now, with the events that report them, and when to look again in any case."""

    steps: list[tuple[Step, VariantEvent | None]]
    due: int | None = None

    def then(self, step: Step, about: WorkloadObject | None = None, happened: str = "", said: str = "") -> None:
        """Add a step. An object gets one patch at a time: what is left to change follows once that is written."""
        if isinstance(step, PatchWorkload):
            patched = (each.workload for each, _ in self.steps if isinstance(each, PatchWorkload))
            if any(each is step.workload for each in patched):
                return
        self.steps.append((step, VariantEvent(about, happened, said) if about is not None else None))


def plan(family: VariantFamily, now: int) -> VariantPlan:
    """The next steps; none when there is nothing to do until something changes, or until `due`."""
    made, parent, rule = VariantPlan([]), family.parent, family.rule
    finished = parent.true_condition(names.FINISHED)
    if finished is not None:
        _finish(made, family.variants, finished)
    elif rule is None:
        _dissolve(made, parent, family.variants)
    elif not bodies.is_parent(parent):
        # a parent with quota was admitted before the policy came: it goes on alone
        if not parent.holds_quota and not parent.deleting:
            made.then(PatchWorkload(parent, {"metadata": {"labels": {names.CONCURRENT_PARENT: "true"}}}))
    else:
        _run(made, parent, family.variants, rule, now)
    return made


def _finish(made: VariantPlan, variants: Sequence[WorkloadObject], finished: Json) -> None:
    for variant in variants:
        if not variant.finished:
            change = run_changes.finish_because(finished["reason"], finished.get("message", ""))
            made.then(ChangeStatus(variant, "finish", change))
        else:
            _let_go(made, variant)


def _dissolve(made: VariantPlan, parent: WorkloadObject, variants: Sequence[WorkloadObject]) -> None:
    """Dissolve a family whose policy is not in force any more: the parent is a workload like any other, and holds its quota
    itself.
    """
    if bodies.is_parent(parent):
        made.then(PatchWorkload(parent, {"metadata": {"labels": {names.CONCURRENT_PARENT: None}}}))
        return
    for variant in variants:
        _delete(made, variant)
        _let_go(made, variant)


def _run(
    made: VariantPlan, parent: WorkloadObject, everyone: Sequence[WorkloadObject], rule: VariantRule, now: int
) -> None:
    order = {flavor: place for place, flavor in enumerate(rule.flavors)}
    variants = sorted(
        (each for each in everyone if not each.deleting),
        key=lambda each: (order.get(bodies.flavor_of(each), len(order)), each.key),
    )
    leaving = parent.deleting
    for variant in everyone:
        if variant.deleting and not (variant.holds_quota and parent.holds_quota):
            _let_go(made, variant)
        elif leaving and not variant.holds_quota:
            _delete(made, variant)
    if leaving:
        return
    _match_flavors(made, parent, everyone, variants, rule, order)
    variants = [each for each in variants if bodies.flavor_of(each) in order]
    if _follow_eviction(made, parent, everyone):
        return
    for variant in variants:
        if change := bodies.lagging(parent, variant, reserved=variant.holds_quota):
            made.then(PatchWorkload(variant, change))
    admitted = [each for each in variants if each.admitted and each.holds_quota and not each.evicted]
    _activate(made, parent, variants, admitted, rule, order)
    _admit_parent(made, parent, admitted)
    _open_gate(made, variants, now)


# --- which variants there are -----------------------------------------------------------------------------------------


def _match_flavors(
    made: VariantPlan,
    parent: WorkloadObject,
    everyone: Sequence[WorkloadObject],
    variants: Sequence[WorkloadObject],
    rule: VariantRule,
    order: dict[str, int],
) -> None:
    """Make one variant for each flavor of the queue, and delete other ones."""
    present = {bodies.flavor_of(each) for each in everyone}
    running = next((each for each in variants if each.admitted), None)
    for flavor in rule.flavors:
        if flavor not in present:
            active = parent.active and _is_wanted(flavor, running, rule, order)
            body = bodies.variant(parent, flavor, active=active)
            made.then(CreateWorkload(body), parent, "CreatedVariant", f'Variant Workload "{key_of(body)}" created')
    for variant in variants:
        if (flavor := bodies.flavor_of(variant)) not in order:
            note = f'Variant Workload "{variant.key}" deleted; flavor "{flavor}" no longer in ClusterQueue'
            made.then(DeleteWorkload(variant), parent, "DeletedVariant", note)


def _is_wanted(flavor: str, running: WorkloadObject | None, rule: VariantRule, order: dict[str, int]) -> bool:
    """Whether the job, running as this variant, should still be tried on the flavor."""
    if running is None or bodies.flavor_of(running) == flavor:
        return True
    if rule.mode == _RETAIN:
        return False
    place = order.get(flavor, len(order))
    best = order.get(bodies.flavor_of(running), len(order))
    return place < best and place <= order.get(rule.last_acceptable, len(order))


def _activate(
    made: VariantPlan,
    parent: WorkloadObject,
    variants: Sequence[WorkloadObject],
    admitted: Sequence[WorkloadObject],
    rule: VariantRule,
    order: dict[str, int],
) -> None:
    running = admitted[0] if admitted else None
    for variant in variants:
        wanted = parent.active and _is_wanted(bodies.flavor_of(variant), running, rule, order)
        if wanted == variant.active or (wanted and _is_rejected(variant)):
            continue
        step, because = PatchWorkload(variant, {"spec": {"active": wanted}}), _because(parent, running, rule)
        if wanted:
            made.then(step, variant, "ActivatedVariant", f"Variant Workload activated due to {because}")
        else:
            made.then(step, variant, "DeactivatedVariant", f"Variant Workload deactivated due to {because}")


def _because(parent: WorkloadObject, running: WorkloadObject | None, rule: VariantRule) -> str:
    if not parent.active:
        return f'Parent Workload "{parent.key}" not active'
    if running is None:
        return "no other Variant being admitted"
    if rule.mode == _RETAIN:
        return f'RetainFirstAdmission: another Variant "{running.key}" is admitted'
    return f'its place in the order of flavors, and Variant "{running.key}" being admitted'


def _is_rejected(variant: WorkloadObject) -> bool:
    """Whether an admission check has rejected the variant: it stays out."""
    return (variant.condition(names.EVICTED) or {}).get("reason") == f"{names.DEACTIVATED_DUE_TO}AdmissionCheck"


# --- evictions --------------------------------------------------------------------------------------------------------


def _follow_eviction(made: VariantPlan, parent: WorkloadObject, everyone: Sequence[WorkloadObject]) -> bool:
    """Evict the parent with an evicted variant, which releases its quota after its parent. True: wait for that."""
    waits = False
    for variant in everyone:
        if not variant.holds_quota or not (variant.evicted or variant.deleting):
            continue
        if not (variant.admitted and parent.holds_quota and _runs_as(parent, variant)):
            if variant.evicted:
                made.then(ChangeStatus(variant, "release", status_changes.release))
            continue
        waits = True
        _evict_parent(made, parent, variant)
    return waits


def _evict_parent(made: VariantPlan, parent: WorkloadObject, variant: WorkloadObject) -> None:
    if parent.evicted:
        return  # its job is stopping
    cause = (variant.condition(names.EVICTED) or {}).get("reason", "").removeprefix(names.DEACTIVATED_DUE_TO)
    if cause in _FINAL and parent.active:
        made.then(PatchWorkload(parent, {"spec": {"active": False}}))
    elif not parent.active:
        message = (variant.condition(names.EVICTED) or {}).get("message") or "The workload is deactivated"
        _evict_for(made, parent, "Deactivated", message, cause if cause in _FINAL else "")
    else:
        _evict_for(made, parent, "VariantEvicted", "Admitted variant was evicted")


def _evict_for(made: VariantPlan, parent: WorkloadObject, reason: str, message: str, cause: str = "") -> None:
    decision = model.Evict(parent.key, parent.uid, reason, message, underlying_cause=cause)
    step = ChangeStatus(parent, "evict", status_changes.evict(decision))
    made.then(step, parent, f"EvictedDueTo{reason}{f'DueTo{cause}' if cause else ''}", message)


# --- the parent's admission -------------------------------------------------------------------------------------------


def _admit_parent(made: VariantPlan, parent: WorkloadObject, admitted: Sequence[WorkloadObject]) -> None:
    if parent.evicted and parent.holds_quota:
        return  # its job is stopping
    if not (parent.holds_quota and parent.admitted):
        if admitted and parent.active:
            made.then(
                ChangeStatus(parent, "admission", status_changes.admit_as_variant(admitted[0])),
                parent,
                "Admitted",
                f"The variant {admitted[0].name} is admitted",
            )
        return
    running = next((each for each in admitted if _runs_as(parent, each)), None)
    if running is None:
        _evict_for(made, parent, "ConcurrentAdmission", "No variant is running")
        return
    if running.admission != parent.admission:  # its pods were placed on other nodes
        made.then(ChangeStatus(parent, "admission", status_changes.admit_as_variant(running)))
    if (change := _run_facts(parent, running)) is not None:
        made.then(ChangeStatus(running, "run", change))


def _runs_as(parent: WorkloadObject, variant: WorkloadObject) -> bool:
    """Whether the parent has the flavors of this variant."""
    return _flavors(parent) == _flavors(variant)


def _flavors(workload: WorkloadObject) -> list[tuple[str, Json]]:
    return [(row["name"], row.get("flavors") or {}) for row in workload.assignments]


def _run_facts(parent: WorkloadObject, variant: WorkloadObject) -> Change | None:
    """The change that gives a variant the facts of the run that its parent has and the engine needs; None where it has them."""
    ready = parent.condition(names.PODS_READY)
    known = variant.condition(names.PODS_READY)
    fields = ("reclaimablePods", "accumulatedPastExecutionTimeSeconds")
    facts = {field: parent.status.get(field) for field in fields}
    same = all(variant.status.get(field) == value for field, value in facts.items())
    seen = ("status", "reason", "lastTransitionTime")
    if same and (ready is None or (known is not None and all(known.get(f) == ready.get(f) for f in seen))):
        return None

    def change(status: Json, now: int) -> None:
        rows: conditions.Conditions = status.setdefault("conditions", [])
        if ready is not None:
            rows[:] = [*(row for row in rows if row["type"] != names.PODS_READY), dict(ready)]
        for field, value in facts.items():
            if value is None:
                status.pop(field, None)
            else:
                status[field] = value

    return change


# --- preemption gates -------------------------------------------------------------------------------------------------


def _open_gate(made: VariantPlan, variants: Sequence[WorkloadObject], now: int) -> None:
    """Let the most preferred variant that needs others to be preempted try, and the next one if that does not start in time."""
    waiting = [each for each in variants if each.active and not each.holds_quota and not each.finished]
    opened = [at for each in waiting if (at := _opened_at(each)) is not None]
    candidate = _candidate(waiting)
    if candidate is None:
        return
    if opened and now < max(opened) + PATIENCE:
        made.due = max(opened) + PATIENCE
        return
    note = f'Opened preemption gate for variant workload "{candidate.key}"'
    step = ChangeStatus(candidate, "preemption-gate", gate_changes.gate_opened(names.CONCURRENT_GATE))
    made.then(step, candidate, "PreemptionUngatedVariant", note)


def _candidate(waiting: Sequence[WorkloadObject]) -> WorkloadObject | None:
    """The first variant that only its gate keeps from preempting; none as long as one before it was not tried."""
    for variant in waiting:
        if _opened_at(variant) is not None:
            continue
        if variant.is_true(names.BLOCKED_ON_GATES):
            return variant
        if variant.condition(names.QUOTA_RESERVED) is None:
            return None
    return None


def _opened_at(variant: WorkloadObject) -> int | None:
    """The time at which the gate of concurrent admission was opened, in milliseconds; None while it is closed."""
    for row in variant.status.get("preemptionGates", ()):
        if row["name"] == names.CONCURRENT_GATE and row.get("position") == "Open":
            return conditions.millis_of(row.get("lastTransitionTime"))
    return None


def leave(variant: WorkloadObject) -> list[Step]:
    """The steps of a variant that has no parent any more."""
    made = VariantPlan([])
    _delete(made, variant)
    _let_go(made, variant)
    return [step for step, _ in made.steps]


# --- deletion ---------------------------------------------------------------------------------------------------------


def _delete(made: VariantPlan, variant: WorkloadObject) -> None:
    if not variant.deleting:
        made.then(DeleteWorkload(variant))


def _let_go(made: VariantPlan, variant: WorkloadObject) -> None:
    """Remove the finalizer that kept its quota."""
    if names.IN_USE_FINALIZER in variant.finalizers and (variant.deleting or variant.finished):
        rest = [each for each in variant.finalizers if each != names.IN_USE_FINALIZER]
        made.then(PatchWorkload(variant, {"metadata": {"finalizers": rest or None}}))
