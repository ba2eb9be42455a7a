from __future__ import annotations

import asyncio
import ctypes
import gc
from pathlib import Path

import pytest

from gangline.control.process import memory

MEGABYTE = 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def passing(rounds: int = 3) -> None:
    task = asyncio.create_task(memory.give_back())
    await asyncio.sleep(memory.EVERY * rounds)
    assert not task.done()
    task.cancel()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
async def test_what_is_free_between_blocks_in_use_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "EVERY", 0.05)
    blocks = [
        bytes(4000) for _ in range(64 * MEGABYTE // 4000)
    ]  # from the heap: Python's own allocator takes to 512 bytes
    kept = blocks[::100]  # the last of them pins what is below it
    del blocks
    before = resident()
    await passing()
    assert resident() < before - 40 * MEGABYTE
    assert not any(kept[0])


async def test_a_c_library_without_such_a_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    await asyncio.wait_for(memory.give_back(), 5)


def test_what_was_read_at_the_start_is_not_looked_at_again() -> None:
    thresholds = gc.get_threshold()
    try:
        memory.begin()
        assert gc.get_threshold() == memory.COLLECT
        memory.settle()
        assert gc.get_freeze_count() > 1000
        assert len(gc.get_objects()) < gc.get_freeze_count()
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
