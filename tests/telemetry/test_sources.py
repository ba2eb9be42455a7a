"""Readings from a file and from a Prometheus, and what is made of sources that fail."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gangline.telemetry import QUERIES, PrometheusSource, Reading, Sample, SourceError, open_source

Json = dict[str, Any]


# --- file -------------------------------------------------------------------------------------------------------------


async def test_the_last_line_about_a_pod_counts(tmp_path: Path) -> None:
    path = tmp_path / "readings.jsonl"
    lines = [
        {"time": 10, "namespace": "team", "pod": "a", "gpu": 0.9},
        {
            "time": 20,
            "namespace": "team",
            "pod": "a",
            "gpu": 0.0,
            "logBytes": 7,
            "xid": 79,
            "kernelAge": 3,
            "power": 1.1,
        },
        {"time": 15, "namespace": "team", "pod": "b"},
    ]
    path.write_text("\n".join(["", *map(json.dumps, lines), "not JSON", '{"pod": "c"}', "[1]"]))
    source = open_source(str(path))
    found = {reading.pod: reading for reading in await source.read()}
    assert found == {
        "a": Reading("team", "a", 20.0, gpu=0.0, kernel_age=3.0, power=1.1, log_bytes=7.0, xid=79),
        "b": Reading("team", "b", 15.0),
    }
    await source.close()


async def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="nowhere"):
        await open_source(str(tmp_path / "nowhere")).read()


# --- Prometheus -------------------------------------------------------------------------------------------------------


class FakePrometheus:
    """Answers `/api/v1/query` from a table of results by query."""

    def __init__(self) -> None:
        self.results: dict[str, list[Json]] = {}
        self.asked: list[str] = []
        app = web.Application()
        app.router.add_post("/base/api/v1/query", self._query)
        self.server = TestServer(app)

    async def _query(self, request: web.Request) -> web.Response:
        query = str((await request.post())["query"])
        self.asked.append(query)
        if query not in self.results:
            return web.json_response({"status": "error", "error": "parse error"}, status=400)
        return web.json_response({"status": "success", "data": {"result": self.results[query]}})

    @property
    def url(self) -> str:
        return str(self.server.make_url("/base/"))


@pytest.fixture
async def prometheus() -> AsyncIterator[FakePrometheus]:
    fake = FakePrometheus()
    await fake.server.start_server()
    yield fake
    await fake.server.close()


def series(pod: str, value: str, at: float = 100.0) -> Json:
    return {"metric": {"namespace": "team", "pod": pod}, "value": [at, value]}


async def test_one_reading_per_pod_from_all_queries(prometheus: FakePrometheus) -> None:
    prometheus.results = {
        QUERIES["gpu"]: [series("a", "0.25"), series("b", "0"), {"metric": {}, "value": [1, "1"]}],
        QUERIES["gpuMemory"]: [series("a", "1073741824")],
        QUERIES["logBytes"]: [series("a", "4096")],
        QUERIES["power"]: [series("a", "NaN"), series("b", "9223372036854775794")],
        QUERIES["xid"]: [series("b", "79")],
    }
    source = PrometheusSource(prometheus.url, {"kernelAge": ""})
    found = {reading.pod: reading for reading in await source.read()}
    assert found["a"] == Reading("team", "a", 100.0, gpu=0.25, gpu_memory=2.0**30, log_bytes=4096.0)
    assert found["b"] == Reading("team", "b", 100.0, gpu=0.0, xid=79)
    assert len(prometheus.asked) == 5
    await source.close()


async def test_a_query_that_fails_leaves_the_others(prometheus: FakePrometheus) -> None:
    prometheus.results = {"up": [series("a", "0.5")]}
    source = PrometheusSource(prometheus.url, {"gpu": "up"})
    assert await source.read() == [Reading("team", "a", 100.0, gpu=0.5)]
    await source.close()


async def test_samples_of_a_query_with_their_labels_and_hostile_answers(prometheus: FakePrometheus) -> None:
    good = {"metric": {"node": "a"}, "value": [100.0, "60.5"]}
    answer: list[Any] = [
        good,
        *({"metric": {"node": "b"}, "value": [100.0, said]} for said in ("NaN", "+Inf", "-Inf", "hot", "", None, [1])),
        # what DCGM says where it measures nothing: of 32 and 64 bits, and as a floating-point number
        *({"metric": {"node": "c"}, "value": [1, str(said)]} for said in (2147483632, 2147483635, 9223372036854775794)),
        *({"metric": {"node": "d"}, "value": [1, str(float(said))]} for said in (1 << 47, (1 << 47) + 2)),
        {"metric": {"node": "e"}, "value": ["soon", "1"]},
        {"metric": [], "value": [1, "1"]},
        {"metric": {}, "value": "1"},
        {"metric": {}, "values": [[1, "1"]]},
        {"metric": {}, "value": [1, "9" * 100]},
        7,
    ]
    prometheus.results["t"] = answer
    source = PrometheusSource(prometheus.url)
    assert await source.series("t", seconds=5, most_bytes=1 << 20) == [Sample({"node": "a"}, 100.0, 60.5)]
    prometheus.results["many"] = [good] * 1000
    with pytest.raises(SourceError, match="no answer"):
        await source.series("many", seconds=5, most_bytes=10_000)
    for strange in ({"node": "a"}, "x", None):
        prometheus.results["strange"] = strange  # type: ignore[assignment]
        assert await source.series("strange", seconds=5, most_bytes=1 << 20) == []
    with pytest.raises(SourceError, match="parse error"):
        await source.series("unknown", seconds=5, most_bytes=1 << 20)
    await source.close()


async def test_a_source_that_answers_nothing_is_an_error_that_shows_no_password(prometheus: FakePrometheus) -> None:
    source = PrometheusSource(prometheus.url.replace("http://", "http://me:secret@"))
    with pytest.raises(SourceError, match="parse error") as failed:
        await source.read()
    assert "secret" not in str(failed.value)
    await source.close()
    await prometheus.server.close()
    with pytest.raises(SourceError, match="no answer"):
        await source.read()
    await source.close()


def test_an_unknown_query_is_named() -> None:
    with pytest.raises(ValueError, match="temperature"):
        open_source("http://localhost:9090", {"temperature": "up"})


def test_the_operators_options_name_a_source_and_its_queries(tmp_path: Path) -> None:
    from click import ClickException

    from gangline.console.commands.admin.operator import _telemetry

    queries = tmp_path / "queries.yaml"
    queries.write_text("gpu: my_gpu_busy\npower: ''\n")
    assert _telemetry("", None) is None
    assert isinstance(_telemetry("http://prometheus:9090", queries), PrometheusSource)
    for wrong in ("temperature: up", "- gpu", "gpu: 3", "{"):
        queries.write_text(wrong)
        with pytest.raises(ClickException, match=r"queries\.yaml"):
            _telemetry("http://prometheus:9090", queries)
