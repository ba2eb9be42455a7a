"""`gangline report`: what is asked of the operator, and the report as a table, a document, a sheet and a page."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from tests.console import screens
from tests.console.screens import NOW

from gangline.console.cli import main
from gangline.console.commands.see.report import BY, PriceList, Report
from gangline.console.output import sheets
from gangline.console.output.layout import Rows
from gangline.console.views import access, asking
from gangline.control.answers.api import answers_api, question

Json = dict[str, Any]
#: names that a spreadsheet, a browser or a terminal would act on
HOSTILE = (
    "=HYPERLINK(1)",
    "+1",
    "-1",
    "@SUM(A1)",
    " =1",
    "\t=1",
    "＝1",
    "a;=1,=2",
    "</td><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\x1b[2Jgone\u202e",
    "{title}",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Json]]:
    """An operator that answers with the sums of `screens.used`, a row on each page."""
    found: list[tuple[str, Json]] = []

    async def get(api: Any, path: str, query: Any = None) -> Json:
        found.append((path, {name: value for name, value in query.items() if value}))
        whole = screens.used()
        place = int(query["continue"] or 0)
        more = {"continue": str(place + 1)} if place < 2 else {}
        return {**whole, "metadata": more, "items": whole["items"][place : place + 1]}

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(login=SimpleNamespace(namespace="ml"))

    monkeypatch.setattr(asking, "get", get)
    monkeypatch.setattr(access, "client", client)
    return found


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["report", *words])


def printed(*words: str) -> str:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_pages_make_one_report(asked: list[tuple[str, Json]]) -> None:
    lines = printed("--by", "user").splitlines()
    assert [line.split()[0] for line in lines] == [
        "USER",
        "mira",
        "tom-of-the-language-models-team",
        "hidden-1a2b3c4d",
        "total",
    ]
    assert "6400.2" in lines[-1]
    assert [path for path, _ in asked] == ["/namespaces/ml/usagesums"] * 3
    assert asked[0][1] == {"by": "user", "limit": question.MOST, "sinceSeconds": 30 * 86_400}


@pytest.mark.parametrize(
    ("words", "path", "query"),
    [
        (["--since", "7d"], "/namespaces/ml/usagesums", {"by": "clusterQueue", "sinceSeconds": 7 * 86_400}),
        (["-A", "--by", "kind"], "/usagesums", {"by": "jobKind", "sinceSeconds": 30 * 86_400}),
        (["-q", "vision"], "/usagesums", {"by": "clusterQueue", "clusterQueue": "vision", "sinceSeconds": 30 * 86_400}),
        (
            ["-q", "vision", "-n", "ml", "--since", "1d"],
            "/namespaces/ml/usagesums",
            {"by": "clusterQueue", "clusterQueue": "vision", "sinceSeconds": 86_400},
        ),
        (
            ["--from", "2026-11-01", "--to", "2026-12-01"],
            "/namespaces/ml/usagesums",
            {"by": "clusterQueue", "start": 1793491200, "end": 1796083200},
        ),
        (
            ["--from", "2026-11-01", "--tz", "Europe/Berlin", "--by", "day"],
            "/namespaces/ml/usagesums",
            {"by": "day", "start": 1793487600, "timeZone": "Europe/Berlin"},
        ),
        (["--from", "2026-11-01T12:00+02:00"], "/namespaces/ml/usagesums", {"by": "clusterQueue", "start": 1793527200}),
    ],
)  # fmt: skip
def test_what_is_asked(asked: list[tuple[str, Json]], words: list[str], path: str, query: Json) -> None:
    printed(*words)
    assert asked[0] == (path, {"limit": question.MOST, **query})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "2026-12-01"], "--to needs --from"),
        (["--since", "1d", "--from", "2026-12-01"], "give one of them"),
        (["--from", "2026-12-01", "--to", "2026-12-01"], "--to must be after --from"),
        (["--from", "yesterday"], "'yesterday' is no date such as 2026-11-01"),
        (["--from", "0001-01-01"], "is no date"),
        (["--from", "2026-11-01" + " " * 99], "is no date"),
        (["--tz", "Mars/Olympus"], "there is no time zone 'Mars/Olympus'"),
        (["--tz", "../../etc/passwd"], "there is no time zone"),
        (["--tz", "Europe"], "there is no time zone"),
        (["--tz", "x" * 999], "there is no time zone"),
        (["--by", "colour"], "'colour' is not one of"),
        (["-o", "parquet"], "-o parquet and --file FILE belong together"),
        (["-o", "csv", "--file", "x"], "-o parquet and --file FILE belong together"),
        (["--by", "label:"], "behind label: stands the key of a label"),
        (["--by", "label:a b"], "behind label: stands the key of a label"),
        (["--sort", "shoes"], "there is no column 'shoes'"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: list[tuple[str, Json]], words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2 and message in " ".join(result.output.split()), result.output


def test_sums_by_a_label_are_asked_for_and_named_by_its_key(asked: list[tuple[str, Json]]) -> None:
    lines = printed("--by", "label:example.com/project").splitlines()
    assert lines[0].startswith("EXAMPLE.COM/PROJECT ") and asked[0][1]["by"] == "label:example.com/project"


def test_a_row_without_the_label_is_a_dash(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    whole = screens.used()
    row = {**whole["items"][0], "name": ""}

    async def get(*_: Any) -> Json:
        return {**whole, "items": [row]}

    monkeypatch.setattr(asking, "get", get)
    assert printed("--by", "label:team").splitlines()[1].startswith("–  ")


def test_parquet_has_the_rows_of_the_csv_with_types(asked: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nprices: {h100: 2}\n")
    for more in ([], ["--prices", str(prices)]):
        file = tmp_path / "month.parquet"
        result = run("--by", "user", "-o", "parquet", "--file", str(file), *more)
        assert result.exit_code == 0 and result.stdout == "" and f"3 rows in {file}" in result.stderr
        table = parquet.read_table(file)
        wanted = [*csv.DictReader(io.StringIO(printed("--by", "user", "-o", "csv", *more)))]
        found = [{name: "" if each is None else str(each) for name, each in row.items()} for row in table.to_pylist()]
        assert found == wanted
        kinds = {
            name: str(table.schema.field(name).type) for name in ("user", "jobs", "gpuHours", "idleGpuHours", "hidden")
        }
        assert kinds == {
            "user": "string", "jobs": "int64", "gpuHours": "double", "idleGpuHours": "double", "hidden": "string",
        }  # fmt: skip
        assert table.schema.metadata[b"timeZone"] == b"UTC" and table.schema.metadata[b"by"] == b"user"


def test_without_pyarrow_parquet_says_what_to_install(
    asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("-o", "parquet", "--file", str(tmp_path / "x"))
    assert result.exit_code == 1 and "pip install 'gangline[parquet]'" in result.stderr


def test_an_operator_that_makes_no_reports_is_named(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    async def old(*_: Any) -> Json:
        return {"metadata": {}, "items": []}

    monkeypatch.setattr(asking, "get", old)
    result = run()
    assert result.exit_code == 1 and "older than this command" in result.output


def test_who_may_not_ask_about_all_gets_the_own_namespace(monkeypatch: pytest.MonkeyPatch, asked: Any) -> None:
    get = asking.get

    async def denied(api: Any, path: str, query: Any = None) -> Json:
        if path == "/usagesums":
            raise asking.NotAllowedError("no")
        return await get(api, path, query)

    monkeypatch.setattr(asking, "get", denied)
    result = run("-A")
    assert result.exit_code == 0 and "you may not ask about all namespaces" in result.stderr and "mira" in result.stdout


def test_rows_are_sorted_and_the_total_stays_last(asked: Any) -> None:
    lines = printed("--by", "user", "--sort", "gpu-h").splitlines()
    assert [line.split()[0] for line in lines[1:]][-2:] == ["mira", "total"]


def test_a_document_has_all_numbers(asked: Any) -> None:
    found = json.loads(printed("--by", "user", "-o", "json"))
    assert (found["by"], found["start"], found["end"], found["timeZone"]) == ("user", NOW - 30 * 86_400, NOW, "UTC")
    assert [row["name"] for row in found["items"]] == ["mira", "tom-of-the-language-models-team", "hidden-1a2b3c4d"]
    assert found["total"]["lost"]["preemption"] == 400.0 and "cost" not in found["total"]
    assert yaml.safe_load(printed("--by", "user", "-o", "yaml")) == found


def test_prices_make_costs(asked: Any, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("currency: EUR\nprices: {h100: 2.5}\n")
    found = json.loads(printed("--by", "user", "--prices", str(file), "-o", "json"))
    assert (found["currency"], found["items"][0]["cost"], found["items"][0]["lostCost"]) == ("EUR", 12500.0, 1750.0)
    assert found["total"]["cost"] == 6280 * 2.5
    result = run("--by", "user", "--prices", str(file))
    assert (
        "COST EUR" in result.stdout
        and "these flavors have no price, and cost nothing here: a100 (120.2" in result.stderr
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must have the fields currency and prices"),
        ("{", "it is not YAML"),
        ("[" * 3000, "it is not YAML"),
        ("currency: EUR\nprices: {a: 1}\nprice: 2", "'price': there is no such field"),
        ("prices: {a: 1}", "currency: must be a text"),
        ("currency: EUR\nprices: []", "prices: must have 1 to 1000 flavors"),
        ("currency: EUR\nprices: {}", "prices: must have 1 to 1000 flavors"),
        ("currency: EUR\nprices: {a: cheap}", "prices.'a': must be a number from 0, not 'cheap'"),
        ("currency: EUR\nprices: {a: -1}", "must be a number from 0, not -1"),
        ("currency: EUR\nprices: {a: .inf}", "must be a number from 0, not inf"),
        ("currency: EUR\nprices: {a: .nan}", "must be a number from 0, not nan"),
        ("currency: EUR\nprices: {a: true}", "must be a number from 0, not True"),
        ("currency: EUR\nprices: {1: 1}", "prices.1: the name of a flavor must be a text"),
        ("#" * 300_000, "it has more than 262144 characters"),
    ],
)
def test_wrong_prices_are_refused_by_their_field(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        PriceList.parse(text)
    assert message in str(caught.value)


def test_a_file_of_prices_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for content in (b"\xff\xfe", b"#" * 300_000):
        (tmp_path / "p.yaml").write_bytes(content)
        result = run("--prices", str(tmp_path / "p.yaml"))
        assert result.exit_code == 1 and "p.yaml: " in result.output


def hostile(name: str) -> Report:
    answer = screens.used()
    answer["items"][0]["name"] = name
    answer["items"][0]["flavors"][0]["flavor"] = name
    return Report.of("user", UTC, answer, PriceList("EUR", {"a100": 1.0}))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_sheet_has_no_formulas(name: str) -> None:
    text = hostile(name).as_csv()
    header, row, *_ = list(csv.reader(io.StringIO(text)))
    cells = dict(zip(header, row, strict=True))
    assert cells["user"].lstrip()[0] not in "=+-@＝＋－＠\t\r" and "\x1b" not in text
    assert (float(cells["gpuHours"]), cells["idleGpuHours"], cells["currency"]) == (5120.25, "", "EUR")
    assert len(text.splitlines()) == 4, "no name makes lines, and there is no total that sums would count again"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_has_no_markup_of_others(name: str) -> None:
    page = hostile(name).as_html()
    plain = hostile("mira").as_html()
    assert page.count("<") == plain.count("<") and "<script" not in page and "<img" not in page
    assert "src=" not in plain and "http" not in plain.replace("http-equiv", "") and "default-src 'none'" in page
    assert "\x1b" not in page and "\u202e" not in page
    assert page.count("<tr>") == 5 and "<tfoot>\n<tr><td>total</td>" in page


def test_a_page_without_rows_has_its_total() -> None:
    page = sheets.as_html("t", ["a"], Rows(("X",), (("1",),)), 1)
    assert "<tbody>\n\n</tbody>" in page and "<tfoot>\n<tr><td>1</td></tr>" in page


def test_the_command_and_the_operator_have_the_same_groups() -> None:
    assert set(BY.values()) == set(answers_api.BY)


def test_dates_are_of_the_zone() -> None:
    assert (
        datetime.fromtimestamp(1793487600, question.time_zone("Europe/Berlin")).isoformat()
        == "2026-11-01T00:00:00+01:00"
    )
