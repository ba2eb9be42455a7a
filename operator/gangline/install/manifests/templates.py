"""Trees as text of Helm templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gangline.install.manifests.tree import (
    All,
    Condition,
    Digest,
    Document,
    Each,
    Equal,
    Fact,
    FactName,
    FormattedText,
    IfElse,
    JsonText,
    Node,
    NoNamespace,
    Not,
    Set,
    Spread,
    Value,
    When,
)

_FACTS: Final[Mapping[FactName, str]] = {
    "namespace": ".Release.Namespace",
    "manager": ".Release.Service",
    "instance": ".Release.Name",
}
#: a key or string that YAML reads as this very string without quotes
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def template(document: Document) -> str:
    """One object as a template, with its separator."""
    body = "\n".join(_mapping(document.node, 0))
    text = f"---\n{body}\n"
    return text if document.condition is None else f"{_if(document.condition)}\n{text}{_END}\n"


_END: Final = "{{- end }}"


# --- structure --------------------------------------------------------------------------------------------------------


def _mapping(node: Mapping[Any, Node], depth: int) -> Iterator[str]:
    for key, inner in node.items():
        if isinstance(key, Spread):
            yield _block(f".Values.{key.path}", depth)
        else:
            yield from _conditional(inner, lambda each, key=key: _entry(key, each, depth))


def _conditional(node: Node, emit: Any) -> Iterator[str]:
    """The lines of an entry, within its condition or with its alternative."""
    if isinstance(node, When):
        yield _if(node.condition)
        yield from _conditional(node.node, emit)
        yield _END
    elif isinstance(node, IfElse) and not (_scalar(node.yes) and _scalar(node.no)):
        yield _if(node.when)
        yield from emit(node.yes)
        yield "{{- else }}"
        yield from emit(node.no)
        yield _END
    else:
        yield from emit(node)


def _entry(key: str, node: Node, depth: int) -> Iterator[str]:
    head = f"{' ' * depth}{_constant(key)}:"
    if isinstance(node, dict) and node:
        yield head
        yield from _mapping(node, depth + 2)
    elif isinstance(node, list) and node:
        yield head
        yield from _list(node, depth)
    else:
        yield f"{head} {_inline(node)}"


def _list(node: list[Node], depth: int) -> Iterator[str]:
    for inner in node:
        if isinstance(inner, Spread):
            yield _block(f".Values.{inner.path}", depth)
        elif isinstance(inner, Each):
            yield f"{{{{- range .Values.{inner.path} }}}}"
            yield f"{' ' * depth}- {inner.key}: {{{{ toJson . }}}}"
            yield from _mapping(inner.more, depth + 2)
            yield _END
        else:
            yield from _conditional(inner, lambda each: _element(each, depth))


def _element(node: Node, depth: int) -> Iterator[str]:
    if isinstance(node, dict) and node:
        lines = list(_mapping(node, depth + 2))
        first = next(number for number, line in enumerate(lines) if not line.startswith("{{"))
        if first:
            raise TypeError(f"the first entry of an element is conditional: {node!r}")
        yield f"{' ' * depth}- {lines[0].lstrip()}"
        yield from lines[1:]
    elif isinstance(node, list):
        raise TypeError(f"a list in a list: {node!r}")
    else:
        yield f"{' ' * depth}- {_inline(node)}"


def _block(value: str, depth: int) -> str:
    """The elements or entries of a value, if it has any."""
    return f"{{{{- with {value} }}}}{{{{ toYaml . | nindent {depth} }}}}{{{{- end }}}}"


def _if(condition: Condition) -> str:
    return f"{{{{- if {_bare(_test(condition))} }}}}"


# --- leaves -----------------------------------------------------------------------------------------------------------


def _scalar(node: Node) -> bool:
    return not isinstance(node, dict | list | Value) or isinstance(node, FormattedText)


def _inline(node: Node) -> str:
    if isinstance(node, dict | list):
        return json.dumps(node)  # empty
    if node is None or isinstance(node, bool | int | float | str):
        return _constant(node)
    return f"{{{{ toJson {_expression(node)} }}}}"


def _constant(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        if "{{" in value or "}}" in value:
            return f"{{{{ toJson {_quoted(value)} }}}}"
    return json.dumps(value, ensure_ascii=False)


def _expression(node: Node) -> str:
    """The node in the template language; parenthesised if it has arguments."""
    match node:
        case Value(path):
            return f".Values.{path}"
        case Fact(name):
            return _FACTS[name]
        case FormattedText(text, parts):
            pattern = text.replace("%", "%%").replace("{}", "%v")
            return f"(printf {_quoted(pattern)} {' '.join(map(_expression, parts))})"
        case JsonText(of):
            return f"(toPrettyJson {_expression(of)})"
        case Digest(of):
            return f"(sha256sum (toJson {_expression(of)}))"
        case IfElse(when, yes, no):
            return f"(ternary {_expression(yes)} {_expression(no)} {_test(when, boolean=True)})"
        case str():
            return _quoted(node)
        case int():
            return json.dumps(node)
        case _:
            raise TypeError(f"{node!r} is no expression")


def _test(condition: Condition, *, boolean: bool = False) -> str:
    match condition:
        case Set(path):
            return f"(not (empty .Values.{path}))" if boolean else f".Values.{path}"
        case Equal(path, text):
            return f"(eq .Values.{path} {_quoted(text)})"
        case Not(of):
            return f"(not {_test(of)})"
        case All(of):
            return f"(and {' '.join(_test(each, boolean=boolean) for each in of)})"
        case NoNamespace(name):
            return f'(not (lookup "v1" "Namespace" "" {_quoted(name)}))'


def _bare(test: str) -> str:
    return test[1:-1] if test.startswith("(") else test


def _quoted(text: str) -> str:
    """A string of the template language."""
    return json.dumps(text, ensure_ascii=False)
