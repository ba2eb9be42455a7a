"""`gangline events`, and the stream as a signal to look again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.console.commands.admin import audit
from gangline.console.commands.see import events
from gangline.console.output import presenting
from gangline.console.output.formats import Output
from gangline.console.output.presenting import Presentation
from gangline.console.output.selection import ListSelection
from gangline.console.views import asking
from gangline.console.views import watch as following
from gangline.kube.client import WatchEvent
from gangline.kube.errors import Expired, Unavailable

Json = dict[str, Any]


def event(job: str, what: str, text: str = "", **more: Any) -> Json:
    plain = {
        "at": 1_700_000_000.0,
        "namespace": "ml",
        "user": "",
        "queue": "q",
        "clusterQueue": "a",
        "gpus": 8,
        "pods": 1,
    }
    return {
        "metadata": {"resourceVersion": "7", "name": f"{job}.7"},
        **plain,
        "jobName": job,
        "jobKind": "Job",
        "event": what,
        "reason": "R",
        "text": text,
        "hidden": False,
        "workload": job,
        "flavors": ["h100"],
        **more,
    }


SEEN = [
    event("alpha", "Submitted"),
    event("alpha", "Running", "All pods are ready"),
    event("hidden-1", "Stopping", hidden=True),
]


def test_events_are_a_table_and_documents(capsys: pytest.CaptureFixture[str]) -> None:
    presenting.show(events.LISTING, Presentation(), SEEN)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["AT", "NAMESPACE", "JOB", "QUEUE", "GPUS", "EVENT", "WHY"]
    assert "job/alpha" in lines[2] and lines[2].endswith("Running    All pods are ready")
    assert "hidden-1" in lines[3] and "job/" not in lines[3]
    presenting.show(events.LISTING, Presentation(selection=ListSelection(states=("running",))), SEEN)
    assert "Submitted" not in (out := capsys.readouterr().out) and "Running" in out


def test_lines_follow_with_one_header(capsys: pytest.CaptureFixture[str]) -> None:
    lines = events._Lines(events.LISTING, Presentation())
    lines.echo(SEEN[:1])
    lines.echo([])
    lines.echo(SEEN[1:])
    out = capsys.readouterr().out
    assert out.count("NAMESPACE") == 1 and len(out.splitlines()) == 4
    documents = events._Lines(events.LISTING, Presentation(format=Output().convert("json", None, None)))
    documents.echo(SEEN[:2])
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["Submitted", "Running"]


class Api:
    """Streams, one after the other, of events or errors."""

    def __init__(self, *streams: list[Any]) -> None:
        self.streams = list(streams)
        self.asked: list[str] = []

    async def watch(
        self, resource: Any, namespace: str | None, *, resource_version: str, more: str
    ) -> AsyncIterator[Any]:
        self.asked.append(resource_version)
        if not self.streams:
            await asyncio.Event().wait()
        for each in self.streams.pop(0):
            if isinstance(each, BaseException):
                raise each
            yield each


async def test_a_stream_that_ends_is_followed_from_where_it_ended() -> None:
    mark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    api = Api(
        [WatchEvent("ADDED", SEEN[0]), mark], [WatchEvent("ADDED", SEEN[1])], [Expired(410, "Expired", "too old")]
    )
    found: list[str] = []
    with pytest.raises(Expired):
        async for each in following.events(api, "ml", "5", {}):  # type: ignore[arg-type]
            found.append(each["event"])
    assert (found, api.asked) == (["Submitted", "Running"], ["5", "9", "7"])


async def test_it_is_looked_again_when_something_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(api: Any, path: str, query: Json) -> Json:
        assert path == "/namespaces/ml/jobevents" and query["clusterQueue"] == "a"
        return {"metadata": {"resourceVersion": "5"}}

    monkeypatch.setattr(asking, "get", get)
    monkeypatch.setattr(following, "SLOWLY", 3600.0)
    api = Api([WatchEvent("ADDED", SEEN[0])])
    async with following.following(api, "ml", "a") as signal:  # type: ignore[arg-type]
        await asyncio.wait_for(signal.wait(3600.0), 30)
        while len(api.asked) < 2:  # the stream has ended after its event
            await asyncio.sleep(0)
        assert signal._changed.is_set() or api.asked == ["5", "7"]


async def test_without_a_stream_it_is_looked_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(api: Any, path: str, query: Json) -> Json:
        raise asking.NotServedError("nobody")

    monkeypatch.setattr(asking, "get", get)
    async with following.following(Api(), None) as signal:  # type: ignore[arg-type]
        await asyncio.wait_for(signal.wait(0.01), 30)


def test_an_audit_without_a_record_tells_of_the_leaders_promises(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"planned": 0, "promised": 0, "coverage": None, "promisedSeconds": 0.0, "missedBy": {}, "late": 0}
    quiet = {"clusterQueue": "idle", **nothing, "lateSeconds": 0.0, "delaySeconds": {}, "starts": []}
    busy = {
        **quiet,
        "clusterQueue": "a",
        "planned": 4,
        "promised": 3,
        "coverage": 2 / 3,
        "promisedSeconds": 30.0,
        "missedBy": {"forecast": 1},
        "late": 1,
        "lateSeconds": 2.5,
        "delaySeconds": {"backfill": 2.5},
    }
    presenting.show(audit.LISTING, Presentation(), audit.with_reservations([quiet, busy]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (
        lines[-1] == ["a", "4", "3", "67%", "1", "2.5", "s", "forecast", "1", "backfill", "2.5", "s"]
        and len(lines) == 2
    )
    presenting.show(audit.LISTING, Presentation(), audit.with_reservations([quiet]))
    assert "No reserved job has started" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unavailable(0, "Timeout", "Timeout", timeout=True), "the operator does not answer in time"),
        (Unavailable(503, "ServiceUnavailable", "service unavailable"), "the operator does not answer: it is away"),
    ],
)
async def test_an_operator_that_hangs_is_told_from_an_api_server_that_is_away(error: Unavailable, said: str) -> None:
    class Api:
        async def json(self, call: object) -> Json:
            raise error

    with pytest.raises(asking.NotServedError, match=said):
        await asking.get(Api(), "/namespaces/ml/queuedjobs")  # type: ignore[arg-type]
