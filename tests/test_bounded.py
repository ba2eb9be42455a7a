"""What anybody can write is measured before it is read."""

from __future__ import annotations

import pytest

from gangline import bounded


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_depth_is_counted_in_levels_of_objects_and_lists():
    assert not bounded.deeper_than(1, 1)
    assert not bounded.deeper_than([], 1)
    assert bounded.deeper_than([[]], 1)
    assert not bounded.deeper_than({"a": [1, {}], "b": 2}, 3)
    assert bounded.deeper_than({"a": [1, {}], "b": 2}, 2)


@pytest.mark.parametrize("levels", [101, 900, 1024, 1025, 100_000])
def test_deep_json_is_refused_in_words(levels: int):
    with pytest.raises(bounded.BadJsonError):
        bounded.load_json(nested(levels), most_bytes=1_000_000)


def test_json_within_its_limits_is_read():
    assert bounded.load_json(nested(100), most_bytes=200)
    with pytest.raises(bounded.BadJsonError, match="more than 199 bytes"):
        bounded.load_json(nested(100), most_bytes=199)


@pytest.mark.parametrize("text", ["", None, "-1", "1.5", "٣", "9" * 19, "9" * 5000, " 1", "1_0"])
def test_what_is_no_short_row_of_digits_is_no_number(text: str | None):
    assert bounded.whole(text) is None


def test_a_marked_parser_never_sees_a_text_that_is_too_long():
    seen: list[str] = []

    @bounded.parser(3, refuse=lambda text: KeyError(bounded.shown(text)))
    def read(text: str) -> None:
        seen.append(text)

    read("abc")
    with pytest.raises(KeyError, match="aaa"):
        read("a" * 1_000_000)
    assert seen == ["abc"]


def test_a_message_quotes_little():
    assert len(bounded.shown("x" * 1_000_000)) <= bounded.SHOWN
    assert bounded.shown("1h") == "'1h'"
