"""The page of commands: usage and options of each, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from scripts.reference.markdown import as_cell, as_code, as_table

from gangline.console.cli import SECTIONS, main


def commands_page() -> str:
    parts = [
        "# gangline: commands and options\n\n[The commands](../cli.md) says what each does and shows. Options of all lists:"
        " [lists](../cli.md#lists)."
    ]
    for heading, entries in SECTIONS.items():
        parts.append(f"## {heading}")
        for name, entry in entries.items():
            parts += _command(f"gangline {name}", entry.load(), 3)
    return "\n\n".join(parts)


def _command(path: str, command: click.Command, level: int) -> Iterator[str]:
    ctx = click.Context(
        command, info_name=path, parent=None, help_option_names=main.context_settings["help_option_names"]
    )
    usage = " ".join([path, *command.collect_usage_pieces(ctx)])
    yield f"{'#' * min(level, 4)} {path}\n\n    {usage}\n\n{_about(command)}"
    rows = [_row(option, ctx) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        yield as_table(("option", "default", "meaning"), rows).rstrip()
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from _command(f"{path} {name}", command.commands[name], level + 1)


def _about(command: click.Command) -> str:
    paragraphs = (command.help or "").split("\n\n")
    found = [
        "\n".join(f"    {line.strip()}" for line in each.removeprefix("\b\n").splitlines())
        if each.startswith("\b")
        else as_cell(each)
        for each in paragraphs
    ]
    return "\n\n".join(found)


def _row(option: click.Option, ctx: click.Context) -> tuple[str, str, str]:
    flags = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag or option.count else f" {option.make_metavar(ctx)}"
    known = isinstance(option.default, str | int | float) and not isinstance(option.default, bool)
    told = str(option.default).replace(str(Path.home()), "~") if known and not option.is_flag else ""
    named = ", ".join(sorted(flags, key=len))
    return as_code(f"{named}{value}"), as_code(told), as_cell(option.help or "")
