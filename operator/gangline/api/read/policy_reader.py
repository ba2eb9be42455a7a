"""The QueuePolicy in force for each ClusterQueue, and its settings for the engine. Pure.

A policy is read with the model of its CRD, so absent fields have the schema's defaults. Raises ParseError for a policy that the
schema would have refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

import orjson

from gangline import bounded
from gangline.api import quantity
from gangline.api.phases import PhasePolicy, phase_policy
from gangline.api.queue_orders import order_steps, order_windows
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child, labels, root
from gangline.api.schedules import Span
from gangline.api.schema.v1alpha1 import queuepolicy
from gangline.api.schema.v1alpha1.placement import (
    PlacementFilterSpec,
    PlacementScoreSpec,
    PlacementSpec,
    PlacementWeights,
    PowerCapSpec,
    TelemetryLimit,
    TelemetryRuleSpec,
)
from gangline.api.schema.v1alpha1.queuepolicy import QueuePolicySpec
from gangline.api.spec_fields import SpecError
from gangline.api.telemetry_rules import LONGEST_PERIOD, PERIODS, SHORTEST_PERIOD, Limit, TelemetryRule, limit
from gangline.engine import model
from gangline.engine.model import FIXES, HOLD_QUOTA, STILL_HELD
from gangline.forecast.history.budgets import (
    BY_LABEL,
    LONGEST_WINDOW,
    ROLLING,
    SHORTEST_WINDOW,
    Budget,
    Period,
)
from gangline.kube.resources import Json, key_of

Policy = TypeVar("Policy", bound=Json)

#: The fix that is on without a policy: quota that others still hold is not granted.
ALWAYS: Final = frozenset({STILL_HELD})
#: the part that selects the queues of a policy
_SELECTION: Final = ("clusterQueues", "precedence")
#: policies cached by content; one is read for each queue that it may select
_KNOWN: Final = 1024


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """QueuePolicy.spec.stall, in milliseconds."""

    after: model.Millis = 900_000
    startup: model.Millis = 600_000
    grace: model.Millis = 300_000
    action: str = "Notify"  # Notify | Restart | Requeue
    max_actions: int = 3


# --- the policy in force ----------------------------------------------------------------------------------------------


def in_force(policies: Iterable[Policy], queue: Json) -> Policy | None:
    """The policy for `queue`: of those that select it the one with the highest precedence, then the first by name.

    Only the selecting part has to be valid: errors in other parts concern the queues for which the policy is in force.
    """
    matching = [policy for policy in policies if selects(policy, queue)]
    return min(matching, key=lambda policy: (-_selection(policy).precedence, key_of(policy)), default=None)


def selects(policy: Json, queue: Json) -> bool:
    """Whether the policy selects the queue, by name or by labels. A policy with neither selects nothing."""
    which = _selection(policy).cluster_queues
    if key_of(queue) in (which.names or ()):
        return True
    found = labels(child(queue, "metadata", ""), "labels", "metadata")
    wanted = which.match_labels or {}
    return bool(wanted) and all(found.get(key) == value for key, value in wanted.items())


def _selection(policy: Json) -> QueuePolicySpec:
    section = child(policy, "spec", "")
    return _read({key: section[key] for key in _SELECTION if key in section})


def _spec(policy: Json | None) -> QueuePolicySpec | None:
    return None if policy is None else _read(child(policy, "spec", ""))


def _read(section: Json) -> QueuePolicySpec:
    try:
        return _known(orjson.dumps({"clusterQueues": {}, **section}))
    except orjson.JSONEncodeError as error:
        raise ParseError("spec", f"is not JSON: {error}") from None


@lru_cache(maxsize=_KNOWN)
def _known(raw: bytes) -> QueuePolicySpec:
    return models.read(QueuePolicySpec, root(orjson.loads(raw)), "spec")


def unknown_fields(policy: Json) -> list[str]:
    """The fields that a QueuePolicy does not have: an API server drops these, a file has them by mistake."""
    spec = _spec(policy)
    return [] if spec is None else models.unknown(spec, child(policy, "spec", ""), "spec")


# --- what it says -----------------------------------------------------------------------------------------------------


def with_policy(queue: model.ClusterQueue, policy: Json | None, known: Span | None = None) -> model.ClusterQueue:
    """The queue with all settings of its policy. `known`: the time over which the windows of its orders are known."""
    return replace(
        queue,
        fixes=fixes(policy),
        ordering=ordering(policy, known),
        backfill=backfill(policy),
        recovery=recovery(policy),
        overrun=overrun(policy),
        victims=victims(policy),
        placement=placement(policy),
        floor=floor(policy),
        fallen_back="",
        refused_seconds=refused_seconds(policy),
        unscheduled=unscheduled_pods(policy),
        preemption_limits=preemption_limits(policy),
        moves=moves(policy),
        flavors=flavors(policy),
    )


def fixes(policy: Json | None) -> frozenset[str]:
    """The fixes that are on: no quota is granted twice, those of the profile, `preemption.holdQuota` if there is such a part,
    enabled ones, without disabled ones.
    """
    spec = _spec(policy)
    if spec is None:
        return ALWAYS
    base = FIXES if spec.profile == "Gangline" else ALWAYS
    if spec.preemption is not None:
        base = base | {HOLD_QUOTA} if spec.preemption.hold_quota else base - {HOLD_QUOTA}
    chosen = spec.fixes or queuepolicy.Fixes()
    return frozenset((base | set(chosen.enable or ())) - set(chosen.disable or ())) & FIXES


def recovery(policy: Json | None) -> model.Recovery | None:
    """The policy for failing nodes; None without one."""
    spec = _spec(policy)
    if spec is None or spec.recovery is None:
        return None
    section = spec.recovery
    spares, share = _spares(section.spares)
    return model.Recovery(
        enabled=section.enabled,
        spares=spares,
        spares_percent=share,
        lend=section.lend,
        preempt_to_heal=section.preempt_to_heal,
        soak_seconds=quantity.parse_duration(section.soak),
        swap_budget=section.swap_budget,
        toleration_seconds=section.toleration_seconds,
        breaker_share=float(section.breaker),
        force_delete=section.force_delete,
        proactive=section.proactive,
        probe_nodes=section.probe_nodes,
        restart_grace_seconds=section.restart_grace_seconds,
    )


def overrun(policy: Json | None) -> model.Overrun | None:
    """The policy for runs that outlast their forecast; None without one."""
    spec = _spec(policy)
    if spec is None or spec.overrun is None:
        return None
    return model.Overrun(
        warn_at=float(spec.overrun.warn_at),
        overdue_factor=quantity.parse_number(spec.overrun.overdue_factor),
        action=spec.overrun.action,
        grace_seconds=quantity.parse_duration(spec.overrun.grace),
    )


def victims(policy: Json | None) -> model.VictimPolicy | None:
    """The policy for the choice and protection of victims; None for Kueue's."""
    spec = _spec(policy)
    if spec is None or spec.preemption is None:
        return None
    section = spec.preemption
    found = model.VictimPolicy(
        choice=section.victims,
        non_preemptible_from=section.non_preemptible_from,
        non_preemptible_gpus=section.non_preemptible_gpus,
        min_runtime_seconds=_seconds(section.min_runtime) or 0.0,
        max_preemptions=section.max_per_workload,
        converged_first=section.converged_first,
    )
    return None if found == model.VictimPolicy() else found


