"""Fields of Kueue's configuration file about what counts in quota: `resources`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Final, cast

from gangline import bounded
from gangline.api import label_syntax, quantity
from gangline.api.read.configuration.fields import ConfigurationError, choice, mapping, rows, text
from gangline.api.read.configuration.gates import Gates
from gangline.api.read.counting.device_claims import CAPACITY, COUNTER, Devices, DeviceSource
from gangline.api.read.counting.resource_rules import ResourceRules, Transformation
from gangline.api.selecting import LocalJudge
from gangline.kube.resources import Json

# --- device mappings --------------------------------------------------------------------------------------------------
#
# `resources.deviceClassMappings` of Kueue's configuration file: what the devices of DeviceClasses count as. Limits and words
# are Kueue's.


_PATH: Final = "resources.deviceClassMappings"
#: mappings, DeviceClasses of one, and characters of their names, as Kueue limits them
_MOST_MAPPINGS: Final = 16
_MOST_CLASSES: Final = 8
_LONGEST_NAME: Final = 253
#: sources of one mapping: Kueue has no limit
_MOST_SOURCES: Final = 64
#: characters of the names of counters, drivers, the domains and the names of capacities
_LONGEST_LABEL: Final = 63
_LONGEST_IDENTIFIER: Final = 32
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEVICE_GATES: Final = {
    COUNTER: "KueueDRAIntegrationPartitionableDevices",
    CAPACITY: "KueueDRAIntegrationConsumableCapacity",
}


class Mappings:
    """`resources`: DeviceClass -> the resource of its first mapping; `sources`: DeviceClass -> what its devices count as
    instead.
    """

    def __init__(self) -> None:
        self.resources: dict[str, str] = {}
        self.sources: dict[str, tuple[DeviceSource, ...]] = {}
        #: DeviceClass -> the counters of its mappings
        self._counters: dict[str, set[str]] = {}

    def add(self, device_class: str, resource: str, sources: tuple[DeviceSource, ...], path: str) -> None:
        """`path`: of the DeviceClass, for errors. A class may be in several mappings that count different counters."""
        counter = sources[0].name if sources and sources[0].kind == COUNTER else ""
        if device_class not in self.resources:
            self.resources[device_class] = resource
            self._counters[device_class] = {counter} if counter else set()
        elif not counter or not self._counters[device_class]:
            words = f"device class already mapped to resource {self.resources[device_class]}"
            raise ConfigurationError(f"{path}: {device_class!r}: {words}")
        elif counter in self._counters[device_class]:
            words = f'device class already has a counter source for counter "{counter}"'
            raise ConfigurationError(f"{path}: {device_class!r}: {words}")
        else:
            self._counters[device_class].add(counter)
        if sources:
            self.sources[device_class] = (*self.sources.get(device_class, ()), *sources)


def load_device_mappings(section: Any, gates: Gates) -> Mappings:
    """Read the mappings of DeviceClasses to resources. Raises ConfigurationError."""
    found = Mappings()
    seen: set[str] = set()
    for i, row in enumerate(rows(section, _PATH, _MOST_MAPPINGS)):
        path = f"{_PATH}[{i}]"
        body = mapping(row, path)
        resource = _name(body.get("name"), f"{path}.name")
        if resource in seen:
            raise ConfigurationError(f"{path}.name: {resource!r} is there twice")
        seen.add(resource)
        sources = _sources(body.get("sources"), f"{path}.sources", resource, gates)
        classes = rows(body.get("deviceClassNames"), f"{path}.deviceClassNames", _MOST_CLASSES)
        if not classes:
            raise ConfigurationError(f"{path}.deviceClassNames: at least one device class name is required")
        here: set[str] = set()
        for j, written in enumerate(classes):
            where = f"{path}.deviceClassNames[{j}]"
            device_class = _name(written, where)
            if device_class in here:
                raise ConfigurationError(f"{where}: {device_class!r} is there twice")
            here.add(device_class)
            found.add(device_class, resource, sources, where)
    return found


def _name(value: Any, path: str) -> str:
    """The name of a resource or a DeviceClass."""
    if not isinstance(value, str) or len(value) > _LONGEST_NAME or not label_syntax.is_key(value):
        raise ConfigurationError(f"{path}: a name like example.com/gpu is wanted, not {bounded.shown(value)}")
    return value


def _sources(section: Any, path: str, resource: str, gates: Gates) -> tuple[DeviceSource, ...]:
    found: list[DeviceSource] = []
    for i, row in enumerate(rows(section, path, _MOST_SOURCES)):
        where, body = f"{path}[{i}]", mapping(row, f"{path}[{i}]")
        kinds = [kind for kind in (COUNTER, CAPACITY) if body.get(kind) is not None]
        if len(kinds) != 1:
            raise ConfigurationError(f"{where}: exactly one source type must be set per entry")
        found.append(
            _source(mapping(body[kinds[0]], f"{where}.{kinds[0]}"), f"{where}.{kinds[0]}", kinds[0], resource, gates)
        )
    if len({source.kind for source in found}) > 1:
        raise ConfigurationError(f"{path}: cannot mix counter and capacity sources in the same mapping")
    return tuple(found)


def _source(body: Json, path: str, kind: str, resource: str, gates: Gates) -> DeviceSource:
    if not gates.on(DEVICE_GATES[kind]):
        raise ConfigurationError(f"{path}: {kind} sources require {DEVICE_GATES[kind]} to be enabled")
    name = _needed(body, f"{path}.name")
    if kind == COUNTER and (len(name) > _LONGEST_LABEL or _LABEL.fullmatch(name) is None):
        raise ConfigurationError(f"{path}.name: a DNS label like memory is wanted, not {bounded.shown(name)}")
    if kind == CAPACITY and not _is_qualified(name):
        words = f"a name like memory or gpu.example.com/memory is wanted, not {bounded.shown(name)}"
        raise ConfigurationError(f"{path}.name: {words}")
    driver = _needed(body, f"{path}.driver")
    if not _is_domain(driver):
        words = f"a DNS name of at most {_LONGEST_LABEL} characters is wanted, not {bounded.shown(driver)}"
        raise ConfigurationError(f"{path}.driver: {words}")
    return DeviceSource(kind, resource, driver, name, _selector(body, f"{path}.deviceSelector"))


def _needed(body: Json, path: str) -> str:
    found = text(body, path, "")
    if not found:
        raise ConfigurationError(f"{path}: is required")
    return found


def _selector(body: Json, path: str) -> str:
    cel = mapping(mapping(body.get("deviceSelector"), path).get("cel"), f"{path}.cel")
    expression = cel.get("expression")
    if not isinstance(expression, str) or not expression:
        raise ConfigurationError(f"{path}.cel.expression: is required")
    if words := LocalJudge().fault(expression):
        raise ConfigurationError(f"{path}.cel.expression: {bounded.shown(expression)}: CEL compilation failed: {words}")
    return expression


def _is_domain(name: str) -> bool:
    return len(name) <= _LONGEST_LABEL and all(_LABEL.fullmatch(part) for part in name.split("."))


def _is_qualified(name: str) -> bool:
    domain, slash, identifier = name.rpartition("/")
    known = len(identifier) <= _LONGEST_IDENTIFIER and _IDENTIFIER.fullmatch(identifier) is not None
    return known and (not slash or _is_domain(domain.lower()))


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
    mapped = load_device_mappings(section.get("deviceClassMappings"), gates)
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
