"""What the pods of a Workload count for by the rules of their namespace: LimitRanges, RuntimeClasses and claims."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import orjson

from gangline.api import quantity
from gangline.api.read import podspec
from gangline.api.read.counting.device_claims import CONTAINERS, Claim, templates
from gangline.api.read.counting.device_supply import DeviceSupply, NamespaceSupply, claimed, refusal
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.api.read.reading import Json, amounts, child, items, root, text
from gangline.api.selecting import LocalJudge
from gangline.api.sharing.asking import UNKNOWN, CardSizes
from gangline.engine.model import UNLIMITED, PodSet, Requests

# --- limit ranges -----------------------------------------------------------------------------------------------------
#
# LimitRanges of a namespace: the defaults that its pods get, and the bounds that they must keep, as Kueue adds them up.
#
# Amounts are in engine units. Of several LimitRanges the narrowest bounds count, and of two defaults the first.


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


# --- counted ----------------------------------------------------------------------------------------------------------
#
# What the pods of a Workload count for: their requests as the API server makes them when it stores the pods.
#
# Requests default to limits first; then the containers get the defaults of the namespace's LimitRanges, and a pod that names a
# RuntimeClass gets its overhead. `tests/api/test_counted_on_cluster.py` compares that with pods that an API server admitted.
# What does not keep the limits is not admitted: `violation` says why in Kueue's words. Nodes give the pods these requests;
# quota is counted as `Rules.resources` says.


_ABOVE_LIMITS: Final = "requests must not exceed its limits"
_ABOVE_RANGE: Final = "requests must not be above the limitRange max"
_BELOW_RANGE: Final = "requests must not be below the limitRange min"
#: characters of a message that are kept
_MOST_WORDS: Final = 4096
#: no device is known
_NO_SUPPLY: Final = DeviceSupply(LocalJudge()).of("")


@dataclass(frozen=True, slots=True)
class NamespaceRules:
    """What holds in one namespace. `overheads`: RuntimeClass -> what each of its pods takes besides its containers, in engine
    units.
    """

    limits: ContainerLimits = NO_LIMITS
    overheads: Mapping[str, Requests] = field(default_factory=dict[str, Requests])
    resources: ResourceRules = EVERYTHING
    #: what is known of the cluster's cards
    cards: CardSizes = UNKNOWN
    #: the namespace's ResourceClaimTemplates, as they are at any time
    claims: Mapping[str, Claim] = field(default_factory=dict[str, Claim])
    #: the devices that claims can get, as they are at any time
    supply: NamespaceSupply = _NO_SUPPLY
    #: placement policies look at the images of pods
    images: bool = False
    #: rules that are equal but for their claims have equal digests; b"" if there are none
    digest: bytes = b""

    @staticmethod
    def of(
        limits: ContainerLimits,
        overheads: Mapping[str, Requests],
        resources: ResourceRules,
        claims: Mapping[str, Claim] = MappingProxyType({}),
        cards: CardSizes = UNKNOWN,
        images: bool = False,
        supply: NamespaceSupply = _NO_SUPPLY,
    ) -> NamespaceRules:
        if limits == NO_LIMITS and not overheads and not resources and cards == UNKNOWN and not images:
            return NamespaceRules(claims=claims, supply=supply) if claims else NO_RULES
        known = (cards.smallest, cards.largest, sorted(cards.units.items()), cards.policies)
        content = repr((limits, sorted(overheads.items()), resources, known, images)).encode()
        digest = hashlib.blake2b(content, digest_size=16).digest()
        return NamespaceRules(limits, overheads, resources, cards, claims, supply, images, digest)

    def of_claims(self, pod_sets: Sequence[Json]) -> bytes:
        """What the claims of these pod sets ask for and count as: with equal digests and equal pod sets, all counts are equal."""
        found = ((name, self.claims.get(name)) for name in sorted(templates(pod_sets)))
        return repr(
            [(name, each, each and self.supply.charge(each, self.resources.devices)) for name, each in found]
        ).encode()

    def quota(self, spec: Json, requests: Requests) -> Requests:
        """What a pod with this completed spec and these requests counts for; the same object if that is what it requests."""
        counted = self._by_class(self.resources.counted(requests), requests)
        devices = claimed(spec, self.claims, self.resources.devices, self.supply) if spec.get("resourceClaims") else {}
        total = dict(counted)
        for name, count in devices.items():
            total[name] = min(UNLIMITED, total.get(name, 0) + count)
        return total if devices else counted

    def _by_class(self, counted: Requests, requests: Requests) -> Requests:
        """Requests that DeviceClasses stand for count as devices, whatever is configured for the resource itself."""
        extended = self.resources.devices.extended
        if not extended or extended.keys().isdisjoint(requests):
            return counted
        total = {name: size for name, size in counted.items() if name not in extended or name not in requests}
        for name in sorted(extended.keys() & requests.keys()):
            total[extended[name]] = min(UNLIMITED, total.get(extended[name], 0) + requests[name])
        return total


#: a cluster that adds nothing to pods
NO_RULES: Final = NamespaceRules()


# --- what the cluster adds ----------------------------------------------------------------------------------------------


def completed(spec: Json, rules: NamespaceRules) -> Json:
    """The spec of a pod with overhead and default requests and limits; the same object if nothing is added to it."""
    added: Json = {}
    named = spec.get("runtimeClassName")
    if rules.overheads and isinstance(named, str) and not spec.get("overhead"):
        added["overhead"] = _written(rules.overheads.get(named, {}))
    if rules.limits.container is not None:
        for key in CONTAINERS:
            if spec.get(key):
                added[key] = [
                    _with_defaults(container, rules.limits.container, f"{key}[{i}]")
                    for i, container in enumerate(items(spec, key, ""))
                ]
    resources = child(spec, "resources", "")
    if child(resources, "limits", "resources"):
        added["resources"] = _of_the_pod(spec, resources)
    return {**spec, **added} if added else spec


def _with_defaults(container: Json, bounds: Bounds, path: str) -> Json:
    return {**container, "resources": _defaulted(child(container, "resources", path), bounds)}


def _defaulted(resources: Json, bounds: Bounds) -> Json:
    """The API server has made the limits requests before it looks at LimitRanges."""
    limits, requests = child(resources, "limits", "resources"), child(resources, "requests", "resources")
    return {
        **resources,
        "limits": {**_written(bounds.limits), **limits},
        "requests": {**_written(bounds.requests), **limits, **requests},
    }


def _of_the_pod(spec: Json, resources: Json) -> Json:
    """Resources of a pod as a whole that has limits: it requests what its containers request as they are written, and its limits
    only of what none of them requests.
    """
    of_containers = {name: size for name, size in podspec.aggregated(spec).items() if podspec.is_pod_level(name)}
    limits, requests = child(resources, "limits", "resources"), child(resources, "requests", "resources")
    return {**resources, "requests": {**limits, **_written(of_containers), **requests}}


def _written(amounts: Requests) -> dict[str, str]:
    return {name: quantity.format(size, name) for name, size in amounts.items()}


def as_written(workload: Json, pod_sets: Sequence[PodSet]) -> bool:
    """Whether the pod sets that were read from a Workload count for what its pod templates request, and for nothing else."""
    bodies = items(child(workload, "spec", ""), "podSets", "spec")
    return len(bodies) == len(pod_sets) and all(
        podspec.needs(child(child(body, "template", ""), "spec", "")).requests == pod_set.counted
        for body, pod_set in zip(bodies, pod_sets, strict=True)
    )


# --- what is not allowed ------------------------------------------------------------------------------------------------


def violation(specs: Sequence[Json], rules: NamespaceRules) -> str:
    """Why a Workload whose pod sets have these completed specs is not admitted; "" if nothing is wrong with them."""
    if errors := [error for i, spec in enumerate(specs) for error in _above_limits(spec, _path(i))]:
        return f"resources validation failed: {_joined(errors)}"
    if rules.limits != NO_LIMITS and (
        errors := [error for i, spec in enumerate(specs) for error in _out_of_bounds(spec, rules.limits, _path(i))]
    ):
        return f"resources didn't satisfy LimitRange constraints: {_joined(errors)}"
    return ""


def unclaimable(pod_sets: Sequence[tuple[str, Json]], rules: NamespaceRules) -> str:
    """Why a Workload is not admitted whose pods claim devices; "" if they claim none, or their devices can be counted."""
    devices = rules.resources.devices
    if not devices.unextended and not any(spec.get("resourceClaims") for _, spec in pod_sets):
        return ""
    return refusal(pod_sets, rules.claims, devices, rules.supply)[:_MOST_WORDS]


def _path(index: int) -> str:
    return f"spec.podSets[{index}].template.spec"


def _above_limits(spec: Json, path: str) -> Iterator[str]:
    for where, resources in _resources(spec):
        if resources.get("limits") and resources.get("requests"):
            limits, requests = amounts(resources, "limits", where), amounts(resources, "requests", where)
            yield from _error(f"{path}.{where}", _greater(requests, limits), _ABOVE_LIMITS)


def _resources(spec: Json) -> Iterator[tuple[str, Json]]:
    for key in CONTAINERS:
        for i, container in enumerate(items(spec, key, "")):
            yield f"{key}[{i}]", child(container, "resources", f"{key}[{i}]")
    yield "resources", child(spec, "resources", "")


def _out_of_bounds(spec: Json, limits: ContainerLimits, path: str) -> Iterator[str]:
    if (bounds := limits.container) is not None:
        for where, resources in _resources(spec):
            if where == "resources":
                continue
            limited = amounts(resources, "limits", where)
            asked = {**limited, **amounts(resources, "requests", where)}
            high = {name: max(size, limited.get(name, size)) for name, size in asked.items()}
            low = {name: min(size, limited.get(name, size)) for name, size in asked.items()}
            yield from _error(f"{path}.{where}", _greater(high, bounds.most), _ABOVE_RANGE)
            yield from _error(f"{path}.{where}", _greater(bounds.least, low), _BELOW_RANGE)
    if (bounds := limits.pod) is not None:
        total = podspec.requests(spec)
        yield from _error(path, _greater(total, bounds.most), _ABOVE_RANGE)
        yield from _error(path, _greater(bounds.least, total), _BELOW_RANGE)


def _greater(amounts: Requests, others: Requests) -> list[str]:
    """The resources of both of which there is more in the first."""
    return sorted(name for name, size in amounts.items() if name in others and size > others[name])


def _error(path: str, resources: list[str], what: str) -> Iterator[str]:
    if resources:
        yield f"{path}: Invalid value: {orjson.dumps(resources).decode()}: {what}"


def _joined(errors: Sequence[str]) -> str:
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return text if len(text) <= _MOST_WORDS else f"{text[:_MOST_WORDS]} ..."
