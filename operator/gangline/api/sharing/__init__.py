"""Shares of cards in the words of those who share GPUs out; one module for each.

In: what the containers of a pod request, and its annotations. Out: what it asks of cards (`Share`), what it counts for in quota
of `gangline.io/gpu-milli` and `gangline.io/gpu-mem`, and what contradicts itself.

More than a dozen modules: each is the words of one system that shares cards out, or of one that places pods.
"""

from gangline.api.sharing.asking import PodAsk, ShareFault, doubts, faults, shares
from gangline.api.sharing.charges import UNKNOWN, CardSizes, charged, sizes_of
from gangline.api.sharing.dra import CapacityPolicy, DeviceAsk
from gangline.api.sharing.neighbours import of_pod as names_of_pod
from gangline.api.sharing.neighbours import within

__all__ = [
    "UNKNOWN",
    "CapacityPolicy",
    "CardSizes",
    "DeviceAsk",
    "PodAsk",
    "ShareFault",
    "charged",
    "doubts",
    "faults",
    "names_of_pod",
    "shares",
    "sizes_of",
    "within",
]
