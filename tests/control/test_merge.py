"""Merge patches: what `diff` makes, the API server's rule (RFC 7386) turns back into the new object."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.control import merge

scalars = st.one_of(st.integers(), st.text("xyz", max_size=2), st.booleans(), st.lists(st.integers(), max_size=2))
objects = st.recursive(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), scalars, max_size=4),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), st.one_of(scalars, inner), max_size=4),
    max_leaves=12,
)


def apply(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = apply(result.get(key), value)
    return result


@given(objects, objects)
def test_diff_applies(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert apply(old, merge.diff(old, new)) == new


@given(objects)
def test_equal_objects_need_no_patch(obj: dict[str, Any]) -> None:
    assert merge.diff(obj, obj) == {}


def test_removed_and_nested_keys() -> None:
    assert merge.diff({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 2}}) == {"a": None, "b": {"d": None}}
