"""The status of QueuePolicies: whether each is in force, for which queues, and how much backfill delays their heads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.read import conditions
from gangline.api.read.parse import ParseError
from gangline.api.read.policy_reader import backfill, placement, selects
from gangline.control.writes.status import queue_orders
from gangline.engine import BACKFILL, BUDGET, EARLY_END, FIXES, STOPPING, PolicyFallback
from gangline.engine.model import OrderInForce
from gangline.kube.resources import Json
from gangline.objects import Stored

#: The status names at most this many queues.
MOST_NAMES = 256
#: names in a message
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class BudgetReport:
    """What a QueuePolicy's status says about its budgets: rows, and status, reason and message of a condition."""

    rows: list[Json]
    known: bool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class TelemetryReport:
    """What a QueuePolicy's status says about its telemetry rules: rows, and which queries are not answered, "" = all are."""

    rows: list[Json]
    trouble: str


@dataclass(frozen=True, slots=True)
class SelectedQueues:
    """The queues that a policy selects: those for which it is in force, those that another policy has, and names of no queue."""

    matched: tuple[str, ...] = ()
    #: ClusterQueue -> the policy that is in force for it instead
    shadowed: Mapping[str, str] = field(default_factory=dict[str, str])
    unknown: tuple[str, ...] = ()


def selection(policy: Stored, queues: Mapping[str, Stored], in_force: Mapping[str, str]) -> SelectedQueues:
    """The queues that a policy selects. `in_force`: ClusterQueue -> its policy."""
    own = policy.name
    selected = [name for name, queue in sorted(queues.items()) if _selects(policy, queue)]
    named = (policy.spec.get("clusterQueues") or {}).get("names") or ()
    return SelectedQueues(
        tuple(name for name in selected if in_force.get(name) == own),
        {name: in_force[name] for name in selected if in_force.get(name, own) != own},
        tuple(dict.fromkeys(name for name in named if name not in queues)),
    )


def _selects(policy: Stored, queue: Stored) -> bool:
    try:
        return selects(policy, queue)
    except ParseError:  # the policy is in force nowhere
        return False


def status(
    policy: Stored,
    chosen: SelectedQueues,
    *,
    now: int,
    head_delay: float = 0.0,
    trouble_of: Callable[[str], str] = lambda scorer: "",
    fallen_back: Mapping[str, PolicyFallback] | None = None,
    budgets: BudgetReport | None = None,
    telemetry: TelemetryReport | None = None,
    orders: Mapping[str, OrderInForce] | None = None,
) -> Json:
    """The policy's status: whether it is in force, and for which queues; and whether the scorers of users that it names have a
    say (`trouble_of`: why one has none).

    `fallen_back`: the ClusterQueues that follow something else, because of its floor; `budgets`: what is used of its budgets;
    `telemetry`: what its rules measure; `orders`: which order the ClusterQueues have whose policy has several.
    """
    old = policy.status
    rows = [dict(row) for row in policy.conditions]
    found = sorted(chosen.matched)
    fixes = policy.spec.get("fixes") or {}
    unknown = sorted((set(fixes.get("enable") or ()) | set(fixes.get("disable") or ())) - FIXES)
    if unknown:
        known = ", ".join(sorted(FIXES))
        active, reason, message = (
            False,
            "UnknownFix",
            f"spec.fixes: no such fix: {', '.join(unknown)}. Known fixes: {known}",
        )
    elif not found and chosen.shadowed:
        active, reason, message = False, "Shadowed", "In force for no ClusterQueue"
    elif not found:
        active, reason, message = False, "NothingSelected", "spec.clusterQueues selects no ClusterQueue"
    else:
        active, reason, message = True, "Ready", f"In force for {len(found)} ClusterQueue(s)"
    if active and fallen_back:
        away = sum(name in fallen_back for name in found)
        message += f"; {away} of them follow status.fallenBack for now, see spec.floor" if away else ""
    message += _ignored(chosen)
    generation = policy.generation
    conditions.put(rows, names.ACTIVE, active, reason, message, now=now, generation=generation)
    _put_scorers(rows, scorers_named(policy), trouble_of, now, generation)
    new = {**old, "conditions": rows, "matched": found[:MOST_NAMES], "observedGeneration": generation}
    if backfill(policy) is not None:
        new["headDelaySeconds"] = quantity.format(round(head_delay))
    _put_budgets(new, rows, budgets, now, generation)
    _put_telemetry(new, rows, telemetry, now, generation)
    away = {name: fallen_back[name] for name in found if name in fallen_back} if fallen_back else {}
    new.pop("orders", None)
    if orders and (ordered := queue_orders.rows(orders[name] for name in found if name in orders)):
        new["orders"] = ordered
    new.pop("fallenBack", None)
    if away:
        new["fallenBack"] = [
            {"clusterQueue": name, "mode": each.mode, "since": conditions.timestamp(each.since)}
            | ({"message": each.why} if each.why else {})
            for name, each in list(away.items())[:MOST_NAMES]
        ]
    return new


