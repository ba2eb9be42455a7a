"""The live rows: what they are made of, what changes of them, and what one asker may see of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from aiohttp import ClientSession, web
from tests.builders import clusters

from gangline.api import names
from gangline.control.answers.api import answers_api, live_stream
from gangline.control.answers.api.access_review import ResourceAttributes, Reviews
from gangline.control.answers.api.answers_api import AnswersApi
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.api.front_proxy import User
from gangline.control.answers.live import table as live_table
from gangline.control.answers.live.answers import Looks
from gangline.control.answers.live.rows import JOBS, NODES, QUEUES, RUNS, LiveRow, QueueRow
from gangline.control.answers.live.table import LiveTable
from gangline.control.answers.sight import ALL, Everybody, Sight
from gangline.kube import resources as kube

Json = dict[str, Any]
ROOT = ANSWERS.root(ANSWERS.versions[-1])
USER: web.RequestKey[User] = web.RequestKey("user", User)


async def rows_of(here: Any, sight: Sight = ALL) -> dict[str, list[Json]]:
    answers = here.answers()
    found: dict[str, list[Json]] = {}
    looks = Looks(answers)
    await looks.look()
    await asyncio.sleep(0)
    for row in (await looks.look()).values():
        told = row.as_json(sight, answers.job_names())
        if told is not None:
            found.setdefault(row.table, []).append(told)
    return found


async def test_the_rows_are_those_of_the_single_answers() -> None:
    here = clusters.busy()
    answers, told = here.answers(), await rows_of(here)
    wish = answers_api.Wish(times=True)
    listed = {item["jobName"]: item for item in (await answers.jobs(Everybody(), wish)).items}
    differ: Json = dict.fromkeys(("elapsedSeconds", "record", "end", "latestEnd"))
    assert {row["jobName"]: row | differ for row in told[JOBS]} == {
        name: item | differ for name, item in listed.items()
    }
    ends = {row["jobName"]: (row["end"], row["latestEnd"]) for row in told[JOBS]}
    assert clusters.NOW < ends["runs"][0] <= ends["runs"][1] and ends["next"] == (None, None)
    assert told[QUEUES] == (await answers.shares(Everybody(), "")).items
    planned = {row["job"]: row for row in (await answers.plan(Everybody(), "", "", 86_400)).items}
    for run in told[RUNS]:
        same = ("from", "to", "gpus", "after", "clusterQueue", "state", "user", "queue")
        assert {name: run[name] for name in same} == {name: planned[run["job"]][name] for name in same}
    assert {row["job"] for row in told[RUNS]} == planned.keys()


async def test_a_reserved_start_and_the_end_of_what_passed_it_are_on_their_rows() -> None:
    """16 of 32 GPUs are held for 40 more minutes and 8 for 9, by a job that was backfilled before the one that needs all."""
    policy = {"kind": "QueuePolicy", "metadata": {"name": "p", "uid": "p"}, "spec": {"clusterQueues": {"names": ["a"]}}}
    policy["spec"]["backfill"] = {}
    early = clusters.submitted("early", 1, "10m", ago=300, started=60)
    conditions = early[1][1]["status"]["conditions"]
    conditions.append({**conditions[0], "type": names.BACKFILLED, "reason": names.BACKFILLED})
    here = clusters.world_of(
        clusters.flavor("h100"),
        *clusters.queue("a", 32),
        (kube.QUEUE_POLICIES, policy),
        *clusters.submitted("runs", 2, "1h", ago=1300, started=1200),
        *early,
        *clusters.submitted("next", 4, "2h", ago=600),
        *clusters.submitted("after", 1, "5m", ago=100),
    )
    here.engine.decide(here.now)
    (start,) = here.engine.reservations().values()
    assert start is not None
    told = {row["job"]: row for row in (await rows_of(here))[RUNS]}
    assert {
        name: (row["state"], row["backfilled"], row["reserved"], row["mustEndBy"]) for name, row in told.items()
    } == {
        "runs": ("Running", False, False, None),
        "early": ("Running", True, False, start / 1000),
        "next": ("Pending", False, True, None),
        "after": ("Pending", True, False, start / 1000),
    }


async def test_who_may_not_list_a_namespace_sees_sizes_and_times() -> None:
    here = clusters.busy()
    told = await rows_of(here, Sight(namespaces=frozenset({"other"})))
    assert all(row["hidden"] for table in (JOBS, RUNS) for row in told[table])
    text = orjson.dumps(list(told.values())).decode()
    for row in (await rows_of(here))[JOBS]:
        assert not any(f'"{row[name]}"' in text for name in ("jobName", "name", "user") if row[name])
    assert [row["gpus"] for row in told[JOBS]] == [row["gpus"] for row in (await rows_of(here))[JOBS]]


def queue_row(name: str, used: int = 0, level: str = "ClusterQueue", namespace: str = "") -> QueueRow:
    told = {"level": level, "name": name, "namespace": namespace, "clusterQueue": "cq", "usedGpus": used, "quotas": []}
    return QueueRow(told, "cq")


def keyed(*rows: LiveRow) -> dict[tuple[str, str], LiveRow]:
    return {(row.table, str(number)): row for number, row in enumerate(rows)}


async def test_a_revision_has_what_changed_and_what_went(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_table, "RECENT", 1)
    shown: list[Mapping[tuple[str, str], LiveRow]] = []

    async def look() -> Mapping[tuple[str, str], LiveRow]:
        return shown[-1]

    table = LiveTable(look, period=0.001)
    shown.append(keyed(queue_row("a"), queue_row("b")))
    async with table.watched():
        first = table.revision
        assert [entry.row for entry in table.rows(0)] == list(shown[-1].values())
        assert table.rows(first) == [] and table.gone(0) == []
        shown.append(keyed(queue_row("a", 8)))
        while table.revision == first:
            await table.next_look(5)
        (changed,), (gone,) = table.rows(first), table.gone(first) or ()
        assert (changed.row, changed.number) == (queue_row("a", 8), 1)
        assert gone.number == 2
        still = table.revision
        for _ in range(3):
            assert await table.next_look(5)
        assert table.revision == still, "nothing changed"
    while table._task is not None and not table._task.done():
        await asyncio.sleep(0.001)
    assert table.rows(0) == [], "nothing is kept"
    looked = table._looks
    await asyncio.sleep(0.02)
    assert table._looks == looked, "nobody watches"


async def test_a_look_that_fails_costs_nothing_but_itself() -> None:
    tries = iter([RuntimeError("broken"), keyed(queue_row("a"))])

    async def look() -> Mapping[tuple[str, str], LiveRow]:
        found = next(tries, None)
        if isinstance(found, Exception):
            raise found
        return found or keyed(queue_row("a"))

    table = LiveTable(look, period=0.001)
    async with table.watched():
        while not table.revision:
            assert await table.next_look(5)
        assert len(table.rows(0)) == 1


async def test_those_who_were_not_told_of_too_much_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_table, "MOST_GONE", 2)
    table = LiveTable(lambda: asyncio.sleep(0, {}))
    for number in range(4):
        table._take(keyed(queue_row("a", number)))
        table._take({})
    assert table.gone(0) is None and table.gone(table.revision) == []
    assert len(table.gone(table.revision - 1) or ()) == 1


def test_a_row_is_encoded_once_for_all_who_see_the_same() -> None:
    made: list[Sight] = []

    class Counted(QueueRow):
        def as_json(self, sight: Sight, jobs: Mapping[str, str]) -> Json | None:
            made.append(sight)
            return super().as_json(sight, jobs)

    entry = live_table.Entry(1, 1, Counted(queue_row("cq").full_row, "cq"))
    for sight in (ALL, ALL, *(Sight(namespaces=frozenset({str(n)})) for n in range(5))):
        entry.encoded(sight, {})
    assert len(made) == 2
    own = live_table.Entry(2, 1, queue_row("lq", level="LocalQueue", namespace="ml"))
    assert b'"lq"' in own.encoded(Sight(namespaces=frozenset({"ml"})), {})
    assert b'"lq"' not in own.encoded(Sight(namespaces=frozenset({"other"})), {})
    user = live_table.Entry(3, 1, queue_row("jane", level="User", namespace="ml"))
    assert user.encoded(Sight(namespaces=frozenset({"other"})), {}) == b""


# --- the stream -------------------------------------------------------------------------------------------------------


class Rights(Reviews):
    """The API server's answers: who may list Workloads where ("" = everywhere), and whether live rows may be watched."""

    def __init__(self, *namespaces: str) -> None:
        self.namespaces: Collection[str] = namespaces
        self.may_watch = True

    async def allowed(self, user: User, access: object) -> bool:
        assert isinstance(access, ResourceAttributes)
        if access.resource == "workloads":
            return access.namespace in self.namespaces
        assert (access.resource, access.verb) in (("liverows", "watch"), ("liverows", "list"))
        return self.may_watch


