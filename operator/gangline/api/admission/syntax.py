"""Kubernetes' rules for names, labels, selectors, taints and tolerations, with its own error texts."""

from __future__ import annotations

import re
from typing import Final

from gangline import bounded
from gangline.api import quantity
from gangline.api.admission.findings import (
    NEGATIVE,
    NOTHING,
    TOO_LONG,
    FieldError,
    Json,
    duplicate,
    invalid,
    listing,
    mapping,
    not_supported,
    objects,
    required,
    text,
)
from gangline.api.label_syntax import annotation_faults, label_faults, too_long
from gangline.api.label_syntax import dns_label_faults as dns_label_faults
from gangline.api.label_syntax import dns_subdomain_faults as dns_subdomain_faults
from gangline.api.label_syntax import label_value_faults as label_value_faults
from gangline.api.label_syntax import qualified_name_faults as qualified_name_faults

_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")

#: characters of the longest `domain/path`
_LONGEST_PATH: Final = 1024
#: characters of the longest number that is parsed
_LONGEST_INT: Final = 100

TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
SELECTOR_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


@bounded.parser(_LONGEST_PATH, instead=[too_long(_LONGEST_PATH)], worst=("a.", "a/", "a-", "/"))
def domain_path_faults(value: str) -> list[str]:
    """Faults of a `domain/path`, the form of a gate name."""
    domain, slash, path = value.partition("/")
    if not slash or not domain or not path:
        return ['must be a domain-prefixed path (such as "acme.io/foo")']
    faults = dns_subdomain_faults(domain)
    return faults if _PATH.fullmatch(path) else [*faults, "has an invalid path"]


def _errors(path: str, value: object, faults: list[str]) -> list[FieldError]:
    return [invalid(path, value, fault) for fault in faults]


def dns_label(path: str, value: object) -> list[FieldError]:
    return _errors(path, value, dns_label_faults(text(value)))


def dns_subdomain(path: str, value: object) -> list[FieldError]:
    return _errors(path, value, dns_subdomain_faults(text(value)))


def resource_name(path: str, value: object) -> list[FieldError]:
    return _errors(path, value, qualified_name_faults(text(value)))


def label_key(path: str, value: object) -> list[FieldError]:
    return _errors(path, value, qualified_name_faults(text(value)))


def label_map(path: str, value: object) -> list[FieldError]:
    """A map of labels, such as node labels or a node selector."""
    return [invalid(path, entry, fault) for entry, fault in label_faults(mapping(value))]


def annotation_map(path: str, value: object) -> list[FieldError]:
    """A map of annotations: keys are those of labels, but for their case; values are anything, as long as all are not too
    long together.
    """
    return [
        FieldError(path, NOTHING, fault, TOO_LONG) if entry is None else invalid(path, entry, fault)
        for entry, fault in annotation_faults(mapping(value))
    ]


def label_selector(path: str, value: object) -> list[FieldError]:
    selector = mapping(value)
    errors = label_map(f"{path}.matchLabels", selector.get("matchLabels"))
    for i, expression in enumerate(objects(selector.get("matchExpressions"))):
        errors += _expression(f"{path}.matchExpressions[{i}]", expression)
    return errors


def _expression(path: str, expression: Json) -> list[FieldError]:
    operator, values = expression.get("operator"), listing(expression.get("values"))
    errors = label_key(f"{path}.key", expression.get("key"))
    if operator in ("In", "NotIn") and not values:
        errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        message = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        errors.append(invalid(f"{path}.values", values, message))
    elif operator not in SELECTOR_OPERATORS:
        errors.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    for i, entry in enumerate(values):
        errors += _errors(f"{path}.values[{i}]", entry, label_value_faults(text(entry)))
    return errors


def taints(path: str, value: object) -> list[FieldError]:
    """Node taints: valid keys and values, unique by key and effect."""
    errors: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for i, taint in enumerate(objects(value)):
        at = f"{path}[{i}]"
        errors += label_key(f"{at}.key", taint.get("key"))
        errors += _errors(f"{at}.value", taint.get("value"), label_value_faults(text(taint.get("value"))))
        if taint.get("effect") not in TAINT_EFFECTS:
            errors.append(not_supported(f"{at}.effect", taint.get("effect"), TAINT_EFFECTS))
        identity = (text(taint.get("key")), text(taint.get("effect")))
        if identity in seen:
            errors.append(duplicate(at, taint, "taints must be unique by key and effect pair"))
        seen.add(identity)
    return errors


def tolerations(path: str, value: object) -> list[FieldError]:
    errors: list[FieldError] = []
    for i, toleration in enumerate(objects(value)):
        errors += _toleration(f"{path}[{i}]", toleration)
    return errors


def _toleration(path: str, toleration: Json) -> list[FieldError]:
    key, operator, effect = (text(toleration.get(name)) for name in ("key", "operator", "effect"))
    errors: list[FieldError] = []
    if key:
        errors += label_key(f"{path}.key", key)
    elif operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(f"{path}.operator", operator, message))
    if operator not in ("", "Equal", "Exists"):
        errors.append(not_supported(f"{path}.operator", operator, ("Equal", "Exists")))
    if operator == "Exists" and toleration.get("value"):
        errors.append(invalid(f"{path}.value", toleration["value"], "value must be empty when `operator` is 'Exists'"))
    elif operator != "Exists":
        value = toleration.get("value", "")
        errors += _errors(f"{path}.value", value, label_value_faults(text(value)))
    if effect and effect not in TAINT_EFFECTS:
        errors.append(not_supported(f"{path}.effect", effect, TAINT_EFFECTS))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(f"{path}.effect", effect, message))
    return errors


# --- Go's way to read numbers, because Kueue's messages quote it ------------------------------------------------------

_INT: Final = re.compile(r"[+-]?[0-9]+")
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def _out_of_range(value: str) -> ValueError:
    return ValueError(f"strconv.Atoi: parsing {bounded.shown(value)}: value out of range")


@bounded.parser(_LONGEST_INT, refuse=_out_of_range, worst=("9", "0", "-", "٣"))
def go_int(value: str) -> int:
    """`strconv.Atoi`; raises ValueError with Go's text."""
    if not _INT.fullmatch(value):
        raise ValueError(f'strconv.Atoi: parsing "{value}": invalid syntax')
    number = int(value) if len(value) <= 20 else 1 << 64
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f'strconv.Atoi: parsing "{value}": value out of range')
    return number


def go_bool(value: str) -> bool:
    """`strconv.ParseBool`; raises ValueError with Go's text."""
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise ValueError(f'strconv.ParseBool: parsing "{value}": invalid syntax')


def duration(path: str, value: object) -> list[FieldError]:
    """A Go duration that is not negative, such as `90s` or `1h30m`. A missing one is valid."""
    if value is None:
        return []
    try:
        seconds = quantity.parse_duration(text(value))
    except quantity.QuantityError:
        return [invalid(path, value, 'must be a duration such as "90s", "30m" or "1h30m"')]
    return [invalid(path, value, NEGATIVE)] if seconds < 0 else []
