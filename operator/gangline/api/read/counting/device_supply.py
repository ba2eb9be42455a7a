"""The devices of the cluster, and what each claim counts as: computed when it is first asked for, and again when devices
change."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import Final, TypeVar

from gangline.api.read.counting import device_charges
from gangline.api.read.counting.device_charges import Charge, Cluster
from gangline.api.read.counting.device_claims import Claim, Devices
from gangline.api.read.counting.device_slices import DeviceSlice
from gangline.api.selecting import Judge, Verdicts

_NOTHING: Final = Charge()
#: claims that are known without being in use
_MOST_UNUSED: Final = 1000
V = TypeVar("V")


class DeviceSupply:
    """`judge` evaluates the selectors of claims."""

    def __init__(self, judge: Judge) -> None:
        self._slices: dict[str, DeviceSlice] = {}
        self._classes: dict[str, tuple[str, ...]] = {}
        self._cluster = Cluster(MappingProxyType(self._slices), MappingProxyType(self._classes), Verdicts(judge))
        self._charges: dict[Claim, Charge] = {}
        #: whether something could not be evaluated, and has to be asked for again
        self.postponed = False

    def put_slice(self, name: str, found: DeviceSlice | None) -> bool:
        """Returns whether something may count differently."""
        return _put(self._slices, name, found) and bool(self._charges)

    def put_class(self, name: str, selectors: tuple[str, ...] | None) -> bool:
        """A DeviceClass. Returns whether something may count differently."""
        return _put(self._classes, name, selectors) and bool(self._charges)

    def charge(self, claim: Claim, devices: Devices) -> Charge:
        """What a claim counts as at present; nothing where devices do not count."""
        if not devices.counted:
            return _NOTHING
        known = self._charges.get(claim)
        if known is None:
            known = self._charges[claim] = device_charges.charge(claim, devices, self._cluster)
            self.postponed |= known.postponed
        return known

    def is_full(self, used: int) -> bool:
        """Whether claims should be forgotten that are not among so many in use."""
        return len(self._charges) > used + _MOST_UNUSED

    def recharge(self, devices: Devices, used: Collection[Claim]) -> set[Claim]:
        """Those of the claims in use that count differently now than when they were last asked for; others are forgotten."""
        before, self._charges, self.postponed = self._charges, {}, False
        return {claim for claim in used if claim in before and self.charge(claim, devices) != before[claim]}


def _put(kept: dict[str, V], name: str, found: V | None) -> bool:
    before = kept.get(name)
    if found is None:
        kept.pop(name, None)
    else:
        kept[name] = found
    return before != found
