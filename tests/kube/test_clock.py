"""The API server's time, read from its answers."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest
from tests.kube.fake_server import FakeServer

from gangline.kube import transport
from gangline.kube.client import ApiClient, Resource
from gangline.kube.transport import ClusterClock

THINGS = Resource("example.com", "v1", "things", kind="Thing")


@pytest.mark.parametrize("ahead", [-86_400.0, -60.0, -4.0, 4.0, 60.0, 86_400.0])
async def test_the_servers_time_counts(monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    monkeypatch.setattr(transport, "read", lambda: time.time() + ahead)
    async with FakeServer() as server, ApiClient(server.login()) as client:
        await client.list(THINGS, "here")
        assert abs(client.clock.seconds() - time.time()) < transport.TOLERANCE
        assert abs(client.clock.offset + ahead) < transport.TOLERANCE


async def test_a_small_offset_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "read", lambda: time.time() + 0.4)
    async with FakeServer() as server, ApiClient(server.login()) as client:
        await client.list(THINGS, "here")
        assert client.clock.offset == 0.0


def test_one_server_that_is_off_among_others_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PERIOD", 0.0)
    clock = ClusterClock()
    for off in (0, 0, -600, 0, 0, -600):
        clock.heard(formatdate(time.time() + off, usegmt=True), time.monotonic())
        assert clock.offset == 0.0
    for _ in range(transport.SAMPLES):
        clock.heard(formatdate(time.time() + 60, usegmt=True), time.monotonic())
    assert abs(clock.offset - 60) < transport.TOLERANCE


@pytest.mark.parametrize("step", [-86_400.0, -60.0, -3.0, 3.0, 60.0, 86_400.0])
@pytest.mark.parametrize("off", [0.0, 600.0])
def test_a_clock_that_is_set_while_it_is_read_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, step: float, off: float
) -> None:
    ahead = [-off]
    monkeypatch.setattr(transport, "read", lambda: time.time() + ahead[0])
    clock = ClusterClock()
    clock.heard(formatdate(time.time(), usegmt=True), time.monotonic())
    before = clock.seconds()
    ahead[0] += step
    assert abs(clock.seconds() - before) < 1, "before anything was heard"
    clock.heard(formatdate(time.time(), usegmt=True), time.monotonic())
    assert abs(clock.seconds() - time.time()) < transport.TOLERANCE
    assert clock.offset == pytest.approx(off - step, abs=transport.TOLERANCE)


def test_a_step_of_the_servers_clock_and_ours_is_taken_over_with_the_first_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = [0.0]
    monkeypatch.setattr(transport, "read", lambda: time.time() + ahead[0])
    clock = ClusterClock()
    for _ in range(transport.SAMPLES):
        clock.heard(formatdate(time.time(), usegmt=True), time.monotonic())
    ahead[0] = 3600.0
    assert clock.seconds() < time.time() + 60
    clock.heard(formatdate(time.time() + 3600, usegmt=True), time.monotonic())
    assert abs(clock.seconds() - time.time() - 3600) < transport.TOLERANCE and clock.offset == 0.0


def test_a_machine_that_slept_is_not_one_whose_clock_was_set(monkeypatch: pytest.MonkeyPatch) -> None:
    slept = [0.0]
    steady = transport.steady
    monkeypatch.setattr(transport, "read", lambda: time.time() + slept[0])
    monkeypatch.setattr(transport, "steady", lambda: steady() + slept[0])
    clock = ClusterClock()
    slept[0] = 7200.0
    assert abs(clock.seconds() - time.time() - 7200) < 1 and clock.offset == 0.0


def test_what_says_nothing_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PERIOD", 0.0)
    clock = ClusterClock()
    for date in ("", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT", "9" * 10_000):
        clock.heard(date, time.monotonic())
    clock.heard(formatdate(time.time() + 60), time.monotonic() - 5)  # an answer that took its time
    assert clock.offset == 0.0
