"""The cards of nodes, and who sits on them, as drivers and device plugins publish them.

In: JSON of ResourceSlices, ResourceClaims, nodes and pods. Out: `Device`s and `CardUse`s. What a node's cards are say its
ResourceSlices; what they leave out, or a node without any, HAMi's annotation; a node without either, its labels.
"""

from gangline.api.read.inventory.node_cards import Allocation, allocations, node_devices, own_cards, pod_uses
from gangline.api.read.inventory.resource_slices import ResourceSlice, resource_slice

__all__ = ["Allocation", "ResourceSlice", "allocations", "node_devices", "own_cards", "pod_uses", "resource_slice"]
