"""Which texts an expression in the code can have."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import takewhile
from typing import Any, Final, TypeAlias

from scripts.reference.syntax_trees import Code, Function, Scope

#: An answer may be so many steps away.
DEPTH: Final = 16
#: stands for what is only known when it happens
OPEN: Final = "…"
Texts: TypeAlias = frozenset[str]


class Values:
    """Which texts an expression can have. What the code alone does not say is `OPEN`, within a text, too."""

    def __init__(self, code: Code) -> None:
        self._code = code
        #: what is being asked for, outermost first: an answer that leads back to itself adds nothing
        self._asked: list[ast.AST] = []

    def of(self, node: ast.expr | None, scope: Scope) -> Texts:
        if node is None or node in self._asked:
            return frozenset()
        if len(self._asked) >= DEPTH:
            return frozenset({OPEN})
        self._asked.append(node)
        try:
            return self._of(node, scope)
        finally:
            self._asked.pop()

    def _of(self, node: ast.expr, scope: Scope) -> Texts:
        match node:
            case ast.Constant(value=str(text)):
                return frozenset({text})
            case ast.Constant():
                return frozenset()
            case ast.JoinedStr(values=parts):
                return self._joined(parts, scope)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _product([self.of(left, scope), self.of(right, scope)])
            case ast.IfExp(body=body, orelse=other):
                return self.of(body, scope) | self.of(other, scope)
            case ast.BoolOp(values=values):
                return self._union(values, scope) - {""}
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, *default]):
                return self._entries(table, scope) | self._union(default, scope)
            case ast.Subscript(value=ast.Subscript(value=ast.Name(id=rows)), slice=ast.Constant(value=int(i))):
                return self._appended(rows, i, scope)
            case ast.Subscript(value=value, slice=ast.Constant(value=int(i))):
                return self._item(value, i, scope)
            case ast.Subscript(value=table):
                return self._entries(table, scope)
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                return self._returned(name)
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
        return frozenset({OPEN})

    def _union(self, nodes: Iterable[ast.expr], scope: Scope) -> Texts:
        return frozenset().union(*(self.of(node, scope) for node in nodes))

    def _joined(self, parts: Sequence[ast.expr], scope: Scope) -> Texts:
        found: list[Texts] = []
        for part in parts:
            if isinstance(part, ast.FormattedValue):
                texts = self.of(part.value, scope) if _is_word(parts) else frozenset({OPEN})
                found.append(texts or frozenset({OPEN}))
            else:
                found.append(self.of(part, scope))
        return _product(found)

    def _entries(self, table: ast.expr, scope: Scope) -> Texts:
        """The values of a dictionary that is written out where it is used or in some module."""
        if isinstance(table, ast.Dict):
            return self._union(table.values, scope)
        known = _value_of(table, scope)
        if isinstance(known, Mapping) and all(isinstance(value, str) for value in known.values()):
            return frozenset(known.values())
        if isinstance(known, list | tuple) and all(isinstance(value, str) for value in known):
            return frozenset(known)
        return frozenset({OPEN})

    def _returned(self, name: str, read: Callable[[ast.expr, Scope], Texts] | None = None) -> Texts:
        """What the only function of that name returns."""
        functions = self._code.functions.get(name, ())
        if not 0 < len(functions) <= 2:
            return frozenset({OPEN})
        found: set[str] = set()
        for function, scope in functions:
            inner = Scope(scope.module, (*scope.functions, function))
            for row in ast.walk(function):
                if isinstance(row, ast.Return) and row.value is not None:
                    found |= (read or self.of)(row.value, inner)
        return frozenset(found)

    def _appended(self, name: str, i: int, scope: Scope) -> Texts:
        """The i-th of the values in each row that the function appends to a list."""
        found: set[str] = set()
        for node in ast.walk(scope.functions[-1]):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=rows), attr="append"), args=[row]) if rows == name:
                    found |= self._item(row, i, scope)
        return frozenset(found)

    def _named(self, name: str, scope: Scope) -> Texts:
        for depth in range(len(scope.functions), 0, -1):
            function, inner = scope.functions[depth - 1], Scope(scope.module, scope.functions[:depth])
            local = self._local(name, function, inner)
            if local is not None:
                return local
            if name in _parameters(function):
                return self._argument(function, name, inner)
        known = _value_of(ast.Name(id=name), scope)
        return frozenset({known}) if isinstance(known, str) else frozenset({OPEN})

    def _local(self, name: str, function: Function, scope: Scope) -> Texts | None:
        """What is assigned to a variable of the function; None if it has no such variable."""
        found: set[str] | None = None
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    found = (found or set()) | self.of(value, scope)
                case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                    for i, target in enumerate(targets):
                        if isinstance(target, ast.Name) and target.id == name:
                            found = (found or set()) | self._item(value, i, scope)
                case ast.For(target=ast.Name(id=target), iter=ast.Tuple(elts=rows)) if target == name:
                    found = (found or set()) | self._union(rows, scope)
                case ast.For(target=ast.Tuple(elts=targets), iter=ast.Tuple(elts=rows)):
                    for i, target in enumerate(targets):
                        if isinstance(target, ast.Name) and target.id == name:
                            found = (found or set()).union(*(self._item(row, i, scope) for row in rows))
                case ast.MatchClass(cls=cls, patterns=patterns):
                    for i, pattern in enumerate(patterns):
                        if isinstance(pattern, ast.MatchAs) and pattern.name == name:
                            fields = list(self._code.fields(last_name(cls)))
                            found = (found or set()) | self.field(last_name(cls), fields[i])
        return None if found is None else frozenset(found)

    def _item(self, value: ast.expr, i: int, scope: Scope) -> Texts:
        """The i-th of several values that are assigned at once."""
        match value:
            case ast.Tuple(elts=values):
                return self.of(values[i], scope)
            case ast.IfExp(body=body, orelse=other):
                return self._item(body, i, scope) | self._item(other, i, scope)
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)) if value not in self._asked:
                self._asked.append(value)
                found = self._returned(name, lambda row, inner: self._item(row, i, inner))
                self._asked.pop()
                return found
            case ast.Attribute(attr=name):
                rows = self._code.assigned.get(name, ())
                return frozenset().union(*(self._item(row, i, where) for row, where in rows)) or frozenset({OPEN})
        return frozenset({OPEN})

    def _argument(self, function: Function, name: str, scope: Scope) -> Texts:
        """What callers give for a parameter: the calls of all functions of that name."""
        if isinstance(function, ast.Lambda):
            return frozenset({OPEN})
        parameters = [parameter for parameter in _parameters(function) if parameter != "self"]
        found: set[str] = set()
        for call, where in self._code.calls.get(function.name, ()):
            if not _can_mean(call, where, function, scope):
                continue
            if (given := argument(call, parameters, name)) is not None:
                found |= self.of(given, where)
        return frozenset(found) if found else frozenset({OPEN})

    # --- attributes ---

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Texts:
        known = _value_of(node, scope)
        if isinstance(known, str):
            return frozenset({known})
        cls = self.class_of(node.value, scope)
        return self.field(cls, node.attr) if cls is not None else frozenset({OPEN})

    def field(self, cls: str, name: str) -> Texts:
        """What a field of a dataclass is given when one is made, or assigned later."""
        fields = self._code.fields(cls)
        if name not in fields:
            return self._property(cls, name)
        found = set(self.of(fields[name].value, self._code.classes[cls][1]))
        for call, scope in self._code.calls.get(cls, ()):
            if (given := argument(call, list(fields), name)) is not None:
                found |= self.of(given, scope)
        for value, scope in self._code.assigned.get(name, ()):
            found |= self.of(value, scope) - {OPEN}
        return frozenset(found - {""}) or frozenset({OPEN})

    def _property(self, cls: str, name: str) -> Texts:
        node, scope = self._code.classes[cls]
        found: set[str] = set()
        for function in node.body:
            if isinstance(function, ast.FunctionDef) and function.name == name:
                inner = Scope(scope.module, (*scope.functions, function))
                for row in ast.walk(function):
                    if isinstance(row, ast.Return):
                        found |= self.of(row.value, inner)
        return frozenset(found) or frozenset({OPEN})

    def class_of(self, node: ast.expr, scope: Scope) -> str | None:
        """The class of a parameter, by its annotation, or of a field or variable."""
        match node:
            case ast.Name(id=name):
                for depth in range(len(scope.functions), 0, -1):
                    function = scope.functions[depth - 1]
                    if (
                        found := self._class_in(name, function, Scope(scope.module, scope.functions[:depth]))
                    ) is not None:
                        return found
            case ast.Attribute(value=inner, attr=name):
                cls = self.class_of(inner, scope)
                if cls is not None and (row := self._code.fields(cls).get(name)) is not None:
                    return self._known(row.annotation)
        return None

    def _class_in(self, name: str, function: Function, scope: Scope) -> str | None:
        for parameter in _all_parameters(function):
            if parameter.arg == name:
                return self._known(parameter.annotation)
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call(func=called)) if target == name:
                    return self._known(called)
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Attribute() as value) if target == name:
                    return self.class_of(value, scope)
                case ast.For(target=ast.Name(id=target), iter=rows) if target == name:
                    return self.class_of(rows, scope)
        return None

    def _known(self, annotation: ast.expr | None) -> str | None:
        if annotation is None:
            return None
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name | ast.Attribute) and last_name(node) in self._code.classes:
                return last_name(node)
        return None


def _is_word(parts: Sequence[ast.expr]) -> bool:
    """The text is one word, such as a reason: its parts are worth knowing. Of sentences they are left open."""
    return not any(isinstance(part, ast.Constant) and " " in str(part.value) for part in parts)


def _product(parts: Sequence[Set[str]]) -> Texts:
    """All that can be put together; where several parts vary, they are left open: they needn't vary independently."""
    if sum(len(texts) > 1 for texts in parts) > 1:
        parts = [texts if len(texts) == 1 else _outline(texts) for texts in parts]
    found = {""}
    for texts in parts:
        found = {head + tail for head in found for tail in texts or {OPEN}}
    return frozenset(re.sub(f"{OPEN}+", OPEN, text) for text in found)


