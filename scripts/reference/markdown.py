"""Tables and cells of Markdown."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def listed(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)


def as_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def as_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "&#124;").replace("<", "&lt;").replace("*", "\\*")


def as_code(text: str) -> str:
    if not set(text) & set("|`"):
        return f"`{text}`" if text else ""
    escaped = html.escape(text, quote=False)
    for sign in "|*[]":  # they would end a cell, emphasize, and be taken for a link
        escaped = escaped.replace(sign, f"&#{ord(sign)};")
    return f"<code>{escaped}</code>"
