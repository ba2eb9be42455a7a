"""The reflector's contract, on a server that misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.kube.fake_server import Answer, FakeServer

from gangline.kube.client import ApiClient, Json, Resource
from gangline.kube.discovery import ServedVersions
from gangline.kube.reflector import Backoff, Event, Reflector, ReflectorGroup, Removed, Synced, Upsert

THINGS = Resource("example.com", "v1", "things", kind="Thing")
HERE = "/apis/example.com/v1/namespaces/here/things"
THERE = "/apis/example.com/v1/namespaces/there/things"


class View:
    """A sink that keeps what it received and checks every step for sense."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[str, str]] = {}
        self.events: list[Event] = []
        self.syncs = 0

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case Upsert(obj):
                metadata = obj["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                known = self.objects.get(key)
                assert known is None or known[0] == metadata["uid"], "another uid without a Removed in between"
                assert known is None or known[1] != metadata["resourceVersion"], "delivered twice"
                self.objects[key] = (metadata["uid"], metadata["resourceVersion"])
            case Removed(key, uid):
                assert self.objects.pop(key)[0] == uid
            case Synced():
                self.syncs += 1


def truth(server: FakeServer) -> dict[str, tuple[str, str]]:
    here = {f"here/{name}": version for name, version in server.state(HERE).items()}
    return here | {f"there/{name}": version for name, version in server.state(THERE).items()}


def reflector(client: ApiClient, **options: Any) -> Reflector:
    return Reflector(client, THINGS, **{"backoff": Backoff(0.001, 0.01), "page_size": 3, **options})


@contextlib.asynccontextmanager
async def following(server: FakeServer, **options: Any) -> AsyncIterator[tuple[Reflector, View]]:
    async with ApiClient(server.login()) as client:
        subject, view = reflector(client, **options), View()
        task = asyncio.create_task(subject.run(view))
        try:
            await asyncio.wait_for(subject.synced.wait(), 5)
            yield subject, view
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def test_lists_in_pages_and_follows_changes() -> None:
    async with FakeServer() as server:
        for n in range(8):
            server.put(HERE if n % 2 else THERE, f"t{n}")
        async with following(server) as (subject, view):
            assert view.objects == truth(server)
            assert server.requests["list things"] == 3
            assert isinstance(view.events[-1], Synced)
            server.put(HERE, "new")
            server.put(HERE, "t1", spec={"a": 1})
            server.delete(THERE, "t0")
            await until(lambda: view.objects == truth(server))
            removed = view.events[-1]
            assert isinstance(removed, Removed) and removed.obj is not None and removed.key == "there/t0"
            assert len(subject) == 8


async def test_one_namespace_only() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        server.put(THERE, "b")
        async with following(server, namespace="here") as (_, view):
            server.put(THERE, "c")
            server.put(HERE, "d")
            await until(lambda: len(view.objects) == 2)
            assert set(view.objects) == {"here/a", "here/d"}


async def test_deletions_during_a_gone_watch_are_synthesised() -> None:
    """kopf's bug: objects that vanish while the watch is cut and its version compacted stay for ever."""
    async with FakeServer() as server:
        for n in range(20):
            server.put(HERE, f"t{n}")
        async with following(server) as (subject, view):
            await until(lambda: server.streams)
            server.script.append(Answer(0, verb="watch"))  # keep it away until we are done
            server.drop_streams()
            for n in range(5):
                server.delete(HERE, f"t{n}")
            server.compact()
            await until(lambda: len(view.objects) == 15)
            assert view.objects == truth(server)
            assert sum(isinstance(event, Removed) and event.obj is None for event in view.events) == 5
            assert subject.counters.restarts["gone"] == 1
            assert view.syncs == 2


async def test_recreated_under_the_same_name_is_removed_first() -> None:
    async with FakeServer() as server:
        first = server.put(HERE, "a")["metadata"]["uid"]
        async with following(server) as (_, view):
            await until(lambda: server.streams)
            server.script.append(Answer(410, "Expired", verb="watch"))
            server.drop_streams()
            server.delete(HERE, "a")
            second = server.put(HERE, "a")["metadata"]["uid"]
            await until(lambda: view.objects == truth(server))
            events = [event for event in view.events if not isinstance(event, Synced)]
            assert [type(event) for event in events] == [Upsert, Removed, Upsert]
            assert isinstance(events[1], Removed) and events[1].uid == first != second


async def test_a_dropped_stream_is_resumed_without_a_list() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server) as (subject, view):
            for n in range(5):
                await until(lambda: server.streams)
                server.drop_streams()
                server.put(HERE, f"b{n}")
                await until(lambda: view.objects == truth(server))
            assert subject.counters.lists == 1
            assert view.syncs == 1
            assert subject.counters.watches > 5


