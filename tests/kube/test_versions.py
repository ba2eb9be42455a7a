"""What the API server's version says, and what is said of it."""

from __future__ import annotations

import json
import logging

import pytest
from tests.kube.fake_server import Answer, FakeServer

from gangline.devcluster.building import build
from gangline.kube import versions
from gangline.kube.client import ApiClient
from gangline.kube.versions import Version, read_version


def answer(**fields: object) -> bytes:
    return json.dumps({"major": "1", "minor": "34", "gitVersion": "v1.34.4"} | fields).encode()


@pytest.mark.parametrize(
    ("body", "version"),
    [
        (answer(), Version(1, 34)),
        (answer(minor="31+", gitVersion="v1.31.9-eks-1"), Version(1, 31)),
        (answer(minor=""), None),
        (answer(minor=34), None),
        (answer(minor="9" * 5000), None),
        (b'"1.34"', None),
        (b"<html>", None),
        (answer(padding="x" * 100_000), None),
    ],
)
def test_the_version_is_read_or_unknown(body: bytes, version: Version | None) -> None:
    assert read_version(body) == version


def test_what_is_supported_can_be_run_here() -> None:
    local = [Version(*map(int, version.split("."))) for version in build.VERSIONS]
    assert local == [Version(1, minor) for minor in range(versions.OLDEST.minor, versions.NEWEST.minor + 1)]


def test_versions_in_between_lack_some_of_what_the_oldest_lacks() -> None:
    oldest, between, newest = (
        [each.split(" has no ")[1] for each in versions.lacking(version)]
        for version in (versions.OLDEST, Version(1, 34), versions.NEWEST)
    )
    assert set(between) < set(oldest)
    assert between == ["MutatingAdmissionPolicy (from 1.36 on): " + versions.FEATURES[0].without]
    assert not newest


@pytest.mark.parametrize(
    ("minor", "warning"),
    [
        ("30", "WARNING Kubernetes 1.30 is not among"),
        ("31", "INFO Kubernetes 1.31 has no MutatingAdmissionPolicy"),
        ("99", "WARNING Kubernetes 1.99 is not among"),
        ("x", "INFO the API server does not state its version"),
    ],
)
async def test_the_operator_says_what_is_lacking(minor: str, warning: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with FakeServer() as server:
        server.script.append(Answer(200, body=answer(minor=minor)))
        async with ApiClient(server.login()) as client:
            await versions.tell(client)
    said = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert any(line.startswith(warning) for line in said), said


async def test_a_server_that_refuses_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with FakeServer() as server:
        server.script.append(Answer(403, "Forbidden"))
        async with ApiClient(server.login()) as client:
            await versions.tell(client)
    assert "does not state its version: " in caplog.text