def preemption_limits(policy: Json | None) -> model.PreemptionLimits | None:
    """How much a queue may preempt and be preempted; None without limits."""
    spec = _spec(policy)
    section = spec.preemption_limits if spec is not None else None
    found = (
        model.PreemptionLimits()
        if section is None
        else model.PreemptionLimits(_bounds(section.causes), _bounds(section.suffers))
    )
    return None if found == model.PreemptionLimits() else found


def moves(policy: Json | None) -> model.Moves | None:
    """How workloads are moved to make room for others; None: not at all."""
    spec = _spec(policy)
    if spec is None or spec.moves is None:
        return None
    section = spec.moves
    return model.Moves(
        quantity.parse_number(section.lost_gpu_hours_per_day),
        longest_loss_seconds=quantity.parse_duration(section.longest_loss),
        restart_seconds=quantity.parse_duration(section.restart_cost),
        settle_seconds=quantity.parse_duration(section.settle),
        most=section.most,
        after_seconds=quantity.parse_duration(section.after),
    )


def flavors(policy: Json | None) -> model.EarliestCompletion | None:
    """How one of several flavors is chosen; None: by their order."""
    spec = _spec(policy)
    if spec is None or spec.flavors is None or spec.flavors.choose == "QueueOrder":
        return None
    return model.EarliestCompletion(quantity.parse_duration(spec.flavors.wait_at_most))


def _bounds(section: queuepolicy.PreemptionBounds | None) -> model.PreemptionBounds:
    if section is None:
        return model.PreemptionBounds()
    hours = section.lost_gpu_hours_per_day
    return model.PreemptionBounds(section.per_hour, None if hours is None else quantity.parse_number(hours))


