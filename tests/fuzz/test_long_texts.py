"""Texts of odd lengths and signs, at readers that have no parser's mark or got theirs late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangline.api.admission import syntax
from gangline.api.read import conditions
from gangline.engine.model import Expression, Node, expression_matches
from gangline.engine.nodes import health
from gangline.jobs import podspec
from gangline.telemetry import FileSource, _samples


@pytest.mark.parametrize("value", ["9" * 5000, "²", "-" + "9" * 5000])
def test_a_label_that_is_no_number_of_64_bits_is_neither_more_nor_less_than_another(value: str):
    for operator in ("Gt", "Lt"):
        assert not expression_matches(Expression("key", operator, (value,)), {"key": "1"})
        assert not expression_matches(Expression("key", operator, ("1",)), {"key": value})


@pytest.mark.parametrize("value", ["9" * 5000, "²", "٣", ""])
def test_a_node_label_that_is_no_time_announces_nothing(value: str):
    labels = {signal.key: value for signal in health.HEALTH_SIGNALS if signal.read == "Due"}
    assert labels
    assert list(health._announced(Node("node", labels=labels))) == []


async def test_a_telemetry_line_that_is_no_reading_is_passed_over(tmp_path: Path):
    good = {"namespace": "team", "pod": "good", "gpu": 0.5}
    lines = [
        '{"namespace": "team", "pod": "a", "xid": 1e999}',
        '{"namespace": "team", "pod": "b", "gpu": "inf"}',
        '{"namespace": "team", "pod": "c", "xid": "Infinity"}',
        json.dumps({**good, "pod": "d", "note": "x" * 5000}),
        "[" * 3000 + "]" * 3000,
        json.dumps(good),
    ]
    path = tmp_path / "readings"
    path.write_text("\n".join(lines))
    assert [reading.pod for reading in await FileSource(path).read()] == ["good"]


def test_a_sample_of_too_many_digits_is_no_sample():
    metric = {"namespace": "team", "pod": "a"}
    assert list(_samples([{"metric": metric, "value": [1.0, "9" * 100]}])) == []


def test_a_time_or_a_number_is_not_quoted_whole():
    with pytest.raises(ValueError, match="value out of range") as error:
        syntax.go_int("9" * 100_000)
    assert len(str(error.value)) < 200
    with pytest.raises(ValueError, match="longer than") as error:
        conditions.millis_of("2026" * 100_000)
    assert len(str(error.value)) < 200


def test_steps_of_too_many_digits_say_nothing_of_the_runtime():
    assert podspec.by_steps("9" * 100_000, "1") is None
    assert podspec.by_steps(100, "1500m") == 150.0
