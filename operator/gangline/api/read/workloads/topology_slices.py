"""The compact form of topology assignments in v1beta2, and back.

Domains are written as one slice: per level either one value for all, or prefix + root + suffix for each; and either one pod
count or one for each. The order of the domains is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

from gangline.kube.resources import Json

#: values of the levels' labels, and the number of pods there
Domain: TypeAlias = tuple[tuple[str, ...], int]

#: The schema's limits for prefix and suffix.
_LONGEST_AFFIX: Final = 63
#: The schema's limit for one slice, and here for all together: a few bytes can stand for many domains.
MOST_DOMAINS: Final = 100_000
_MOST_LEVELS: Final = 16
_MOST_PODS: Final = 2**31 - 1


class SlicesError(ValueError):
    """The slices are inconsistent; `path` says where, relative to the assignment."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path
        self.message = message


def encode(domains: Sequence[Domain]) -> list[Json]:
    """`slices` for these domains, which must all have a value for the same levels."""
    if not domains:
        return []
    counts = [count for _, count in domains]
    columns = zip(*(values for values, _ in domains), strict=True)
    return [
        {
            "domainCount": len(domains),
            "valuesPerLevel": [_values(column) for column in columns],
            "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
        }
    ]


def _values(values: Sequence[str]) -> Json:
    if len(set(values)) == 1:
        return {"universal": values[0]}
    prefix = _common_prefix(values)[:_LONGEST_AFFIX]
    roots = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([root[::-1] for root in roots])[:_LONGEST_AFFIX][::-1]
    individual: Json = {"roots": [root[: len(root) - len(suffix)] for root in roots]}
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    return {"individual": individual}


def _common_prefix(texts: Sequence[str]) -> str:
    """The longest prefix of all texts. Those between the first and the last in order cannot differ earlier than these two."""
    first, last = min(texts), max(texts)
    for i, character in enumerate(first):
        if last[i : i + 1] != character:
            return first[:i]
    return first


def decode(slices: Any, levels: int) -> list[Domain]:
    """The domains that `slices` describe, each with `levels` values. Raises SlicesError."""
    if levels > _MOST_LEVELS:
        raise SlicesError("levels", f"must be {_MOST_LEVELS} or fewer")
    domains: list[Domain] = []
    for i, part in enumerate(_list(slices, "slices")):
        domains += _slice(part, levels, f"slices[{i}]", MOST_DOMAINS - len(domains))
    return domains


def _slice(part: Any, levels: int, path: str, most: int) -> list[Domain]:
    body = _object(part, path)
    size = body.get("domainCount")
    if type(size) is not int or size < 1:
        raise SlicesError(f"{path}.domainCount", "must be a number of 1 or more")
    if size > most:
        raise SlicesError(f"{path}.domainCount", f"more than {MOST_DOMAINS} domains")
    columns = _list(body.get("valuesPerLevel"), f"{path}.valuesPerLevel")
    if len(columns) != levels:
        raise SlicesError(f"{path}.valuesPerLevel", f"must have one entry for each of the {levels} levels")
    values = [_column(column, size, f"{path}.valuesPerLevel[{i}]") for i, column in enumerate(columns)]
    return list(zip(zip(*values, strict=True), _counts(body.get("podCounts"), size, f"{path}.podCounts"), strict=True))


def _column(column: Any, size: int, path: str) -> list[str]:
    body = _object(column, path)
    if isinstance(body.get("universal"), str):
        return [body["universal"]] * size
    individual = _object(body.get("individual"), f"{path}.individual")
    roots = _sized(individual.get("roots"), size, f"{path}.individual.roots", str)
    prefix, suffix = (_text(individual.get(key, ""), f"{path}.individual.{key}") for key in ("prefix", "suffix"))
    if len(prefix) > _LONGEST_AFFIX or len(suffix) > _LONGEST_AFFIX:
        raise SlicesError(f"{path}.individual", f"prefix and suffix have at most {_LONGEST_AFFIX} characters")
    return [f"{prefix}{root}{suffix}" for root in roots]


def _counts(counts: Any, size: int, path: str) -> list[int]:
    body = _object(counts, path)
    if type(body.get("universal")) is int:
        found = [body["universal"]] * size
    else:
        found = _sized(body.get("individual"), size, f"{path}.individual", int)
    if not 0 <= min(found) <= max(found) <= _MOST_PODS:
        raise SlicesError(path, "must be numbers of pods")
    return found


def _sized(items: Any, size: int, path: str, kind: type) -> list[Any]:
    found = _list(items, path)
    if len(found) != size:
        raise SlicesError(path, f"must have {size} items, as domainCount says")
    for i, item in enumerate(found):
        if type(item) is not kind:
            raise SlicesError(f"{path}[{i}]", "must be a string" if kind is str else "must be a number")
    return found


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise SlicesError(path, "must be a string")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise SlicesError(path, "must be a list")
    return cast("list[Any]", value)


def _object(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise SlicesError(path, "must be an object")
    return cast(Json, value)