async def test_bookmarks_move_the_resume_point() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, namespace="here") as (subject, view):
            await until(lambda: server.streams)
            server.put(THERE, "elsewhere")
            server.bookmark()
            await until(lambda: subject._version == str(server.version))
            server.compact()
            server.drop_streams()
            server.put(HERE, "b")
            await until(lambda: len(view.objects) == 2)
            assert subject.counters.lists == 1


async def test_gone_inside_the_stream_lists_again() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server) as (_, view):
            await until(lambda: server.streams)
            server.version += 10
            server.compact()
            server.put(HERE, "b")
            await until(lambda: view.syncs == 2)
            assert view.objects == truth(server)


async def test_continue_token_expires_while_listing() -> None:
    async with FakeServer() as server:
        for n in range(7):
            server.put(HERE, f"t{n}")
        server.script.append(Answer(200))  # the first page is served, the second is not
        server.script.append(Answer(410, "Expired", verb="list"))
        async with following(server) as (subject, view):
            assert view.objects == truth(server)
            assert subject.counters.lists == 2
            assert view.syncs == 1, "half a list is no list"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(500, verb="list"),
        Answer(503, "ServiceUnavailable", verb="list"),
        Answer(429, "TooManyRequests", verb="list", retry_after="0"),
        Answer(0, verb="list"),
        Answer(404, "NotFound", verb="list"),
        Answer(403, "Forbidden", verb="list"),
    ],
    ids=lambda answer: str(answer.status),
)
async def test_failing_lists_are_repeated(answer: Answer) -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        server.script += [answer, answer]
        async with following(server) as (subject, view):
            assert view.objects == truth(server)
            assert subject.counters.lists == (2 if answer.status == 0 else 3)  # aiohttp itself repeats a cut GET once


async def test_what_the_server_says_about_when_to_come_again_holds_instead_of_our_own_backoff() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        server.script.append(Answer(429, "TooManyRequests", verb="list", retry_after="1"))
        async with following(server, backoff=Backoff(first=60.0, most=60.0)) as (subject, view):  # in less than 5 s
            assert view.objects == truth(server)
            assert subject.counters.lists == 2


async def test_an_unserved_kind_never_makes_it_forget() -> None:
    """A restarting API server answers 404 for custom kinds for a moment."""
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, optional=True, absent_retry=0.01) as (_, view):
            await until(lambda: server.streams)
            server.script += [Answer(410, "Expired", verb="watch"), Answer(404, "NotFound", verb="list")]
            server.drop_streams()
            await until(lambda: view.syncs == 2)
            assert not any(isinstance(event, Removed) for event in view.events)


async def test_an_optional_kind_that_is_absent_counts_as_empty_until_it_comes() -> None:
    async with FakeServer() as server:
        server.script += [Answer(404, "NotFound", verb="list")] * 3
        async with following(server, optional=True, absent_retry=0.01) as (_, view):
            assert view.objects == {}
            server.put(HERE, "a")
            await until(lambda: view.objects == truth(server))


async def test_an_absent_kind_is_not_asked_for_until_its_version_is_served() -> None:
    """However many kinds are absent, one look at the versions does for all of them."""
    async with FakeServer() as server, ApiClient(server.login()) as client:
        served = ServedVersions(client, 0.01)
        server.script += [Answer(404, "NotFound", verb="list")] * 2
        async with (
            following(server, optional=True, served=served) as (first, one),
            following(server, optional=True, served=served) as (second, other),
        ):
            server.put(HERE, "a")
            await asyncio.sleep(0.1)
            assert server.requests["list things"] == 2
            server.apis.append("example.com/v1")
            await until(lambda: one.objects == other.objects == truth(server))
            assert (first.absent, second.absent) == (False, False)


@pytest.mark.parametrize("answer", [Answer(403, "Forbidden"), Answer(200, body=b"[]"), Answer(200, body=b"{")])
async def test_an_absent_kind_is_asked_for_where_discovery_does_not_help(answer: Answer) -> None:
    async with FakeServer() as server, ApiClient(server.login()) as client:
        server.script += [Answer(404, "NotFound", verb="list"), answer]
        async with following(server, optional=True, served=ServedVersions(client, 0.01)) as (_, view):
            server.put(HERE, "a")
            await until(lambda: view.objects == truth(server))


async def test_a_restart_as_soon_as_an_absent_kind_is_told_skips_the_pause() -> None:
    """The new leader asks for another list the moment that the first is through."""
    async with FakeServer() as server:
        server.script += [Answer(404, "NotFound", verb="list")]
        async with following(server, optional=True, absent_retry=3600) as (subject, view):
            server.put(HERE, "a")
            subject.restart("asked", relist=True)
            await until(lambda: view.objects == truth(server))


