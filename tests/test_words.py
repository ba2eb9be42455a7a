"""The words of texts that users see: events, conditions, errors, help, statuses and descriptions of fields."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.console.test_cli import all_commands
from tests.test_docstrings import HEADLESS, PACKAGES

from gangline.console import cli

ROOT = Path(__file__).parents[1]
#: a word that leaves open what is meant -> what to write in its place
VAGUE = {
    r"\belsewhere\b": "the place: on other nodes, in another cluster",
    r"\bas found\b": "as it was before",
    r"\b(is|are|was|were|be) told\b": "who writes what to whom: an event says, the command prints",
    r"\btells?\b": "says, shows, names",
    r"\bheard\b": "was received",
    r"\bit (hangs|hung)\b": "what hangs: the workload, the operator",
    r"\bwhom\b.*\bof what\b|\bof what\b.*\bwhom\b": "two sentences",
}
#: words that leave open what a name of the code means -> what the name says in their place
VAGUE_IN_NAMES = {
    "told": "what the thing is: an answer, a message, a body, changes",
    "elsewhere": "the place: on other nodes, in another cluster",
}
#: the message of an event or a condition is read alone, so it names its subject
WITHOUT_SUBJECT = re.compile(r"(It|Its|They|Their|Of|By which|Whom|About|Among|Under|Also what) ")


def sentences(source: str) -> Iterator[tuple[int, str]]:
    """Strings of several words in a module, with their lines. Docstrings are none; what is filled in later is "…"."""
    tree = ast.parse(source)
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(text.split()) >= 3:
            yield node.lineno, text


@cache
def said() -> list[tuple[str, str]]:
    """All texts, each with the place where it is."""
    return list(_said())


def _said() -> Iterator[tuple[str, str]]:
    """Where a text is -> the text: strings of the code, the help of all commands, descriptions, and pages line by line."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            for line, text in sentences(path.read_text()):
                yield f"{path.relative_to(ROOT)}:{line}", text
    for line, command in all_commands(cli.main):
        yield f"gangline {line} --help", command.help or ""
    yield from descriptions()
    for path in (
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
        *sorted(ROOT.glob("examples/**/*.md")),
    ):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


def descriptions() -> Iterator[tuple[str, str]]:
    """Path of a field in a CRD -> its description."""

    def inside(value: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for key, child in value.items():
                if key == "description" and isinstance(child, str):
                    yield path, child
                else:
                    yield from inside(child, f"{path}.{key}")
        elif isinstance(value, list):
            for number, child in enumerate(value):
                yield from inside(child, f"{path}[{number}]")

    for file in sorted((ROOT / "crds").glob("*.yaml")):
        yield from inside(yaml.safe_load(file.read_text()), file.stem)


def vague_names(source: str) -> Iterator[tuple[int, str]]:
    """Names in a module that have a vague word, with their lines."""
    if not any(word in source.lower() for word in VAGUE_IN_NAMES):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", token.string) if token.type == tokenize.NAME else []
        if any(word.lower() in VAGUE_IN_NAMES for word in words):
            yield token.start[0], token.string


def options() -> Iterator[tuple[str, str]]:
    for line, command in all_commands(cli.main):
        for param in command.params:
            if isinstance(param, click.Option) and param.help and not param.hidden:
                yield f"gangline {line} {param.opts[-1]}", param.help


@pytest.mark.parametrize("pattern", VAGUE)
def test_no_text_that_users_see_has_a_vague_word(pattern: str) -> None:
    found = [f"{where}: {text[:80]!r}" for where, text in said() if re.search(pattern, text, re.IGNORECASE)]
    assert found == [], f"write {VAGUE[pattern]}"


def test_no_name_has_a_vague_word() -> None:
    found = {
        str(path.relative_to(ROOT)): [f"{line}: {name}" for line, name in vague_names(path.read_text())]
        for package in PACKAGES
        for path in sorted(package.rglob("*.py"))
    }
    assert {path: names for path, names in found.items() if names} == {}, VAGUE_IN_NAMES


#: pages for developers, and pages of measurements, which say when and with what they were made
FOR_DEVELOPERS = frozenset(
    {"architecture", "engine", "extending", "performance", "replay", "security", "tested", "versions"}
)
#: a date, a commit, a path or a name of a test
OF_DEVELOPERS = re.compile(
    r"\b\d{1,2} Nov(ember)? 20\d\d\b|`[0-9a-f]{7,8}`(?!-)|\bcommit `|`tests/|`test_\w|\bpytest\b"
)


def test_pages_for_users_name_no_commits_dates_or_tests() -> None:
    pages = [path for path in (ROOT / "docs").glob("**/*.md") if path.stem not in FOR_DEVELOPERS]
    assert len(pages) > 40
    found = [
        f"{path.name}:{number}: {line[:80]}"
        for path in pages
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if OF_DEVELOPERS.search(line) and "tenant" not in line
    ]
    assert found == []


def test_headings_of_pages_for_users_name_no_source() -> None:
    found = [
        f"{path.name}: {line}"
        for path in (ROOT / "docs").glob("**/*.md")
        if path.stem not in FOR_DEVELOPERS
        for line in path.read_text().splitlines()
        if re.match(r"#+ .*`[\w/]+(/|\.py)`", line)
    ]
    assert found == []


def test_every_description_of_a_field_names_what_it_is_about() -> None:
    rows = dict(descriptions())
    assert len(rows) > 900
    assert [f"{path}: {text}" for path, text in rows.items() if text.split()[0].strip(".,:;") in HEADLESS] == []


def test_every_message_names_its_subject() -> None:
    found = [f"{where}: {text[:80]!r}" for where, text in said() if WITHOUT_SUBJECT.match(text) and ".md:" not in where]
    assert found == []


def test_the_help_of_every_option_says_what_the_option_does() -> None:
    rows = dict(options())
    assert len(rows) > 200
    assert [
        f"{line}: {text}" for line, text in rows.items() if text.split()[0].strip(".,:;") in HEADLESS - {"By"}
    ] == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""It hangs here."""\nx = "It hangs: 5 m"', ["It hangs: 5 m"]),
        ('x = f"It hangs: {why} and more"', ["It hangs: … and more"]),
        ('def f():\n    "Two words more."\n    return "one word"', []),
    ],
)
def test_sentences_of_a_module(source: str, found: list[str]) -> None:
    assert [text for _, text in sentences(source)] == found


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("told = 1\n", ["told"]),
        ("def f(self, told_of):\n    self._told = told_of\n", ["told_of", "_told", "told_of"]),
        ("class RunsElsewhere:\n    ELSEWHERE = 1\n", ["RunsElsewhere", "ELSEWHERE"]),
        ("untold, retolds = '# told elsewhere', 2  # told elsewhere\n", []),
    ],
)
def test_vague_names_of_a_module(source: str, names: list[str]) -> None:
    assert [name for _, name in vague_names(source)] == names
