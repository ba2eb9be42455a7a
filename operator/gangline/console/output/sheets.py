"""A table as a file for others: CSV for spreadsheets, Parquet for programs, and a page of HTML that needs nothing else.

Texts in it come from others. A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` for a formula, and may run it: such
a text gets a `'` before it. In HTML everything is escaped, and the page forbids scripts and requests.
"""

from __future__ import annotations

import csv
import html
import importlib
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from gangline.bounded import printable
from gangline.console.output.layout import Rows

#: a text, a number, or None: nothing is known
SheetCell: TypeAlias = str | int | float | None

#: how a formula begins, also behind blanks, and with the wide characters of East Asian keyboards
_FORMULA: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 14px system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #8886; text-align: left; white-space: nowrap; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
tfoot td {{ font-weight: bold; border-top: 2px solid; }}
</style>
</head>
<body>
<h1>{title}</h1>
{about}
<table>
<thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody>
<tfoot>
{foot}
</tfoot>
</table>
</body>
</html>"""


def as_csv(header: Sequence[str], rows: Sequence[Sequence[SheetCell]]) -> str:
    """Rows as CSV; without a line break at the end. Texts are in quotes, so that none is split at a separator of the reader's."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(header)
    writer.writerows([_safe(cell) for cell in row] for row in rows)
    return file.getvalue().rstrip("\n")


def as_html(title: str, about: Sequence[str], rows: Rows, last: int) -> str:
    """A table as a page. `about`: sentences before it; `last`: how many rows at its end are totals."""
    right = [name in rows.right for name in rows.header]
    lines = [_line("td", cells, right) for cells in rows.cells]
    first = len(lines) - last
    return _PAGE.format(
        title=_escaped(title),
        about="\n".join(f"<p>{_escaped(text)}</p>" for text in about),
        head="".join(_cell("th", *each) for each in zip(rows.header, right, strict=True)),
        body="\n".join(lines[:first]),
        foot="\n".join(lines[first:]),
    )


def write_parquet(
    file: Path,
    header: Sequence[str],
    rows: Sequence[Sequence[SheetCell]],
    *,
    texts: Collection[str],
    whole: Collection[str],
    about: Mapping[str, str],
) -> None:
    """Write rows as Parquet. The first column and those among `texts` are texts, those among `whole` whole numbers, the others
    numbers. `about`: the metadata of the file.

    Raises click.ClickException where pyarrow is not installed, or the file can't be written.
    """
    try:  # an optional dependency, of which type checkers need not know
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise click.ClickException("Parquet files need pyarrow: pip install 'gangline[parquet]'") from error
    columns: dict[str, Any] = {}
    for number, name in enumerate(header):
        cells = [row[number] for row in rows]
        is_text = number == 0 or name in texts
        kind = arrow.string() if is_text else arrow.int64() if name in whole else arrow.float64()
        columns[name] = arrow.array([printable(cell) if isinstance(cell, str) else cell for cell in cells], kind)
    table = arrow.table(columns).replace_schema_metadata(dict(about))
    try:
        parquet.write_table(table, file, compression="zstd")
    except OSError as error:
        raise click.ClickException(f"{file}: cannot be written: {error.strerror or error}") from error


def _safe(cell: SheetCell) -> SheetCell:
    if not isinstance(cell, str):
        return cell
    text = printable(cell)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _line(tag: str, cells: Sequence[str], right: Sequence[bool]) -> str:
    return f"<tr>{''.join(_cell(tag, *each) for each in zip(cells, right, strict=True))}</tr>"


def _cell(tag: str, text: str, right: bool) -> str:
    number = ' class="n"' if right else ""
    return f"<{tag}{number}>{_escaped(text)}</{tag}>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
