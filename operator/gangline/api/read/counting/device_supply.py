"""The devices that claims of a namespace can get, and why a Workload is refused that asks for others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from gangline.api.read.counting import device_charges
from gangline.api.read.counting.device_charges import Charge, ClusterDevices, DeviceFault, DeviceSlice, joined
from gangline.api.read.counting.device_claims import CONTAINERS, Claim, Devices
from gangline.api.read.reading import Json, child, items, text
from gangline.api.selecting import CelVerdicts, Judges
from gangline.engine.model import UNLIMITED

# --- device supply ----------------------------------------------------------------------------------------------------
#
# The devices of the cluster, and what each claim of a namespace counts as: computed when it is first asked for, and again when
# devices change or an answer has come that it waited for.


_NOTHING: Final = Charge()
V = TypeVar("V")


class NamespaceSupply:
    """The devices that claims of one namespace can get. Its selectors are evaluated, and their verdicts kept, apart from those of
    other namespaces: nobody waits for the selectors of others.
    """

    def __init__(self, cluster: ClusterDevices) -> None:
        self._cluster = cluster
        self._charges: dict[Claim, Charge] = {}
        #: how devices counted when these were found; it is the same for the life of an operator
        self._devices: Devices | None = None
        #: claims of which something could not be evaluated yet
        self.postponed: set[Claim] = set()

    def charge(self, claim: Claim, devices: Devices) -> Charge:
        """What a claim counts as at present; nothing where devices do not count."""
        if not devices.counted:
            return _NOTHING
        if devices is not self._devices:
            self._charges.clear()
            self._devices = devices
        known = self._charges.get(claim)
        if known is None:
            known = self._charges[claim] = self._computed(claim, devices)
        return known

    def recharge(self, claim: Claim, devices: Devices) -> bool:
        """Whether a claim counts differently now than when it was last asked for. Until that is known, it counts as before."""
        before = self._charges.get(claim)
        if before is None:
            return False
        now = self._computed(claim, devices)
        if now.postponed and not before.postponed:
            return False
        self._charges[claim] = now
        return now != before

    def _computed(self, claim: Claim, devices: Devices) -> Charge:
        found = device_charges.charge(claim, devices, self._cluster)
        (self.postponed.add if found.postponed else self.postponed.discard)(claim)
        return found

    def forget(self, claim: Claim) -> None:
        """The claim is not in use any more."""
        self._charges.pop(claim, None)
        self.postponed.discard(claim)

    @property
    def is_asked(self) -> bool:
        return bool(self._charges)


class DeviceSupply:
    """`judges` evaluate the selectors of claims."""

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self._slices: dict[str, DeviceSlice] = {}
        self._classes: dict[str, tuple[str, ...]] = {}
        self._by_namespace: dict[str, NamespaceSupply] = {}

    def put_slice(self, name: str, found: DeviceSlice | None) -> bool:
        """Returns whether something may count differently."""
        return _put(self._slices, name, found) and self._is_asked()

    def put_class(self, name: str, selectors: tuple[str, ...] | None) -> bool:
        """A DeviceClass. Returns whether something may count differently."""
        return _put(self._classes, name, selectors) and self._is_asked()

    def _is_asked(self) -> bool:
        return any(each.is_asked for each in self._by_namespace.values())

    def of(self, namespace: str) -> NamespaceSupply:
        found = self._by_namespace.get(namespace)
        if found is None:
            verdicts = CelVerdicts(self._judges.of(namespace))
            cluster = ClusterDevices(MappingProxyType(self._slices), MappingProxyType(self._classes), verdicts)
            found = self._by_namespace[namespace] = NamespaceSupply(cluster)
        return found

    def forget(self, namespace: str) -> None:
        """The namespace has no claims any more."""
        self._by_namespace.pop(namespace, None)

    def work(self, claim: Claim) -> int:
        """How many verdicts have to be looked up to count a claim, about."""
        return 1 + sum(len(request.selectors) for request in claim.requests) * len(self._slices)

    @property
    def waits(self) -> bool:
        """Whether something could not be evaluated yet."""
        return any(each.postponed for each in self._by_namespace.values())

    @property
    def postponed(self) -> dict[str, frozenset[Claim]]:
        """Namespace -> claims of which something could not be evaluated yet."""
        return {name: frozenset(each.postponed) for name, each in self._by_namespace.items() if each.postponed}


def _put(kept: dict[str, V], name: str, found: V | None) -> bool:
    before = kept.get(name)
    if found is None:
        kept.pop(name, None)
    else:
        kept[name] = found
    return before != found


# --- which claims of devices hold a Workload back, in Kueue's words, and what the others count as ---------------------


class _Row(NamedTuple):
    """An entry of `resourceClaims` of a pod set, and what it counts as; None: there is no such template."""

    path: str
    pod_set: str
    template: str
    claim: Claim | None
    charge: Charge


def claimed(spec: Json, claims: Mapping[str, Claim], devices: Devices, supply: NamespaceSupply) -> dict[str, int]:
    """What the claims of one pod with this spec count as; those that cannot be counted are left out."""
    total: dict[str, int] = {}
    for i, row in enumerate(items(spec, "resourceClaims", "")) if devices.counted else ():
        found = claims.get(text(row, "resourceClaimTemplateName", f"resourceClaims[{i}]"))
        for name, amount in supply.charge(found, devices).amounts.items() if found is not None else ():
            total[name] = min(UNLIMITED, total.get(name, 0) + amount)
    return total


def refusal(
    pod_sets: Sequence[tuple[str, Json]], claims: Mapping[str, Claim], devices: Devices, supply: NamespaceSupply
) -> str:
    """Why a Workload is not admitted whose devices cannot be counted; "" if they can, or if it has none.

    `pod_sets`: name and pod spec of each.
    """
    rows = [(i, name, j, row) for i, (name, spec) in enumerate(pod_sets) for j, row in _claims_of(spec)]
    if devices.ignored:
        return ""
    if not devices.counted:
        return "Workload uses DRA resources but the KueueDRAIntegration feature gate is not enabled" if rows else ""
    if any(row.get("resourceClaimName") for _, _, _, row in rows):
        return "KueueDRAIntegration feature does not support use of resource claims"
    found = [_row(i, name, j, row, claims, devices, supply) for i, name, j, row in rows]
    for each in found:
        if errors := _of_claim(each, devices):
            return joined(errors)
    if errors := [error for i, (_, spec) in enumerate(pod_sets) for error in _of_requests(i, spec, devices)]:
        return joined(errors)
    faults = [(each, fault) for each in found for fault in each.charge.counters]
    faults += [(each, fault) for each in found for fault in each.charge.capacities]
    return next((_message(each.path, fault) for each, fault in faults), "")


def _claims_of(spec: Json) -> Iterator[tuple[int, Json]]:
    for j, row in enumerate(items(spec, "resourceClaims", "")):
        if row.get("resourceClaimTemplateName") or row.get("resourceClaimName"):
            yield j, row


def _row(
    i: int,
    pod_set: str,
    j: int,
    row: Json,
    claims: Mapping[str, Claim],
    devices: Devices,
    supply: NamespaceSupply,
) -> _Row:
    template = text(row, "resourceClaimTemplateName", "resourceClaims")
    found = claims.get(template)
    charge = supply.charge(found, devices) if found is not None else Charge()
    return _Row(f"spec.podSets[{i}].template.spec.resourceClaims[{j}]", pod_set, template, found, charge)


def _of_claim(row: _Row, devices: Devices) -> list[str]:
    """What is wrong with the claim itself, or with its selectors."""
    if row.claim is None:
        missing = f'ResourceClaimTemplate.resource.k8s.io "{row.template}" not found'
        words = f"failed to get claim spec for ResourceClaimTemplate {row.template} in podset {row.pod_set}: {missing}"
        return [f"{row.path}: Internal error: {words}"]
    if row.charge.first:
        return [_message(row.path, fault, f"ResourceClaimTemplate {row.template}: ") for fault in row.charge.first]
    for name in sorted(row.claim.devices.keys() - devices.resources.keys()):
        words = f"DeviceClass {name} is not mapped in DRA configuration for podset {row.pod_set}"
        return [f'{row.path}.resourceClaimTemplateName: Not found: "{words}"']
    return []


def _message(path: str, fault: DeviceFault, before: str = "") -> str:
    return f"{path}{fault.where}: {fault.kind}: {before}{fault.words}"


def _of_requests(i: int, spec: Json, devices: Devices) -> Iterator[str]:
    """Requests for resources whose DeviceClasses have sources; each at the first container that has it."""
    if not devices.unextended:
        return
    first: dict[str, str] = {}
    for key in CONTAINERS:
        for j, container in enumerate(items(spec, key, "")):
            resources = child(container, "resources", "")
            amounts = {**child(resources, "limits", ""), **child(resources, "requests", "")}
            for name, amount in amounts.items():
                if name in devices.unextended and str(amount) != "0":
                    first.setdefault(name, f"spec.podSets[{i}].template.spec.{key}[{j}]")
    for name, path in sorted(first.items()):
        yield f'{path}: Invalid value: "{name}": {devices.unextended[name]}'