async def test_duplicates_are_dropped() -> None:
    async with FakeServer() as server, following(server) as (subject, view):
        await until(lambda: server.streams)
        for change in (lambda: server.put(HERE, "a"), lambda: server.delete(HERE, "a")):
            change()
            server.repeat_last_event()
            await until(lambda: view.objects == truth(server))
        await until(lambda: subject.counters.duplicates == 2)
        assert len(view.events) == 3


async def test_late_deletion_of_a_former_namesake_is_ignored() -> None:
    async with FakeServer() as server:
        old = server.put(HERE, "a")
        server.delete(HERE, "a")
        server.put(HERE, "a")
        async with following(server) as (subject, view):
            await until(lambda: server.streams)
            server.version += 1
            server.log.append((server.version, "DELETED", HERE, old))
            server.wake()
            await until(lambda: subject.counters.duplicates == 1)
            assert view.objects == truth(server)


async def test_a_silent_stream_is_noticed() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, silence=0.15) as (subject, view):
            await until(lambda: server.streams)
            server.silence_streams()
            server.put(HERE, "b")
            await until(lambda: view.objects == truth(server))
            assert subject.counters.restarts.get("silent", 0) >= 1


async def test_a_quiet_kind_without_bookmarks_is_not_listed_over_and_over() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, silence=0.05) as (subject, view):
            await until(lambda: subject.counters.restarts.get("silent", 0) >= 5)
            server.put(HERE, "b")
            await until(lambda: view.objects == truth(server), 1.0)
            await until(lambda: subject.counters.restarts.get("silent", 0) >= 8)
            assert subject.counters.lists == 1


@pytest.mark.parametrize("raised_by", [0, 1000])
async def test_a_restored_store_is_noticed_and_told_as_it_is(raised_by: int) -> None:
    """Everything since the backup never happened: changes, a creation, a deletion, and another object of the same name."""
    noticed: list[str] = []
    async with FakeServer() as server:
        for name in "abc":
            server.put(HERE, name)
        saved = server.backup()
        async with following(server, on_rewind=noticed.append) as (subject, view):
            await until(lambda: server.streams)
            server.put(HERE, "a", spec={"b": 1})
            server.delete(HERE, "b")
            server.delete(HERE, "c")
            for name in ("c", "d", "e", "f"):
                server.put(HERE, name)
            await until(lambda: view.objects == truth(server))
            server.restore(saved, raised_by=raised_by)
            server.put(HERE, "new")
            await until(lambda: view.objects == truth(server))
            assert len(noticed) == 1 and "things.example.com" in noticed[0]
            server.put(HERE, "newer")
            await until(lambda: view.objects == truth(server))
            server.drop_streams()
            await until(lambda: subject.counters.watches >= 3)
            assert len(noticed) == 1 and subject.counters.lists == 2


async def test_a_resumed_stream_of_an_unchanged_store_lists_nothing() -> None:
    noticed: list[str] = []
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, on_rewind=noticed.append) as (subject, view):
            for number in range(3):
                await until(lambda: server.streams)
                server.drop_streams()
                server.put(HERE, "a", spec={"b": number})
                server.put(HERE, f"b{number}")
                await until(lambda: view.objects == truth(server))
            assert subject.counters.lists == 1 and not noticed


async def test_a_server_that_ends_streams_at_once_does_not_make_it_spin() -> None:
    async with FakeServer() as server:
        server.end_streams_at_once = True
        async with following(server, backoff=Backoff(0.05, 0.2)) as (subject, view):
            await asyncio.sleep(0.5)
            assert 2 <= subject.counters.watches <= 12
            server.end_streams_at_once = False
            server.put(HERE, "a")
            await until(lambda: view.objects == truth(server))


async def test_an_overdue_event_reconnects() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server) as (subject, view):
            await until(lambda: server.streams)
            server.silence_streams()
            written = server.put(HERE, "a", spec={"b": 1})["metadata"]["resourceVersion"]
            subject.expect("here/a", written, within=0.05)
            assert not subject.check()
            await asyncio.sleep(0.06)
            assert subject.check()
            await until(lambda: view.objects == truth(server))
            assert subject.counters.lists == 1
            assert view.objects["here/a"][1] == written


async def test_an_event_that_came_first_is_not_expected() -> None:
    async with FakeServer() as server, following(server) as (subject, view):
        await until(lambda: server.streams)
        written = server.put(HERE, "a")["metadata"]["resourceVersion"]
        await until(lambda: view.objects)
        subject.expect("here/a", written, within=0.0)
        assert not subject.check()
        newer = server.put(HERE, "a")["metadata"]["resourceVersion"]
        await until(lambda: view.objects["here/a"][1] == newer)
        subject.expect("here/a", written, within=0.0)
        assert not subject.check(), "the observer lags behind the stream"
        subject.expect("here/a", "unseen", within=0.0)
        assert subject.check()


