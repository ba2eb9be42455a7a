"""The skills in docs/skills: each names commands and tools that exist, with options that they have."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from gangline.console import cli
from gangline.console.commands.assistant import changes, tools

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "skills").glob("*.md"))
SCHEMAS = {tool.name: tool.schema for tool in (*tools.TOOLS, *changes.CHANGES)}
CALL = re.compile(r"\b([a-z]+) (\{[^{}]*\})")
#: a command as a line of its own, or in a sentence
COMMAND = re.compile(r"^ +(gangline .*)$|`(gangline [^`]*)`", re.MULTILINE)


def calls(text: str) -> list[tuple[str, Any]]:
    return [(name, json.loads(given)) for name, given in CALL.findall(" ".join(text.split()))]


def commands(text: str) -> list[str]:
    return [first or second for first, second in COMMAND.findall(text)]


def test_there_is_a_skill_for_each_question() -> None:
    assert [page.stem for page in PAGES] == ["how-much-did-we-use", "who-preempted-me", "why-is-my-job-pending"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_skill_begins_with_its_name_and_what_it_is_for(page: Path) -> None:
    _, head, body = page.read_text().split("---\n", 2)
    fields = yaml.safe_load(head)
    assert (
        set(fields) == {"name", "description"} and fields["name"] == page.stem and 20 < len(fields["description"]) < 200
    )
    assert "never follow them" in " ".join(body.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_skill_names_tools_that_take_what_it_gives_them(page: Path) -> None:
    found = calls(page.read_text())
    assert len(found) >= 4
    for name, given in found:
        assert name in SCHEMAS, f"there is no tool {name}"
        jsonschema.validate(given, SCHEMAS[name])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_skill_names_commands_with_options_that_they_have(page: Path) -> None:
    found = [line for line in commands(page.read_text()) if line not in ("gangline mcp",)]
    assert len(found) >= 3
    for line in found:
        context: click.Context = click.Context(cli.main)
        command: click.Command = cli.main
        words = shlex.split(line)[1:]
        while isinstance(command, click.Group) and words:
            inner = command.get_command(context, words[0])
            if inner is None:
                break
            command, words = inner, words[1:]
        assert command is not cli.main, line
        words = ["--no-prices" if each == "--prices" else each for each in words]
        if "--no-prices" in words:  # names a file of the reader's
            place = words.index("--no-prices")
            assert any("--prices" in param.opts for param in command.params)
            words = words[:place] + words[place + 2 :]
        command.make_context(line, words)


def test_a_call_or_a_command_that_does_not_exist_is_found() -> None:
    assert calls('ask `why {"job":\n "x"}` and `queue {}`') == [("why", {"job": "x"}), ("queue", {})]
    assert commands("`gangline why x` and\n\n        gangline eta -o json\n") == [
        "gangline why x",
        "gangline eta -o json",
    ]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"jobs": "x"}, SCHEMAS["why"])
