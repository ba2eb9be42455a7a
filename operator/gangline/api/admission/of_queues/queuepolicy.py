"""QueuePolicy: the schema checks types, enumerations and patterns; the rules here check the rest."""

from __future__ import annotations

from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.api.admission import amounts, syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    duplicate,
    errors_of,
    invalid,
    listing,
    mapping,
    objects,
    required,
    spec,
    text,
)
from gangline.api.phases import phase_policy
from gangline.api.queue_orders import order_windows
from gangline.api.telemetry_rules import LONGEST_PERIOD, PERIODS, SHORTEST_PERIOD, limit
from gangline.engine.model import BY_FORECAST, HOLD_QUOTA, OrderWhenFull, UnscheduledPods
from gangline.forecast.history.budgets import BY_LABEL, LONGEST_WINDOW, ROLLING, SHORTEST_WINDOW

#: probabilities that are invalid at their ends: a runtime that is exceeded always, or never
CHANCES: Final = (("backfill", "quantiles", "running"), ("backfill", "quantiles", "candidate"), ("overrun", "warnAt"))
#: of a forecast, or of one over the other; backfilled workloads may be overdue before their forecast is over
FACTORS: Final = (("order", "ageWeight"), ("overrun", "overdueFactor"))
POSITIVE: Final = (("backfill", "overdueFactor"),)
DURATIONS: Final = (
    ("order", "halfLife"),
    ("order", "maxWait"),
    ("order", "ageCap"),
    ("backfill", "restartCost"),
    ("backfill", "giveWay", "minRuntime"),
    ("preemption", "minRuntime"),
    ("overrun", "grace"),
    ("stall", "after"),
    ("stall", "startup"),
    ("stall", "grace"),
    ("refusedPods", "after"),
    ("unscheduledPods", "after"),
    ("unscheduledPods", "longest"),
    ("recovery", "soak"),
    ("flavors", "waitAtMost"),
    *(("moves", name) for name in ("longestLoss", "restartCost", "settle", "after")),
)
#: what was moved before is known for a day
LONGEST_SETTLE: Final = 86_400


#: the most GPU-hours of a budget or a limit
MOST_HOURS: Final = 10**12


