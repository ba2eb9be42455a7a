"""Tencent's GPU manager: `tencent.com/vcuda-core`, percent of one card or a multiple of 100, and `vcuda-memory`, 256 MiB each."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.sharing import numbers
from gangline.engine.model import Requests, Share

_WHOLE_CORES: Final = 100
_UNIT_MIB: Final = 256


def of_container(requests: Requests) -> tuple[Share, ...]:
    cores = requests.get(names.TENCENT_CORES, 0)
    if cores <= 0:
        return ()
    if cores >= _WHOLE_CORES:
        count = -(-cores // _WHOLE_CORES)
        return (Share(count=count, exclusive=True, memory_milli=1000, resource=names.TENCENT_CORES),)
    memory = min(numbers.MOST_MEMORY, requests.get(names.TENCENT_MEMORY, 0) * _UNIT_MIB)
    part = cores * 10
    return (Share(milli=part, memory=memory, memory_milli=0 if memory else part, resource=names.TENCENT_CORES),)
