"""Every marked reader of texts, found by its mark: the worst megabyte costs linear work, and no error that is not declared."""

from __future__ import annotations

import pytest
from tests.fuzz import worst

from gangline.bounded import Parser, parser

PARSERS = worst.parsers()
#: what a call costs whatever the length, in instructions
FIXED = 400
#: characters of the longest text whose instructions are counted one by one: work that grows with the square shows long before
COUNTED = 4096


def assert_linear(parser: Parser, small: int, times: int) -> None:
    for short, long in zip(worst.texts(parser, small), worst.texts(parser, small * times), strict=True):
        before = worst.steps(lambda: worst.call(parser, short))  # noqa: B023 — called at once
        after = worst.steps(lambda: worst.call(parser, long))  # noqa: B023
        assert after <= 1.2 * times * before + FIXED, f"{parser.name}: {before} → {after} steps for {long[:40]!r}…"


def test_the_readers_of_numbers_durations_times_and_records_are_marked():
    expected = {
        "quantity._read",
        "quantity.parse_duration",
        "read.reading.parse_time",
        "read.workloads.swap_record._record",
        "read.workloads.swap_record._rows",
    }
    assert {f"gangline.api.{name}" for name in expected} <= PARSERS.keys()


@pytest.mark.parametrize("name", PARSERS)
def test_a_megabyte_of_the_worst_costs_linear_work(name: str):
    assert_linear(PARSERS[name], worst.MEGABYTE // 2, 2)


@pytest.mark.parametrize("name", PARSERS)
def test_what_a_parser_may_just_see_costs_linear_work(name: str):
    assert_linear(PARSERS[name], max(8, min(COUNTED, PARSERS[name].longest) // 2), 2)


def test_the_count_of_steps_finds_a_quadratic_reader():
    @parser(4096)
    def pairs(text: str) -> int:
        return sum(a == b for a in text for b in text)

    with pytest.raises(AssertionError, match="steps for"):
        assert_linear(Parser("pairs", 4096, pairs), 100, 2)
    del worst.PARSERS[f"{__name__}.{pairs.__qualname__}"]
