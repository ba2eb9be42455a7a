"""Memory of a process that runs for months: how often garbage is collected, and when free memory is returned to the system.

Memory freed in the middle of the C library's heap stays with the process: in half an hour of 46 workloads a second, free memory
between blocks grew steadily, while used memory did not (docs/performance.md, Soak).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gangline import bounded, files

log = logging.getLogger(__name__)

#: Objects between two garbage collections: nearly all objects stay, and few of the others are in cycles.
COLLECT: Final = (20_000, 20, 50)
#: Free memory is returned to the system this often, in seconds.
EVERY: Final = 60.0


#: where Linux says how many bytes a container may take
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
#: what one namespace may take of them, and of how many where there is no limit
_SHARE: Final = 4
_UNLIMITED: Final = 4 << 30


def for_namespace(limit: Path = _LIMIT) -> int:
    """Bytes for the objects of one namespace: a quarter of what this process may take."""
    try:
        found = bounded.whole(files.read_text(limit).strip())
    except OSError:
        found = None
    return (found or _UNLIMITED) // _SHARE


def begin() -> None:
    """Collect garbage rarely from the first object on: with Python's own limits, a seventh of a large cluster's start went into
    looking through objects that stay.
    """
    gc.set_threshold(*COLLECT)


def settle() -> None:
    """Exempt the objects that were read at the start from garbage collection: they stay."""
    gc.collect()
    gc.freeze()


async def give_back() -> None:
    """Return the C library's free heap memory to the system at intervals, forever. Returns at once where the library cannot."""
    trim = _trimmer()
    while trim is not None:
        await asyncio.sleep(EVERY)
        trim(0)


def _trimmer() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; other C libraries keep less memory and lack it."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        log.info("the C library cannot return memory on demand")
        return None
