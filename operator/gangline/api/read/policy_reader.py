"""Which QueuePolicy is in force for which ClusterQueue, and what it says to the engine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.engine import FIXES, HOLD_QUOTA, STILL_HELD, model
from gangline.kube.resources import Json, key_of

#: The correction that is on without a policy: what others still hold is granted to nobody.
ALWAYS: Final = frozenset({STILL_HELD})


@dataclass(frozen=True, slots=True)
class StallPolicy:
    """QueuePolicy.spec.stall, in milliseconds."""

    after: model.Millis = 900_000
    startup: model.Millis = 600_000
    grace: model.Millis = 300_000
    action: str = "Notify"  # Notify | Restart | Requeue
    max_actions: int = 3


def in_force(policies: Iterable[Json], queue: Json) -> Json | None:
    """The policy for `queue`: of those that select it the one with the highest precedence, then the first by name."""
    matching = [policy for policy in policies if selects(policy, queue)]
    return min(matching, key=lambda policy: (-policy["spec"].get("precedence", 0), key_of(policy)), default=None)


def selects(policy: Json, queue: Json) -> bool:
    """By name or by labels. A policy that names neither selects nothing."""
    which = policy["spec"].get("clusterQueues", {})
    if key_of(queue) in which.get("names", ()):
        return True
    wanted: Mapping[str, str] = which.get("matchLabels") or {}
    labels: Mapping[str, str] = queue["metadata"].get("labels") or {}
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def with_policy(queue: model.ClusterQueue, policy: Json | None) -> model.ClusterQueue:
    """The queue with all that its policy says to the engine."""
    return replace(
        queue,
        fixes=fixes(policy),
        ordering=ordering(policy),
        backfill=backfill(policy),
        recovery=recovery(policy),
        overrun=overrun(policy),
        victims=victims(policy),
    )


def fixes(policy: Json | None) -> frozenset[str]:
    """The corrections of Kueue's behaviour that are on: no quota is granted twice, those of the profile,
    `preemption.holdQuota` where there is such a part, those enabled, less those disabled."""
    if policy is None:
        return ALWAYS
    spec = policy["spec"]
    chosen: Json = spec.get("fixes") or {}
    base = FIXES if spec.get("profile") == "Gangline" else ALWAYS
    preemption = spec.get("preemption")
    if preemption is not None:
        base = base | {HOLD_QUOTA} if preemption.get("holdQuota", True) else base - {HOLD_QUOTA}
    return frozenset((base | set(chosen.get("enable") or ())) - set(chosen.get("disable") or ())) & FIXES


def recovery(policy: Json | None) -> model.Recovery | None:
    """What a policy says of failing nodes; None where it says nothing. The schema has filled in what was left out."""
    said = policy["spec"].get("recovery") if policy is not None else None
    if said is None:
        return None
    defaults = model.Recovery()
    spares, share = _spares(said.get("spares", 0))
    return model.Recovery(
        enabled=said.get("enabled", defaults.enabled),
        spares=spares,
        spares_percent=share,
        lend=said.get("lend", defaults.lend),
        preempt_to_heal=said.get("preemptToHeal", defaults.preempt_to_heal),
        soak_seconds=quantity.parse_duration(said["soak"]) if "soak" in said else defaults.soak_seconds,
        swap_budget=said.get("swapBudget", defaults.swap_budget),
        toleration_seconds=said.get("tolerationSeconds"),
        breaker_share=float(said.get("breaker", defaults.breaker_share)),
        force_delete=said.get("forceDelete", defaults.force_delete),
        proactive=said.get("proactive", defaults.proactive),
    )


def overrun(policy: Json | None) -> model.Overrun | None:
    """What a policy says of runs that outlast their forecast; None where it says nothing."""
    said = policy["spec"].get("overrun") if policy is not None else None
    if said is None:
        return None
    defaults = model.Overrun()
    return model.Overrun(
        warn_at=float(said.get("warnAt", defaults.warn_at)),
        overdue_factor=quantity.parse_number(said.get("overdueFactor", 3)),
        action=said.get("action", defaults.action),
        grace_seconds=quantity.parse_duration(said.get("grace", "0s")),
    )


def victims(policy: Json | None) -> model.VictimPolicy | None:
    """What a policy says of who is stopped to make room; None where it leaves that to Kueue."""
    said = policy["spec"].get("preemption") if policy is not None else None
    if said is None:
        return None
    found = model.VictimPolicy(
        choice=said.get("victims", "Kueue"),
        non_preemptible_from=said.get("nonPreemptibleFrom"),
        non_preemptible_gpus=said.get("nonPreemptibleGpus"),
        min_runtime_seconds=quantity.parse_duration(said["minRuntime"]) if said.get("minRuntime") else 0.0,
        max_preemptions=said.get("maxPerWorkload"),
    )
    return None if found == model.VictimPolicy() else found


def ordering(policy: Json | None) -> model.Ordering | None:
    """What a policy says of who goes first; None where it leaves that to Kueue."""
    said = policy["spec"].get("order") if policy is not None else None
    if said is None:
        return None
    defaults = model.Ordering()
    found = model.Ordering(
        key=said.get("key", defaults.key),
        age_weight=quantity.parse_number(said.get("ageWeight", defaults.age_weight)),
        age_cap_seconds=quantity.parse_duration(said["ageCap"]) if said.get("ageCap") else None,
        half_life_seconds=quantity.parse_duration(said["halfLife"])
        if "halfLife" in said
        else defaults.half_life_seconds,
        max_wait_seconds=quantity.parse_duration(said["maxWait"]) if said.get("maxWait") else None,
        optimism=quantity.parse_number(said.get("optimism", defaults.optimism)),
    )
    as_kueue = found.key == defaults.key and found.max_wait_seconds is None and not found.optimism
    return None if as_kueue else found


def backfill(policy: Json | None) -> model.Backfill | None:
    """What a policy says of reservations and backfill; the profile Gangline turns it on by itself."""
    if policy is None:
        return None
    said = policy["spec"].get("backfill")
    defaults = model.Backfill()
    if said is None:
        return defaults if policy["spec"].get("profile") == "Gangline" else None
    chances: Json = said.get("quantiles") or {}
    depth = said.get("depth", defaults.depth)
    return model.Backfill(
        depth=model.UNLIMITED if depth == "Conservative" else int(depth),
        candidates=said.get("candidates", defaults.candidates),
        max_candidates=said.get("maxCandidates", defaults.max_candidates),
        running=float(chances.get("running", defaults.running)),
        candidate=float(chances.get("candidate", defaults.candidate)),
        revoke=said.get("revoke", defaults.revoke),
        overdue_factor=quantity.parse_number(said.get("overdueFactor", defaults.overdue_factor)),
        give_way=_give_way(said.get("giveWay")),
    )


def _give_way(said: Json | None) -> model.GiveWay | None:
    if said is None:
        return None
    defaults = model.GiveWay()
    return model.GiveWay(
        longer_than=quantity.parse_number(said.get("longerThan", defaults.longer_than)),
        loss_share=float(said.get("lossShare", defaults.loss_share)),
        min_runtime_seconds=quantity.parse_duration(said["minRuntime"])
        if "minRuntime" in said
        else defaults.min_runtime_seconds,
        longer_than_backfilled=quantity.parse_number(said["longerThanBackfilled"])
        if "longerThanBackfilled" in said
        else None,
        max_preemptions=said.get("maxPreemptions"),
        loss_budget=float(said["lossBudget"]) if "lossBudget" in said else None,
    )


def stall(policy: Json | None) -> StallPolicy | None:
    """What a policy says of runs that hang; None where it says nothing, or that nothing is to be done."""
    said = policy["spec"].get("stall") if policy is not None else None
    if said is None or said.get("action") == "None":
        return None
    defaults = StallPolicy()

    def millis(name: str, default: int) -> int:
        return round(quantity.parse_duration(said[name]) * 1000) if name in said else default

    return StallPolicy(
        after=millis("after", defaults.after),
        startup=millis("startup", defaults.startup),
        grace=millis("grace", defaults.grace),
        action=said.get("action", defaults.action),
        max_actions=said.get("maxActions", defaults.max_actions),
    )


@bounded.parser(16, worst=("9", "9%", ".9"))
def _spares(said: int | str) -> tuple[int, float]:
    """A number of nodes, and a share of them in percent."""
    text = str(said)
    return (0, float(text[:-1])) if text.endswith("%") else (int(text), 0.0)
