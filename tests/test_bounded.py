"""What anybody can write is measured before it is read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import worst

from gangline import bounded

#: texts in which brackets, commas and quotes stand for themselves
TEXTS = st.text(alphabet='[]{},:"\\ aé', max_size=8)
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=40,
)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def levels_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(levels_of, inner), default=0)


def values_of(value: Any) -> int:
    """As they are counted: an empty object or list counts as one that has a value."""
    inner = list(value.values() if isinstance(value, dict) else value if isinstance(value, list) else [])
    return sum(map(values_of, inner)) + (max(1, len(inner)) if isinstance(value, dict | list) else 0)


@given(DOCUMENTS, st.sampled_from([",", ", "]), st.booleans())
def test_levels_and_values_are_counted_exactly(document: Any, between: str, as_bytes: bool):
    text = json.dumps(document, ensure_ascii=False, separators=(between, ":"))
    written = text.encode() if as_bytes else text
    levels, values = levels_of(document), 1 + values_of(document)
    limits = {"most_bytes": 100_000, "most_depth": levels, "most_values": values}
    assert bounded.load_json(written, **limits) == document
    if levels:
        with pytest.raises(bounded.TooLargeJsonError, match=f"more than {levels - 1} levels"):
            bounded.load_json(written, **{**limits, "most_depth": levels - 1})
        with pytest.raises(bounded.TooLargeJsonError, match=f"more than {values - 1} values"):
            bounded.load_json(written, **{**limits, "most_values": values - 1})


#: what makes values, levels or neither, over and over
PIECES = ("[", "[],", "{},", '{"":', '{"a":0},', "0,", '"",', '",",', '"[",')
TEXT_PIECES = ('\\",', "\\\\", '"', ",", "[", "a")


@pytest.mark.parametrize("piece", PIECES)
def test_what_is_over_a_limit_never_becomes_objects(piece: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounded.orjson, "loads", lambda _: pytest.fail("it was decoded"))
    with pytest.raises(bounded.TooLargeJsonError):
        bounded.load_json(f"[{piece * 2000}0]".encode(), most_bytes=100_000, most_values=1000)


@pytest.mark.parametrize("data", [f"[{piece}0]" for piece in PIECES] + [f'["{piece}"]' for piece in TEXT_PIECES])
def test_the_steps_of_measuring_do_not_depend_on_the_size(data: str):
    def read(size: int) -> None:
        with pytest.raises(bounded.BadJsonError):
            bounded.load_json(data[:-2] * (size // len(data)), most_bytes=2 * size, most_values=1000)

    assert worst.steps(lambda: read(1_000_000)) < 5000


def test_a_mistake_hides_nothing_before_it():
    """A decoder has made these lists when it comes to the mistake."""
    for mistake in (b'"', b"\\", b'\\"', b"\x00", b"]]]]", b"}"):
        with pytest.raises(bounded.TooLargeJsonError):
            bounded.load_json(b"[" + b"[]," * 2000 + mistake, most_bytes=10_000, most_values=1000)


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
