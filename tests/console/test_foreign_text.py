"""What others wrote reaches a terminal only as text: no view, list, document or error lets a control sequence through."""

from __future__ import annotations

import ast
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.console import objects, screens
from tests.console.texts import happened

from gangline import bounded, console
from gangline.console import cli
from gangline.console.commands.see import events, why
from gangline.console.output import presenting, remarks, terminal
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import document
from gangline.console.output.layout import Rows
from gangline.console.output.presenting import Presentation
from gangline.console.views import history, jobs
from gangline.control.answers.workloads.snapshot import snapshot
from gangline.control.answers.workloads.words import Line
from gangline.objects import WorkloadObject

Json = dict[str, Any]

#: clears the screen, renames the window, overwrites the line, forges another one; C1's CSI; reverses, isolates, hides, is no text
HOSTILE = "a\x1b[2J\x1b]0;title\x07\rb\nc\x9b31m\x85\u202edcba\u2066x\u2069\u200b\ufeff\u00ad\U000e0041\u2028\u3164z"
#: a character of each kind that a terminal may obey or not show
BAD = st.characters(categories=("Cc", "Cf", "Zl", "Zp", "Co", "Cn"))
TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), BAD), max_size=60)


def harmful(output: str, *, breaks: bool = True) -> list[str]:
    """The characters of the output that a terminal obeys or does not show."""
    fine = "\n\t" if breaks else ""
    hidden = ("Cc", "Cf", "Zl", "Zp", "Co")
    return [c for c in output if c not in fine and (unicodedata.category(c) in hidden or c == "\u3164")]


def said(action: Any) -> str:
    """What a command with this body prints on both streams."""

    @click.command()
    def command() -> None:
        action()

    return CliRunner().invoke(command, [], color=False).output


@given(TEXTS)
def test_whatever_is_printed_is_harmless(text: str) -> None:
    assert harmful(bounded.printable(text), breaks=False) == []
    assert bounded.printable(bounded.printable(text)) == bounded.printable(text)
    ways = (
        lambda: terminal.say(text),
        lambda: terminal.say(terminal.style(text, bold=True), err=True),
        lambda: terminal.say(terminal.style("x", fg="red") + text),
        lambda: terminal.console().print(text, markup=False),
        lambda: terminal.console().print(screens_table(text)),
        lambda: remarks.remark(text),
        lambda: presenting.echo(Rows((text, "B"), ((text, text),), ("red",))),
        lambda: terminal.say(document("yaml", {text: text})),
        lambda: terminal.say(document("json", {text: text})),
    )
    for way in ways:
        assert harmful(said(way)) == []
    assert json.loads(document("json", [text])) == [text]
    assert yaml.safe_load(document("yaml", [text.replace("\ud800", "")])) == [text.replace("\ud800", "")]


def screens_table(text: str) -> Any:
    from rich.table import Table

    made = Table()
    made.add_column(text.replace("[", ""))
    made.add_row(text.replace("[", ""))
    return made


def test_colours_are_ours_alone() -> None:
    coloured = CliRunner().invoke(
        click.Command("x", callback=lambda: terminal.say(terminal.style("\x1b[31mred", bold=True) + "\x1b[8mhidden")),
        color=True,
    )
    assert coloured.output == "\x1b[1m�[31mred\x1b[0m�[8mhidden\n"


# --- every view ---------------------------------------------------------------------------------------------------------


def hostile(listing: Listing[Any]) -> Listing[Any]:
    """The list, every text of which ends with what an attacker wrote."""

    def ending(column: Column[Any]) -> Column[Any]:
        return replace(column, text=lambda entry, now: column.text(entry, now) + HOSTILE)

    return replace(
        listing,
        columns=tuple(map(ending, listing.columns)),
        remarks=lambda found: [HOSTILE],
        empty=HOSTILE,
    )


@pytest.mark.parametrize("columns", [None, 80, 200])
def test_no_list_lets_it_through(monkeypatch: pytest.MonkeyPatch, columns: int | None) -> None:
    drawn = presenting.drawn
    seen: list[str] = []

    def attacked(listing: Listing[Any], shape: Presentation, found: Any, now: float, width: int | None) -> list[str]:
        lines = drawn(hostile(listing), shape, found, now, columns)
        seen.append(listing.empty)
        assert harmful(said(lambda: terminal.say(*lines))) == []
        return drawn(listing, shape, found, now, width)

    monkeypatch.setattr(presenting, "drawn", attacked)
    screens.pictures()
    assert len(seen) > 20


