"""The QueuePolicy in force for each ClusterQueue, and its settings for the engine. Pure.

A policy is read with the model of its CRD, so absent fields have the schema's defaults. Raises ParseError for a policy that the
schema would have refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import orjson

from gangline import bounded
from gangline.api import quantity
from gangline.api.read import models
from gangline.api.read.reading import ParseError, child, labels, root
from gangline.api.schema.v1alpha1 import queuepolicy
from gangline.api.schema.v1alpha1.queuepolicy import QueuePolicySpec
from gangline.engine import FIXES, HOLD_QUOTA, STILL_HELD, model
from gangline.kube.resources import Json, key_of

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


def in_force(policies: Iterable[Json], queue: Json) -> Json | None:
    """The policy for `queue`: of those that select it the one with the highest precedence, then the first by name.

    Only the selecting part has to be valid: errors elsewhere concern the queues for which the policy is in force.
    """
    matching = [policy for policy in policies if selects(policy, queue)]
    return min(matching, key=lambda policy: (-_selection(policy).precedence, key_of(policy)), default=None)


def selects(policy: Json, queue: Json) -> bool:
    """By name or by labels. A policy with neither selects nothing."""
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


# --- what it says -----------------------------------------------------------------------------------------------------


def with_policy(queue: model.ClusterQueue, policy: Json | None) -> model.ClusterQueue:
    """The queue with all settings of its policy."""
    return replace(
        queue,
        fixes=fixes(policy),
        ordering=ordering(policy),
        backfill=backfill(policy),
        recovery=recovery(policy),
        overrun=overrun(policy),
        victims=victims(policy),
        refused_seconds=refused_seconds(policy),
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
    )
    return None if found == model.VictimPolicy() else found


def ordering(policy: Json | None) -> model.Ordering | None:
    """The policy for the order of workloads; None for Kueue's."""
    spec = _spec(policy)
    if spec is None or spec.order is None:
        return None
    section = spec.order
    found = model.Ordering(
        key=section.key,
        age_weight=quantity.parse_number(section.age_weight),
        age_cap_seconds=_seconds(section.age_cap),
        half_life_seconds=quantity.parse_duration(section.half_life),
        max_wait_seconds=_seconds(section.max_wait),
        optimism=quantity.parse_number(section.optimism),
    )
    as_kueue = found.key == model.Ordering().key and found.max_wait_seconds is None and not found.optimism
    return None if as_kueue else found


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
        checkpoint_preemption=None if section.give_way is None else _give_way(section.give_way),
    )


def _give_way(section: queuepolicy.GiveWay) -> model.CheckpointPreemption:
    backfilled = section.longer_than_backfilled
    return model.CheckpointPreemption(
        longer_than=quantity.parse_number(section.longer_than),
        loss_share=float(section.loss_share),
        min_runtime_seconds=quantity.parse_duration(section.min_runtime),
        longer_than_backfilled=None if backfilled is None else quantity.parse_number(backfilled),
        max_preemptions=section.max_preemptions,
        loss_budget=None if section.loss_budget is None else float(section.loss_budget),
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


def refused_seconds(policy: Json | None) -> float | None:
    """How long the pods of a workload may be refused; None without such a part."""
    spec = _spec(policy)
    section = spec.refused_pods if spec is not None else None
    return None if section is None else quantity.parse_duration(section.after)


def _seconds(section: str | None) -> float | None:
    return None if section is None else quantity.parse_duration(section)


def _millis(section: str) -> model.Millis:
    return round(quantity.parse_duration(section) * 1000)


@bounded.parser(queuepolicy.LONGEST, worst=("9", "9%", ".9"))
def _spares(section: int | str) -> tuple[int, float]:
    """A number of nodes, and a share of them in percent."""
    text = str(section)
    return (0, float(text[:-1])) if text.endswith("%") else (int(text), 0.0)
