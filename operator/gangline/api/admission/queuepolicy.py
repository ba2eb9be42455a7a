"""QueuePolicy: what a ClusterQueue can't say."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from gangline.api.admission import amounts, syntax
from gangline.api.admission.model import (
    Context,
    FieldError,
    Json,
    Rules,
    invalid,
    listing,
    mapping,
    objects,
    required,
    spec,
)

#: fields that hold a duration and fields that hold a share between 0 and 1, by their place under spec
DURATIONS: Final = (
    ("order", "halfLife"),
    ("preemption", "minRuntime"),
    ("stall", "after"),
    ("recovery", "soak"),
)
SHARES: Final = (("backfill", "quantiles", "running"), ("backfill", "quantiles", "candidate"), ("overrun", "warnAt"))
COUNTS: Final = (
    ("backfill", "depth"),
    ("preemption", "nonPreemptibleFrom"),
    ("recovery", "spares"),
    ("recovery", "swapBudget"),
    ("recovery", "tolerationSeconds"),
)


def validate(policy: Json, old: Json | None, context: Context) -> list[FieldError]:
    body = spec(policy)
    errors = _selection(mapping(body.get("clusterQueues")))
    for place in DURATIONS:
        errors += syntax.duration(_path(place), _at(body, place))
    for place in SHARES:
        errors += _share(_path(place), _at(body, place))
    for place in COUNTS:
        errors += _count(_path(place), _at(body, place))
    for i, sink in enumerate(objects(body.get("notify"))):
        errors += _sink(f"spec.notify[{i}]", sink)
    return errors


def _path(place: tuple[str, ...]) -> str:
    return ".".join(("spec", *place))


def _at(body: Json, place: tuple[str, ...]) -> object:
    for name in place[:-1]:
        body = mapping(body.get(name))
    return body.get(place[-1])


def _selection(selection: Json) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, name in enumerate(listing(selection.get("names"))):
        errors += syntax.dns_subdomain(f"spec.clusterQueues.names[{i}]", name)
    return errors + syntax.label_map("spec.clusterQueues.matchLabels", selection.get("matchLabels"))


def _share(path: str, value: object) -> list[FieldError]:
    if value is None:
        return []
    try:
        share = amounts.exact(value)
    except amounts.BadAmountError as error:
        return [invalid(path, value, str(error))]
    return [] if Fraction(0) <= share <= 1 else [invalid(path, value, "must be between 0 and 1")]


def _count(path: str, value: object) -> list[FieldError]:
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return [invalid(path, value, "must be greater than or equal to 0")]
    return []


def _sink(path: str, sink: Json) -> list[FieldError]:
    secret = mapping(sink.get("secretRef"))
    name = secret.get("name")
    if not name:
        return [required(f"{path}.secretRef.name")]
    return syntax.dns_subdomain(f"{path}.secretRef.name", name)


RULES: Final = Rules(validate=validate)
