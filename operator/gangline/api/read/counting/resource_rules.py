"""Which of the resources that a pod requests count in quota, and as what: Kueue's `resources` of its configuration.

A transformation makes other resources of one: `nvidia.com/mig-1g.5gb` counts as one seventh of a `credits`, or as nothing. Nodes
still give pods what they request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Final

from gangline.api.read.counting.device_claims import NO_DEVICES, Devices
from gangline.engine.model import UNLIMITED, Requests


@dataclass(frozen=True, slots=True)
class Transformation:
    """How a resource counts as others: each unit of it as so many units of theirs (a CPU is one unit); a negative factor is an
    allowance.

    `multiply_by`: the amount is first multiplied by the pod's amount of this resource, if it requests any. `retain`: the resource
    itself counts as well.
    """

    outputs: Mapping[str, Fraction] = field(default_factory=dict[str, Fraction])
    multiply_by: str = ""
    retain: bool = True


@dataclass(frozen=True, slots=True)
class ResourceRules:
    """`excluded`: resources whose names begin so do not count. `transformations`: by the resource that they read."""

    excluded: tuple[str, ...] = ()
    transformations: Mapping[str, Transformation] = field(default_factory=dict[str, Transformation])
    devices: Devices = NO_DEVICES

    def __bool__(self) -> bool:
        return bool(self.excluded or self.transformations or self.devices != NO_DEVICES)

    def counted(self, requests: Requests) -> Requests:
        """What a pod with these requests counts for; the same object if nothing applies to it."""
        kept = requests
        if self.excluded and any(name.startswith(self.excluded) for name in requests):
            kept = {name: size for name, size in requests.items() if not name.startswith(self.excluded)}
        return self._transformed(kept) if any(name in self.transformations for name in kept) else kept

    def _transformed(self, requests: Requests) -> Requests:
        """The sum of what is retained and what is made; what is made of a resource in all is never less than nothing."""
        total = {name: _units(name, size) for name, size in requests.items() if self._stays(name)}
        made: dict[str, Fraction] = {}
        for name, size in requests.items():
            rule = self.transformations.get(name)
            if rule is None:
                continue
            amount = _units(name, size)
            if rule.multiply_by in requests:
                amount *= _units(rule.multiply_by, requests[rule.multiply_by])
            for output, factor in rule.outputs.items():
                made[output] = made.get(output, _NONE) + amount * factor
        for name, amount in made.items():
            total[name] = total.get(name, _NONE) + max(_NONE, amount)
        return {name: min(UNLIMITED, ceil(amount * _parts(name))) for name, amount in total.items()}

    def _stays(self, name: str) -> bool:
        rule = self.transformations.get(name)
        return rule is None or rule.retain


#: everything counts as it is requested
EVERYTHING: Final = ResourceRules()
_NONE: Final = Fraction(0)


def _parts(resource: str) -> int:
    """Engine units in one unit of a resource."""
    return 1000 if resource == "cpu" else 1


def _units(resource: str, size: int) -> Fraction:
    return Fraction(size, _parts(resource))
