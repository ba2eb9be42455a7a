"""How large an object of a user may be that is read: in fields, list entries and levels.

Fields that are not known here are kept: Kubernetes may add them to pods in its next release, and the pods that are made from a
template need them. What bounds them is the size of the whole object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final, cast

from gangline.bounded import SHOWN
from gangline.kube.resources import Json

#: fields and list entries, and levels of objects and lists: a job of 8 roles with 500 variables each has 13,000 values in 15
#: levels
MOST_VALUES: Final = 30_000
MOST_LEVELS: Final = 40
#: levels of a path that is named, and entries of each level that are looked at for it
_NAMED: Final = 6
_LOOKED_AT: Final = 64


def excess(obj: Json) -> str:
    """What about the object is too large, and where; "" if nothing is. No more values are looked at than are allowed."""
    if has_more_than(MOST_VALUES, obj):
        path = _blamed(obj, lambda value, level: has_more_than(MOST_VALUES // 2, value))
        return (
            f"{path or 'metadata, spec and status'}: the object has more than {MOST_VALUES:,} fields and list entries"
        )
    if is_deeper_than(MOST_LEVELS, obj):
        path = _blamed(obj, lambda value, level: is_deeper_than(MOST_LEVELS - level, value))
        return f"{path}: has more than {MOST_LEVELS} levels of objects and lists"
    return ""


def is_too_large(obj: Json) -> bool:
    """Whether `excess` would name something."""
    return has_more_than(MOST_VALUES, obj) or is_deeper_than(MOST_LEVELS, obj)


def _blamed(obj: object, is_to_blame: Callable[[object, int], bool]) -> str:
    """The path to the innermost value that is to blame: at most six levels down, and among the first entries of each."""
    path, found = "", obj
    for level in range(1, _NAMED + 1):
        rows = islice(_named(found), _LOOKED_AT)
        blamed = next(((part, value) for part, value in rows if is_to_blame(value, level)), None)
        if blamed is None or (blamed[0].startswith("[") and path.endswith("]")):  # a list in a list says nothing
            break
        path, found = path + blamed[0], blamed[1]
    return path.removeprefix(".")


def _named(value: object) -> Iterator[tuple[str, object]]:
    """What is in an object or a list, each with its part of the path."""
    if isinstance(value, dict):
        for key, inner in cast("dict[str, object]", value).items():
            yield f".{key[:SHOWN]}", inner
    elif isinstance(value, list):
        for i, inner in enumerate(cast("list[object]", value)):
            yield f"[{i}]", inner


def has_more_than(most: int, value: object) -> bool:
    """Whether there are more fields and list entries in it. Stops as soon as there are."""
    count, level = 0, _containers([value])
    while level:
        following: list[Collection[object]] = []
        for outer in level:
            count += len(outer)
            if count > most:
                return True
            following += _containers(outer)
        level = following
    return False


def is_deeper_than(most: int, value: object) -> bool:
    """Whether objects and lists are nested in more levels. Looks at one level after the other, not recursively."""
    level = _containers([value])
    for _ in range(most):
        level = [inner for outer in level for inner in _containers(outer)]
        if not level:
            return False
    return True


def _containers(values: Iterable[object]) -> list[Collection[object]]:
    """What is in each of these that is an object or a list."""
    return [
        cast("dict[str, object]", each).values() if isinstance(each, dict) else cast("list[object]", each)
        for each in values
        if isinstance(each, (dict, list))
    ]
