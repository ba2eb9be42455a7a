"""The places of the code base that read a text, found in its syntax trees: a call of `int`, `json.loads`, a regular expression …

A place is fine where its function is marked with `gangline.bounded.parser`, or compares the length of a text itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import gangline
import gangline_webhooks

#: what makes a number of a text; of a number they are harmless
NUMBERS: Final = frozenset({"int", "float", "Decimal", "Fraction"})
#: functions of modules that read texts
FUNCTIONS: Final = {
    "json": {"loads", "load"},
    "orjson": {"loads"},
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "full_load", "unsafe_load"},
    "re": {"match", "search", "fullmatch", "findall", "finditer", "sub", "subn", "split"},
    "ast": {"literal_eval", "parse"},
    "base64": {
        "b64decode",
        "urlsafe_b64decode",
        "standard_b64decode",
        "b32decode",
        "b16decode",
        "a85decode",
        "b85decode",
    },
    "binascii": {"a2b_base64", "unhexlify"},
    "ipaddress": {"ip_address", "ip_network", "ip_interface"},
    "parse": {"urlsplit", "urlparse", "parse_qs", "parse_qsl"},
    "shlex": {"split"},
}
#: the same, imported by name
NAMES: Final = frozenset(
    {"urlsplit", "urlparse", "parse_qs", "parse_qsl", "b64decode", "literal_eval", "ip_address", "ip_network"}
)
#: methods that read texts whatever they are of
METHODS: Final = frozenset({"fromisoformat", "strptime", "fullmatch", "findall", "finditer"})
#: methods that do where they are of a pattern
OF_PATTERNS: Final = frozenset({"match", "search", "sub", "subn", "split"})
#: functions whose result is a number
COUNTS: Final = frozenset({"len", "round", "ord", "count", "int", "float", "index", "sum"})
#: methods whose result is a number
MEASURES: Final = frozenset(
    {
        "mean",
        "sum",
        "max",
        "min",
        "time",
        "timestamp",
        "monotonic",
        "total_seconds",
        "count",
        "median",
        "quantile",
        "percentile",
    }
)


@dataclass(frozen=True, slots=True)
class Reader:
    """One call that reads a text, in the function (or class, or module) of this dotted name."""

    function: str
    line: int
    what: str


@cache
def everywhere() -> tuple[Reader, ...]:
    """All readers of both packages that are neither marked nor measured."""
    return tuple(reader for module, source in _modules() for reader in unmarked(source, module))


def functions() -> set[str]:
    """The names of all functions and modules, as a Reader has them."""
    found: set[str] = set()
    for module, source in _modules():
        found |= {module, *(name for name, _ in _scopes(ast.parse(source), module))}
    return found


def _modules() -> Iterator[tuple[str, str]]:
    for package in (gangline, gangline_webhooks):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            yield ".".join(part for part in parts if part != "__init__"), path.read_text()


def unmarked(source: str, module: str = "module") -> list[Reader]:
    """The readers in it that are neither marked nor measured."""
    tree = ast.parse(source)
    patterns = set(_patterns(tree))
    inside: dict[ast.AST, str] = {}
    fine: set[ast.AST] = set()
    for name, function in _scopes(tree, module):  # outer before inner ones
        kept = function in fine or _is_marked(function) or _is_measured(function)
        for node in ast.walk(function):
            inside[node] = name
            if kept:
                fine.add(node)
    return [
        Reader(inside.get(node, module), node.lineno, what)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node not in fine and (what := _reads(node, patterns))
    ]


def _scopes(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}.{node.name}", node
            yield from _scopes(node, f"{prefix}.{node.name}")
        else:
            yield from _scopes(node, f"{prefix}.{node.name}" if isinstance(node, ast.ClassDef) else prefix)


def _is_marked(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(isinstance(mark, ast.Call) and _last(mark.func) == "parser" for mark in function.decorator_list)


def _is_measured(function: ast.AST) -> bool:
    """It compares a length with something that is not zero, or has `bounded` do so."""
    return any(
        isinstance(node, ast.Call) and ast.unparse(node.func) == "bounded.load_json" for node in ast.walk(function)
    ) or any(
        isinstance(node, ast.Compare)
        and any(isinstance(side, ast.Call) and _last(side.func) == "len" for side in (node.left, *node.comparators))
        and not any(isinstance(side, ast.Constant) and side.value == 0 for side in node.comparators)
        and any(isinstance(sign, ast.Gt | ast.GtE | ast.Lt | ast.LtE) for sign in node.ops)
        for node in ast.walk(function)
    )


def _patterns(tree: ast.AST) -> Iterator[str]:
    """Names that hold a regular expression."""
    for node in ast.walk(tree):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if value is not None and any(
            isinstance(n, ast.Attribute) and ast.unparse(n) == "re.compile" for n in ast.walk(value)
        ):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:  # type: ignore[attr-defined]
                yield _last(target)


def _reads(call: ast.Call, patterns: set[str]) -> str:
    """What it reads with; empty if it reads no text."""
    name, first = call.func, call.args[0] if call.args else None
    what = ast.unparse(name)
    if isinstance(name, ast.Name):
        if name.id in NUMBERS:
            return what if first is not None and not _is_number(first) else ""
        return what if name.id in NAMES else ""
    if not isinstance(name, ast.Attribute):
        return ""
    owner = _last(name.value)
    if name.attr in METHODS or name.attr in FUNCTIONS.get(owner, ()):
        return what
    compiled = isinstance(name.value, ast.Call) and ast.unparse(name.value.func) == "re.compile"
    return what if name.attr in OF_PATTERNS and (compiled or owner in patterns) else ""


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_number(node: ast.AST) -> bool:
    """Whether it is provably none of somebody's texts: a constant, a count, or arithmetic."""
    match node:
        case ast.Constant() | ast.Compare():
            return True
        case ast.BinOp(
            op=ast.Add() | ast.Mult() as sign
        ):  # a text can be added to a text, and multiplied by a whole number
            known = [side for side in (node.left, node.right) if _is_number(side) and not _is_text(side)]
            return len(known) == 2 or (bool(known) and isinstance(sign, ast.Add))
        case ast.BinOp() | ast.UnaryOp():
            return not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _is_text(node.left))
        case ast.BoolOp():
            return all(_is_number(value) for value in node.values)
        case ast.IfExp():
            return _is_number(node.body) and _is_number(node.orelse)
        case ast.Call(func=ast.Name(id=name)) if name in ("min", "max", "abs"):
            return any(_is_number(value) for value in node.args)
        case ast.Call():
            return _last(node.func) in (COUNTS if isinstance(node.func, ast.Name) else MEASURES)
        case _:
            return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