def strings(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """For each text in the document, the document with HOSTILE at its end."""
    if isinstance(value, dict):
        for key, inner in value.items():
            for where, changed in strings(inner, f"{path}.{key}"):
                yield where, {**value, key: changed}
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            for where, changed in strings(inner, f"{path}[{i}]"):
                yield where, [*value[:i], changed, *value[i + 1 :]]
    elif isinstance(value, str):
        yield path, value + HOSTILE


def test_the_history_of_a_workload_is_plain_with_and_without_an_operator() -> None:
    """A job's own output is in the message of its condition: `why --history` printed it as it was."""
    row = {"type": "Finished", "status": "True", "lastTransitionTime": "2026-01-01T00:00:30Z", "message": HOSTILE}
    workload = {"metadata": {"name": "w", "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": [row]}}
    for story in (
        history.of_conditions(workload),
        history.of_answer({"events": [{"at": 1.0, "state": "Pending", "cause": HOSTILE, "decision": ""}]}),
    ):
        lines = history.rendered(story)
        assert len(lines) == len(story), "no line is forged"
        assert all(harmful(line, breaks=False) == [] for line in lines)


def test_events_are_plain_in_every_field() -> None:
    for where, found in strings(happened()):
        lines = presenting.drawn(events.LISTING, Presentation(), found, screens.NOW, 200)
        assert harmful(said(lambda lines=lines: terminal.say(*lines))) == [], where
        assert all("\n" not in line for line in lines), where


def test_jobs_and_why_are_plain_in_every_field() -> None:
    waiting = objects.pending("train", "WaitingForQuota", "no quota")
    count = 0
    for where, changed in strings(waiting):
        try:
            views = snapshot(
                [WorkloadObject(changed)], [objects.cluster_queue("vision")], [objects.local_queue()]
            ).workloads
        except (ValueError, KeyError):
            continue  # not a Workload any more
        for view in views:
            lines = presenting.drawn(jobs.LISTING, Presentation(), [jobs.ListedJob(view)], screens.NOW, 200)
            why_lines = why.rendered(view, [Line("because", view.message)], 100)
            for line in (*lines, *why_lines):
                assert harmful(said(lambda line=line: terminal.say(line))) == [], where
            count += 1
    assert count > 5


# --- errors -------------------------------------------------------------------------------------------------------------


def test_an_error_of_any_command_is_plain(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f'"{HOSTILE}",b\n1,2\n', encoding="utf-8")
    ran = CliRunner().invoke(cli.main, ["admin", "replay", str(file), "--gpus", "8", "--out", str(tmp_path / "out")])
    assert ran.exit_code == 1
    assert "the format is not recognised" in ran.output
    assert harmful(ran.output) == []


def test_messages_of_click_itself_are_plain() -> None:
    ran = CliRunner().invoke(cli.main, ["queue", "-o", HOSTILE])
    assert ran.exit_code == 2
    assert harmful(ran.output) == []


# --- no other way to print ----------------------------------------------------------------------------------------------

#: functions and classes that print
PRINTERS = {
    "click": {"echo", "secho", "echo_via_pager", "style", "confirm", "prompt"},
    "sys.stdout": {"write", "writelines"},
    "sys.stderr": {"write", "writelines"},
    "sys.stdout.buffer": {"write"},
    "rich": {"print"},
}


def printers(source: str) -> list[int]:
    """The lines on which something is printed past `output.terminal`."""
    found: list[int] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print" | "Console" | "pprint")):
                found.append(node.lineno)
            case ast.Attribute(attr=name, value=of) if name in PRINTERS.get(ast.unparse(of), ()):
                found.append(node.lineno)  # also where it is only handed on
            case ast.Call(func=ast.Attribute(attr="Console")):
                found.append(node.lineno)
            case ast.ImportFrom(module="click", names=imported) if {each.name for each in imported} & PRINTERS["click"]:
                found.append(node.lineno)
            case _:
                pass
    return found


def test_nothing_else_of_the_console_prints() -> None:
    root = Path(console.__path__[0])
    found = [
        f"{path.relative_to(root)}:{line}"
        for path in sorted(root.rglob("*.py"))
        if path != Path(terminal.__file__)
        for line in printers(path.read_text())
    ]
    assert found == [], "gangline.console.output.terminal prints foreign text as text"


@pytest.mark.parametrize(
    "way",
    [
        "print(text)",
        "click.echo(text)",
        "sys.stdout.write(text)",
        "Console().print(text)",
        "rich.console.Console()",
        "wait(click.echo)",
    ],
)
def test_another_way_to_print_is_found(way: str) -> None:
    assert printers(f"def f(text):\n    {way}\n") == [2]
