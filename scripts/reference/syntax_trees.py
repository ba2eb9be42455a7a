"""The syntax trees of all modules of Gangline, by what is looked for in them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, eq=False)
class Scope:
    """Where an expression stands: its module and the functions around it, the innermost last."""

    module: str
    functions: tuple[Function, ...] = ()


@dataclass(eq=False)
class Code:
    """All modules, by what is looked for in them."""

    #: module -> its text
    sources: dict[str, str] = field(default_factory=dict)
    classes: dict[str, tuple[ast.ClassDef, Scope]] = field(default_factory=dict)
    functions: dict[str, list[tuple[Function, Scope]]] = field(default_factory=lambda: defaultdict(list))
    #: name of the function or class -> its calls
    calls: dict[str, list[tuple[ast.Call, Scope]]] = field(default_factory=lambda: defaultdict(list))
    #: attribute -> what is assigned to it anywhere
    assigned: dict[str, list[tuple[ast.expr, Scope]]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def read(cls, packages: Sequence[Path]) -> Code:
        code = cls()
        for package in packages:
            for path in sorted(package.rglob("*.py")):
                parts = path.relative_to(package.parent).with_suffix("").parts
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                code.sources[module] = path.read_text(encoding="utf-8")
                code._index(ast.parse(code.sources[module]), Scope(module))
        return code

    def _index(self, node: ast.AST, scope: Scope) -> None:
        inner = scope
        match node:
            case ast.ClassDef():
                self.classes[node.name] = (node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions[node.name].append((node, scope))
                inner = Scope(scope.module, (*scope.functions, node))
            case ast.Lambda():
                inner = Scope(scope.module, (*scope.functions, node))
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                self.calls[name].append((node, scope))
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=value):
                self.assigned[name].append((value, scope))
        for child in ast.iter_child_nodes(node):
            self._index(child, inner)

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """Fields of a dataclass in their order."""
        node = self.classes[name][0]
        return {
            row.target.id: row
            for row in node.body
            if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name)
        }
