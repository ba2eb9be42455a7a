"""Ending in order, and ending in any case."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gangline.control.process.options import in_order


async def test_a_step_that_fails_or_hangs_is_told_of_and_the_next_ones_turn_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []
    async with in_order("first", 5.0):
        raise NameError("it was half installed")
    async with in_order("second", 0.01):
        await asyncio.sleep(60)
    async with in_order("third", 5.0):
        ended.append("third")
    assert ended == ["third"]
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert messages == ["first could not be shut down in order", "second could not be shut down in order"]


async def test_who_is_cancelled_ends_at_once() -> None:
    with pytest.raises(asyncio.CancelledError):
        async with in_order("it", 5.0):
            raise asyncio.CancelledError