@asynccontextmanager
async def served(here: Any, rights: Rights) -> AsyncIterator[tuple[AnswersApi, str, ClientSession]]:
    @web.middleware
    async def named(request: web.Request, handler: Any) -> web.StreamResponse:
        request[USER] = User("jane")
        return await handler(request)

    api = AnswersApi(here.answers(), rights, None)
    api._live._period = 0.02
    app = web.Application(middlewares=[named])
    api.add_to(app, USER)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with ClientSession() as session:
            yield api, f"http://127.0.0.1:{runner.addresses[0][1]}{ROOT}", session
    finally:
        api.end()
        await runner.cleanup()


async def until(answer: Any, kind: str) -> list[Json]:
    """The events up to the next one of this type."""
    found: list[Json] = []
    async with asyncio.timeout(30):
        while not found or found[-1]["type"] != kind:
            line = await answer.content.readline()
            assert line, f"the stream ended after {found[-1:]}"
            found.append(orjson.loads(line))
    return found


WATCH = {"watch": "true", "sendInitialEvents": "true", "timeoutSeconds": "60"}


async def test_a_watch_begins_with_all_rows_and_tells_what_changes() -> None:
    here = clusters.busy()
    async with served(here, Rights("")) as (_, root, session), session.get(f"{root}/liverows", params=WATCH) as answer:
        first = await until(answer, "BOOKMARK")
        assert {event["type"] for event in first[:-1]} == {"ADDED"}
        assert first[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        tables = [event["object"]["table"] for event in first[:-1]]
        assert tables.count(JOBS) == 3 and tables.count(NODES) == len(here.mirror.nodes)
        key = clusters.key_of(here, "last")
        here.mirror.remove(kube.WORKLOADS, key)
        seen: dict[str, Json] = {event["object"]["metadata"]["name"]: event["object"] for event in first[:-1]}
        gone: list[Json] = []
        while not any(event["table"] == JOBS for event in gone):
            for event in await until(answer, "BOOKMARK"):
                if event["type"] == "DELETED":
                    gone.append(seen[event["object"]["metadata"]["name"]])
        assert [event["row"]["jobName"] for event in gone if event["table"] == JOBS] == ["last"]


async def test_a_watch_of_a_namespace_is_about_its_queues() -> None:
    async with (
        served(clusters.busy(), Rights("ml")) as (_, root, session),
        session.get(f"{root}/namespaces/ml/liverows", params=WATCH) as mine,
        session.get(f"{root}/namespaces/none/liverows", params=WATCH) as nothing,
    ):
        assert any(each["object"].get("table") == JOBS for each in await until(mine, "BOOKMARK"))
        assert [each["type"] for each in await until(nothing, "BOOKMARK")] == ["BOOKMARK"]


async def test_a_watch_ends_when_a_right_is_lost_and_begins_anew_when_the_sight_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_stream, "RIGHTS", 0.05)
    monkeypatch.setattr(live_stream, "BEAT", 0.02)
    rights = Rights("ml")
    async with served(clusters.busy(), rights) as (_, root, session):
        async with session.get(f"{root}/liverows", params=WATCH) as answer:
            await until(answer, "BOOKMARK")
            rights.namespaces = ()
            assert (await until(answer, "ERROR"))[-1]["object"]["code"] == 410
            assert await answer.content.readline() == b""
        async with session.get(f"{root}/liverows", params=WATCH) as answer:
            hidden = [each["object"] for each in await until(answer, "BOOKMARK") if each["type"] == "ADDED"]
            assert all(each["row"]["hidden"] for each in hidden if each["table"] == JOBS)
            rights.may_watch = False
            assert (await until(answer, "ERROR"))[-1]["object"]["code"] == 403
        async with session.get(f"{root}/liverows", params=WATCH) as answer:
            assert answer.status == 403


async def test_live_rows_can_only_be_watched() -> None:
    async with served(clusters.busy(), Rights("")) as (_, root, session):
        async with session.get(f"{root}/liverows") as answer:
            assert answer.status == 400 and "watch=true" in await answer.text()
        async with session.get(f"{root}/liverows", params={"watch": "true", "limit": "1"}) as answer:
            assert answer.status == 400 and "limit" in await answer.text()
