"""Expected starts: when they are looked for, which statuses say them, and how right they were."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.engine import gang
from tests.engine.test_outlook import world as played

from gangline.api.read.conditions import timestamp
from gangline.control.answers.ahead import whatif
from gangline.control.feed.mirror import Mirror
from gangline.control.forecasting import expected_starts as module
from gangline.control.forecasting.expected_starts import Expected
from gangline.control.forecasting.rehearsals import rehearse
from gangline.control.forecasting.simulation_process import in_process, rehearsal_request, request
from gangline.engine import Engine, ExpectedStart, Outlook, model, outlook
from gangline.forecast.quantiles import Forecast
from gangline.kube import resources as kube

Json = dict[str, Any]
NOW = 1_700_000_000_000
HOUR = 3_600_000


class Sent:
    """Instead of Writes."""

    def __init__(self) -> None:
        self.statuses: list[Json] = []

    def send(self, key: Any, verb: str, body: Json, **_: Any) -> None:
        assert verb == "status"
        self.statuses.append(body["status"])

    def take(self) -> list[Json]:
        taken, self.statuses = self.statuses, []
        return taken


class ExpectedStartWorld:
    def __init__(self) -> None:
        self.clock = 1000.0
        self.looks = 0
        self.start = ExpectedStart("ml/w", NOW + HOUR, NOW + 2 * HOUR, "after others end")
        self.forecast = Forecast(1, 600, 900, 1200, 1500, "Hint", 0)
        self.mirror = Mirror(observe=lambda change: None)
        self.sent = Sent()
        writes: Any = self.sent
        self.expected = Expected(
            Engine(),
            self.mirror,
            writes,
            now=lambda: NOW,
            estimate=lambda key: self.forecast,
            clock=lambda: self.clock,
            foresee=self._foresee,
        )

    def _foresee(self, request: bytes) -> Outlook:
        self.looks += 1
        return Outlook(NOW, {self.start.workload: self.start}, (), 20)

    def gpujob(self, status: Json | None = None, version: str = "1") -> None:
        meta = {"name": "j", "namespace": "ml", "uid": "j", "resourceVersion": version}
        self.mirror.upsert(kube.GPU_JOBS, {"kind": "GPUJob", "metadata": meta, "spec": {}, "status": status or {}})

    def workload(self, started: int | None = None) -> model.Workload:
        owner = {"apiVersion": "gangline.io/v1alpha1", "kind": "GPUJob", "name": "j", "uid": "j", "controller": True}
        meta = {"name": "w", "namespace": "ml", "uid": "w", "resourceVersion": str(started), "ownerReferences": [owner]}
        status: Json = {}
        if started is not None:
            rows = [
                {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": timestamp(started)}
                for kind in ("QuotaReserved", "Admitted")
            ]
            status = {"conditions": rows, "admission": {"clusterQueue": "cq", "podSetAssignments": []}}
        spec = {"queueName": "lq", "podSets": []}
        self.mirror.upsert(kube.WORKLOADS, {"kind": "Workload", "metadata": meta, "spec": spec, "status": status})
        value = self.mirror.workload_value("ml/w")
        assert value is not None
        self.expected.note(model.Put(value))
        return value

    async def turn(self) -> list[Json]:
        if self.expected.due:
            await self.expected.look()
        self.expected.flush()
        return self.sent.take()


@pytest.fixture
def world() -> ExpectedStartWorld:
    made = ExpectedStartWorld()
    made.gpujob()
    made.workload()
    return made


async def test_a_waiting_gpujob_is_told_once_when_it_runs_and_for_how_long(world: ExpectedStartWorld) -> None:
    (status,) = await world.turn()
    assert status["forecast"] == {"p50": 600, "p90": 1200, "source": "Hint", "samples": 0}
    assert status["expectedStart"] == {
        "from": timestamp(NOW + HOUR),
        "to": timestamp(NOW + 2 * HOUR),
        "because": "after others end",
    }
    world.clock += 1000
    assert await world.turn() == []


async def test_a_start_that_moves_a_little_is_not_told_again(world: ExpectedStartWorld) -> None:
    await world.turn()
    world.clock += 1000
    world.start = ExpectedStart("ml/w", NOW + HOUR + 299_000, NOW + 2 * HOUR)
    assert await world.turn() == []
    world.clock += 1000
    world.start = ExpectedStart("ml/w", NOW + HOUR + 700_000, NOW + 2 * HOUR)
    (status,) = await world.turn()
    assert status["expectedStart"]["from"] == timestamp(NOW + HOUR + 700_000)
    assert "forecast" not in status


async def test_a_far_start_may_move_by_a_tenth_of_the_wait(world: ExpectedStartWorld) -> None:
    world.start = ExpectedStart("ml/w", NOW + 100 * HOUR, None)
    await world.turn()
    world.clock += 1000
    world.start = ExpectedStart("ml/w", NOW + 109 * HOUR, None)
    assert await world.turn() == []
    world.clock += 1000
    world.start = ExpectedStart("ml/w", NOW + 112 * HOUR, None)
    assert len(await world.turn()) == 1


async def test_no_status_is_written_twice_within_a_minute(world: ExpectedStartWorld) -> None:
    await world.turn()
    world.clock += module.PERIOD - 1
    world.start = ExpectedStart("ml/w", NOW + 9 * HOUR, NOW + 10 * HOUR)
    world.expected.note(model.Gone(model.Workload, "ml/other"))
    assert await world.turn() == []
    world.clock += 10
    assert len(await world.turn()) == 1


async def test_what_the_status_says_already_is_not_said_again_after_a_restart() -> None:
    world = ExpectedStartWorld()
    said = {"from": timestamp(NOW + HOUR), "to": timestamp(NOW + 2 * HOUR)}
    world.gpujob({"expectedStart": said, "forecast": {"p50": 600, "p90": 1200, "source": "Hint", "samples": 0}})
    world.workload()
    assert await world.turn() == []
    assert world.looks == 1


async def test_nobody_looks_ahead_while_nobody_waits_or_asks() -> None:
    world = ExpectedStartWorld()
    assert not world.expected.due
    world.expected.ask()
    assert world.expected.due
    await world.turn()
    assert not world.expected.due, "an outlook is good for a while"
    world.clock += module.STALE - 1
    assert not world.expected.due, "nothing has changed"
    world.clock += 2
    assert world.expected.due
    world.clock += module.INTEREST
    assert not world.expected.due, "whoever asked has gone"


async def test_started_jobs_are_told_no_start_and_count_for_the_accuracy(world: ExpectedStartWorld) -> None:
    await world.turn()
    world.workload(started=NOW + HOUR + 90_000)
    accuracy = world.expected.accuracy
    assert (accuracy.starts, accuracy.within_p50, accuracy.within_p90) == (1, 0, 1)
    assert accuracy.as_json()["medianErrorSeconds"] == 90.0
    world.clock += 1000
    world.forecast = Forecast(1, 60, 90, 120, 150, "History", 5)
    (status,) = await world.turn()
    assert "expectedStart" not in status and status["forecast"]["source"] == "History"


async def test_an_outlook_that_fails_leaves_the_last_one(
    world: ExpectedStartWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.turn()

    def fails(request: bytes) -> Outlook:
        raise OSError("no more processes")

    world.expected._foresee = fails
    world.clock += module.STALE + 1
    await world.turn()
    assert "no more processes" in caplog.text
    assert world.expected.starts["ml/w"] == world.start


def test_a_process_of_its_own_makes_the_outlook() -> None:
    made = played((gang("a1", 8), 60), (gang("b2", 8), 30))
    seen = in_process(request(made.engine.facts(), made.engine.settings, made.now, courses=3))
    here = outlook(made.engine.facts(), made.engine.settings, made.now, courses=3, clock=time.perf_counter)
    assert seen == here
    assert seen.starts
    with pytest.raises(OSError, match=r"Unpickling|pickle|EOF"):
        in_process(b"nonsense")


# --- for clients --------------------------------------------------------------------------------------------------------


async def test_clients_share_an_outlook_while_it_is_valid(world: ExpectedStartWorld) -> None:
    first, second = await asyncio.gather(world.expected.latest(), world.expected.latest())
    assert first is not None and first is second and world.looks == 1
    world.workload(started=NOW)
    assert await world.expected.latest() is first, "five seconds are no age"
    world.clock += module.FRESH + 1
    assert await world.expected.latest() is not first and world.looks == 2
    world.clock += module.FRESH + 1
    await world.expected.latest()
    assert world.looks == 2, "nothing has changed"
    world.clock += module.STALE
    await world.expected.latest()
    assert world.looks == 3, "runs that take longer than expected move starts all the same"


async def test_an_outlook_from_before_a_jobs_submission_says_nothing_about_it(world: ExpectedStartWorld) -> None:
    await world.expected.latest()
    world.clock += 1
    await world.expected.latest("ml/new")
    assert world.looks == 2
    world.clock -= 1  # no later than the outlook itself
    await world.expected.latest("ml/new")
    assert world.looks == 2, "but not one after the other without a pause"


async def test_an_outlook_that_fails_is_none(world: ExpectedStartWorld, caplog: pytest.LogCaptureFixture) -> None:
    await world.expected.latest()

    def broken(_: bytes) -> Outlook:
        world.looks += 1
        raise OSError("killed")

    world.expected._foresee = broken
    world.clock += module.FRESH + 1
    world.workload(started=NOW)
    assert await world.expected.latest() is None and "no expected starts: killed" in caplog.text
    await world.expected.latest()
    assert world.looks == 2, "it is not tried again at once"


def test_rehearsals_are_played_in_the_process_and_end_in_time() -> None:
    here = clusters.busy()
    (original, *variants) = whatif._variants(here.answers().source, "ml", clusters.gpujob("mine", 2, "1h"))
    rehearsals = [variant.rehearsal for variant in (original, *variants)]
    engine = here.engine
    done = in_process(rehearsal_request(engine.facts(), engine.settings, here.now, rehearsals, 10.0, 3))
    assert len(done.outcomes) == len(rehearsals) and done.unexamined == 0
    assert original.workload.key in done.first.outlook.starts and done.first.obstacle == ""
    none = rehearse(engine.facts(), engine.settings, here.now, rehearsals, 0.0, 3)
    assert none.unexamined == len(variants) and none.first.outlook.starts, "one in any case"
