"""What applying a manifest would change, field by field, as the API server itself says by a dry run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, cast

from gangline.kube.resources import Json

#: fields that API servers write
_SERVERS: Final = ("managedFields", "resourceVersion", "uid", "generation", "creationTimestamp", "selfLink")
#: characters of a value in a line, and lines of an object
_SHOWN: Final = 60
MOST_LINES: Final = 8


def changes(live: Json, wanted: Json) -> list[str]:
    """Lines such as `spec.replicas: 2 → 3`; empty if nothing changes."""
    return [f"{path}: {change}" for path, change in _compare(_own(live), _own(wanted), "")]


def _own(body: Json) -> Json:
    meta = {key: value for key, value in body["metadata"].items() if key not in _SERVERS}
    return {key: value for key, value in {**body, "metadata": meta}.items() if key != "status"}


def _compare(old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast(Json, old), cast(Json, new)
        for key in sorted(before.keys() | after.keys()):
            yield from _compare(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _compare_lists(cast("list[Any]", old), cast("list[Any]", new), path)
    elif old is None:
        yield path, f"+ {_short(new)}"
    elif new is None:
        yield path, f"- {_short(old)}"
    else:
        yield path, f"{_short(old)} → {_short(new)}"


def _compare_lists(old: list[Any], new: list[Any], path: str) -> Iterator[tuple[str, str]]:
    """Named elements by their names, objects without names one by one where there are as many, others as sets."""
    if all(isinstance(each, dict) and "name" in each for each in (*old, *new)):
        before, after = {each["name"]: each for each in old}, {each["name"]: each for each in new}
        for name in dict.fromkeys((*before, *after)):
            yield from _compare(before.get(name), after.get(name), f"{path}[{name}]")
        return
    if len(old) == len(new) and all(isinstance(each, dict) for each in (*old, *new)):
        for i, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from _compare(was, now, f"{path}[{i}]")
        return
    gone, come = [each for each in old if each not in new], [each for each in new if each not in old]
    edits = [*(f"- {_short(each)}" for each in gone), *(f"+ {_short(each)}" for each in come)]
    yield path, ", ".join(edits) or "another order"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.replace("\n", "⏎")
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
