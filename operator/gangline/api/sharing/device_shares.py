"""Claims of devices (DRA): whole cards, or capacity of cards that may be allocated more than once.

Capacity is asked for by name: `memory` in bytes, and `milli` (thousandths) or `cores` (percent) of compute, with or without the
domain of a driver. Where only memory is asked for, compute is the same part of the card. A card consumes what is asked for,
rounded up as its driver says (`requestPolicy`); cards round differently, and the one that consumes most counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from gangline.api.sharing import numbers
from gangline.engine.model import Share, is_accelerator
from gangline.engine.model.devices import WHOLE

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CapacityPolicy:
    """How a card rounds requests for a capacity. `values` are the only ones; else from `least` in steps up to `most`.

    Without `least` there are no steps. `default` is consumed where nothing is asked for.
    """

    most: int
    default: int = 0
    values: tuple[int, ...] = ()
    least: int | None = None
    step: int = 0

    def consumed(self, asked: int) -> int | None:
        """How much a request for so much consumes; None: the card cannot give so much."""
        if self.values:
            return min((value for value in self.values if value >= asked), default=None)
        if self.least is None:
            return asked if asked <= self.most else None
        found = max(asked, self.least)
        if self.step:
            found = self.least + -(-(found - self.least) // self.step) * self.step
        return found if found <= self.most else None


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """One request of a claim: `count` devices of a class. `capacity`: by name without its domain; empty = whole devices."""

    device_class: str
    count: int
    capacity: tuple[tuple[str, int], ...] = ()


def claim_shares(asks: Iterable[DeviceAsk]) -> tuple[Share, ...]:
    """Requests of classes of other devices than cards are left out."""
    return tuple(
        _share(min(ask.count, numbers.MOST_CARDS), dict(ask.capacity))
        for ask in asks
        if ask.count > 0 and is_accelerator(f"/{ask.device_class}")
    )


def _share(count: int, capacity: Mapping[str, int]) -> Share:
    memory = min(numbers.MOST_MEMORY, -(-capacity.get("memory", 0) // _MIB))
    milli = min(WHOLE, capacity["milli"] if "milli" in capacity else 10 * capacity.get("cores", 0))
    if not memory and not milli:
        return Share(count=count, exclusive=True, memory_milli=WHOLE, mode="Claim")
    return Share(count=count, milli=milli, memory=memory, by_memory=not milli, mode="Claim")


def memory_consumed(memory: int, policies: Iterable[CapacityPolicy]) -> int:
    """MiB of the card that consumes most for so many MiB (0: for what is consumed where nothing is asked for); as asked where no
    card can give so much.
    """
    bytes_ = memory * _MIB
    known = (policy.consumed(bytes_ or policy.default or policy.most) for policy in policies)
    return max((-(-size // _MIB) for size in known if size is not None), default=memory)