def budgets(policy: Json | None) -> tuple[Budget, ...]:
    """The budgets of GPU-hours. Raises ParseError."""
    spec = _spec(policy)
    if policy is None or spec is None:
        return ()
    return tuple(_budget(key_of(policy), each, place) for place, each in enumerate(spec.budgets or ()))


def _budget(policy: str, said: queuepolicy.BudgetSpec, place: int) -> Budget:
    length = _seconds(said.window) or 0.0
    if said.period == ROLLING and not SHORTEST_WINDOW <= length <= LONGEST_WINDOW:
        raise ParseError(f"spec.budgets[{place}].window", "must be from 1m to 8784h")
    if said.per in BY_LABEL and not said.label:
        raise ParseError(f"spec.budgets[{place}].label", f"a budget per {said.per} names a label")
    try:
        zone = bounded.time_zone(said.time_zone)
    except ValueError as error:
        raise ParseError(f"spec.budgets[{place}].timeZone", str(error)) from None
    return Budget(
        policy=policy,
        name=said.name,
        per=said.per,
        label=said.label or "",
        hours=max(0.0, quantity.parse_number(said.gpu_hours)),
        period=Period(said.period, zone, length if said.period == ROLLING else 0.0),
        only=None if said.only is None else frozenset(said.only),
        at80=said.at80,
        at100=said.at100,
    )


def placement(policy: Json | None) -> model.PlacementPolicy | None:
    """The policy for nodes; None without one."""
    spec = _spec(policy)
    if policy is None or spec is None or spec.placement is None:
        return None
    section, rules = spec.placement, telemetry_rules(policy)
    readings = {rule.name: rule.reading for rule in rules}
    excluding = (
        model.PlacementFilter("Telemetry", annotation=rule.reading + model.EXCLUDED) for rule in rules if rule.excludes
    )
    return model.PlacementPolicy(
        profile=section.profile or model.PlacementPolicy().profile,
        scores=tuple(_score(each, i, readings) for i, each in enumerate(section.scores or ())),
        filters=(*(_filter(each, i) for i, each in enumerate(section.filters or ())), *excluding),
        interference=_interference(section),
        power=tuple(map(_power, section.power or ())),
        search=_search(section),
        dry_run=section.dry_run,
    )


def _power(said: PowerCapSpec) -> model.PowerCap:
    return model.PowerCap(
        label=said.domain_label,
        watts=said.cap_watts,
        own=tuple((each.domain, each.cap_watts) for each in said.domains or ()),
        percent=said.percent,
        gpu_watts=said.gpu_watts,
        measured=said.draw == "Measured",
    )


def _search(section: PlacementSpec) -> model.PlacementSearch | None:
    said = section.search
    return None if said is None else model.PlacementSearch(said.budget, said.improve, said.seed)


def _interference(section: PlacementSpec) -> model.CompanyPolicy | None:
    """Whom pods may have as company. The profile and the scorer Interference have need of it. Raises ParseError."""
    said = section.interference
    if said is None:
        scored = section.profile == "Interference" or any(each.name == "Interference" for each in section.scores or ())
        return model.CompanyPolicy() if scored else None
    return model.CompanyPolicy(
        max_slowdown=_number_within(said.max_slowdown, "maxSlowdown", 1, 20),
        min_gain=_number_within(said.min_gain, "minGain", 0, 2),
        unknown=said.unknown,
    )


def _number_within(written: int | str, field: str, least: int, most: int) -> float:
    found = quantity.parse_number(written)
    if not least <= found <= most:
        raise ParseError(f"spec.placement.interference.{field}", f"must be from {least} to {most}")
    return found


def _filter(said: PlacementFilterSpec, position: int) -> model.PlacementFilter:
    usual = model.PlacementFilter(said.name)
    return model.PlacementFilter(
        name=said.name,
        label=said.label or "",
        values=tuple(said.values or ()),
        resource=said.resource or "",
        annotation=said.annotation or "",
        most=said.most,
        least=said.least,
        headroom=usual.headroom if said.percent is None else 10 * said.percent,
        beyond=usual.beyond if said.per_pod is None else _mebibytes(said.per_pod, position),
    )


