"""Leader election: one at a time, whatever the clocks say."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from typing import Any

import pytest
from tests.kube.fake_server import Answer, FakeServer

from gangline.api import names
from gangline.api.read.configuration.manager import LeaseSettings
from gangline.control.process.lease import Elector
from gangline.kube.client import ApiClient

PATH = f"/apis/coordination.k8s.io/v1/namespaces/{names.KUEUE_NAMESPACE}/leases"
TICK = 0.25


class Clock:
    """Time that only moves when the test says so; real I/O gets a moment to finish at every step."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self.sleepers, (self.now + seconds, id(future), future))
        await future

    async def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            while self.sleepers and self.sleepers[0][0] <= self.now:
                future = heapq.heappop(self.sleepers)[2]
                if not future.done():
                    future.set_result(None)
            await asyncio.sleep(0.004)


class Candidate:
    def __init__(self, server: FakeServer, clock: Clock, name: str, skew: float = 0.0, **options: Any) -> None:
        self.calls: list[str] = []
        self.client = ApiClient(server.login())
        self.elector = Elector(
            self.client,
            identity=name,
            on_started=lambda: self.calls.append("started"),
            on_lost=lambda: self.calls.append("lost"),
            clock=lambda: clock.now + skew,
            sleep=clock.sleep,
            **options,
        )

    async def __aenter__(self) -> Candidate:
        await self.client.__aenter__()
        self.task = asyncio.create_task(self.elector.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await self.client.close()

    async def kill(self) -> None:
        """As kill -9 would: nothing is given back."""
        await self.client.close()
        self.elector._renewed_at = None
        self.task.cancel()


def spec(server: FakeServer) -> dict[str, Any]:
    return server.objects[f"{PATH}/{names.KUEUE_LEASE}"].obj["spec"]


async def test_the_first_leads_and_renews() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(1)
        assert one.calls == ["started"]
        assert one.elector.leading()
        first = dict(spec(server))
        assert first["holderIdentity"] == "one"
        assert first["leaseDurationSeconds"] == 15
        assert first["leaseTransitions"] == 0
        await clock.advance(60)
        assert one.elector.leading()
        assert spec(server)["renewTime"] > first["renewTime"]
        assert spec(server)["acquireTime"] == first["acquireTime"]
        assert server.requests["get leases"] <= 2, "a leader renews without reading"


@pytest.mark.parametrize("skew", [-1e6, -20.0, 0.0, 20.0, 1e6])
async def test_a_standby_takes_over_a_dead_leader_after_the_lease_duration(skew: float) -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(1)
        async with Candidate(server, clock, "two", skew=skew) as two:
            await clock.advance(60)
            assert one.elector.leading() and not two.elector.leading()
            await one.kill()
            await clock.advance(12)
            assert not one.elector.leading()
            assert not two.elector.leading()
            await clock.advance(10)
            assert two.elector.leading()
            assert spec(server)["holderIdentity"] == "two"
            assert spec(server)["leaseTransitions"] == 1


async def test_a_clean_stop_hands_over_at_once() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(1)
        async with Candidate(server, clock, "two") as two:
            await clock.advance(5)
            one.elector.stop()
            await one.task
            assert one.calls == ["started", "lost"]
            assert not spec(server).get("holderIdentity")
            await clock.advance(3)
            assert two.elector.leading()


async def test_an_isolated_leader_stops_before_another_may_start() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one, Candidate(server, clock, "two") as two:
        await clock.advance(3)
        leader, standby = (one, two) if one.elector.leading() else (two, one)
        server.script += [Answer(503, verb="replace")] * 1000
        for _ in range(200):
            await clock.advance(TICK)
            assert not (one.elector.leading() and two.elector.leading())
            if leader.task.done():
                server.script.clear()
        assert leader.calls == ["started", "lost"]
        assert standby.elector.leading()


async def test_a_stalled_event_loop_does_not_lead_on() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(3)
        clock.now += 11  # nothing of ours ran meanwhile
        assert not one.elector.leading()


async def test_a_renewal_counts_from_when_it_was_sent() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(1)
        server.script.append(Answer(200, verb="replace", delay=0.1))
        renewals = server.requests["replace leases"]
        while server.requests["replace leases"] == renewals:
            await clock.advance(TICK)
        clock.now += 8
        await asyncio.sleep(0.2)
        assert one.elector.leading()
        clock.now += 3
        assert not one.elector.leading(), "the answer was late, so the others started counting earlier"


async def test_one_failed_renewal_is_survived() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(3)
        server.script += [Answer(500, verb="replace"), Answer(0, verb="replace", after=True)]
        await clock.advance(30)
        assert one.elector.leading()
        assert one.calls == ["started"]


async def test_whoever_is_overwritten_loses() -> None:
    clock = Clock()
    async with FakeServer() as server, Candidate(server, clock, "one") as one:
        await clock.advance(3)
        server.put(PATH, names.KUEUE_LEASE, spec={"holderIdentity": "usurper"})
        await clock.advance(5)
        assert one.task.done()
        assert one.calls == ["started", "lost"]
        assert spec(server)["holderIdentity"] == "usurper", "what is not ours is not given back"


async def test_many_candidates_have_one_leader_at_any_time() -> None:
    clock = Clock()
    async with FakeServer() as server, contextlib.AsyncExitStack() as stack:
        candidates = [
            await stack.enter_async_context(Candidate(server, clock, f"c{n}", skew=n * 1000.0)) for n in range(4)
        ]
        led: set[str] = set()
        for step in range(160):
            await clock.advance(TICK * 2)
            leaders = [c for c in candidates if c.elector.leading()]
            assert len(leaders) <= 1
            led |= {c.elector.identity for c in leaders}
            if step % 40 == 39 and leaders:
                leaders[0].elector.stop()
        assert len(led) >= 3


def test_senseless_times_are_refused() -> None:
    with pytest.raises(ValueError, match="renewDeadline"):
        LeaseSettings(lease_duration=5, renew_deadline=10)


async def test_in_a_restored_store_nobody_leads_by_what_it_remembers() -> None:
    clock, noticed = Clock(), list[str]()
    async with (
        FakeServer() as server,
        Candidate(server, clock, "one", on_rewind=noticed.append) as one,
    ):
        await clock.advance(5)
        async with Candidate(server, clock, "two", on_rewind=noticed.append) as two:
            await clock.advance(5)
            saved = server.backup()
            await clock.advance(20)
            assert one.elector.leading()
            server.restore(saved)
            await clock.advance(5)
            assert not one.elector.leading() and not two.elector.leading()
            assert len(noticed) == 2 and all("is at version" in what for what in noticed)
            await clock.advance(60)
            assert not one.elector.leading() and not two.elector.leading()
