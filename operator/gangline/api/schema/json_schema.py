"""Makes the structural schemas that a kube-apiserver accepts from pydantic models.

A model's literal default is the API server's default; a field without one is required; `X | None = None` is optional. Markers
(inside `Annotated`) add what pydantic cannot express: list types, CEL rules, opaque objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, JsonValue
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from gangline.kube.resources import Json


class ApiModel(BaseModel):
    """The base of all API objects: camelCase in JSON, docstrings as descriptions, unknown fields pruned."""

    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True, extra="ignore", frozen=True
    )


# --- markers ----------------------------------------------------------------------------------------------------------


class Keywords:
    """Adds keywords to the schema of the type it annotates."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core), **self.keywords}


def list_map(*keys: str) -> Keywords:
    """A list whose items are identified by these fields: server-side apply merges item by item."""
    return Keywords(**{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)})


LIST_SET: Final = Keywords(**{"x-kubernetes-list-type": "set"})
ATOMIC_MAP: Final = Keywords(**{"x-kubernetes-map-type": "atomic"})
INT32: Final = Keywords(format="int32")
INT64: Final = Keywords(format="int64")


@dataclass(frozen=True)
class Cel:
    """A rule that the API server evaluates on each write of the value that it belongs to: use few.

    A rule that mentions `oldSelf` is a transition rule: it is skipped on creation.
    """

    rule: str
    message: str

    def to_json(self) -> dict[str, JsonValue]:
        return {"rule": self.rule, "message": self.message}


def checked(*rules: Cel) -> Keywords:
    """CEL rules on a field."""
    return Keywords(**{"x-kubernetes-validations": [rule.to_json() for rule in rules]})


def rules(*rules: Cel) -> ConfigDict:
    """The `model_config` of a model that carries CEL rules."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [rule.to_json() for rule in rules]})


# --- generation -------------------------------------------------------------------------------------------------------


class _Generator(GenerateJsonSchema):
    """Optional fields are not required, and never a union with null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


def without(schema: Json, limits: Mapping[str, Iterable[str]]) -> Json:
    """`schema`, a new one, without some keywords: by path, such as `spec.podSets[].name`; `{}` stands for the values of a map.

    Raises KeyError if a keyword isn't there.
    """
    for path, keywords in limits.items():
        found = schema
        for step in path.replace("[]", ".[]").replace("{}", ".{}").split("."):
            found = found[_INSIDE[step]] if step in _INSIDE else found["properties"][step]
        for keyword in keywords:
            del found[keyword]
    return schema


_INSIDE: Final = {"[]": "items", "{}": "additionalProperties"}
_DROPPED: Final = frozenset({"title", "examples", "$defs", "discriminator"})
#: keywords whose content is names, not keywords
_NAMED: Final = frozenset({"properties"})


def structural(model: type[BaseModel]) -> Json:
    """The structural OpenAPI v3 schema of `model`: references inlined, only keywords that Kubernetes accepts."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Generator)
    return _structural(schema, schema.get("$defs", {}))


def _structural(schema: Json, definitions: Json) -> Json:
    if "$ref" in schema:
        schema = {**definitions[schema["$ref"].rpartition("/")[2]], **schema}
    out: Json = {}
    for keyword, value in schema.items():
        if keyword in _DROPPED or keyword == "$ref":
            continue
        if keyword in _NAMED:
            out[keyword] = {name: _structural(sub, definitions) for name, sub in value.items()}
        elif keyword == "items":
            out[keyword] = _structural(value, definitions)
        elif keyword == "additionalProperties":
            out.update(_additional(value, definitions))
        elif keyword == "description":
            out[keyword] = _paragraphs(value)
        elif keyword == "default":
            out.update(_default(value))
        elif keyword == "const":
            out["enum"] = [value]
        elif keyword in ("exclusiveMinimum", "exclusiveMaximum"):
            bound = "minimum" if keyword == "exclusiveMinimum" else "maximum"
            out.update({bound: value, keyword: True})
        else:
            out[keyword] = value
    return out


def _additional(value: Any, definitions: Json) -> Json:
    if value is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": _structural(cast(Json, value), definitions)} if isinstance(value, dict) else {}


def _default(value: Any) -> Json:
    """The keyword `default` for a value: nothing for None; `{}` for an object, whose own fields have defaults of their own."""
    if value is None:
        return {}
    return {"default": {} if isinstance(value, dict) else value}


def _paragraphs(text: str) -> str:
    """Docstrings are wrapped for the source file; `kubectl explain` wraps by itself."""
    return "\n\n".join(" ".join(part.split()) for part in text.strip().split("\n\n"))
