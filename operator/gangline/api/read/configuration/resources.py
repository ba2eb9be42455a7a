"""Fields of Kueue's configuration file about what counts in quota: `resources`."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, cast

from gangline.api import quantity
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
_DEVICES: Final = "resources.deviceClassMappings"
#: mappings, DeviceClasses of one, and characters of their names, as Kueue limits them
_MOST_MAPPINGS: Final = 16
_MOST_CLASSES: Final = 8
_LONGEST_NAME: Final = 253
_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./")
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
    devices = Devices(_device_classes(section), counted=counted, ignored=ignored, extends=extends)
    return ResourceRules(tuple(cast("list[str]", excluded)), found, devices)


def _device_classes(section: Json) -> dict[str, str]:
    """DeviceClass -> the resource that its devices count as."""
    found: dict[str, str] = {}
    for i, row in enumerate(rows(section.get("deviceClassMappings"), _DEVICES, _MOST_MAPPINGS)):
        path = f"{_DEVICES}[{i}]"
        body = mapping(row, path)
        if body.get("sources"):
            raise ConfigurationError(f"{path}.sources: counters and capacities of devices cannot be counted")
        name = _name(body.get("name"), f"{path}.name")
        if name in found.values():
            raise ConfigurationError(f"{path}.name: {name!r} is there twice")
        classes = rows(body.get("deviceClassNames"), f"{path}.deviceClassNames", _MOST_CLASSES)
        if not classes:
            raise ConfigurationError(f"{path}.deviceClassNames: at least one is required")
        for j, written in enumerate(classes):
            device_class = _name(written, f"{path}.deviceClassNames[{j}]")
            if device_class in found:
                words = f"{device_class!r} already counts as {found[device_class]!r}"
                raise ConfigurationError(f"{path}.deviceClassNames[{j}]: {words}")
            found[device_class] = name
    return found


def _name(value: Any, path: str) -> str:
    """The name of a resource or a DeviceClass."""
    if (
        not isinstance(value, str)
        or not 0 < len(value) <= _LONGEST_NAME
        or not _LETTERS.issuperset(value)
        or value.count("/") > 1
    ):
        raise ConfigurationError(f"{path}: a name like example.com/gpu is wanted, not {str(value)[:80]!r}")
    return value


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
