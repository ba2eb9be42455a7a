"""Reads rarely changing kinds with the models that make their CRDs.

Each field is declared once: for the API server and for us. A value that does not fit is a ParseError that names the field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gangline import bounded
from gangline.api.read.reading import ParseError
from gangline.api.schema.json_schema import ApiModel
from gangline.kube.resources import Json

M = TypeVar("M", bound=ApiModel)

#: pydantic's error type -> the words of the other readers
_WORDS: Final[Mapping[str, str]] = {
    "missing": "is required",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "bool_type": "must be true or false",
}


def read(kind: type[M], value: Json, path: str) -> M:
    """The JSON object at `path` as this model; null values count as absent. Raises ParseError."""
    fields = _without_nulls(value, path, bounded.MOST_DEPTH)
    try:
        return kind.model_validate(fields, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise _refusal(kind, error.errors(include_url=False, include_input=False)[0], path) from None


def unknown(read: ApiModel, given: Json, path: str) -> list[str]:
    """The fields that the JSON object at `path` has and the model read from it does not: an API server drops these."""
    return list(_beyond(given, read.model_dump(by_alias=True, exclude_unset=True), path))


def _beyond(given: object, known: object, path: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(known, dict):
        for name, value in cast(Json, given).items():
            if name not in known and value is not None:
                yield f"{path}.{name[: bounded.SHOWN]}"
            else:
                yield from _beyond(value, cast(Json, known).get(name), f"{path}.{name}")
    elif isinstance(given, list) and isinstance(known, list):
        for number, (value, inner) in enumerate(zip(cast("list[Any]", given), cast("list[Any]", known), strict=False)):
            yield from _beyond(value, inner, f"{path}[{number}]")


def _without_nulls(value: Any, path: str, levels: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if not levels:
        raise ParseError(path, f"is nested in more than {bounded.MOST_DEPTH} levels")
    if isinstance(value, list):
        return [_without_nulls(inner, path, levels - 1) for inner in cast("list[Any]", value)]
    fields = cast(Json, value)
    return {name: _without_nulls(inner, path, levels - 1) for name, inner in fields.items() if inner is not None}


def _refusal(kind: type[ApiModel], error: ErrorDetails, path: str) -> ParseError:
    steps, wanted = _place(kind, error["loc"])
    place = f"{path}{steps}".removeprefix(".")  # path of an error when the whole object is read
    return ParseError(place, "must be a whole number or a string" if wanted == int | str else _words(error))


def _words(error: ErrorDetails) -> str:
    if error["type"] in _WORDS:
        return _WORDS[error["type"]]
    context = error.get("ctx", {})
    if error["type"] == "value_error":
        return str(context["error"])
    if error["type"] == "string_too_short" and context["min_length"] == 1:
        return "is required"
    _, _, wanted = error["msg"].replace(" after validation", "").partition(" should ")
    return f"must {wanted}" if wanted else error["msg"]


def _place(kind: Any, location: tuple[int | str, ...]) -> tuple[str, Any]:
    """The path from a model to a field, such as .taints[0].key or .labels[zone]; and its type if it may have several, else
    None.
    """
    path = ""
    for step in location:
        kind = _bare(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            path += f".{step}"
            kind = next((field.annotation for field in kind.model_fields.values() if field.alias == step), None)
        elif get_origin(kind) in (list, dict):
            path += f"[{step}]"
            kind = get_args(kind)[-1]
        else:  # pydantic tries one after the other
            return path, cast(Any, kind)
    return path, None


def _bare(kind: Any) -> Any:
    """The type without annotations, and without None."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
            continue
        if get_origin(kind) in (Union, UnionType):
            known = [each for each in get_args(kind) if each is not NoneType]
            if len(known) == 1:
                kind = known[0]
                continue
        return kind
