"""JSON patches: applied to the first object they give the second, whatever the two are."""

from __future__ import annotations

import copy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.webhooks.patching import apply

from gangline.kube.resources import Json
from gangline_webhooks.app import diff

keys = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    ["a", "a/b", "~", "~1", "/", "", "kueue.x-k8s.io/q"]
)
leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, "", "x"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)
objects = st.dictionaries(keys, values, max_size=4)


def exactly(document: object) -> bytes:
    """In Python 1, 1.0 and True are equal; in JSON they are not."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


@given(objects, objects)
def test_the_patch_leads_from_one_to_the_other(before: Json, after: Json):
    assert exactly(apply(before, diff(before, after))) == exactly(after)


@given(objects)
def test_equal_objects_need_no_patch(obj: Json):
    assert diff(obj, copy.deepcopy(obj)) == []


class Unread(dict[str, int]):
    """An object that is not to be looked into."""

    def keys(self) -> None:
        raise AssertionError

    items = values = __eq__ = __iter__ = keys
    __hash__ = None


def test_what_both_share_is_not_looked_into():
    shared = Unread()
    assert diff({"a": [shared, 1], "b": shared}, {"a": [shared, 2], "b": shared}) == [
        {"op": "replace", "path": "/a/1", "value": 2}
    ]


@given(objects, st.data())
def test_a_small_change_is_a_small_patch(obj: Json, data: st.DataObject):
    changed = {**obj, data.draw(keys): data.draw(values)}
    assert len({operation["path"].split("/")[1] for operation in diff(obj, changed)}) <= 1


@pytest.mark.parametrize(
    ("before", "after", "operations"),
    [
        (
            {"metadata": {}},
            {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}},
            [{"op": "add", "path": "/metadata/labels", "value": {"kueue.x-k8s.io/queue-name": "q"}}],
        ),
        (
            {"labels": {"a": "b"}},
            {"labels": {"a": "b", "x/y~z": "1"}},
            [{"op": "add", "path": "/labels/x~1y~0z", "value": "1"}],
        ),
        (
            {"spec": {"suspend": False}},
            {"spec": {"suspend": True}},
            [{"op": "replace", "path": "/spec/suspend", "value": True}],
        ),
        ({"labels": None}, {"labels": {"a": "b"}}, [{"op": "replace", "path": "/labels", "value": {"a": "b"}}]),
        ({"n": 1}, {"n": True}, [{"op": "replace", "path": "/n", "value": True}]),
        ({"l": [1, {"a": 1}]}, {"l": [1, {"a": 2}]}, [{"op": "replace", "path": "/l/1/a", "value": 2}]),
        ({"l": [1]}, {"l": [1, 2]}, [{"op": "replace", "path": "/l", "value": [1, 2]}]),
    ],
)
def test_patches(before: Json, after: Json, operations: list[Json]):
    assert diff(before, after) == operations
