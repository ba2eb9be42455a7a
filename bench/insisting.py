"""Requests that are repeated until the API server accepts them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gangline.kube.errors import ApiError

#: seconds between two attempts, unless the server asks for more
RETRY: Final = 0.05


async def insist(send: Callable[[], Awaitable[Any]], *fine: type[ApiError]) -> None:
    """Returns once it is accepted, or refused with an error that is `fine`. Raises errors that no repetition helps against."""
    while True:
        try:
            await send()
            return
        except ApiError as error:
            if isinstance(error, fine):
                return
            if not error.retryable:
                raise
            await asyncio.sleep(max(RETRY, error.retry_after or 0.0))
