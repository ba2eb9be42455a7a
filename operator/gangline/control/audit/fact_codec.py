"""Facts and decisions of the engine as JSON, and back: every field by its name, without fields that have their default.

The dataclasses of the engine's model are the format; pydantic reads and writes them.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, TypeAlias

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from gangline.engine import model

Json: TypeAlias = Any

#: what a change does to an item
PUT: Final = "+"
GONE: Final = "-"
WRITE_FAILED: Final = "!"

_ITEMS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in typing.get_args(model.Item)}
_DECISIONS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in typing.get_args(model.Decision)}


class FactError(ValueError):
    """JSON that is no fact or decision of this version; the message names the part."""


def change_to_json(change: model.Change) -> list[Json]:
    """Returns the change in a form that orjson serialises."""
    match change:
        case model.Put(item):
            return [PUT, type(item).__name__, written(item)]
        case model.Gone(kind, key):
            return [GONE, kind.__name__, key]
        case model.WriteFailed(key):
            return [WRITE_FAILED, key]


def change_from_json(body: Any) -> model.Change:
    """Parse a change. Raises FactError."""
    match body:
        case [str(what), str(kind), item] if what == PUT:
            return model.Put(from_json(_named(_ITEMS, kind), item))
        case [str(what), str(kind), str(key)] if what == GONE:
            return model.Gone(_named(_ITEMS, kind), key)
        case [str(what), str(key)] if what == WRITE_FAILED:
            return model.WriteFailed(key)
        case _:
            raise FactError(f"not a fact: {body!r:.100}")


def decision_to_json(decision: model.Decision) -> list[Json]:
    """Returns the decision in a form that orjson serialises."""
    return [type(decision).__name__, written(decision)]


def decision_from_json(body: Any) -> model.Decision:
    """Parse a decision. Raises FactError."""
    match body:
        case [str(kind), dict(fields)]:
            return from_json(_named(_DECISIONS, kind), fields)
        case _:
            raise FactError(f"not a decision: {body!r:.100}")


def _named(kinds: Mapping[str, type], name: str) -> Any:
    if name not in kinds:
        raise FactError(f"unknown kind {name!r}: made by another version of Gangline")
    return kinds[name]


# --- to JSON ----------------------------------------------------------------------------------------------------------


def written(value: Any) -> orjson.Fragment:
    """A dataclass of the engine's model as a fragment that orjson accepts within other JSON."""
    (fields,) = _adapter(type(value)).dump_python([value], exclude_defaults=True, warnings=False)
    return orjson.Fragment(orjson.dumps(fields, default=sorted))  # default: a set


# --- from JSON --------------------------------------------------------------------------------------------------------


def from_json(kind: type, body: Any) -> Any:
    """A dataclass of the engine's model from JSON. Raises FactError naming the invalid field."""
    try:
        (found,) = _adapter(kind).validate_python([body])
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)
        # an unknown field may be the new name of the missing one
        worst = min(wrong, key=lambda each: each["type"] == "missing")
        raise FactError(_complaint(kind, worst)) from None
    return found


@cache
def _adapter(kind: Any) -> TypeAdapter[list[Any]]:
    """The adapter for a list of the kind: a dataclass that is not pydantic's takes its configuration from its container."""
    in_a_list: Any = types.GenericAlias(list, (kind,))
    return TypeAdapter(in_a_list, config=ConfigDict(extra="forbid"))


def _complaint(kind: type, error: ErrorDetails) -> str:
    *steps, last = error["loc"][1:] or ("",)
    where = f"{kind.__name__}{_path(steps)}"
    match error["type"]:
        case "unexpected_keyword_argument":
            return f"{where} has no field {last!r}: made by another version of Gangline"
        case "missing":
            return f"{where}: {last} is missing"
        case _:
            return f"{where}{_path([last])}: {error['msg']}"


def _path(steps: list[int | str]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps if step != "")
