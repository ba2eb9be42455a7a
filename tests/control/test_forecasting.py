"""The service that joins history, model and estimates, and what it tells over HTTP."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from httpx2 import ASGITransport, AsyncClient
from tests.control.test_forecasts import START, ForecastWorld

from gangline.console.commands.future import eta
from gangline.control.answers.api.pending_view import NoQueueError, PageError, PendingPage, Visibility
from gangline.control.forecasting import forecasting as module
from gangline.control.forecasting.forecast_metrics import ForecastMetrics
from gangline.control.forecasting.forecasting import Forecasting, accuracy_as_json, alias
from gangline.control.forecasting.group_coverage import LEAST, Coverage, CoveredGroup, Groups
from gangline.control.forecasting.runtime_facts import EstimateRecord
from gangline.engine import Engine, model
from gangline.forecast.history.run_store import HistoryStore
from gangline.forecast.history.runs import Run
from gangline.forecast.quantiles import Forecast, ForecastSource
from gangline.kube import resources as kube
from gangline.kube.client import ObjectList
from gangline.kube.errors import Forbidden
from gangline.tls.apps import new_app


class Recorder:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def record(self, obj: Any, kind: str, reason: str, message: str) -> None:
        self.said.append((kind, reason))


class Service(ForecastWorld):
    """The world of test_forecasts with the service around it."""

    def __init__(self, directory: Path, *, leads: bool = True, use_model: bool = True) -> None:
        super().__init__()
        self.leads = leads
        self.recorder = Recorder()
        self.engine = Engine()
        unused: Any = None
        recorder: Any = self.recorder
        self.service = Forecasting(
            self.engine,
            self.mirror,
            unused,
            recorder,
            history=str(directory / "history.db"),
            model_file=directory / "model.gz",
            use_model=use_model,
            now=lambda: self.seconds * 1000,
            leading=lambda: self.leads,
            wake=lambda: None,
            synced=_at_once,
        )
        self.service.history._wall = lambda: float(self.seconds)
        self.forecasts = self.service.forecasts


async def _at_once() -> None:
    return None


def past(count: int) -> Iterator[Run]:
    """Runs of two kinds, one long and one short, every ten minutes before START."""
    chance = random.Random(1)
    for number in range(count):
        long = number % 2
        submit = START - 600.0 * (count - number)
        seconds = math.exp(chance.gauss(8 if long else 4, 0.3))
        yield Run(
            uid=f"past-{number}",
            submit=submit,
            gpus=8,
            namespace="ml",
            queue="lq",
            name="long-run" if long else "short-run",
            image="long:v1" if long else "short:v1",
            start=submit + 1,
            finish=submit + 1 + seconds,
        )


async def test_a_model_is_trained_beside_the_loop_and_used(tmp_path: Path) -> None:
    with HistoryStore(str(tmp_path / "history.db")) as store:
        store.put(past(400))
    made = Service(tmp_path)
    await made.service._recall()
    await made.service.train()
    assert made.service.training_seconds > 0
    assert made.forecasts.forecaster.model is None and "once forecasts are wanted" in made.service.verdict().reason
    made.policy()
    await made.service._turn()
    assert made.service.verdict().trusted
    for name in ("long-run", "short-run"):
        made.workload(name)
    made.turn()
    estimates = made.forecasts.estimates()
    assert {e.source for e in estimates.values()} == {"Model"}
    assert estimates["ml/long-run"].q50 > 2 * estimates["ml/short-run"].q50
    await made.service.close()
    again = Service(tmp_path)
    again.policy()
    await again.service._recall()
    assert again.forecasts.forecaster.model is not None, "the model outlives the process"
    await again.service.close()
    wanting = Service(tmp_path)
    wanting.policy()
    wanting.service.tallies.judgement = [[START - 3600.0, 5000.0, 10_000.0, 5000.0]]  # kept by the process before
    await wanting.service._recall()
    assert "worse than the baseline" in wanting.service.verdict().reason and wanting.service.tallies.judgement == []
    await wanting.service.close()


async def test_the_model_says_so_when_it_switches_itself_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = Service(tmp_path)
    made.policy()
    forecaster: Any = made.forecasts.forecaster
    forecaster._model = object()
    verdict = made.service.verdict()
    for trusted in (True, False, False, True):
        changed = replace(verdict, trusted=trusted, reason=f"trusted: {trusted}")
        monkeypatch.setattr(made.service, "verdict", lambda changed=changed: changed)
        made.service.report_verdict()
    assert made.recorder.said == [("Warning", "ForecastModelOff"), ("Normal", "ForecastModelInUse")]
    assert "trusted: False" in caplog.text
    await made.service.close()


async def test_a_standby_writes_nothing_until_it_leads(tmp_path: Path) -> None:
    made = Service(tmp_path, leads=False)
    made.ran("seen", 60, created=START)
    assert await made.service.history.flush() and made.service.history.written == 0
    made.leads = True
    made.service.lead()
    made.service.lead()
    await made.service.history.flush()
    assert made.service.history.written == 1
    made.workload("seen", created=START, started=START + 10, ended=START + 70)
    made.turn()
    everything = made.forecasts.forecaster.tracker.everything()
    assert everything is not None and everything.count == 1, "nothing is learned from twice"
    await made.service.close()


async def test_the_service_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATHER", 0.0)
    made = Service(tmp_path, use_model=False)
    running = asyncio.create_task(made.service.run())
    made.workload("train-1")
    made.service.ask()
    async with asyncio.timeout(10):
        await made.service.settled()
        while not made.forecasts.estimates():
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.service.close()
    assert "by configuration" in made.service.verdict().reason


async def test_the_next_operator_goes_on_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_EVERY", 0.01)
    judged = [[START - 3600.0, 60.0, 120.0, 60.0]]

    async def life(leads: bool) -> Service:
        made = Service(tmp_path, leads=leads, use_model=False)
        monkeypatch.setattr(made.service.tallies, "judged", lambda: judged)
        running = asyncio.create_task(made.service.run())
        if leads:
            made.service.lead()
        async with asyncio.timeout(10):
            while not (made.service.tallies._kept if leads else made.service.tallies.since):
                await asyncio.sleep(0.01)
        if leads:
            made.forecasts.records["Hint"] = EstimateRecord(ended=made.service.accuracy()["starts"]["starts"] + 3)
        await made.service.close()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return made

    first = await life(leads=True)
    second = await life(leads=False)
    assert second.service.accuracy()["runtimes"] == first.service.accuracy()["runtimes"] != []
    assert second.service.accuracy()["since"] == START
    assert second.service.tallies.judgement == judged


@pytest.mark.parametrize("chooses", [True, False])
async def test_who_comes_to_a_queue_that_chooses_flavors_is_estimated_before_it_is_decided_about(
    tmp_path: Path, chooses: bool
) -> None:
    world = Service(tmp_path, use_model=False)
    await world.service._recall()
    queue = model.ClusterQueue("q", flavors=model.EarliestCompletion() if chooses else None)
    world.engine.observe(model.Put(queue))
    world.engine.decide(START * 1000)
    world.policy()
    world.workload("first", annotations={"gangline.io/expected-runtime": "1h"})
    assert not world.engine._store.forecasts
    world.service.settle()
    assert ("ml/first" in world.engine._store.forecasts) == chooses
    await world.service.close()


def test_accuracy_is_shares_and_a_factor() -> None:
    record = EstimateRecord(ended=4, log_error=4 * math.log(2))
    record.below |= {0.5: 2, 0.9: 4}
    (row,) = accuracy_as_json({"Model": record})
    assert (row["runs"], row["within"]["0.5"], row["within"]["0.9"], row["factor"]) == (4, 0.5, 1.0, pytest.approx(2))


def test_coverage_is_shown_of_tenants_and_sizes_with_enough_runs() -> None:
    groups = Groups()
    forecast = Forecast(10.0, 20.0, 30.0, 40.0, 50.0, ForecastSource.DEFAULT, 0)
    for number in range(LEAST):
        seconds = 40.0 if number % 4 else 41.0
        groups.ended(Run("u", 0.0, 16 if number else 1, namespace="ml", queue="q", start=0.0, finish=seconds), forecast)
    groups.ended(Run("u", 0.0, 8, namespace="ml", queue="other", start=0.0, finish=1.0), forecast)
    assert dict(groups.shown()) == {CoveredGroup("tenant", "ml/q"): Coverage(LEAST, 3 * LEAST // 4)}, (
        "of >8 there are 199"
    )
    groups.ended(Run("u", 0.0, 9, namespace="ml", queue="other", start=0.0, finish=1.0), forecast)
    assert dict(groups.shown())[CoveredGroup("size", ">8")] == Coverage(LEAST, 3 * LEAST // 4 + 1)


def test_many_queues_of_one_namespace_keep_no_other_from_being_counted() -> None:
    groups = Groups()
    forecast = Forecast(1.0, 2.0, 3.0, 4.0, 5.0, ForecastSource.DEFAULT, 0)
    for number in range(5000):
        groups.ended(Run("u", 0.0, namespace="loud", queue=f"q{number}", start=0.0, finish=3.0), forecast)
    groups.ended(Run("u", 0.0, namespace="quiet", queue="q", start=0.0, finish=3.0), forecast)
    tenants = [group.name for group in groups.counts if group.by == "tenant"]
    assert len(tenants) == 21 and "quiet/q" in tenants
    assert groups.counts[CoveredGroup("size", "1")] == Coverage(5001, 5001)


async def test_metrics_tell_sources_outcomes_and_the_history(tmp_path: Path) -> None:
    made = Service(tmp_path)
    made.policy()
    made.ran("a", 60, created=START)
    made.workload("b", created=made.seconds)
    made.turn()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in ForecastMetrics(made.service).collect()
        for sample in metric.samples
    }
    assert samples["gangline_forecast_workloads", "Default"] == 1
    assert samples["gangline_forecast_finished_total", "Default"] == 1
    assert samples["gangline_forecast_covered_total", "Default", "0.5"] == 1
    assert samples["gangline_forecast_history_backlog",] == 1
    assert samples["gangline_forecast_history_up",] == 1
    assert samples["gangline_forecast_model",] == 0
    await made.service.close()


# --- over HTTP ----------------------------------------------------------------------------------------------------------


class Controller:
    """What Visibility looks at."""

    def __init__(self, world: Service) -> None:
        self.engine = world.engine
        self.mirror = world.mirror


@pytest.fixture
async def visible(tmp_path: Path) -> Any:
    """Visibility over a ClusterQueue with two LocalQueues and three who wait."""
    made = Service(tmp_path)
    made.mirror.observe = lambda change: (made.engine.observe(change), made.service.note(change), None)[-1]
    made.put(kube.NAMESPACES, {"kind": "Namespace", "metadata": {"name": "kube-system", "uid": "the-cluster"}})
    quotas = [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 0}]}]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    made.put(kube.RESOURCE_FLAVORS, {"kind": "ResourceFlavor", "metadata": {"name": "h100"}, "spec": {}})
    made.put(kube.CLUSTER_QUEUES, {"kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": spec})
    for name in ("lq", "other"):
        local = {"kind": "LocalQueue", "metadata": {"name": name, "namespace": "ml"}, "spec": {"clusterQueue": "cq"}}
        made.put(kube.LOCAL_QUEUES, local)
    for number in range(3):
        made.workload(f"w{number}", created=START + number)
    made.service.ready.set()
    made.service.ask()
    made.turn()
    controller: Any = Controller(made)
    yield Visibility(controller, made.service, clock=lambda: 0.0)
    await made.service.close()


async def test_who_waits_is_told_as_kueue_tells_it(visible: Visibility) -> None:
    items = await visible.pending("cq", "", PendingPage())
    assert [item["metadata"]["name"] for item in items] == ["w0", "w1", "w2"]
    assert [(i["positionInClusterQueue"], i["positionInLocalQueue"]) for i in items] == [(0, 0), (1, 1), (2, 2)]
    assert (items[0]["localQueueName"], items[0]["priority"]) == ("lq", 0)
    assert items[0]["forecast"] == {"p50Seconds": 600, "p90Seconds": 14400, "source": "Default", "samples": 0}


async def test_pages_and_local_queues(visible: Visibility) -> None:
    items = await visible.pending("cq", "", PendingPage.of({"offset": "1", "limit": "1"}))
    assert [item["metadata"]["name"] for item in items] == ["w1"]
    assert [i["positionInClusterQueue"] for i in await visible.pending("lq", "ml", PendingPage(offset=2))] == [2]
    assert await visible.pending("other", "ml", PendingPage()) == []
    assert await visible.pending("cq", "", PendingPage(limit=0)) == []


async def test_an_order_that_took_long_to_make_is_good_for_longer() -> None:
    now, asked = 0.0, list[str]()

    class Slow:
        def pending(self, queue: str) -> list[str]:
            nonlocal now
            now += 0.1
            asked.append(queue)
            return [f"w{len(asked)}"]

    class Around:
        engine = Slow()

    controller: Any = Around()
    visible = Visibility(controller, None, clock=lambda: now)
    assert visible.order("a") == visible.order("a") == ["w1"]
    now += 2.0
    assert visible.order("a") == ["w2"]
    assert visible.order("b") == ["w3"]


def test_pages_are_bounded_and_must_be_numbers() -> None:
    assert PendingPage.of({}) == PendingPage(0, 1000)
    assert PendingPage.of({"offset": "-3", "limit": "9999999"}) == PendingPage(0, 100_000)
    assert PendingPage.of({"limit": "0"}) == PendingPage.of({}) == PendingPage(0, 1000), "as in Kueue"
    with pytest.raises(PageError, match="limit must be a whole number, not 'many'"):
        PendingPage.of({"limit": "many"})


@pytest.mark.parametrize(("queue", "namespace"), [("none", ""), ("none", "ml"), ("lq", "elsewhere")])
async def test_queues_that_there_are_not(visible: Visibility, queue: str, namespace: str) -> None:
    with pytest.raises(NoQueueError):
        await visible.pending(queue, namespace, PendingPage())


def asking(visible: Visibility) -> AsyncClient:
    app = new_app()
    visible.add_to(app)
    return AsyncClient(transport=ASGITransport(app), base_url="http://operator")


async def test_forecasts_and_accuracy_name_the_cluster(visible: Visibility) -> None:
    async with asking(visible) as asked:
        obj = visible._controller.mirror.get(kube.WORKLOADS, "ml/w0")
        assert obj is not None
        await _name_the_cluster(asked, obj["metadata"]["uid"])


async def _name_the_cluster(asked: AsyncClient, uid: str) -> None:
    answer = (await asked.get("/forecasts")).json()
    assert answer["cluster"] == "the-cluster"
    shown = answer["forecasts"][alias(uid)]
    assert shown["source"] == "Default" and len(shown["quantiles"]) == 5
    assert "w0" not in str(answer) and uid not in answer["forecasts"], "anybody may ask"
    assert answer["flavorOffsets"] == {}, "nothing has run on two flavors"
    accuracy = (await asked.get("/accuracy")).json()
    assert (accuracy["cluster"], accuracy["starts"]["starts"], accuracy["runtimes"]) == ("the-cluster", 0, [])


async def test_accuracy_names_no_queue_to_those_who_cannot_list_them(
    visible: Visibility, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = {"cq": {"promised": 7}, "deleted": {"promised": 1}}
    monkeypatch.setattr(visible._forecasting, "accuracy", lambda: {"since": None, "queues": records})
    queue = visible._controller.mirror.get(kube.CLUSTER_QUEUES, "cq")
    assert queue is not None
    async with asking(visible) as asked:
        answer = (await asked.get("/accuracy")).json()
    assert answer["queues"] == {alias(queue["metadata"]["uid"]): {"promised": 7}}

    class Lists:
        async def list(self, resource: kube.Resource) -> ObjectList:
            return ObjectList([queue, {"metadata": {"name": "new", "uid": "n"}}], "1")

    class Refuses:
        async def list(self, resource: kube.Resource) -> ObjectList:
            raise Forbidden(403)

    client: Any = Lists()
    assert await eta._queues_named(client, answer["queues"]) == {"cq": {"promised": 7}}
    client = Refuses()
    assert await eta._queues_named(client, answer["queues"]) == {}