async def test_twice_overdue_without_a_sign_of_life_lists_again() -> None:
    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server) as (subject, _):
            for _ in range(2):
                await until(lambda: server.streams)
                server.silence_streams()
                subject.expect("here/a", "never", within=0.0)
                assert subject.check()
            await until(lambda: subject.counters.lists == 2)


async def test_what_decode_cannot_read_keeps_its_last_good_state() -> None:
    def decode(obj: Json) -> Json:
        if obj.get("spec", {}).get("bad"):
            raise ValueError("odd")
        return obj

    async with FakeServer() as server:
        server.put(HERE, "a")
        async with following(server, decode=decode) as (subject, view):
            await until(lambda: server.streams)
            server.put(HERE, "a", spec={"bad": True})
            server.put(HERE, "b")
            await until(lambda: "here/b" in view.objects)
            assert "here/a" in view.objects
            assert subject.counters.undecodable == 1
            server.put(HERE, "a", spec={"bad": None})
            await until(lambda: view.objects == truth(server))


async def test_an_exception_of_the_sink_ends_the_run() -> None:
    def sink(event: Event) -> None:
        raise KeyError("a bug in the mirror")

    async with FakeServer() as server, ApiClient(server.login()) as client:
        with pytest.raises(KeyError):
            await asyncio.wait_for(reflector(client).run(sink), 5)


async def test_group_has_one_barrier() -> None:
    async with FakeServer() as server, ApiClient(server.login()) as client:
        server.script += [Answer(500, verb="list", plural="others")] * 3
        group, view = ReflectorGroup(), View()
        group.add(reflector(client), view)
        others = Resource("example.com", "v1", "others")
        group.add(Reflector(client, others, backoff=Backoff(0.05, 0.05)), lambda event: None)
        task = asyncio.create_task(group.run())
        await until(lambda: view.syncs)
        assert group.missing() == [others]
        await asyncio.wait_for(group.wait_synced(), 5)
        assert group.synced
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: all(stream.request.transport is None for stream in server.streams))


async def test_cancelling_ends_it_cleanly_in_every_state() -> None:
    async with FakeServer() as server, ApiClient(server.login()) as client:
        server.script += [Answer(500, delay=0.01)] * 100
        for wait in (0.0, 0.005, 0.012, 0.02):
            task = asyncio.create_task(reflector(client).run(lambda event: None))
            await asyncio.sleep(wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


CHANGES = ("put", "put", "put", "delete", "recreate")
TROUBLE = (
    "drop",
    "compact",
    "repeat",
    "bookmark",
    "fail",
    "gone",
    "restart",
    "relist",
    "silent",
    "cut list",
    "breathe",
)
STEPS = st.lists(st.sampled_from(CHANGES + TROUBLE), max_size=40)


@examples(60)
@given(steps=STEPS, seed=st.integers(0, 2**16))
def test_after_any_script_the_view_equals_the_server(steps: list[str], seed: int) -> None:
    asyncio.run(play(steps, random.Random(seed)))


async def play(steps: list[str], rng: random.Random) -> None:
    async with FakeServer() as server:
        for n in range(rng.randrange(8)):
            server.put(HERE, f"t{n}")
        async with following(server, silence=0.2) as (subject, view):
            for step in steps:
                await act(step, server, subject, rng)
            server.script.clear()
            await until(lambda: view.objects == truth(server))
            server.put(HERE, "last")
            await until(lambda: view.objects == truth(server))


async def act(step: str, server: FakeServer, subject: Reflector, rng: random.Random) -> None:
    names = [path.rpartition("/")[2] for path in server.objects]
    match step:
        case "put":
            server.put(HERE, f"t{rng.randrange(8)}", spec={"n": rng.random()})
        case "delete" if names:
            server.delete(HERE, rng.choice(names))
        case "recreate" if names:
            name = rng.choice(names)
            server.delete(HERE, name)
            server.put(HERE, name)
        case "drop":
            server.drop_streams()
        case "compact":
            server.compact()
        case "repeat":
            server.repeat_last_event()
        case "bookmark":
            server.bookmark()
        case "fail":
            server.script.append(Answer(rng.choice([0, 429, 500, 503]), retry_after="0"))
        case "gone":
            server.script.append(Answer(410, "Expired", verb="watch"))
        case "cut list":
            server.script.append(Answer(410, "Expired", verb="list"))
        case "restart":
            subject.restart()
        case "relist":
            subject.restart(relist=True)
        case "silent":
            server.silence_streams()
        case _:
            await asyncio.sleep(rng.random() * 0.01)
