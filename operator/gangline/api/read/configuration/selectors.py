"""Label selectors and label keys in a configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from gangline import bounded
from gangline.api import label_syntax
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.podspec import SELECTOR_OPERATORS
from gangline.engine import model
from gangline.kube.resources import Json


def label_keys(keys: list[str], path: str) -> tuple[str, ...]:
    """Check that all texts are keys of labels, and return them. Raises ConfigurationError for a text that is no key."""
    for i, key in enumerate(keys):
        _check(label_syntax.is_key(key), f"{path}[{i}]", key, "a label's key")
    return tuple(keys)


def selector(section: Mapping[str, Any], path: str) -> model.LabelSelector:
    """A selector of the right shape, checked as Kubernetes checks it. Raises ConfigurationError."""
    labels = cast("dict[str, str | None]", section.get("matchLabels") or {})
    rows = cast("list[Json | None]", section.get("matchExpressions") or [])
    exact = [model.Expression(key, "In", (value or "",)) for key, value in labels.items()]
    more = [_expression(row or {}, f"{path}.matchExpressions[{i}]") for i, row in enumerate(rows)]
    for expression in exact:
        _check(label_syntax.is_key(expression.key), f"{path}.matchLabels", expression.key, "a label's key")
        _check(
            label_syntax.is_value(expression.values[0]), f"{path}.matchLabels", expression.values[0], "a label's value"
        )
    return model.LabelSelector((*exact, *more))


def _expression(row: Json, path: str) -> model.Expression:
    key, operator = row.get("key") or "", row.get("operator") or ""
    values = tuple(value or "" for value in row.get("values") or ())
    _check(label_syntax.is_key(key), f"{path}.key", key, "a label's key")
    _check(operator in SELECTOR_OPERATORS, f"{path}.operator", operator, "In, NotIn, Exists or DoesNotExist")
    compares = operator in ("In", "NotIn")
    if compares and not values:
        raise ConfigurationError(f"{path}.values: must be specified when `operator` is 'In' or 'NotIn'")
    if values and not compares:
        raise ConfigurationError(f"{path}.values: may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    for i, value in enumerate(values):
        _check(label_syntax.is_value(value), f"{path}.values[{i}]", value, "a label's value")
    return model.Expression(key, operator, values)


def _check(fits: bool, path: str, value: str, wanted: str) -> None:
    if not fits:
        raise ConfigurationError(f"{path}: {wanted} is wanted, not {bounded.shown(value)}")
