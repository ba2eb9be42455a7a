"""Fields of Kueue's configuration file about what counts in quota: `resources`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, cast

from gangline.api import quantity
from gangline.api.read.configuration import device_mappings
from gangline.api.read.configuration.fields import ConfigurationError, choice, mapping, rows, text
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.counting.device_claims import Devices
from gangline.api.read.counting.resource_rules import ResourceRules, Transformation
from gangline.kube.resources import Json

#: entries of a list, and outputs of a transformation
_MOST: Final = 1000
_RETAIN: Final = "Retain"
_PREFIXES: Final = "resources.excludeResourcePrefixes"
_TRANSFORMATIONS: Final = "resources.transformations"
#: Kueue's gates about devices: they count; workloads that ask for devices which don't are rejected; requests of resources that
#: DeviceClasses stand for count as devices
GATES: Final = (
    "KueueDRAIntegration",
    "KueueDRARejectWorkloadsWhenDRADisabled",
    "KueueDRAIntegrationExtendedResource",
)


def load(section: Json, gates: Gates) -> ResourceRules:
    """The rules in the section `resources`, valid as Kueue demands. Raises ConfigurationError."""
    excluded = rows(section.get("excludeResourcePrefixes"), _PREFIXES, _MOST)
    if excluded and section.get("quotaCheckStrategy") == "IgnoreUndeclared":
        raise ConfigurationError(f"{_PREFIXES}: is not allowed when quotaCheckStrategy is IgnoreUndeclared")
    found: dict[str, Transformation] = {}
    for i, row in enumerate(rows(section.get("transformations"), _TRANSFORMATIONS, _MOST)):
        path = f"{_TRANSFORMATIONS}[{i}]"
        body = mapping(row, path)
        name = text(body, f"{path}.input", "")
        if not name:
            raise ConfigurationError(f"{path}.input: is required")
        if name in found:
            raise ConfigurationError(f"{path}.input: {name!r} is there twice")
        found[name] = _transformation(body, path)
    counted, rejected, extends = (gates.on(name) for name in GATES)
    ignored = not counted and not rejected
    mapped = device_mappings.load(section.get("deviceClassMappings"), gates)
    devices = Devices(mapped.resources, mapped.sources, counted=counted, ignored=ignored, extends=extends)
    return ResourceRules(tuple(cast("list[str]", excluded)), found, devices)


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