def scorers_named(policy: Stored) -> tuple[str, ...]:
    """The scorers of users that a policy names."""
    try:
        found = placement(policy)
    except ParseError:
        return ()
    return tuple(dict.fromkeys(each.plugin for each in found.scores if each.plugin)) if found is not None else ()


def _put_budgets(
    new: Json, rows: conditions.Conditions, report: BudgetReport | None, now: int, generation: int
) -> None:
    new.pop("budgets", None)
    if report is None:
        rows[:] = [row for row in rows if row.get("type") != names.BUDGETS_KNOWN]
        return
    conditions.put(
        rows, names.BUDGETS_KNOWN, report.known, report.reason, report.message, now=now, generation=generation
    )
    if report.rows:
        new["budgets"] = report.rows


def _put_telemetry(
    new: Json, rows: conditions.Conditions, report: TelemetryReport | None, now: int, generation: int
) -> None:
    new.pop("telemetry", None)
    if report is None:
        rows[:] = [row for row in rows if row.get("type") != names.TELEMETRY_AVAILABLE]
        return
    new["telemetry"] = report.rows
    trouble = report.trouble[:1024]
    if trouble:
        conditions.put(rows, names.TELEMETRY_AVAILABLE, False, "QueryFailed", trouble, now=now, generation=generation)
    else:
        message = "All queries are answered"
        conditions.put(rows, names.TELEMETRY_AVAILABLE, True, "Answered", message, now=now, generation=generation)


def _put_scorers(
    rows: conditions.Conditions,
    named: Iterable[str],
    trouble_of: Callable[[str], str],
    now: int,
    generation: int,
) -> None:
    said = [f"{name}: {trouble}" for name in named if (trouble := trouble_of(name))]
    if said:
        message = "All nodes have the same points from " + "; ".join(said)
        conditions.put(rows, names.SCORERS_READY, False, "ScorerFailed", message[:1024], now=now, generation=generation)
    elif named or conditions.find(rows, names.SCORERS_READY) is not None:
        message = "All scorers that it names are asked"
        conditions.put(rows, names.SCORERS_READY, True, "Ready", message, now=now, generation=generation)


def _ignored(chosen: SelectedQueues) -> str:
    """The part of a policy's message about selected queues for which it has no effect; "" if there are none."""
    text = ""
    if chosen.unknown:
        text += f"; no ClusterQueue has the name {_some(chosen.unknown)}"
    by_policy: dict[str, list[str]] = {}
    for queue, policy in chosen.shadowed.items():
        by_policy.setdefault(policy, []).append(queue)
    for policy, queues in sorted(by_policy.items()):
        text += f"; for {_some(queues)} QueuePolicy {policy} is in force instead"
    return text


def _some(names: Sequence[str]) -> str:
    return bounded.some(names, _SHOWN)


def head_delays(seconds: Mapping[str, Mapping[str, float]], backfilling: Iterable[str]) -> dict[tuple[str, str], float]:
    """The delays of heads in seconds, by (ClusterQueue, cause), including zeros for the queues that backfill."""
    found = {(queue, cause): 0.0 for queue in backfilling for cause in (BACKFILL, BUDGET, EARLY_END, STOPPING)}
    return found | {(queue, cause): s for queue, causes in seconds.items() for cause, s in causes.items()}
