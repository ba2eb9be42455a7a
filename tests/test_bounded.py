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


@pytest.mark.parametrize("levels", [50, 101, 1025, 10_000])
def test_an_answer_with_one_object_that_is_too_deep_can_be_read_all_the_same(levels: int):
    """The API server stores what is 10,000 levels deep; a decoder of 1,024 levels must not lose the whole list for it."""
    text = '{"items": [{"a": "[{\\"]"}, {"deep": ' + nested(levels) + ', "b": 1}, {"c": {"d": []}}]}'
    found = bounded.load_shallow(text.encode())
    assert found["items"][0] == {"a": '[{"]'}
    assert found["items"][1]["b"] == 1
    assert found["items"][2] == {"c": {"d": []}}


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 2000 + "]" * 1999, '"' * 99_999, "{", "]" * 5000, ""])
def test_what_is_no_json_is_still_none(text: str):
    with pytest.raises(bounded.BadJsonError):
        bounded.load_shallow(text.encode())
