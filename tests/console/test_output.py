"""Lists as they are printed: fitted to a terminal, in each format, filtered, sorted, watched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from tests.console import screens

from gangline.console.output import clock, layout, paths, presenting, remarks
from gangline.console.output.columns import Column, Listing
from gangline.console.output.formats import Output, OutputFormat
from gangline.console.output.layout import GAP, Rows, fit, plain, shortened
from gangline.console.output.presenting import Presentation, Reporter
from gangline.console.output.selection import ListSelection, words

NOW = 1_700_000_000.0

# --- pictures -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh() -> dict[str, str]:
    return screens.pictures()


def test_the_terminal_looks_as_in_the_pictures(fresh: dict[str, str]) -> None:
    kept = {path.name: path.read_text() for path in screens.FOLDER.glob("*.txt")}
    assert fresh == kept, "look at the difference; python -m tests.console.screens draws them again"


def test_no_picture_is_wider_than_its_terminal(fresh: dict[str, str]) -> None:
    for name, text in fresh.items():
        width = int(name.removesuffix(".txt").rpartition("-")[2])
        assert max(map(len, text.splitlines())) <= width, name


# --- layout -------------------------------------------------------------------------------------------------------------


def test_plain_text_is_aligned_without_trailing_blanks() -> None:
    rows = Rows(("NAME", "N"), (("a", "1"), ("long-name", "10")), right=frozenset({"N"}))
    assert plain(rows) == "NAME        N\na           1\nlong-name  10"


def test_a_name_loses_its_middle_and_keeps_what_tells_it_apart() -> None:
    assert shortened("train-llama-70b-ablation-0017", 16) == "train-ll…on-0017"
    assert shortened("short", 16) == "short"


NAMES = st.text("abc-xyz0123", min_size=1, max_size=60)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, st.text(max_size=200)), min_size=1, max_size=8), st.integers(60, 250))
def test_a_table_fits_any_terminal_and_cuts_no_name_short(found: list[tuple[str, ...]], width: int) -> None:
    rows = Rows(
        ("NAME", "QUEUE", "KIND", "WHY"), tuple(found), ranks={"KIND": 3, "QUEUE": 1}, least={"NAME": 20, "QUEUE": 12}
    )
    fitted = fit(rows, width)
    assert all(len(line.text) <= width for line in fitted.lines)
    for line, (name, *_, why) in zip(
        (line for line in fitted.lines if line.row is not None and not line.below), found, strict=True
    ):
        shown = line.text[: max(20, len("NAME"))]
        assert shown.startswith(name[:9]), "a name keeps its beginning"
        assert name in line.text or "…" in line.text
        assert not line.text.isspace() and (why == "" or len(fitted.lines) > 1)


def test_a_text_that_has_no_room_beside_its_row_is_below_it() -> None:
    rows = Rows(("NAME", "WHY"), (("a" * 50, "because of " * 8), ("b", "")))
    first, *rest = fit(rows, 80).lines[1:]
    assert first.text == "a" * 50 and rest[0].below and rest[0].text.startswith("    because of")
    assert [line.text for line in rest[1:]] == ["b"], "an empty text takes no line"


def test_texts_of_others_move_no_cursor() -> None:
    rows = Rows(("NAME", "WHY"), (("a", "\x1b[2Jgone\r\nnew\u009b1m\u2028"),))
    assert plain(rows).splitlines()[1] == "a     �[2Jgone��new�1m�"


def test_what_says_the_same_of_all_is_left_out_before_a_name_is_shortened() -> None:
    rows = Rows(("NAMESPACE", "NAME"), (("team", "a" * 40), ("team", "b" * 40)), ranks={"NAMESPACE": 1})
    fitted = fit(rows, 45)
    assert fitted.left_out == ("NAMESPACE",) and fitted.lines[1].text == "a" * 40
    assert fit(rows, 60).left_out == ()
    assert fit(rows, None).lines[1].text.startswith("team" + " " * (len("NAMESPACE") - 4 + GAP))


# --- formats ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    name: str
    size: int | None
    state: str = "Ready"
    user: str = "mira"


THINGS = (Thing("b", 10), Thing("a", 9, "Not ready"), Thing("c", None, user="tom"))
LISTING: Listing[Thing] = Listing(
    columns=(
        Column("NAME", lambda thing, _: thing.name),
        Column("SIZE", lambda thing, _: str(thing.size or ""), right=True, key=lambda thing, _: thing.size),
        Column("NOTE", lambda thing, _: "", sparse=True),
        Column("USER", lambda thing, _: thing.user, wide=True),
        Column("STATE", lambda thing, _: thing.state),
    ),
    as_json=lambda thing: {
        "name": thing.name,
        "size": thing.size,
        "tags": [thing.state, thing.user],
        "by": {"a.b/c": 1},
    },
    name=lambda thing: f"thing/{thing.name}",
    empty="Nothing.",
    user=lambda thing: (thing.user,),
    state=lambda thing: (thing.state,),
    states=("Ready", "Not ready"),
)


def printed(output: str = "", **selection: Any) -> str:
    shape = Presentation(Output().convert(output, None, None) if output else OutputFormat(), ListSelection(**selection))

    @click.command()
    def command() -> None:
        presenting.show(LISTING, shape, THINGS)

    return CliRunner().invoke(command, catch_exceptions=False).output


def test_a_table_has_the_columns_that_say_something() -> None:
    assert printed() == "NAME  SIZE  STATE\nb       10  Ready\na        9  Not ready\nc           Ready\n"
    assert "USER" in printed("wide").splitlines()[0]


def test_json_yaml_and_names_are_for_programs() -> None:
    assert [each["name"] for each in json.loads(printed("json"))] == ["b", "a", "c"]
    assert yaml.safe_load(printed("yaml")) == json.loads(printed("json"))
    assert printed("name") == "thing/b\nthing/a\nthing/c\n"


def test_nothing_is_a_list_for_programs_and_a_word_for_people() -> None:
    assert json.loads(printed("json", users=("nobody",))) == []
    assert printed("name", users=("nobody",)) == ""
    assert "Nothing is left by these filters" in printed(users=("nobody",))


def test_custom_columns_are_kubectls() -> None:
    text = printed("custom-columns=NAME:.name,FIRST:.tags[0],ALL:{.tags[*]},C:.by['a.b/c'],D:.by.a\\.b/c,NO:.none.x")
    assert text.splitlines()[0].split() == ["NAME", "FIRST", "ALL", "C", "D", "NO"]
    assert text.splitlines()[1].split() == ["b", "Ready", "Ready,mira", "1", "1", "<none>"]


@pytest.mark.parametrize("wrong", ["NAME", "NAME:", ":.name", "A:.b[", "A:.b]", "A:.b[x]", "A:.b c", "A:" + "b" * 2000])
def test_wrong_columns_are_refused_by_name(wrong: str) -> None:
    with pytest.raises(paths.PathError):
        paths.columns(wrong)
    with pytest.raises(click.BadParameter):
        Output().convert(f"custom-columns={wrong}", None, None)
    with pytest.raises(click.UsageError, match="--sort"):
        names(sort=(".b[",))


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(click.BadParameter, match="none of wide, json, yaml, name, custom-columns="):
        Output().convert("xml", None, None)
    with pytest.raises(click.BadParameter, match="none of json, yaml"):
        Output("json", "yaml").convert("wide", None, None)


# --- filters and order ----------------------------------------------------------------------------------------------------


def names(**selection: Any) -> list[str]:
    return [thing.name for thing in ListSelection(**selection).of(LISTING, THINGS, NOW)]


def test_each_filter_has_to_match_and_of_its_names_one() -> None:
    assert names(users=("mira",)) == ["b", "a"]
    assert names(users=("mira", "tom"), states=("not-ready",)) == ["a"]
    assert names(states=("NotReady", "READY")) == ["b", "a", "c"]
    with pytest.raises(click.UsageError, match="no state 'gone': use Ready, Not ready"):
        names(states=("gone",))
    assert words(["a,b", " c "]) == ("a", "b", "c")


def test_numbers_are_sorted_as_numbers_and_the_unknown_is_last() -> None:
    assert names(sort=("size",)) == ["a", "b", "c"]
    assert names(sort=("-size",)) == ["b", "a", "c"]
    assert names(sort=(".name",)) == ["a", "b", "c"]
    assert names(sort=("user", "-name")) == ["b", "a", "c"]
    with pytest.raises(click.UsageError, match="no column 'weight' to sort by: use name, size"):
        names(sort=("weight",))


# --- watching -----------------------------------------------------------------------------------------------------------


def test_a_pipe_hears_what_is_new_or_has_changed() -> None:
    reporter = Reporter(LISTING, Presentation())
    assert reporter.news(THINGS[:2], NOW) == ["NAME  SIZE  STATE", "b       10  Ready", "a        9  Not ready"]
    assert reporter.news(THINGS[:2], NOW) == []
    assert reporter.news([Thing("b", 11), *THINGS[1:]], NOW) == ["b       11  Ready", "c           Ready"]
    documents = Reporter(LISTING, Presentation(OutputFormat("json")))
    assert [json.loads(text)["name"] for text in documents.news(THINGS, NOW)] == ["b", "a", "c"]


async def test_watching_goes_on_while_the_operator_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presenting, "EVERY", 0)
    looks = iter([THINGS[:1], click.ClickException("away"), click.ClickException("away"), THINGS, KeyboardInterrupt()])

    async def look() -> Any:
        seen = next(looks)
        if isinstance(seen, BaseException):
            raise seen
        return seen

    with pytest.raises(KeyboardInterrupt):
        await presenting.present(LISTING, Presentation(watch=True), look)
    output = capsys.readouterr()
    assert output.out.count("NAME") == 1 and output.out.count("b       10") == 1 and "c" in output.out
    assert output.err == "(away)\n"


async def test_a_remark_is_said_once_while_it_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(presenting, "EVERY", 0)
    left = iter(["only yours", "only yours", "", "only yours", None])

    async def look() -> Any:
        word = next(left)
        if word is None:
            raise KeyboardInterrupt
        if word:
            remarks.remark(word)
        return THINGS

    with pytest.raises(KeyboardInterrupt):
        await presenting.present(LISTING, Presentation(watch=True), look)
    assert capsys.readouterr().err == "(only yours)\n(only yours)\n"
    remarks.remark("at once")
    assert capsys.readouterr().err == "(at once)\n"


# --- times ----------------------------------------------------------------------------------------------------------------


def test_an_instant_is_a_time_of_day_and_a_distance() -> None:
    def texts() -> tuple[str, ...]:
        day = 86_400
        return (
            clock.when(NOW + 600, NOW),
            clock.when(NOW - 7200, NOW),
            clock.when(NOW + 2 * day, NOW),
            clock.wall(NOW + 30 * day, NOW),
            clock.when(None, NOW),
            clock.between(NOW + 600, NOW + 1200, NOW),
            clock.between(NOW + day, NOW + day + 600, NOW),
            clock.between(NOW + 600, None, NOW),
            clock.between(NOW + 600, NOW + 601, NOW),
            clock.exact(NOW + 5, NOW),
            clock.exact(NOW + 2 * day, NOW),
            clock.exact(None, NOW),
        )

    assert screens.in_utc(texts) == (
        "22:23 (in 10m)",
        "20:13 (120m ago)",
        "Thu 22:13 (in 2d)",
        "2023-12-14 22:13",
        "",
        "22:23 – 22:33",
        "Wed 22:13 – 22:23",
        "22:23 – ?",
        "22:23",
        "22:13:25",
        "Thu 22:13:20",
        "",
    )


def test_the_header_of_a_column_always_fits() -> None:
    assert (
        layout.fit(Rows(("LONG-HEADER", "X"), (("a", "b"),), least={"LONG-HEADER": 3}), 13)
        .lines[0]
        .text.startswith("LONG-HEADER")
    )
