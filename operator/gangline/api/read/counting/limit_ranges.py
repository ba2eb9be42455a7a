"""LimitRanges of a namespace: the defaults that its pods get, and the bounds that they must keep, as Kueue adds them up.

Amounts are in engine units. Of several LimitRanges the narrowest bounds count, and of two defaults the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gangline.api.read.reading import amounts, child, items, root, text
from gangline.engine.model import Requests

CONTAINER: Final = "Container"
POD: Final = "Pod"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a namespace demands of each container, or of each pod."""

    most: Requests = field(default_factory=dict[str, int])
    least: Requests = field(default_factory=dict[str, int])
    limits: Requests = field(default_factory=dict[str, int])  # where none are written
    requests: Requests = field(default_factory=dict[str, int])  # where none are written

    def and_also(self, other: Bounds) -> Bounds:
        """The bounds that both set together; the defaults of this one go first."""
        return Bounds(
            most=_merged(self.most, other.most, min),
            least=_merged(self.least, other.least, max),
            limits={**other.limits, **self.limits},
            requests={**other.requests, **self.requests},
        )


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """All LimitRanges of a namespace together; None where there are none for containers, or for pods."""

    container: Bounds | None = None
    pod: Bounds | None = None


NO_LIMITS: Final = ContainerLimits()


def limits(obj: Any) -> ContainerLimits:
    """Read one LimitRange. Raises ParseError. Rows of other types, such as PersistentVolumeClaim, do not concern pods."""
    found: dict[str, Bounds] = {}
    for i, row in enumerate(items(child(root(obj), "spec", ""), "limits", "spec")):
        path = f"spec.limits[{i}]"
        kind = text(row, "type", path)
        if kind in (CONTAINER, POD):
            bounds = Bounds(
                most=amounts(row, "max", path),
                least=amounts(row, "min", path),
                limits=amounts(row, "default", path),
                requests=amounts(row, "defaultRequest", path),
            )
            found[kind] = found[kind].and_also(bounds) if kind in found else bounds
    return ContainerLimits(found.get(CONTAINER), found.get(POD))


def together(each: Iterable[ContainerLimits]) -> ContainerLimits:
    """The limits that several LimitRanges set together; the defaults of an earlier one go first."""
    container: Bounds | None = None
    pod: Bounds | None = None
    for one in each:
        container = _both(container, one.container)
        pod = _both(pod, one.pod)
    return ContainerLimits(container, pod)


def _both(first: Bounds | None, second: Bounds | None) -> Bounds | None:
    return first.and_also(second) if first is not None and second is not None else first or second


def _merged(first: Requests, second: Requests, choose: Any) -> Mapping[str, int]:
    return {
        name: choose(first[name], second[name])
        if name in first and name in second
        else first.get(name, second.get(name, 0))
        for name in {**first, **second}
    }
