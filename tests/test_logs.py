"""Log lines that no text can forge."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import datetime

import pytest

from gangline import logs

FORGED = "a\n2026-11-24T12:00:00.000Z ERROR   gangline: the cluster is on fire\u202e\u2028\x1b[31m\r"


@pytest.fixture(params=logs.FORMATS)
def written(request: pytest.FixtureRequest) -> Iterator[tuple[str, logging.Logger, io.StringIO]]:
    stream, log = io.StringIO(), logging.getLogger(f"tests.logs.{request.param}")
    handler = logging.StreamHandler(stream)
    handler.setFormatter({"text": logs.TextLines, "json": logs.JsonLines}[request.param]())
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.DEBUG)
    yield request.param, log, stream
    log.removeHandler(handler)


def test_no_text_passes_for_a_line(written: tuple[str, logging.Logger, io.StringIO]) -> None:
    form, log, stream = written
    log.warning("workload %s", FORGED)
    logs.tell(log, "admitted", workload=FORGED, cause=None, pods=3)
    first, second = stream.getvalue().splitlines()
    assert stream.getvalue().isprintable() or stream.getvalue().replace("\n", "").isprintable()
    if form == "json":
        assert json.loads(first)["message"] == f"workload {FORGED}"
        body = json.loads(second)
        assert (body["workload"], body["pods"], "cause" in body) == (FORGED, 3, False)
    else:
        assert "WARNING tests.logs.text: workload a\\n2026-" in first
        assert second.endswith(" pods=3") and 'workload="a\\n2026-' in second


def test_a_traceback_belongs_to_its_line(written: tuple[str, logging.Logger, io.StringIO]) -> None:
    form, log, stream = written
    try:
        raise ValueError(FORGED)
    except ValueError:
        log.exception("it failed")
    log.error("it failed, too", extra={"trace": "  File a\n    b"})
    lines = stream.getvalue().splitlines()
    if form == "json":
        first, second = map(json.loads, lines)
        assert first["exception"].startswith("Traceback") and FORGED in first["exception"]
        assert second["exception"] == "  File a\n    b"
    else:
        starts = [line for line in lines if not line.startswith("    ")]
        assert len(starts) == 2, "all other lines are indented"
        assert "ValueError: a" in stream.getvalue()


def test_lines_are_bounded(written: tuple[str, logging.Logger, io.StringIO]) -> None:
    form, log, stream = written
    try:
        raise ValueError("x" * 100_000)
    except ValueError:
        log.error("y" * 100_000, exc_info=True, extra={"fields": {"z": "z" * 100_000}})
    assert len(stream.getvalue()) < 2 * (logs.LONGEST + logs.LONGEST_VALUE + logs.LONGEST_TRACE), form


def test_json_says_when_who_and_how_bad(written: tuple[str, logging.Logger, io.StringIO]) -> None:
    form, log, stream = written
    logs.tell(log, "admitted", level="hidden", flavors=["a", "b"])
    line = stream.getvalue()
    if form == "json":
        body = json.loads(line)
        assert (body["level"], body["logger"], body["message"]) == ("info", log.name, "admitted"), (
            "no field hides these"
        )
        assert body["flavors"] == ["a", "b"]
        moment = body["time"]
    else:
        moment = line.split(" ")[0]
    assert abs((datetime.now().astimezone() - datetime.fromisoformat(moment)).total_seconds()) < 60
