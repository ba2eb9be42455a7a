"""Values of `-o`, and entries written in each of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import click

from gangline.console.output import clock, paths
from gangline.console.output.columns import Listing, T
from gangline.console.output.layout import Rows
from gangline.console.output.paths import Path
from gangline.console.output.terminal import clean
from gangline.kube.resources import Json

_COLUMNS: Final = "custom-columns="
#: formats of one answer, which is no list
DOCUMENTS: Final = ("json", "yaml")


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """A format of `-o`. `kind`: "" = a table, or wide, json, yaml, name, custom-columns."""

    kind: str = ""
    columns: tuple[tuple[str, Path], ...] = ()

    @property
    def tabular(self) -> bool:
        return self.kind in ("", "wide", "custom-columns")

    def rows(self, listing: Listing[T], entries: Sequence[T], now: float) -> Rows:
        """The table, of a format that is one."""
        if self.kind != "custom-columns":
            return listing.rows(entries, now, wide=self.kind == "wide")
        bodies = [_written(listing, entry) for entry in entries]
        cells = tuple(tuple(path.text(body) for _, path in self.columns) for body in bodies)
        return Rows(tuple(name for name, _ in self.columns), cells)

    def text(self, listing: Listing[T], entries: Sequence[T]) -> str:
        """The text of all entries, in a format that is no table; without a line break at its end."""
        if self.kind == "name":
            return "\n".join(map(listing.name, entries))
        return document(self.kind, [_written(listing, entry) for entry in entries])


def _written(listing: Listing[T], entry: T) -> Json:
    """The JSON of an entry as it is printed."""
    return dated(listing.as_json(entry), listing.instants)


def dated(body: Json, instants: Iterable[str]) -> Json:
    """The body with its instants as RFC 3339, where answers have seconds since the epoch.

    `instants` are the paths of these fields, such as `fallenBack.since`: they lead into each element of a list, and `times.*` is
    each field of `times`. The body itself is not changed.
    """
    for path in instants:
        body = _dated(body, path.split("."))
    return body


def _dated(value: Any, steps: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_dated(each, steps) for each in cast("list[Any]", value)]
    if not steps:
        return _instant(value)
    if not isinstance(value, dict):
        return value
    first, rest = steps[0], steps[1:]
    fields = cast("Json", value)
    return {name: _dated(each, rest) if first in ("*", name) else each for name, each in fields.items()}


def _instant(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    try:
        return clock.rfc3339(value)
    except (OverflowError, ValueError, OSError):
        return value


class Output(click.ParamType[OutputFormat]):
    """`wide`, `json`, `yaml`, `name` or `custom-columns=HEADER:PATH,…`; some commands have fewer."""

    name = "format"

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds or ("wide", "json", "yaml", "name", _COLUMNS)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        return "|".join(f"{kind}…" if kind == _COLUMNS else kind for kind in self._kinds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> OutputFormat:
        if isinstance(value, OutputFormat):
            return value
        if value.startswith(_COLUMNS) and _COLUMNS in self._kinds:
            try:
                return OutputFormat("custom-columns", paths.columns(value.removeprefix(_COLUMNS)))
            except paths.PathError as error:
                self.fail(str(error), param, ctx)
        if value not in self._kinds or value == _COLUMNS:
            self.fail(f"{value!r} is none of {', '.join(self._kinds)}", param, ctx)
        return OutputFormat(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(kind) for kind in self._kinds if kind.startswith(incomplete)]


#: of a command that prints one answer, which is no list
answer_option = click.option(
    "-o", "--output", type=Output(*DOCUMENTS), default=OutputFormat(), help="The answer as JSON or YAML."
)


def document(kind: str, body: Json | list[Json]) -> str:
    """The body as JSON, or as YAML."""
    if kind != "yaml":
        return json.dumps(body, indent=2)
    import yaml

    written = yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=1000)
    if clean(written) != written:  # YAML has escapes for them
        written = yaml.safe_dump(body, sort_keys=False, width=1000)
    return written.rstrip("\n")
