"""HAMi: `nvidia.com/gpu` with a bound on memory and compute of each GPU, which a library in the container enforces.

A pod that says how much and not of how many GPUs gets one: HAMi's webhook adds it to the pod. Without `gpucores` compute is not
bounded, without `gpumem` and `gpumem-percentage` memory is not; of these two `gpumem` counts. A value that HAMi does not know
bounds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api import names
from gangline.api.sharing import numbers
from gangline.bounded import parser
from gangline.engine.model import Requests, Share

_OWN: Final = (names.HAMI_CORES, names.HAMI_MEMORY, names.HAMI_PERCENT)
#: characters of a list of cards or models in an annotation, and its entries that are looked at
_LONGEST: Final = 8192
_MOST: Final = 256


def of_container(requests: Requests, annotations: Mapping[str, object]) -> tuple[Share, ...]:
    """The shares for which a container asks HAMi; () if it does not ask HAMi."""
    count = requests.get(names.HAMI_GPU, 1)
    if count <= 0 or not any(requests.get(name, 0) > 0 for name in _OWN):
        return ()
    cores = _percent(requests.get(names.HAMI_CORES, 0))
    memory = min(numbers.MOST_MEMORY, requests.get(names.HAMI_MEMORY, 0))
    percent = _percent(requests.get(names.HAMI_PERCENT, 0)) or 100
    return (
        Share(
            count=count,
            milli=cores * 10,
            memory=memory,
            memory_milli=0 if memory else percent * 10,
            exclusive=cores == 100,
            mode="Software",
            resource=names.HAMI_GPU,
            cards=frozenset(_list(annotations, names.HAMI_USE_UUID)),
            not_cards=frozenset(_list(annotations, names.HAMI_NO_UUID)),
            models=_list(annotations, names.HAMI_USE_TYPE),
            not_models=_list(annotations, names.HAMI_NO_TYPE),
        ),
    )


def _percent(value: int) -> int:
    return value if 0 < value <= 100 else 0


def _list(annotations: Mapping[str, object], key: str) -> tuple[str, ...]:
    written = annotations.get(key)
    return listed(written) if isinstance(written, str) else ()


@parser(_LONGEST, instead=(), worst=(",", "a,", " ,"))
def listed(written: str) -> tuple[str, ...]:
    """Entries between commas."""
    return tuple(each for part in written.split(",", _MOST)[:_MOST] if (each := part.strip()))