def validate(policy: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(policy)
    errors = [*_selection(mapping(body.get("clusterQueues"))), *_fixes(mapping(body.get("fixes")))]
    errors += _hold_quota(mapping(body.get("preemption")), mapping(body.get("fixes")))
    for place in CHANCES:
        errors += _chance(_path(place), _at(body, place))
    for place in DURATIONS:
        errors += syntax.duration(_path(place), _at(body, place))
    for i, receiver in enumerate(objects(body.get("notify"))):
        if not text(mapping(receiver.get("secretRef")).get("name")):
            errors.append(required(f"spec.notify[{i}].secretRef.name"))
        for name in ("digest", "startMovedBy"):
            errors += syntax.duration(f"spec.notify[{i}].{name}", receiver.get(name))
    errors += _unscheduled(mapping(body.get("unscheduledPods")))
    errors += _placement(body)
    errors += _budgets(body)
    errors += _phases(body.get("phases"))
    errors += _orders(mapping(body.get("order")))
    for side in ("causes", "suffers"):
        bounds = _at(body, ("preemptionLimits", side))
        place = f"spec.preemptionLimits.{side}.lostGpuHoursPerDay"
        errors += _hours(place, mapping(bounds).get("lostGpuHoursPerDay"))
    errors += _moves(mapping(body.get("moves")))
    for place in FACTORS:
        errors += _factor(_path(place), _at(body, place))
    for place in POSITIVE:
        errors += _positive(_path(place), _at(body, place))
    return errors


def warn(policy: Json) -> list[str]:
    """A budget that limits nothing, and the refusal of a floor under nothing."""
    return [*_idle_budget(mapping(spec(policy).get("backfill"))), *_idle_floor(spec(policy))]


def _orders(order: Json) -> list[FieldError]:
    """Errors of windows, and of bounds between which no queue could become full and less full again."""
    errors = errors_of(lambda: order_windows(order.get("windows"), "spec.order.windows"))
    full, usual = mapping(order.get("whenFull")), OrderWhenFull("")
    try:
        above, below = (amounts.exact(full.get(name, getattr(usual, name))) for name in ("above", "below"))
    except amounts.BadAmountError:
        return errors  # the schema says so
    if not below < above:
        errors.append(
            invalid("spec.order.whenFull.below", full.get("below", str(usual.below)), "must be less than above")
        )
    return errors


def _phases(phases: object) -> list[FieldError]:
    return errors_of(lambda: phase_policy(mapping(phases)))


def _moves(moves: Json) -> list[FieldError]:
    errors = _hours("spec.moves.lostGpuHoursPerDay", moves.get("lostGpuHoursPerDay"))
    settle = moves.get("settle")
    if isinstance(settle, str) and not syntax.duration("", settle) and quantity.parse_duration(settle) > LONGEST_SETTLE:
        errors.append(invalid("spec.moves.settle", settle, "must be at most 24h"))
    return errors


def _idle_floor(body: Json) -> list[str]:
    backfill, order = mapping(body.get("backfill")), mapping(body.get("order"))
    reserves = bool(backfill) and backfill.get("depth") not in (0, "0")
    reserves = reserves or (body.get("profile") == "Gangline" and body.get("backfill") is None)
    if body.get("floor") != "Off" or reserves or not BY_FORECAST.isdisjoint(_order_keys(order)):
        return []
    return ["spec.floor: has no effect: the policy neither reserves starts nor orders by forecasts"]


def _order_keys(order: Json) -> set[str]:
    """The keys of a policy's orders."""
    return {text(each.get("key")) for each in (order, *objects(order.get("windows")), mapping(order.get("whenFull")))}


def _idle_budget(backfill: Json) -> list[str]:
    if backfill.get("lossBudget") is None or backfill.get("giveWay") or backfill.get("revoke", "Never") != "Never":
        return []
    return ["spec.backfill.lossBudget: has no effect without revoke or giveWay: nothing is preempted for a reservation"]


def _factor(path: str, value: object) -> list[FieldError]:
    """Errors of a factor of the forecast, which must be at least 1: no run is overdue before its forecast is over."""
    if value is None:
        return []
    try:
        factor = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    return [] if factor >= 1 else [invalid(path, value, "must be at least 1")]


def _positive(path: str, value: object) -> list[FieldError]:
    if value is None:
        return []
    try:
        factor = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    return [] if factor > 0 else [invalid(path, value, "must be greater than 0")]


def _path(place: tuple[str, ...]) -> str:
    return ".".join(("spec", *place))


def _at(body: Json, place: tuple[str, ...]) -> object:
    for name in place[:-1]:
        body = mapping(body.get(name))
    return body.get(place[-1])


def _selection(selection: Json) -> list[FieldError]:
    named, matched = listing(selection.get("names")), mapping(selection.get("matchLabels"))
    if not named and not matched:
        return [required("spec.clusterQueues", "give names or matchLabels")]
    errors: list[FieldError] = []
    for i, name in enumerate(named):
        errors += syntax.dns_subdomain(f"spec.clusterQueues.names[{i}]", name)
        if name in named[:i]:
            errors.append(duplicate(f"spec.clusterQueues.names[{i}]", name))
    return errors + syntax.label_map("spec.clusterQueues.matchLabels", matched)


def _fixes(fixes: Json) -> list[FieldError]:
    enabled = listing(fixes.get("enable"))
    return [
        invalid(f"spec.fixes.disable[{i}]", name, "can't be in both enable and disable")
        for i, name in enumerate(listing(fixes.get("disable")))
        if name in enabled
    ]


def _hold_quota(preemption: Json, fixes: Json) -> list[FieldError]:
    """The field and the fix are two names for one setting."""
    if preemption.get("holdQuota") is False and HOLD_QUOTA in listing(fixes.get("enable")):
        return [invalid("spec.preemption.holdQuota", False, f"can't be false with {HOLD_QUOTA} in spec.fixes.enable")]
    return []


def _unscheduled(section: Json) -> list[FieldError]:
    """A limit of zero would stop every gang, and a job may be allowed to wait longer, not shorter."""
    path, given = (
        "spec.unscheduledPods",
        {name: section[name] for name in ("after", "longest") if text(section.get(name))},
    )
    try:
        limits = {name: quantity.parse_duration(text(value)) for name, value in given.items()}
    except quantity.QuantityError:
        return []  # said already
    errors = [
        invalid(f"{path}.{name}", given[name], "must be greater than 0")
        for name, limit in limits.items()
        if not limit > 0
    ]
    after = limits.get("after", UnscheduledPods().after_seconds)
    if not errors and limits.get("longest", after) < after:
        errors.append(invalid(f"{path}.longest", given["longest"], "must be at least spec.unscheduledPods.after"))
    return errors


def _placement(body: Json) -> list[FieldError]:
    """Labels are keys of labels, and no spares are kept on nodes that a placement policy assigns."""
    if not isinstance(body.get("placement"), dict):
        return []
    section = mapping(body["placement"])
    errors = _telemetry(section)
    for part in ("scores", "filters"):
        for i, each in enumerate(objects(section.get(part))):
            for key in ("label", "annotation", "deviation", "resource"):
                if text(each.get(key)):
                    errors += syntax.label_key(f"spec.placement.{part}[{i}].{key}", text(each.get(key)))
    if section.get("dryRun") is True:
        return errors
    recovery = mapping(body.get("recovery"))
    spares = recovery.get("spares")
    if recovery.get("enabled") is not False and spares not in (None, 0, "0", "0%"):
        errors.append(invalid("spec.recovery.spares", spares, NO_SPARES))
    return errors


def _telemetry(section: Json) -> list[FieldError]:
    """Periods are within bounds, a node's number does not come back to beyond its limit, and scorers name rules that exist."""
    errors: list[FieldError] = []
    rules = objects(section.get("telemetry"))
    for i, rule in enumerate(rules):
        at = f"spec.placement.telemetry[{i}]"
        period = rule.get("period")
        wrong = syntax.duration(f"{at}.period", period)
        millis = 1000 * quantity.parse_duration(period) if isinstance(period, str) and not wrong else SHORTEST_PERIOD
        errors += wrong or (
            [] if SHORTEST_PERIOD <= millis <= LONGEST_PERIOD else [invalid(f"{at}.period", period, PERIODS)]
        )
        for part in ("exclude", "evict"):
            if isinstance(rule.get(part), dict):
                errors += _limit(f"{at}.{part}", mapping(rule[part]))
    known = {text(rule.get("name")) for rule in rules}
    for i, score in enumerate(objects(section.get("scores"))):
        for key in ("telemetry", "deviation") if score.get("telemetry") is not None else ():
            if score.get(key) is not None and text(score[key]) not in known:
                errors.append(invalid(f"spec.placement.scores[{i}].{key}", score[key], NO_RULE))
    return errors


def _limit(path: str, said: Json) -> list[FieldError]:
    try:
        for key in ("above", "below", "clearAt"):
            if said.get(key) is not None:
                amounts.exact(said[key])
        limit(said.get("above"), said.get("below"), said.get("clearAt"))
    except (amounts.BadAmountError, ValueError, TypeError) as error:
        return [invalid(path, said, str(error))]
    return []


def _budgets(body: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, budget in enumerate(objects(body.get("budgets"))):
        at = f"spec.budgets[{i}]"
        errors += _hours(f"{at}.gpuHours", budget.get("gpuHours")) if "gpuHours" in budget else []
        rolling, window = budget.get("period") == ROLLING, budget.get("window")
        wrong = syntax.duration(f"{at}.window", window)
        errors += wrong
        if rolling and window is None:
            errors.append(required(f"{at}.window", "a Rolling budget has a window"))
        elif rolling and not wrong and not SHORTEST_WINDOW <= quantity.parse_duration(text(window)) <= LONGEST_WINDOW:
            errors.append(invalid(f"{at}.window", window, "must be from 1m to 8784h"))
        elif not rolling and window is not None:
            errors.append(invalid(f"{at}.window", window, "needs period Rolling"))
        if (zone := budget.get("timeZone")) is not None:
            try:
                bounded.time_zone(text(zone))
            except ValueError as error:
                errors.append(invalid(f"{at}.timeZone", zone, str(error)))
        per, label = text(budget.get("per")), budget.get("label")
        if per in BY_LABEL and not label:
            errors.append(required(f"{at}.label", f"a budget per {per} names a label"))
        elif label is not None:
            errors += syntax.label_key(f"{at}.label", label)
            errors += [] if per in BY_LABEL else [invalid(f"{at}.label", label, f"needs per {' or '.join(BY_LABEL)}")]
        for k, name in enumerate(listing(budget.get("only"))):
            if per == "LocalQueue" and text(name).count("/") != 1:
                errors.append(invalid(f"{at}.only[{k}]", name, "must be namespace/name of a LocalQueue"))
    return errors


def _hours(path: str, value: object) -> list[FieldError]:
    """Errors of a number of GPU-hours, which must not be negative."""
    if value is None:
        return []
    try:
        hours = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    return [] if 0 <= hours <= MOST_HOURS else [invalid(path, value, f"must be from 0 to {MOST_HOURS}")]


#: why a scorer cannot look at a telemetry rule
NO_RULE: Final = "must be the name of a rule in spec.placement.telemetry"
#: why spares and a placement policy do not go together
NO_SPARES: Final = "must be 0 beside spec.placement: no spares are kept on nodes that it assigns"


def _chance(path: str, value: object) -> list[FieldError]:
    if value is None:
        return []
    try:
        chance = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    return [] if 0 < chance < 1 else [invalid(path, value, "must be greater than 0 and less than 1")]


RULES: Final = KindRules(validate=validate, warn=warn)
