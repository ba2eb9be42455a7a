"""The memory of a process that runs for months: garbage collection, and returning free memory to the system.

Memory freed in the middle of the C library's heap stays with the process: in half an hour of 46 workloads a second, free memory
between blocks grew steadily, while used memory did not (docs/lab/performance.md, Soak).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

#: Objects between two garbage collections: nearly all objects that are read stay, and those that go are seldom in a cycle.
COLLECT: Final = (20_000, 20, 50)
#: Unused memory is returned this often, in seconds.
EVERY: Final = 60.0


def settle() -> None:
    """Exclude the objects that were read at the start from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


async def give_back() -> None:
    """Return free heap memory to the system from time to time, for ever. Ends at once if the C library has no such call."""
    trim = _trimmer()
    while trim is not None:
        await asyncio.sleep(EVERY)
        trim(0)


def _trimmer() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; other C libraries keep less, and have none."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        log.info("the C library cannot return memory on demand")
        return None
