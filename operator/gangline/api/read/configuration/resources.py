"""Fields of Kueue's configuration file about what counts in quota: `resources`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, cast

from gangline.api import quantity
from gangline.api.read.configuration.fields import ConfigurationError, choice, mapping, only, text
from gangline.api.read.resource_rules import ResourceRules, Transformation
from gangline.kube.resources import Json

#: fields in force; others of the section have no effect
IN_FORCE: Final = frozenset({"quotaCheckStrategy", "excludeResourcePrefixes", "transformations"})
_FIELDS: Final = (*IN_FORCE, "deviceClassMappings")
#: entries of a list, and outputs of a transformation
_MOST: Final = 1000
_RETAIN: Final = "Retain"
_PREFIXES: Final = "resources.excludeResourcePrefixes"
_TRANSFORMATIONS: Final = "resources.transformations"


def load(section: Json) -> ResourceRules:
    """The rules in the section `resources`, valid as Kueue demands. Raises ConfigurationError."""
    only(section, "resources", *_FIELDS)
    excluded = _rows(section, _PREFIXES)
    for i, prefix in enumerate(excluded):
        if not isinstance(prefix, str):
            raise ConfigurationError(f"{_PREFIXES}[{i}]: a text is wanted, not {prefix!r}")
    if excluded and section.get("quotaCheckStrategy") == "IgnoreUndeclared":
        raise ConfigurationError(f"{_PREFIXES}: is not allowed when quotaCheckStrategy is IgnoreUndeclared")
    found: dict[str, Transformation] = {}
    for i, row in enumerate(_rows(section, _TRANSFORMATIONS)):
        path = f"{_TRANSFORMATIONS}[{i}]"
        body = mapping(row, path)
        only(body, path, "input", "strategy", "multiplyBy", "outputs")
        name = text(body, f"{path}.input", "")
        if not name:
            raise ConfigurationError(f"{path}.input: is required")
        if name in found:
            raise ConfigurationError(f"{path}.input: {name!r} is there twice")
        found[name] = _transformation(body, path)
    return ResourceRules(tuple(cast("list[str]", excluded)), found)


def _transformation(body: Json, path: str) -> Transformation:
    outputs = mapping(body.get("outputs"), f"{path}.outputs")
    if len(outputs) > _MOST:
        raise ConfigurationError(f"{path}.outputs: there are more than {_MOST}")
    return Transformation(
        outputs={str(name): _factor(value, f"{path}.outputs[{name}]") for name, value in outputs.items()},
        multiply_by=text(body, f"{path}.multiplyBy", ""),
        retain=choice(body, f"{path}.strategy", _RETAIN, "Replace") == _RETAIN,
    )


def _factor(value: Any, path: str) -> Fraction:
    try:
        return quantity.exact(value)
    except quantity.QuantityError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _rows(section: Json, path: str) -> list[Any]:
    value = section.get(path.rpartition(".")[2])
    if value is None:
        return []
    if not isinstance(value, list) or len(cast("list[Any]", value)) > _MOST:
        raise ConfigurationError(f"{path}: a list of at most {_MOST} entries is wanted")
    return cast("list[Any]", value)