def _outline(texts: Set[str]) -> Set[str]:
    """How all of these begin."""
    first, *others = sorted(texts - {""})
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(first, *others, strict=False))
    return {"".join(letters[0] for letters in same) + OPEN} | (texts & {""})


def _value_of(node: ast.expr, scope: Scope) -> Any:
    """What a name of the module, or an attribute of one, is bound to."""
    match node:
        case ast.Name(id=name):
            return getattr(importlib.import_module(scope.module), name, None)
        case ast.Attribute(value=inner, attr=name):
            base = None if _is_local(inner, scope) else _value_of(inner, scope)
            return None if base is None else getattr(base, name, None)
    return None


def _is_local(node: ast.expr, scope: Scope) -> bool:
    return isinstance(node, ast.Name) and any(node.id in _parameters(function) for function in scope.functions)


def _all_parameters(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _parameters(function: Function) -> list[str]:
    return [parameter.arg for parameter in _all_parameters(function)]


def argument(call: ast.Call, parameters: Sequence[str], name: str) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    i = parameters.index(name)
    return call.args[i] if i < len(call.args) and not any(isinstance(arg, ast.Starred) for arg in call.args) else None


def _can_mean(call: ast.Call, where: Scope, function: Function, scope: Scope) -> bool:
    """Whether the call may be of this function and not of another of its name."""
    if isinstance(function, ast.Lambda) or (function.name.startswith("_") and where.module != scope.module):
        return False
    by_object = ast.unparse(call.func).startswith("self.")
    return not by_object or "self" in _parameters(function)


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
