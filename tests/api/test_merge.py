"""Merge patches: what is found to differ, the API server's rule (RFC 7396) turns back into the object that is wanted."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.merging import merge_patch

from gangline.api.read import merge

keys = st.sampled_from("abcd")
scalars = st.integers(0, 3) | st.sampled_from(["", "x", True]) | st.lists(st.integers(0, 2), max_size=2)
trees = st.recursive(scalars, lambda inner: st.dictionaries(keys, inner, max_size=3), max_leaves=8)
objects = st.dictionaries(keys, trees, max_size=4)


@given(objects, objects)
def test_difference_is_the_patch_between_two_objects(current: dict[str, Any], wanted: dict[str, Any]):
    assert merge_patch(current, merge.difference(current, wanted)) == wanted


@given(objects)
def test_there_is_no_difference_to_itself(current: dict[str, Any]):
    assert merge.difference(current, copy.deepcopy(current)) == {}


def test_only_what_changes_is_said():
    assert merge.difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}) == {"a": None, "b": {"d": None}}


def test_null_is_the_same_as_no_key():
    assert merge.difference({"a": None}, {"b": None}) == {}
    assert merge.difference({"a": 1}, {"a": None}) == {"a": None}
