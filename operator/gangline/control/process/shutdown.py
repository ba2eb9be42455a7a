"""An orderly shutdown that ends in any case."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

log = logging.getLogger(__name__)


@asynccontextmanager
async def in_order(what: str, seconds: float) -> AsyncIterator[None]:
    """Run one step of the shutdown: if it fails or takes longer than `seconds`, that is logged, and the next step follows."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except Exception:
        log.exception("%s could not be shut down in order", what)
