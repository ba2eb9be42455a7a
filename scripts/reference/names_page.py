"""The page of labels, annotations, finalizers, gates and resources: from `gangline.api.names` and its comments."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.reference.markdown import as_cell, as_table
from scripts.reference.syntax_trees import Code

from gangline.api import names

#: a label, annotation, finalizer or gate in the source of a module
NAME: Final = re.compile(r"'((?:[a-z.]+\.)?(?:gangline\.io|kueue\.x-k8s\.io)/(?!v\d)[a-z-]+)'$")


@dataclass(frozen=True)
class Constant:
    name: str
    value: str
    comment: str


def constants(source: str) -> list[Constant]:
    """The texts of a module with their comments, which stand beside or, after `#:`, above them."""
    comments = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    lines = source.splitlines()
    found: list[Constant] = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.AnnAssign | ast.Assign) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if not isinstance(target, ast.Name):
            continue
        beside = [comments[row] for row in range(node.lineno, (node.end_lineno or 0) + 1) if row in comments]
        above: list[str] = []
        for row in range(node.lineno - 1, 0, -1):
            if not lines[row - 1].startswith("#:"):
                break
            above.insert(0, lines[row - 1])
        comment = " ".join(text.lstrip("#: ") for text in (*above, *beside))
        found.append(Constant(target.id, ast.unparse(node.value), comment))
    return found


def names_page(code: Code) -> str:
    known: dict[str, str] = {}
    for constant in constants(Path(str(names.__file__)).read_text(encoding="utf-8")):
        value = getattr(names, constant.name)
        if isinstance(value, str) and "/" in value and not re.search(r"/v\d\w*$", value):
            known[value] = constant.comment
    for source in code.sources.values():
        for constant in constants(source):
            if (name := NAME.match(constant.value)) and name[1] not in known:
                known[name[1]] = constant.comment
    groups: dict[str, list[tuple[str, ...]]] = {"Gangline's": [], "Kueue's": [], "Others'": []}
    for value, comment in sorted(known.items()):
        owner = (
            "Gangline's"
            if value.startswith(names.OWN_GROUP)
            else "Kueue's"
            if value.startswith(names.GROUP)
            else "Others'"
        )
        groups[owner].append((f"`{value}`", as_cell(comment)))
    parts = ["# Labels, annotations, finalizers and gates\n"]
    for owner, rows in groups.items():
        parts += [f"## {owner}\n", as_table(("name", "where, and what it says"), rows)]
    return "\n".join(parts)
