"""Rules that say which LocalQueue a job belongs to, in the format of Kueue's importer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from gangline import bounded

#: characters of a file with rules
LONGEST: Final = 262_144
_Text = Annotated[str, Field(max_length=253)]


class MappingError(ValueError):
    """The rules cannot be used. The message names the rule and the field."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """The jobs with all these labels, and of this priority class if one is named, belong to `queue`, or are left alone."""

    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    priority_class: str = ""
    queue: str = ""
    skip: bool = False

    def matches(self, labels: Mapping[str, str], priority_class: str) -> bool:
        if self.priority_class and self.priority_class != priority_class:
            return False
        return all(labels.get(key) == value for key, value in self.labels.items())


_STRICT: Final = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel)


class _Match(BaseModel):
    model_config = _STRICT
    priority_class_name: _Text = ""
    labels: dict[_Text, _Text] = Field(default_factory=dict, max_length=64)


class _Row(BaseModel):
    model_config = _STRICT
    match: _Match = Field(default_factory=_Match)
    to_local_queue: _Text = ""
    skip: bool = False


_ROWS: Final = TypeAdapter(list[_Row])


def from_file(text: str) -> tuple[MappingRule, ...]:
    """The rules of a file, in its order. Raises MappingError."""
    if len(text) > LONGEST:
        raise MappingError(f"is longer than {LONGEST} characters")
    try:
        content: Any = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise MappingError(f"is not YAML: {error}") from None
    try:
        rows = _ROWS.validate_python(content or [])
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise MappingError(f"rule {where}: {first['msg']}" if where else first["msg"]) from None
    for i, row in enumerate(rows):
        if bool(row.to_local_queue) == row.skip:
            raise MappingError(f"rule {i}: either toLocalQueue or skip: true has to be given")
    return tuple(
        MappingRule(row.match.labels, row.match.priority_class_name, row.to_local_queue, row.skip) for row in rows
    )


class _Loader(yaml.SafeLoader):
    """A safe loader without aliases, by which a short file could become a huge value."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


def from_pairs(label: str, queues: Mapping[str, str]) -> tuple[MappingRule, ...]:
    """One rule for each value of one label: value -> LocalQueue."""
    return tuple(MappingRule({label: value}, queue=queue) for value, queue in queues.items())


def pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """`a=b,c=d`, given once or several times. Raises MappingError."""
    found: dict[str, str] = {}
    for text in texts:
        for pair in text.split(","):
            key, separator, value = pair.partition("=")
            if not separator or not key or not value:
                raise MappingError(f"{option}: {bounded.shown(pair)} is not of the form KEY=VALUE")
            found[key] = value
    return found


def rule_for(rules: Iterable[MappingRule], labels: Mapping[str, str], priority_class: str) -> MappingRule | None:
    """The first rule that matches."""
    return next((rule for rule in rules if rule.matches(labels, priority_class)), None)
