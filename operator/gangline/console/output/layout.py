"""A table fitted to the width of a terminal. Pure.

Names give way in their middle, never to less than what tells them apart. Columns that matter least are left out; the last column,
a text, moves below its row where there is no room beside it. In a pipe there is no width, and nothing is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gangline.bounded import printable

Cells: TypeAlias = tuple[str, ...]

#: spaces between two columns, and before a text below its row
GAP: Final = 2
INDENT: Final = 4
#: characters that a last column needs beside its row
BESIDE: Final = 42
#: a last column of so many characters is a word, no text: it stays beside its row
WORD: Final = 20
#: columns of this rank or more are left out before the last column moves below its row
DISPENSABLE: Final = 2


@dataclass(frozen=True, slots=True)
class Rows:
    """A table before it is drawn. `ranks` and `least` are those of `columns.Column`, by header."""

    header: Cells
    cells: tuple[Cells, ...]
    styles: tuple[str, ...] = ()
    right: frozenset[str] = frozenset()  # headers of the columns that are aligned to the right
    ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    least: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of a drawn table. `row`: the number of its row, None for the header."""

    text: str
    row: int | None = None
    below: bool = False


@dataclass(frozen=True, slots=True)
class Fitted:
    """A table fitted to a width. `left_out`: headers for which there is no room."""

    lines: tuple[TableLine, ...]
    left_out: tuple[str, ...] = ()


def plain(rows: Rows) -> str:
    """The whole table as aligned text."""
    return "\n".join(line.text for line in fit(rows, None).lines)


def fit(rows: Rows, width: int | None) -> Fitted:
    """The table for a terminal of `width` columns; None: of any width."""
    rows = _printable(rows)
    natural = [max(len(row[i]) for row in (rows.header, *rows.cells)) for i in range(len(rows.header))]
    last = len(natural) - 1
    if width is None or sum(natural) + GAP * last <= width:
        return Fitted(_lines(rows, list(range(last + 1)), natural, below=False, width=width))
    reserved = GAP + min(natural[last], BESIDE)
    telling = _telling(rows, natural, width - reserved)
    beside = _kept(rows, natural, telling, width - reserved, DISPENSABLE if natural[last] > WORD else 1, beside=True)
    kept = beside if beside is not None else _kept(rows, natural, telling, width, 1, beside=False) or []
    room = width - (reserved if beside is not None else 0)
    widths = _widened(rows, natural, kept, room)
    if beside is not None:
        widths[last] = min(natural[last], max(1, width - sum(widths[i] + GAP for i in kept)))
        kept = [*kept, last]
    left_out = tuple(rows.header[i] for i in range(last) if i not in kept)
    return Fitted(_lines(rows, kept, widths, below=beside is None, width=width), left_out)


def shortened(text: str, width: int) -> str:
    """A name without its middle: what comes last often tells it apart from its neighbours.

    >>> shortened("train-llama-70b-ablation-0017", 16)
    'train-ll…on-0017'
    """
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def clipped(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def wrapped(text: str, width: int | None) -> list[str]:
    """A sentence in lines for a terminal of so many columns; None: in one line."""
    text = printable(text)
    return [text] if width is None else textwrap.wrap(text, max(20, width), break_on_hyphens=False) or [""]


def _printable(rows: Rows) -> Rows:
    cells = tuple(tuple(map(printable, row)) for row in rows.cells)
    return Rows(tuple(map(printable, rows.header)), cells, rows.styles, rows.right, rows.ranks, rows.least)


def _telling(rows: Rows, natural: Sequence[int], room: int) -> list[int]:
    """The columns but the last, without those that say the same of all rows, as far as names would have to be shortened."""
    kept = list(range(len(natural) - 1))
    for i in reversed(kept):
        same = rows.ranks.get(rows.header[i], 0) and len(rows.cells) > 1 and len({row[i] for row in rows.cells}) == 1
        if same and _sum(natural, kept) > room:
            kept = [other for other in kept if other != i]
    return kept


def _kept(
    rows: Rows, natural: Sequence[int], columns: Sequence[int], room: int, dispensable: int, *, beside: bool
) -> list[int] | None:
    """The columns that fit into the room with names shortened. `beside`: None where they don't."""
    kept = list(columns)
    while _sum([_least(rows, natural, i) for i in range(len(natural))], kept) > room:
        ranks = {i: rank for i in kept if (rank := rows.ranks.get(rows.header[i], 0)) >= dispensable}
        if not ranks:
            return None if beside else kept
        kept.remove(max(ranks, key=lambda i: (ranks[i], i)))
    return kept


def _sum(widths: Sequence[int], columns: Sequence[int]) -> int:
    return sum(widths[i] for i in columns) + GAP * max(0, len(columns) - 1)


def _least(rows: Rows, natural: Sequence[int], column: int) -> int:
    least = rows.least.get(rows.header[column], 0)
    return min(natural[column], max(least, len(rows.header[column]))) if least else natural[column]


def _widened(rows: Rows, natural: Sequence[int], kept: Sequence[int], room: int) -> list[int]:
    """Widths of the columns: what is left of the room goes to the names, the first ones first."""
    widths = [_least(rows, natural, i) for i in range(len(natural))]
    left = room - _sum(widths, kept)
    for i in kept:
        more = max(0, min(left, natural[i] - widths[i]))
        widths[i] += more
        left -= more
    return widths


def _lines(
    rows: Rows, kept: Sequence[int], widths: Sequence[int], *, below: bool, width: int | None
) -> tuple[TableLine, ...]:
    last = len(rows.header) - 1
    lines = [TableLine(_line(rows, rows.header, kept, widths))]
    for number, row in enumerate(rows.cells):
        lines.append(TableLine(_line(rows, row, kept, widths), number))
        if below and row[last]:
            lines.append(TableLine(" " * INDENT + clipped(row[last], (width or 0) - INDENT), number, below=True))
    return tuple(lines)


def _line(rows: Rows, row: Cells, kept: Sequence[int], widths: Sequence[int]) -> str:
    cells = []
    for i in kept:
        fitted = shortened(row[i], widths[i]) if rows.least.get(rows.header[i]) else clipped(row[i], widths[i])
        cells.append(fitted.rjust(widths[i]) if rows.header[i] in rows.right else fitted.ljust(widths[i]))
    return (" " * GAP).join(cells).rstrip()
