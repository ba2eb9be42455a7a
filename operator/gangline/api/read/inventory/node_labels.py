"""Labels of GPU feature discovery: how many cards a node has, of which model and size, and how its plugin shares them out.

They tell neither which card is which nor which one has failed: a node that offers fewer units than its cards have has as many
cards fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline import bounded
from gangline.api.sharing import mig, numbers
from gangline.engine.model import Device, Mode, Node, Profile

_GPU: Final = "nvidia.com/gpu"
_SHARED: Final = "nvidia.com/gpu.shared"
#: cards of one node that are counted
_MOST: Final = 256
_STRATEGIES: Final[Mapping[str, Mode]] = {"time-slicing": "TimeSlice", "mps": "MPS"}


def cards(node: Node) -> tuple[Device, ...]:
    count = min(_MOST, _number(node, f"{_GPU}.count"))
    memory = min(numbers.MOST_MEMORY, _number(node, f"{_GPU}.memory"))
    model = node.labels.get(f"{_GPU}.product", "").removesuffix("-SHARED")
    slots = _number(node, f"{_GPU}.replicas")
    mode = _STRATEGIES.get(node.labels.get(f"{_GPU}.sharing-strategy", ""), "TimeSlice") if slots > 1 else ""
    profiles = _profiles(node, count)
    resource = _SHARED if node.allocatable.get(_SHARED, 0) and slots > 1 else _GPU
    if profiles:
        mode, slots, resource = "MIG", 0, f"{mig.PREFIX}{profiles[0].name}"
        working = count if any(node.allocatable.get(f"{mig.PREFIX}{each.name}", 0) for each in profiles) else 0
    else:
        working = min(count, -(-node.allocatable.get(resource, 0) // max(1, slots)))
    return tuple(
        Device(
            node=node.name,
            uuid=f"{node.name}/{i}",
            index=i,
            model=model,
            memory=memory,
            slots=slots if slots > 1 else 0,
            healthy=i < working,
            mode=mode,
            profiles=profiles,
            resource=resource,
            named=False,
        )
        for i in range(count)
    )


def _profiles(node: Node, count: int) -> tuple[Profile, ...]:
    """The profiles into which the cards are divided now."""
    found: dict[str, tuple[int, int, int]] = {}
    for label in node.labels:
        if label.startswith(mig.PREFIX) and label.endswith(".count"):
            base = label.removesuffix(".count")
            name = base.removeprefix(mig.PREFIX)
            instances = _number(node, label)
            memory = _number(node, f"{base}.memory") or mig.nominal_memory(name)
            if instances:
                found[name] = _number(node, f"{base}.slices.gi") or 1, min(numbers.MOST_MEMORY, memory), instances
    total = sum(slices * instances for slices, _, instances in found.values())
    return tuple(
        # as many as all slices that are there now would give: an instance is at least its part of them
        Profile(name, slices, memory, max(1, total // max(1, slices * max(1, count))))
        for name, (slices, memory, _) in sorted(found.items())
    )


def _number(node: Node, label: str) -> int:
    return min(1 << 40, bounded.whole(node.labels.get(label)) or 0)
