"""The memory of a process that lives for months: which garbage is looked for, and what goes back to the system.

What is freed in the middle of the C library's heap stays with the process: in half an hour of 46 workloads a second free memory
between blocks grew steadily, while what was in use did not (docs/performance.md, Soak).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

#: Objects between two collections of garbage: nearly all that is read stays, and what goes is seldom in a cycle.
COLLECT: Final = (20_000, 20, 50)
#: Memory that nobody uses goes back this often, in seconds.
EVERY: Final = 60.0


def settle() -> None:
    """What has been read at the start stays; it need not be looked at again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)


async def give_back() -> None:
    """Now and then, for ever: the C library returns what is free in its heap. Ends at once where it knows no such call."""
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
