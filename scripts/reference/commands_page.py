"""The page of commands: usage and options of each, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
from scripts.reference.markdown import as_cell, as_code, as_table

from gangline.console.cli import LazyGroup, main
from gangline.console.examples import EXAMPLES


def commands_page() -> str:
    parts = [
        "# gangline: commands and options\n\n[The commands](../cli.md) says what each does and shows. Options of all lists:"
        " [lists](../cli.md#lists)."
    ]
    return "\n\n".join([*parts, *_section(main, "gangline")])


def _section(group: LazyGroup, path: str) -> Iterator[str]:
    """The commands of a group under their headings; those of a group in it follow all of them."""
    inner: list[tuple[str, LazyGroup]] = []
    for heading, entries in group.sections.items():
        yield f"## {heading}" if group is main else f"## {path}: {heading[0].lower()}{heading[1:]}"
        for name in entries:
            command = group.get_command(click.Context(group), name)
            assert command is not None
            if isinstance(command, LazyGroup):
                inner.append((f"{path} {name}", command))
                yield f"### {path} {name}\n\n{_about(command)} Its commands are listed below."
            else:
                yield from _command(f"{path} {name}", command, 3)
    for inside, command in inner:
        yield from _section(command, inside)


def _command(path: str, command: click.Command, level: int) -> Iterator[str]:
    ctx = click.Context(
        command, info_name=path, parent=None, help_option_names=main.context_settings["help_option_names"]
    )
    usage = " ".join([path, *command.collect_usage_pieces(ctx)])
    yield f"{'#' * min(level, 4)} {path}\n\n    {usage}\n\n{_about(command)}"
    rows = [_row(option, ctx) for option in command.params if isinstance(option, click.Option) and not option.hidden]
    if rows:
        yield as_table(("option", "default", "meaning"), rows).rstrip()
    if examples := EXAMPLES.get(path.removeprefix("gangline ")):
        lines = [(f"{path} {line}".rstrip(), what) for line, what in examples]
        width = max(len(line) for line, _ in lines)
        yield "\n".join(f"    {line:{width}}  # {what}" for line, what in lines)
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
    default = str(option.default).replace(str(Path.home()), "~") if known and not option.is_flag else ""
    named = ", ".join(sorted(flags, key=len))
    return as_code(f"{named}{value}"), as_code(default), as_cell(option.help or "")
