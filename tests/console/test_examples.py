"""The examples in the help of every command: each is one that the command takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gangline.console import cli
from gangline.console.examples import EXAMPLES


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), group
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name)), found


ALL = dict(commands(cli.main))


@pytest.mark.parametrize("path", ALL, ids=lambda path: path or "gangline")
def test_every_help_ends_with_examples(path: str) -> None:
    output = CliRunner().invoke(cli.main, [*path.split(), "--help"], prog_name="gangline").output
    _, found, examples = output.partition("Examples:\n")
    assert found and f"  gangline {path}".rstrip() in examples, output
    assert max(map(len, examples.splitlines())) <= 80


def test_every_example_is_of_a_command() -> None:
    assert [path for path in EXAMPLES if path not in ALL] == []


@pytest.mark.parametrize(
    ("path", "line"), [(path, line) for path, examples in EXAMPLES.items() for line, _ in examples]
)
def test_every_example_is_one_that_the_command_takes(path: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, arguments and their values, as far as they do not depend on files and a cluster."""
    monkeypatch.setattr(click.Path, "convert", lambda self, value, *_: value)
    name, command = max(
        ((each, found) for each, found in ALL.items() if f"{path} {line} ".lstrip().startswith(f"{each} ".lstrip())),
        key=lambda pair: len(pair[0]),
    )
    rest: list[str] = shlex.split(f"{path} {line}".strip())[len(name.split()) :]
    context = command.make_context(name, rest)
    assert not isinstance(command, click.Group) or not rest
    assert isinstance(context.params, dict)


def test_an_example_that_a_command_does_not_take_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser that the test above relies on refuses unknown options, wrong values and missing arguments."""
    wrong: list[tuple[str, list[str]]] = [("queue", ["--wach"]), ("history", ["--since", "soon"]), ("move", ["a"])]
    for path, arguments in wrong:
        with pytest.raises(click.UsageError):
            ALL[path].make_context(path, list[Any](arguments))
