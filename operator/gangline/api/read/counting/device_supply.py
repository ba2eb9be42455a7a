"""The devices of the cluster, and what each claim of a namespace counts as: computed when it is first asked for, and again when
devices change or an answer has come that it waited for.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, TypeVar

from gangline.api.read.counting import device_charges
from gangline.api.read.counting.device_charges import Charge, ClusterDevices
from gangline.api.read.counting.device_claims import Claim, Devices
from gangline.api.read.counting.device_slices import DeviceSlice
from gangline.api.selecting import CelVerdicts, Judges

_NOTHING: Final = Charge()
V = TypeVar("V")


class NamespaceSupply:
    """The devices that claims of one namespace can get. Its selectors are evaluated, and their verdicts kept, apart from those of
    other namespaces: nobody waits for the selectors of others.
    """

    def __init__(self, cluster: ClusterDevices) -> None:
        self._cluster = cluster
        self._charges: dict[Claim, Charge] = {}
        #: claims of which something could not be evaluated yet
        self.postponed: set[Claim] = set()

    def charge(self, claim: Claim, devices: Devices) -> Charge:
        """What a claim counts as at present; nothing where devices do not count."""
        if not devices.counted:
            return _NOTHING
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
