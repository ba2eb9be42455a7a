"""JSON that is expensive for its size, and where it can stand in an object.

A shape makes a value of about so many bytes of JSON. A place is a path in an object: the shape takes the place of what is there,
is added under a name that no schema knows, or multiplies an entry of a list.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[str | int, ...]

#: levels of the deepest shape: what stands around it is not deeper than that an API server and our readers take both
LEVELS: Final = 80
#: a name that is in no schema
UNKNOWN: Final = "x"


def nested_lists(size: int) -> Any:
    """Lists in lists, LEVELS deep, as many as fit."""
    chain: list[Any] = []
    for _ in range(LEVELS - 1):
        chain = [chain]
    return [chain] * max(1, size // (2 * LEVELS + 1))


def nested_objects(size: int) -> Any:
    """Objects in objects, LEVELS deep, as many as fit."""
    chain: Json = {}
    for _ in range(LEVELS - 1):
        chain = {"a": chain}
    return [chain] * max(1, size // (6 * LEVELS))


def empty_lists(size: int) -> Any:
    return [[] for _ in range(size // 3)]


def empty_objects(size: int) -> Any:
    return [{} for _ in range(size // 3)]


def numbers(size: int) -> Any:
    return [0] * (size // 2)


def nulls(size: int) -> Any:
    return [None] * (size // 5)


def short_texts(size: int) -> Any:
    return [f"{n:x}" for n in range(size // 8)]


def many_keys(size: int) -> Any:
    return {f"{n:x}": "" for n in range(size // 10)}


def many_labels(size: int) -> Any:
    return {f"e.com/{n:x}": "v" for n in range(size // 17)}


def named_rows(size: int) -> Any:
    return [{"name": f"{n:x}"} for n in range(size // 17)]


def settings(size: int) -> Any:
    """Environment variables that name each other."""
    return [{"name": f"{n:x}", "value": f"$({n + 1:x})"} for n in range(size // 36)]


def containers(size: int) -> Any:
    rows = ({"name": f"c{n:x}", "image": "i", "resources": {"limits": {"cpu": "1m"}}} for n in range(size // 67))
    return list(rows)


def amounts(size: int) -> Any:
    return {f"e.com/{n:x}": f"{n}m" for n in range(size // 20)}


def tolerations(size: int) -> Any:
    return [{"key": f"{n:x}", "operator": "Exists"} for n in range(size // 37)]


def expressions(size: int) -> Any:
    return [{"key": f"{n:x}", "operator": "In", "values": ["a", "b"]} for n in range(size // 52)]


def terms(size: int) -> Any:
    """Of node affinity, each with a label that nodes have."""
    host = "kubernetes.io/hostname"
    return [
        {
            "matchExpressions": [
                {"key": host, "operator": "NotIn", "values": [f"{n:x}"]},
                {"key": "rack", "operator": "Lt", "values": [f"-{n}"]},
            ]
        }
        for n in range(size // 140)
    ]


def selectors(size: int) -> Any:
    """CEL expressions, each as expensive to evaluate as an API server accepts."""
    row = str(list(range(45)))
    every = f"{row}.all(a, {row}.all(b, {row}.all(c, a + b + c"
    return [{"cel": {"expression": f"{every} >= -{n}))) && device.driver != ''"}} for n in range(max(1, size // 700))]


def long_text(size: int) -> Any:
    return "a" * size


def digits(size: int) -> Any:
    return "9" * size


def pairs(size: int) -> Any:
    """What a reader of lists in a text has to split."""
    return "a=b,c;" * (size // 6)


def brackets(size: int) -> Any:
    """JSON in a text."""
    return "[" * (size // 2) + "]" * (size // 2)


def escapes(size: int) -> Any:
    return "\x01" * (size // 6)


def owners(size: int) -> Any:
    row = {"apiVersion": "batch/v1", "kind": "Job", "controller": False}
    return [{**row, "name": f"{n:x}", "uid": f"{n:x}"} for n in range(size // 75)]


Shape: TypeAlias = Callable[[int], Any]
SHAPES: Final[Mapping[str, Shape]] = {
    shape.__name__: shape
    for shape in (
        *(
            nested_lists,
            nested_objects,
            empty_lists,
            empty_objects,
            numbers,
            nulls,
            short_texts,
            many_keys,
            many_labels,
        ),
        *(
            named_rows,
            settings,
            containers,
            amounts,
            tolerations,
            expressions,
            terms,
            selectors,
            long_text,
            digits,
            pairs,
        ),
        *(brackets, escapes, owners),
    )
}


@dataclass(frozen=True, slots=True)
class Burden:
    """One shape at one place. `how`: `replace` what is there, `add` it under an unknown name or as an entry, or `repeat` an entry
    of the list, each time with another name, until it is large enough (then the shape does not matter).
    """

    path: Path
    how: str
    shape: str

    def put(self, obj: Json, size: int) -> None:
        """Make the object larger by about so many bytes. Raises LookupError or TypeError if it has no such place any more."""
        at: Any = obj
        for step in self.path[:-1]:
            at = at[step]
        last = self.path[-1]
        match self.how:
            case "replace":
                at[last] = SHAPES[self.shape](size)
            case "add":
                inner = at[last]
                if isinstance(inner, dict):
                    inner[UNKNOWN] = SHAPES[self.shape](size)
                else:
                    inner.append(SHAPES[self.shape](size))
            case _:
                at[last] = _repeated(at[last], size)

    def __str__(self) -> str:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).lstrip(".")
        return f"{self.how} {place}" + ("" if self.how == "repeat" else f" with {self.shape}")


def _repeated(rows: list[Any], size: int) -> list[Any]:
    first = rows[0]
    count = max(1, size // (len(orjson.dumps(first)) + 1))
    if not isinstance(first, dict):
        return [copy.deepcopy(first) for _ in range(count)]
    key = next((key for key in ("name", "key", "type") if key in first), "name")
    return [{**copy.deepcopy(first), key: f"{first.get(key, '')}{n:x}"} for n in range(count)]


def places(obj: Json) -> Iterator[Path]:
    """Every path in the object but those of its kind and name."""

    def walk(value: Any, path: Path) -> Iterator[Path]:
        inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, each in inner:
            here = (*path, step)
            if here not in _FIXED:
                yield here
            yield from walk(each, here)

    yield from walk(obj, ())


_FIXED: Final[frozenset[Path]] = frozenset(
    (("apiVersion",), ("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace"), ("metadata", "uid"))
)


def _at(obj: Json, path: Path) -> Any:
    value: Any = obj
    for step in path:
        value = value[step]
    return value


def drawn(obj: Json, draw: random.Random) -> Burden:
    """Any burden for this object."""
    path = draw.choice(list(places(obj)))
    inner = _at(obj, path)
    ways = [
        "replace",
        *(["add"] if isinstance(inner, dict | list) else []),
        *(["repeat"] if isinstance(inner, list) and inner else []),
    ]
    return Burden(path, draw.choice(ways), draw.choice(list(SHAPES)))


def burdened(obj: Json, burdens: tuple[Burden, ...], size: int) -> Json:
    """A copy that these burdens make larger by about so many bytes in all."""
    made = copy.deepcopy(obj)
    for burden in burdens:
        try:
            burden.put(made, size // len(burdens))
        except (LookupError, TypeError, AttributeError):  # an earlier one took its place away
            continue
    return made
