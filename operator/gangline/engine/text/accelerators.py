"""Which resources are accelerators: what "GPUs" means in sizes, shares, forecasts and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from gangline.engine.model import PodSet

#: By name, since Kubernetes has no kinds of devices. Parts of a shared GPU (memory, cores, percent, thousandths) are not counted
#: again; network cards, licenses and the like are not accelerators.
_NAMES = re.compile(
    r"gpu(?![-_.]?(?:mem|core|percent|milli))|/(?:mig-|[tnh]pu|mlu|dcu|gaudi|neuron|i915|xe$|ascend)|furiosa\.ai/|rebellions\.ai/",
    re.IGNORECASE,
)


@lru_cache(maxsize=1024)
def is_accelerator(resource: str) -> bool:
    return _NAMES.search(resource) is not None


def accelerators(amounts: Mapping[str, int]) -> int:
    """The number of accelerators among these amounts by resource. Those of cards (`engine.cards`), whose names have a sign that
    those of resources have not, are none.
    """
    return sum(amount for resource, amount in amounts.items() if "#" not in resource and is_accelerator(resource))


def accelerators_of(pod_sets: Iterable[PodSet]) -> int:
    """The number of accelerators that all pods of these pod sets ask for."""
    return sum(pod_set.count * accelerators(pod_set.requests) for pod_set in pod_sets)
