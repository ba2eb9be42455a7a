"""The writer's promises: serial per object, newest wins, urgent first, patient with the server, silent after abort."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.kube.fake_server import Answer, FakeServer

from gangline.control.writes.outgoing import Priority, Write
from gangline.control.writes.writer import FaultHook, Writer
from gangline.kube.client import (
    AlreadyExists,
    ApiClient,
    ApiError,
    Conflict,
    Invalid,
    Json,
    NotFound,
    ObjectKey,
    Resource,
)

THINGS = Resource("example.com", "v1", "things", kind="Thing")
HERE = "/apis/example.com/v1/namespaces/here/things"


def key(name: str) -> ObjectKey:
    return ObjectKey(THINGS, "here", name)


def patch(name: str, value: Any, **more: Any) -> Write:
    return Write(key(name), "patch", {"spec": {"value": value}}, **more)


def value(server: FakeServer, name: str) -> Any:
    return server.objects[f"{HERE}/{name}"].obj["spec"]["value"]


def patched(server: FakeServer) -> list[str]:
    return [path.rpartition("/")[2] for verb, path in server.served if verb == "patch"]


@asynccontextmanager
async def writing(**options: Any):
    async with FakeServer() as server, ApiClient(server.login()) as client, Writer(client, **options) as writer:
        for name in "abcdef":
            server.put(HERE, name, spec={"value": 0})
        yield server, writer


async def test_writes_and_tells() -> None:
    async with writing() as (server, writer):
        done: list[Json] = []
        writer.submit(patch("a", 1, on_done=done.append))
        assert writer.pending(key("a"))
        assert not writer.pending(key("b"))
        assert await writer.drain(5)
        assert value(server, "a") == 1
        assert done[0]["metadata"]["resourceVersion"] == str(server.version)
        assert not writer.pending(key("a"))
        assert writer.counts["patch", "things", "done"] == 1


async def test_every_verb() -> None:
    async with writing() as (server, writer):
        writer.submit(Write(key("n"), "create", {"metadata": {"name": "n"}, "spec": {"value": 1}}))
        writer.submit(Write(key("a"), "status", {"spec": {"value": 2}}))
        writer.submit(Write(key("b"), "apply", {"spec": {"value": 3}}))
        writer.submit(Write(key("c"), "delete", {"propagation": "Background"}))
        writer.submit(Write(key("d"), "delete"))
        body = {"metadata": {"name": "e"}, "spec": {"value": 4}}
        writer.submit(Write(key("e"), "replace", body))
        writer.submit(Write(key("f"), "replace-status", body))
        assert await writer.drain(5)
        assert [value(server, name) for name in "nabef"] == [1, 2, 3, 4, 4]
        assert set(server.state()) == set("nabef")
        assert ("patch", f"{HERE}/a/status") in server.served
        assert ("replace", f"{HERE}/f/status") in server.served


async def test_one_at_a_time_per_object_and_newest_wins() -> None:
    async with writing() as (server, writer):
        server.script.append(Answer(200, delay=0.05))
        for n in range(1, 20):
            writer.submit(patch("a", n))
            await asyncio.sleep(0)
        await asyncio.sleep(0.02)
        assert writer.in_flight == 1
        assert await writer.drain(5)
        assert value(server, "a") == 19
        assert patched(server) == ["a", "a"]
        assert writer.counts["patch", "things", "replaced"] == 17


async def test_different_objects_go_side_by_side() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(200, delay=0.1)] * 6
        most = 0
        for name in "abcdef":
            writer.submit(patch(name, 1))
        while writer.queued or writer.in_flight:
            most = max(most, writer.in_flight)
            await asyncio.sleep(0.002)
        assert most > 2


async def test_concurrency_is_bounded() -> None:
    async with writing(max_concurrency=2) as (server, writer):
        server.script += [Answer(200, delay=0.02)] * 6
        most = 0
        for name in "abcdef":
            writer.submit(patch(name, 1))
        while writer.queued or writer.in_flight:
            most = max(most, writer.in_flight)
            await asyncio.sleep(0.002)
        assert most == 2


async def test_urgent_first_then_oldest() -> None:
    async with writing(max_concurrency=1) as (server, writer):
        for name, priority in zip("abcdef", (5, 4, 3, 3, 1, 0), strict=True):
            writer.submit(patch(name, 1, priority=Priority(priority)))
        assert await writer.drain(5)
        assert patched(server) == list("fecdba")


async def test_urgent_are_those_that_somebody_waits_for() -> None:
    async with writing(max_concurrency=2) as (server, writer):
        server.script += [Answer(200, delay=0.05)] * 2
        for name, priority in zip("abcde", (0, 0, 2, 3, 5), strict=True):
            writer.submit(patch(name, 1, priority=Priority(priority)))
        assert writer.urgent == 3
        await asyncio.sleep(0.02)
        assert writer.in_flight
        assert writer.urgent == 3
        writer.submit(patch("d", 2, priority=Priority.ADMISSION))  # takes the place of what nobody waited for
        assert writer.urgent == 4
        assert await writer.drain(5)
        assert writer.urgent == 0


async def test_what_failed_is_not_among_the_urgent_until_it_is_tried_again() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(500, verb="patch")] * 3
        writer.submit(patch("a", 1, priority=Priority.ADMISSION))
        assert writer.urgent == 1
        await asyncio.sleep(0.05)
        assert (writer.urgent, writer.queued) == (0, 1)
        assert await writer.drain(10)
        assert writer.urgent == 0


async def test_what_waits_behind_a_write_that_fails_is_not_among_the_urgent() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(500, verb="create")] * 3
        writer.submit(patch("n", 1))
        writer.submit(Write(key("n"), "create", {"metadata": {"name": "n"}}))
        await asyncio.sleep(0.05)
        assert (writer.urgent, writer.queued) == (0, 2)
        assert await writer.drain(10)
        assert writer.urgent == 0
        assert value(server, "n") == 1


async def test_a_replacement_keeps_the_older_and_more_urgent_turn() -> None:
    async with writing(max_concurrency=1) as (server, writer):
        writer.submit(patch("a", 1, priority=Priority.ADMISSION))
        writer.submit(patch("b", 1, priority=Priority.ADMISSION))
        writer.submit(patch("a", 2, priority=Priority.STATUS))
        assert await writer.drain(5)
        assert patched(server) == ["a", "b"]
        assert value(server, "a") == 2


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def _order(*writes: tuple[str, Priority]) -> list[str]:
    """The namespaces of these writes in the order in which a server gets them, one at a time."""
    async with FakeServer() as server, ApiClient(server.login()) as client, Writer(client, max_concurrency=1) as writer:
        for number, (namespace, priority) in enumerate(writes):
            place = ObjectKey(THINGS, namespace, f"n{number}")
            writer.submit(Write(place, "create", {"metadata": {"name": place.name}}, priority))
        assert await writer.drain(20)
        return [path.split("/")[5] for verb, path in server.served if verb == "create"]


@pytest.mark.parametrize("priority", [Priority.ADMISSION, Priority.LIFECYCLE, Priority.EVENT])
async def test_namespaces_take_turns(priority: Priority) -> None:
    order = await _order(*[("loud", priority)] * 300, ("quiet", priority), ("quiet", priority), ("other", priority))
    assert order.count("loud") == 300
    assert max(place for place, namespace in enumerate(order) if namespace != "loud") <= 8


async def test_the_statuses_of_one_namespace_hold_up_no_event_of_another() -> None:
    order = await _order(*[("loud", Priority.STATUS)] * 300, ("quiet", Priority.EVENT))
    assert order.index("quiet") <= 16


@pytest.mark.parametrize("low", [Priority.STATUS, Priority.PENDING_REASON, Priority.EVENT])
async def test_low_priorities_leave_room(low: Priority) -> None:
    async with writing(max_concurrency=12) as (server, writer):
        writer.pace.limit = 12
        server.script += [Answer(200, delay=30)] * 8
        for name in "abcd":
            writer.submit(patch(name, 1, priority=low))
        await until(lambda: writer.in_flight == 2)  # a sixth of twelve
        for name in "efgh":
            writer.submit(patch(name, 1, priority=Priority.ADMISSION))
        await until(lambda: writer.in_flight == 6)
        assert writer.queued == 2


async def test_no_low_priority_starves_another() -> None:
    async with writing(max_concurrency=1) as (_, writer):
        order: list[str] = []
        for name, priority in [("a", Priority.EVENT), *((name, Priority.STATUS) for name in "bcdef")]:
            body = {"spec": {"value": 1}}
            writer.submit(Write(key(name), "status", body, priority, lambda _, name=name: order.append(name)))
        assert await writer.drain(5)
        assert order == ["b", "c", "d", "a", "e", "f"], "every fourth turn is the oldest one's"


async def test_draining_may_leave_out_what_nobody_waits_for() -> None:
    async with writing() as (server, writer):
        server.script.append(Answer(200, delay=30))
        writer.submit(patch("b", 1, priority=Priority.EVENT))
        await until(lambda: not server.script)
        writer.submit(patch("a", 1, priority=Priority.LIFECYCLE))
        assert await writer.drain(5, least=Priority.LIFECYCLE)
        assert value(server, "a") == 1
        assert not await writer.drain(0.05)


async def test_create_goes_before_everything_else_of_its_object() -> None:
    async with writing() as (server, writer):
        server.script.append(Answer(500, verb="create"))
        writer.submit(Write(key("n"), "create", {"metadata": {"name": "n"}}, Priority.EVENT))
        writer.submit(Write(key("n"), "status", {"spec": {"value": 7}}, Priority.ADMISSION))
        assert await writer.drain(5)
        assert value(server, "n") == 7
        assert writer.counts["create", "things", "retried"] == 1


async def test_throttled_until_its_time() -> None:
    async with writing() as (server, writer):
        at = time.monotonic() + 0.15
        writer.submit(patch("a", 1, not_before=at))
        writer.submit(patch("a", 2, not_before=at + 60))
        assert await writer.drain(5), "throttled writes are not waited for"
        assert value(server, "a") == 0
        assert writer.queued == 1
        async with asyncio.timeout(10):  # the sooner of the two times, not the 60 s
            while value(server, "a") != 2:
                await asyncio.sleep(0.01)


async def test_an_urgent_write_does_not_wait_for_a_throttled_one() -> None:
    async with writing() as (server, writer):
        writer.submit(patch("a", 1, not_before=time.monotonic() + 60, slot="reason"))
        writer.submit(patch("a", 2))
        assert await writer.drain(5)
        assert value(server, "a") == 2
        assert writer.pending(key("a"))


async def test_rendered_when_its_turn_comes_and_none_is_nothing_to_do() -> None:
    async with writing(max_concurrency=1) as (server, writer):
        state = {"value": 1}
        called: list[object] = []
        writer.submit(patch("b", 1))
        writer.submit(Write(key("a"), "patch", lambda: {"spec": dict(state)}))
        writer.submit(Write(key("c"), "patch", lambda: None, on_done=called.append, on_error=called.append))
        state["value"] = 2
        assert await writer.drain(5)
        assert value(server, "a") == 2
        assert patched(server) == ["b", "a"]
        assert called == []
        assert writer.counts["patch", "things", "skipped"] == 1


@pytest.mark.parametrize("status", [0, 500, 503, 504, 429, 401])
async def test_what_may_pass_is_repeated_and_rendered_anew(status: int) -> None:
    async with writing() as (server, writer):
        server.script += [Answer(status, verb="patch")] * 2
        renders: list[int] = []

        def render() -> Json:
            renders.append(1)
            return {"spec": {"value": len(renders)}}

        writer.submit(Write(key("a"), "patch", render, on_error=lambda error: pytest.fail(str(error))))
        assert await writer.drain(10)
        assert value(server, "a") == 3
        assert writer.counts["patch", "things", "retried"] == 2


@pytest.mark.parametrize(
    ("write", "answer", "error"),
    [
        (Write(key("nobody"), "patch", {}), None, NotFound),
        (Write(key("a"), "patch", {"metadata": {"resourceVersion": "1"}}), None, Conflict),
        (Write(key("a"), "create", {"metadata": {"name": "a"}}), None, AlreadyExists),
        (Write(key("a"), "patch", {}), Answer(422, "Invalid"), Invalid),
        (Write(key("a"), "patch", lambda: 1 / 0), None, Invalid),  # type: ignore[arg-type, return-value]
        (Write(key("a"), "patch", lambda: {"spec": {1, 2}}), None, Invalid),
    ],
)
async def test_what_cannot_pass_is_reported_once(write: Write, answer: Answer | None, error: type[ApiError]) -> None:
    async with writing() as (server, writer):
        server.script += [answer] if answer else []
        errors: list[ApiError] = []
        write.on_error = errors.append
        writer.submit(write)
        writer.submit(patch("b", 1))
        assert await writer.drain(5)
        assert [type(e) for e in errors] == [error]
        assert value(server, "b") == 1
        assert not writer.pending(write.key)


async def test_retry_after_holds_everything() -> None:
    async with writing() as (server, writer):
        server.script.append(Answer(429, "TooManyRequests", retry_after="1"))
        started = time.monotonic()
        writer.submit(patch("a", 1))
        while not patched(server):
            await asyncio.sleep(0.01)
        writer.submit(patch("b", 1))
        while len(patched(server)) < 2:
            await asyncio.sleep(0.01)
        assert time.monotonic() - started > 1.0
        assert await writer.drain(5)
        assert value(server, "a") == value(server, "b") == 1


async def test_one_failing_object_does_not_stall_others() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(500, verb="patch")] * 5
        writer.submit(patch("a", 1))
        await asyncio.sleep(0.05)
        server.script.clear()
        server.script += [Answer(500, verb="create")] * 1000
        writer.submit(Write(key("n"), "create", {"metadata": {"name": "n"}}))
        for n in range(50):
            writer.submit(patch("bcdef"[n % 5], n))
            await asyncio.sleep(0.001)
        while value(server, "f") != 49:
            await asyncio.sleep(0.001)
        assert sum(verb == "create" for verb, _ in server.served) < 8, "the others did not wait for its attempts"


async def test_a_newer_write_takes_over_from_one_in_backoff() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(500, verb="patch")]
        writer.submit(patch("a", 1, on_done=lambda _: pytest.fail("replaced writes have no result")))
        await asyncio.sleep(0.05)
        writer.submit(patch("a", 2))
        assert await writer.drain(5)
        assert value(server, "a") == 2
        assert patched(server) == ["a", "a"]


async def test_a_failed_write_does_not_come_back_over_a_newer_one() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(500, verb="patch", delay=0.05)]
        writer.submit(patch("a", 1))
        await asyncio.sleep(0.02)
        writer.submit(patch("a", 2))
        assert await writer.drain(5)
        assert value(server, "a") == 2
        assert patched(server) == ["a", "a"]


async def test_a_refusal_does_not_change_the_order() -> None:
    async with writing(max_concurrency=1) as (server, writer):
        server.script.append(Answer(429, "TooManyRequests", verb="patch"))
        for name in "abc":
            writer.submit(patch(name, 1))
        assert await writer.drain(5)
        assert patched(server) == ["a", "a", "b", "c"]


async def test_a_refusing_server_is_not_hammered() -> None:
    async with writing() as (server, writer):
        server.script += [Answer(0, verb="patch")] * 10_000
        for n in range(500):
            writer.submit(patch(f"x{n}", 1))
        await asyncio.sleep(1.0)
        assert len(patched(server)) < 60
        assert writer.pace.limit < 4
        server.script.clear()
        assert await writer.drain(20)
        assert writer.counts["patch", "things", "NotFound"] == 500


async def test_abort_lets_nothing_out() -> None:
    async with writing(max_concurrency=4) as (server, writer):  # starts with half of that
        server.script += [Answer(200, delay=0.1)] * 2
        for name in "abcdef":
            writer.submit(patch(name, 1, on_done=lambda _: pytest.fail("called after abort")))
        await asyncio.sleep(0.05)
        writer.abort()
        writer.submit(patch("a", 9))
        await asyncio.sleep(0.3)
        assert len(patched(server)) == 2
        assert not writer.pending(key("a"))
        assert await writer.drain(1)


async def test_nothing_leaves_while_the_gate_is_closed() -> None:
    gate = False
    async with writing(gate=lambda: gate) as (server, writer):
        writer.submit(patch("a", 1))
        assert not await writer.drain(0.3)
        assert patched(server) == []
        gate = True
        assert await writer.drain(2)
        assert value(server, "a") == 1


async def test_a_callback_may_submit_and_may_fail() -> None:
    async with writing() as (server, writer):

        def again(obj: Json) -> None:
            if obj["spec"]["value"] < 3:
                writer.submit(patch("a", obj["spec"]["value"] + 1, on_done=again))
            raise RuntimeError("a bug of the owner")

        writer.submit(patch("a", 1, on_done=again))
        assert await writer.drain(5)
        assert value(server, "a") == 3


@examples(40)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["patch", "status"]),
            st.sampled_from(list(Priority)),
            st.sampled_from([None, None, 0, 429, 500, 503]),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_the_last_submit_of_every_slot_always_arrives(steps: list[tuple[str, str, Priority, int | None, bool]]) -> None:
    async def play() -> None:
        async with writing(max_concurrency=2) as (server, writer):
            wanted: dict[tuple[str, str], int] = {}
            for n, (name, verb, priority, trouble, breathe) in enumerate(steps):
                if trouble is not None:
                    server.script.append(Answer(trouble, after=trouble == 0, retry_after="0"))
                wanted[name, verb] = n
                writer.submit(Write(key(name), verb, {verb: {"n": n}}, priority))  # type: ignore[arg-type]
                if breathe:
                    await asyncio.sleep(0.002)
            server.script.clear()
            assert await writer.drain(20)
            assert writer.queued == writer.in_flight == writer.urgent == 0
            for (name, verb), n in wanted.items():
                assert server.objects[f"{HERE}/{name}"].obj[verb] == {"n": n}

    asyncio.run(play())


# --- crashes on cue ---------------------------------------------------------------------------------------------------


class DiedError(Exception):
    pass


def die(status: int) -> None:
    assert status == 137
    raise DiedError


def test_fault_hook_counts() -> None:
    hook = FaultHook("before", 2, die)
    assert hook.before() == 1
    with pytest.raises(DiedError):
        hook.before()
    hook = FaultHook("after", 2, die)
    hook.after(hook.before())
    with pytest.raises(DiedError):
        hook.after(hook.before())


@pytest.mark.parametrize("text", ["before", "before:", "before:0", "before:x", "during:1", "after:-1"])
def test_a_bad_fault_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="GANGLINE_FAULT"):
        FaultHook.from_environment({"GANGLINE_FAULT": text})


SCRIPT = """
import asyncio, sys
from gangline.control.writes.outgoing import Write
from gangline.control.writes.writer import Writer
from gangline.kube.client import ApiClient, ObjectKey, Resource
from gangline.kube.config import Login

async def main():
    things = Resource("example.com", "v1", "things")
    async with ApiClient(Login(sys.argv[1])) as client, Writer(client, max_concurrency=1) as writer:
        for name in "abcdef":
            writer.submit(Write(ObjectKey(things, "here", name), "patch", {"spec": {"value": 1}}))
        assert await writer.drain(10)

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("fault", "written"), [("", 6), ("before:1", 0), ("after:1", 1), ("before:4", 3), ("after:6", 6)]
)
async def test_the_process_dies_at_the_chosen_write(fault: str, written: int) -> None:
    async with writing() as (server, _):
        command = [sys.executable, "-c", SCRIPT, server.url]
        run: Callable[[], Any] = lambda: subprocess.run(  # noqa: E731
            command, env={"GANGLINE_FAULT": fault}, capture_output=True, check=False, timeout=60
        )
        result = await asyncio.to_thread(run)
        assert result.returncode == (137 if fault else 0), result.stderr
        assert sum(value(server, name) for name in "abcdef") == written
