"""The API server's time, told from its answers."""

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
    told = ClusterClock()
    for off in (0, 0, -600, 0, 0, -600):
        told.heard(formatdate(time.time() + off, usegmt=True), time.monotonic())
        assert told.offset == 0.0
    for _ in range(transport.SAMPLES):
        told.heard(formatdate(time.time() + 60, usegmt=True), time.monotonic())
    assert abs(told.offset - 60) < transport.TOLERANCE


@pytest.mark.parametrize("step", [-86_400.0, -600.0, 600.0])
@pytest.mark.parametrize("off", [0.0, 60.0])
def test_the_time_goes_on_when_this_machines_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, step: float, off: float
) -> None:
    """At once, and also once the next answers have come."""
    monkeypatch.setattr(transport, "PERIOD", 0.0)
    shifts = [off]
    monkeypatch.setattr(transport, "read", lambda: time.time() + shifts[-1])
    told = ClusterClock()
    for _ in range(transport.SAMPLES):
        told.heard(formatdate(time.time(), usegmt=True), time.monotonic())
    for shift in (off + step, off):
        shifts.append(shift)
        assert abs(told.seconds() - time.time()) < transport.TOLERANCE
        for _ in range(transport.SAMPLES):
            told.heard(formatdate(time.time(), usegmt=True), time.monotonic())
            assert abs(told.seconds() - time.time()) < transport.TOLERANCE


def test_what_says_nothing_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PERIOD", 0.0)
    told = ClusterClock()
    for date in ("", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT", "9" * 10_000):
        told.heard(date, time.monotonic())
    told.heard(formatdate(time.time() + 60), time.monotonic() - 5)  # an answer that took its time
    assert told.offset == 0.0
