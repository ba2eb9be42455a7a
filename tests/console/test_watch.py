"""Waiting for a change: a Ctrl-C ends it, also at the very moment of one."""

from __future__ import annotations

import asyncio

import pytest

from gangline.console.views.watch import WatchedCluster
from gangline.kube.reflector import Upsert
from gangline.kube.resources import WORKLOADS


@pytest.mark.parametrize("steps", range(6))
async def test_a_wait_that_is_cancelled_at_the_moment_of_a_change_ends(steps: int) -> None:
    watch = WatchedCluster()
    waiting = asyncio.create_task(watch.wait(60))
    await asyncio.sleep(0.01)
    watch.sink(WORKLOADS, Upsert({"metadata": {"namespace": "ns", "name": "w"}}))
    for _ in range(steps):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
