"""Facts and decisions of the engine as JSON, and back: every field by its name, those that say nothing new left out."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from gangline.engine import model

Json: TypeAlias = Any
_Decoder: TypeAlias = Callable[[Any], Any]

#: what a Change does to an item
PUT: Final = "+"
GONE: Final = "-"
WRITE_FAILED: Final = "!"

_ITEMS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in typing.get_args(model.Item)}
_DECISIONS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in typing.get_args(model.Decision)}


class FactError(ValueError):
    """JSON that is no fact and no decision of this version; the message names the part."""


def change_to_json(change: model.Change) -> list[Json]:
    match change:
        case model.Put(item):
            return [PUT, type(item).__name__, to_json(item)]
        case model.Gone(kind, key):
            return [GONE, kind.__name__, key]
        case model.WriteFailed(key):
            return [WRITE_FAILED, key]


def change_from_json(body: Any) -> model.Change:
    """Raises FactError."""
    match body:
        case [str(what), str(kind), item] if what == PUT:
            return model.Put(from_json(_named(_ITEMS, kind), item))
        case [str(what), str(kind), str(key)] if what == GONE:
            return model.Gone(_named(_ITEMS, kind), key)
        case [str(what), str(key)] if what == WRITE_FAILED:
            return model.WriteFailed(key)
        case _:
            raise FactError(f"no fact: {body!r:.100}")


def decision_to_json(decision: model.Decision) -> list[Json]:
    return [type(decision).__name__, to_json(decision)]


def decision_from_json(body: Any) -> model.Decision:
    """Raises FactError."""
    match body:
        case [str(kind), dict(fields)]:
            return from_json(_named(_DECISIONS, kind), fields)
        case _:
            raise FactError(f"no decision: {body!r:.100}")


def _named(kinds: Mapping[str, type], name: str) -> Any:
    if name not in kinds:
        raise FactError(f"unknown kind {name!r}: made by another version of Gangline")
    return kinds[name]


# --- to JSON ------------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> Json:
    """A dataclass of the engine's model, or what stands in one."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return [to_json(entry) for entry in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, Mapping):
        return {key: to_json(entry) for key, entry in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, frozenset):
        return sorted(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    found: dict[str, Json] = {}
    for name, default in _defaults(type(value)):
        entry = getattr(value, name)
        if entry != default:
            found[name] = to_json(entry)
    return found


@cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    """Every field with its default; one without has a default that nothing equals."""
    return tuple((field.name, _default(field)) for field in dataclasses.fields(kind))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else dataclasses.MISSING


# --- from JSON ----------------------------------------------------------------------------------------------------------


def from_json(kind: type, body: Any) -> Any:
    """A dataclass of the engine's model. Raises FactError naming the field that makes no sense."""
    return _decoder(kind)(body)


@cache
def _decoder(kind: Any) -> _Decoder:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind)
    if origin in (types.UnionType, typing.Union):
        (known,) = [argument for argument in arguments if argument is not types.NoneType]
        inner = _decoder(known)
        return lambda body: None if body is None else inner(body)
    if origin is tuple:
        return _tuple(arguments)
    if origin is not None and issubclass(origin, Mapping):
        inner = _decoder(arguments[1])
        return lambda body: {key: inner(entry) for key, entry in body.items()}
    if origin is frozenset:
        return frozenset
    if kind is float:
        return float
    return lambda body: body


def _tuple(arguments: tuple[Any, ...]) -> _Decoder:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        inner = _decoder(arguments[0])
        return lambda body: tuple(inner(entry) for entry in body)
    decoders = [_decoder(argument) for argument in arguments]
    return lambda body: tuple(decode(entry) for decode, entry in zip(decoders, body, strict=True))


def _record(kind: type) -> _Decoder:
    hints = typing.get_type_hints(kind)
    decoders: dict[str, _Decoder] = {}

    def decode(body: Any) -> Any:
        if not decoders:  # only now: a kind may contain itself
            decoders.update({field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind)})
        values: dict[str, Any] = {}
        for name, entry in body.items():
            if name not in decoders:
                raise FactError(f"{kind.__name__} has no field {name!r}: made by another version of Gangline")
            try:
                values[name] = decoders[name](entry)
            except (TypeError, ValueError, AttributeError) as error:
                raise FactError(f"{kind.__name__}.{name}: {error}") from error
        try:
            return kind(**values)
        except TypeError as error:
            raise FactError(f"{kind.__name__}: {error}") from error

    return decode