def _mebibytes(written: int | str, position: int) -> int:
    found = quantity.parse(written, "memory")
    if not 0 <= found <= _MOST_PER_POD:
        raise ParseError(f"spec.placement.filters[{position}].perPod", "must be from 0 to 1Ti")
    return -(-found // _MIB)


_MIB: Final = 1 << 20
#: bytes that a pod may take of a card beyond what it asks for
_MOST_PER_POD: Final = 1 << 40
#: words of the API for scorers that may also look at cards
_SCORERS: Final = {"Standalone": "ClassAffinity", "Balance": "CardBalance"}


def _score(said: PlacementScoreSpec, position: int, readings: Mapping[str, str]) -> model.PlacementScore:
    """A scorer. `readings`: what nodes have of each telemetry rule, by its name. Raises ParseError."""
    usual = model.PlacementScore(said.name)
    annotation, deviation = said.annotation or "", said.deviation or ""
    if said.telemetry is not None:
        annotation = _reading(readings, said.telemetry, f"spec.placement.scores[{position}].telemetry")
        if deviation:
            deviation = _reading(readings, deviation, f"spec.placement.scores[{position}].deviation")
    return model.PlacementScore(
        name=_SCORERS.get(said.name, said.name),
        tier=said.tier,
        weight=said.weight,
        label=said.label or "",
        value=said.value or "",
        weights=() if said.weights is None else _weights(said.weights),
        annotation=annotation,
        deviation=deviation,
        least=usual.least if said.least is None else said.least,
        most=usual.most if said.most is None else said.most,
        target=usual.target if said.target is None else said.target,
        sensitivity=usual.sensitivity if said.sensitivity is None else said.sensitivity,
        resource=said.resource or "",
        plugin=said.plugin or "",
    )


def _reading(readings: Mapping[str, str], name: str, path: str) -> str:
    if name not in readings:
        raise ParseError(path, "must be the name of a rule in spec.placement.telemetry")
    return readings[name]


def telemetry_rules(policy: Json) -> tuple[TelemetryRule, ...]:
    """The telemetry rules of a policy. Raises ParseError."""
    spec = _spec(policy)
    section = spec.placement if spec is not None else None
    if section is None or not section.telemetry:
        return ()
    found = tuple(_rule(each, i, key_of(policy), section.dry_run) for i, each in enumerate(section.telemetry))
    if len({rule.name for rule in found}) < len(found):
        raise ParseError("spec.placement.telemetry", "two rules have the same name")
    return found


def _rule(said: TelemetryRuleSpec, position: int, policy: str, dry_run: bool) -> TelemetryRule:
    path = f"spec.placement.telemetry[{position}]"
    period = round(quantity.parse_duration(said.period) * 1000)
    if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
        raise ParseError(f"{path}.period", PERIODS)
    return TelemetryRule(
        policy=policy,
        name=said.name,
        query=said.query,
        node_label=said.node_label or "",
        period=period,
        exclude=_limit(said.exclude, f"{path}.exclude"),
        evict=_limit(said.evict, f"{path}.evict"),
        periods=said.evict.periods if said.evict is not None else 0,
        dry_run=dry_run,
    )


def _limit(said: TelemetryLimit | None, path: str) -> Limit | None:
    if said is None:
        return None
    try:
        return limit(said.above, said.below, said.clear_at)
    except ValueError as error:
        raise ParseError(path, str(error)) from None


#: what looks at images
_OF_IMAGES: Final = frozenset({"ImagePresent", "ImageLocality"})


def looks_at_images(policy: Json | None) -> bool:
    """Whether a policy looks at the images of pods and nodes; one that cannot be read does not."""
    try:
        found = placement(policy)
    except (ParseError, ValueError):
        return False
    if found is None:
        return False
    named = {each.name for each in (*found.scores, *found.filters)}
    return not named.isdisjoint(_OF_IMAGES) or (not found.scores and found.profile == "Edge")


def _weights(section: PlacementWeights) -> tuple[tuple[str, int], ...]:
    return ("cpu", section.cpu), ("memory", section.memory), ("gpu", section.gpu)


def ordering(policy: Json | None, known: Span | None = None) -> model.Ordering | None:
    """The policy for the order of workloads; None for Kueue's. `known`: the time over which windows are known."""
    spec = _spec(policy)
    if policy is None or spec is None or spec.order is None:
        return None
    section = spec.order
    found = model.Ordering(
        key=section.key,
        age_weight=quantity.parse_number(section.age_weight),
        age_cap_seconds=_seconds(section.age_cap),
        half_life_seconds=quantity.parse_duration(section.half_life),
        demand_weight=quantity.parse_number(section.demand_weight),
        max_wait_seconds=_seconds(section.max_wait),
        optimism=quantity.parse_number(section.optimism),
        steps=_order_steps(policy, section, known),
        when_full=_when_full(section.when_full),
    )
    as_kueue = found.keys == model.Ordering().keys and found.max_wait_seconds is None and not found.optimism
    return None if as_kueue else found


def orders_by_windows(policy: Json | None) -> bool:
    """Whether the order of the policy's queues depends on the time."""
    spec = _spec(policy)
    return spec is not None and spec.order is not None and bool(spec.order.windows)


def _order_steps(policy: Json, section: queuepolicy.OrderSpec, known: Span | None) -> tuple[model.OrderStep, ...]:
    if not section.windows:
        return ()
    path, found = "spec.order.windows", policy["spec"]["order"]["windows"]
    try:
        order_windows(found, path)
        return () if known is None else order_steps(found, path, section.key, known)
    except SpecError as error:
        raise ParseError(error.path, error.message) from None


def _when_full(section: queuepolicy.WhenFullSpec | None) -> model.OrderWhenFull | None:
    if section is None:
        return None
    above, below = float(section.above), float(section.below)
    if not below < above:
        raise ParseError("spec.order.whenFull.below", "must be less than above")
    return model.OrderWhenFull(section.key, above, below, section.of)


def backfill(policy: Json | None) -> model.Backfill | None:
    """The policy for reservations and backfill; the profile Gangline turns it on by itself."""
    spec = _spec(policy)
    if spec is None:
        return None
    section = spec.backfill
    if section is None:
        return model.Backfill() if spec.profile == "Gangline" else None
    return model.Backfill(
        depth=model.UNLIMITED if section.depth == "Conservative" else int(section.depth),
        candidates=section.candidates,
        max_candidates=section.max_candidates,
        running=float(section.quantiles.running),
        candidate=float(section.quantiles.candidate),
        revoke=section.revoke,
        overdue_factor=quantity.parse_number(section.overdue_factor),
        idle_share=None if section.idle_share is None else float(section.idle_share),
        checkpoint_preemption=None if section.give_way is None else _give_way(section.give_way),
        loss_budget=_loss_budget(section),
        restart_seconds=quantity.parse_duration(section.restart_cost),
    )


def floor(policy: Json | None) -> bool:
    """Whether a floor is under order and backfill."""
    spec = _spec(policy)
    return spec is None or spec.floor == "Auto"


def _loss_budget(section: queuepolicy.BackfillSpec) -> float | None:
    old = None if section.give_way is None else section.give_way.loss_budget
    return min((float(share) for share in (section.loss_budget, old) if share is not None), default=None)


def _give_way(section: queuepolicy.GiveWay) -> model.CheckpointPreemption:
    backfilled = section.longer_than_backfilled
    return model.CheckpointPreemption(
        longer_than=quantity.parse_number(section.longer_than),
        loss_share=float(section.loss_share),
        min_runtime_seconds=quantity.parse_duration(section.min_runtime),
        longer_than_backfilled=None if backfilled is None else quantity.parse_number(backfilled),
        max_preemptions=section.max_preemptions,
    )


def stall(policy: Json | None) -> StallPolicy | None:
    """The policy for stalled runs; None without one, or without an action."""
    spec = _spec(policy)
    if spec is None or spec.stall is None or spec.stall.action == "None":
        return None
    section = spec.stall
    return StallPolicy(
        after=_millis(section.after),
        startup=_millis(section.startup),
        grace=_millis(section.grace),
        action=section.action,
        max_actions=section.max_actions,
    )


def phases(policy: Json | None) -> PhasePolicy | None:
    """How the phases of trainings follow from their metrics; None: not at all. Raises ParseError."""
    spec = _spec(policy)
    if policy is None or spec is None or spec.phases is None:
        return None
    try:
        return phase_policy(policy["spec"]["phases"])
    except SpecError as error:
        raise ParseError(error.path, error.message) from None


def refused_seconds(policy: Json | None) -> float | None:
    """How long the pods of a workload may be refused; None without such a part."""
    spec = _spec(policy)
    section = spec.refused_pods if spec is not None else None
    return None if section is None else quantity.parse_duration(section.after)


def unscheduled_pods(policy: Json | None) -> model.UnscheduledPods | None:
    """How long the pods of a workload may be unscheduled; None without such a part."""
    spec = _spec(policy)
    section = spec.unscheduled_pods if spec is not None else None
    if section is None:
        return None
    return model.UnscheduledPods(quantity.parse_duration(section.after), _seconds(section.longest))


def _seconds(section: str | None) -> float | None:
    return None if section is None else quantity.parse_duration(section)


def _millis(section: str) -> model.Millis:
    return round(quantity.parse_duration(section) * 1000)


@bounded.parser(queuepolicy.LONGEST, worst=("9", "9%", ".9"))
def _spares(section: int | str) -> tuple[int, float]:
    """A number of nodes, and a share of them in percent."""
    text = str(section)
    return (0, float(text[:-1])) if text.endswith("%") else (int(text), 0.0)
