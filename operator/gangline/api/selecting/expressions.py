"""One expression: compiled, and evaluated for one device after the other.

The environment is that of Kubernetes for devices, as far as the runtime of CEL has it: the standard library, strings, optional
values, `cel.bind`, quantities, semantic versions, and `includes` of lists. It bounds how deep an expression may be and how
often its macros iterate; what else an expression may cost is bounded by the process that it is evaluated in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from gangline import bounded
from gangline.api.selecting import values

# --- domains ----------------------------------------------------------------------------------------------------------
#
# Expressions in which a domain without attributes is an empty map, as in Kubernetes: has(device.attributes["no.such"].x) is
# false.
#
# The runtime of CEL takes maps without defaults, so `device.attributes["d"]` is compiled as an optional lookup instead.


#: characters of the longest expression, as Kubernetes limits it
LONGEST: Final = 10 * 1024
#: the parts of an expression; each alternative takes at least one character, and none looks back
_TOKEN: Final = re.compile(
    r"""
    (?P<raw> [bB]?[rR][bB]? (?: \"{3} .*? \"{3} | \'{3} .*? \'{3} | "[^"\n]*" | '[^'\n]*' ) )
    | (?P<text> [bB]? (?:
        \"{3} (?:\\.|[^\\])*? \"{3} | \'{3} (?:\\.|[^\\])*? \'{3} | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
    | (?P<space> \s+ | //[^\n]* )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_MAPS: Final = ("attributes", "capacity")
_DEVICE: Final = "device"
_WORST: Final = ('"', "'", "r'", "\\", '"\\', "device.attributes[", "[", "]", "//", " ", "a", '"""', "'''\\")
_OPENING: Final = {"[": "]", "(": ")", "{": "}"}
_CLOSING: Final = frozenset(_OPENING.values())


@bounded.parser(LONGEST, worst=_WORST)
def with_empty_domains(expression: str) -> str:
    """The same expression with lookups that give an empty map for a domain that a device does not have."""
    found = [(match[0], match.lastgroup or "") for match in _TOKEN.finditer(expression)]
    tokens = [token for token, _ in found]
    code = [i for i, (_, kind) in enumerate(found) if kind != "space"]
    closing = _pairs(tokens, code)
    for at in range(len(code)):
        if _is_lookup(tokens, code, at):
            opens = code[at + 3]
            if opens in closing and not tokens[code[at + 4]].startswith("?"):
                tokens[opens] = "[?"
                tokens[closing[opens]] += ".orValue({})"
    return "".join(tokens)


@bounded.parser(LONGEST, worst=_WORST)
def names_device_itself(expression: str) -> bool:
    """Whether the device is used as a value, other than by `device.field`."""
    found = [(match[0], match.lastgroup) for match in _TOKEN.finditer(expression)]
    code = [token for token, kind in found if kind != "space"]
    places = (i for i, token in enumerate(code) if token == _DEVICE)
    return any((i == 0 or code[i - 1] != ".") and code[i + 1 : i + 2] != ["."] for i in places)


def _is_lookup(tokens: Sequence[str], code: Sequence[int], at: int) -> bool:
    """Whether `device.attributes[` begins here."""
    parts = [tokens[i] for i in code[at : at + 4]]
    if len(parts) < 4 or parts[0] != _DEVICE or parts[1] != "." or parts[2] not in _MAPS or parts[3] != "[":
        return False
    return at == 0 or tokens[code[at - 1]] != "."


def _pairs(tokens: Sequence[str], code: Sequence[int]) -> dict[int, int]:
    """Opening bracket -> its closing one; empty where they do not match."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for i in code:
        if tokens[i] in _OPENING:
            opened.append(i)
        elif tokens[i] in _CLOSING:
            if not opened or _OPENING[tokens[opened[-1]]] != tokens[i]:
                return {}
            found[opened.pop()] = i
    return {} if opened else found


#: characters of an error that are kept
_MOST_WORDS: Final = 1000
_FIELDS: Final = (values.DRIVER, values.SHARED, values.ATTRIBUTES, values.CAPACITY)
_VARIABLES: Final = tuple((name, f"device.{name}") for name in _FIELDS)
_MISSING: Final = "This installation has no runtime of CEL (the package cel-expr-python)"
_NO_KEY: Final = "Key not found in map : "
_NO_OVERLOAD: Final = "No matching overloads found"
_MOST_INCLUDED: Final = 64


class ExpressionError(ValueError):
    """An expression does not compile, or cannot be evaluated for a device; in words as Kubernetes would say it."""


def _too_long(text: str) -> ExpressionError:
    return ExpressionError(f"the expression is longer than {LONGEST} characters")


class CelExpression:
    """A compiled CEL expression. Raises ExpressionError if it does not compile."""

    def __init__(self, text: str) -> None:
        self._whole = False
        self._program = self._compiled(text)

    def _compiled(self, text: str) -> Any:
        program = _compile(text)
        kind = program.return_type().name().lower()
        if kind not in ("bool", "dyn"):
            raise ExpressionError(f"must evaluate to bool or the unknown type, not {kind}")
        self._whole = names_device_itself(text)
        try:
            return _compile(with_empty_domains(text))
        except ExpressionError:
            return program

    def selects(self, device: dict[str, Any]) -> bool:
        """`device`: from `values.value`. Raises ExpressionError."""
        data = {variable: device[name] for name, variable in _VARIABLES}
        if self._whole:
            data["device"] = device
        try:
            found = self._program.eval(data=data)
            value = found.value()
        except RuntimeError as error:
            raise ExpressionError(_words(error)) from None
        if isinstance(value, bool):
            return value
        kind = found.type().name()
        said = _words(value) if kind == "ERROR" else f"CEL result of type {kind.lower()} could not be converted to bool"
        raise ExpressionError(said)


@bounded.parser(LONGEST, refuse=_too_long, worst=("(", "[", '"', "'", "|", "a.", "device.attributes["))
def compiled(text: str) -> CelExpression:
    """Compile a CEL expression. Raises ExpressionError."""
    return CelExpression(text)


def _compile(text: str) -> Any:
    environment = _environment(names_device_itself(text))
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ExpressionError("compilation failed: it is no Unicode text") from None
    try:
        return environment.compile(text)
    except RuntimeError as error:
        raise ExpressionError(f"compilation failed: {_words(error)}") from None


def _words(error: Any) -> str:
    """What the runtime says, in the words of Kubernetes' runtime where they differ."""
    said = str(error).strip()
    body, _, code = said.rpartition("[")
    said = body.rstrip() if body and code == f"{said.partition(':')[0]}]" else said
    code, colon, rest = said.partition(": ")
    said = rest if colon and code.isupper() and code.isascii() else said
    if said.startswith(_NO_KEY):
        said = "no such key: " + said.removeprefix(_NO_KEY).strip('"')
    return "no such overload" if said.startswith(_NO_OVERLOAD) else said[:_MOST_WORDS]


@lru_cache(maxsize=2)
def _environment(whole: bool) -> Any:
    """`whole`: the device is a value as well, and not only its fields."""
    try:
        cel: Any = import_module("cel_expr_python.cel")
        extensions: Any = [_extension(name) for name in ("bindings", "optional", "strings")]
    except ImportError:
        raise ExpressionError(_MISSING) from None
    text, amount = cel.Type.STRING, cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    by_domain = cel.Type.Map(text, cel.Type.Map(text, cel.Type.DYN))
    types = (text, cel.Type.BOOL, by_domain, cel.Type.Map(text, cel.Type.Map(text, amount)))
    variables = {variable: kind for (_, variable), kind in zip(_VARIABLES, types, strict=True)}
    if whole:
        variables["device"] = amount
    return cel.NewEnv(variables=variables, extensions=extensions, functions=_functions(cel))


def _extension(name: str) -> Any:
    return getattr(import_module(f"cel_expr_python.ext.ext_{name}"), f"Ext{name.capitalize()}")()


def _functions(cel: Any) -> list[Any]:
    kinds = cel.Type
    text, number, truth, real = kinds.STRING, kinds.INT, kinds.BOOL, kinds.DOUBLE
    amount = kinds.Map(text, kinds.DYN)

    def function(name: str, *overloads: tuple[Callable[..., Any], Any, tuple[Any, ...]], member: bool = False) -> Any:
        rows = [
            cel.Overload(f"{name}_{i}", return_type=gives, parameters=list(takes), is_member=member, impl=does)
            for i, (does, gives, takes) in enumerate(overloads)
        ]
        return cel.FunctionDecl(name, rows)

    return [
        function("quantity", (values.of_quantity, amount, (text,))),
        function("isQuantity", (values.is_quantity, truth, (text,))),
        function("semver", (values.of_version, amount, (text,)), (values.of_version, amount, (text, truth))),
        function("isSemver", (values.is_version, truth, (text,)), (values.is_version, truth, (text, truth))),
        function("sign", (values.sign, number, (amount,)), member=True),
        function("isInteger", (values.is_integer, truth, (amount,)), member=True),
        function("asInteger", (values.as_integer, number, (amount,)), member=True),
        function("asApproximateFloat", (values.as_float, real, (amount,)), member=True),
        function("add", (values.add, amount, (amount, amount)), (values.add, amount, (amount, number)), member=True),
        function("sub", (values.sub, amount, (amount, amount)), (values.sub, amount, (amount, number)), member=True),
        function("isLessThan", (values.is_less, truth, (amount, amount)), member=True),
        function("isGreaterThan", (values.is_greater, truth, (amount, amount)), member=True),
        function("compareTo", (values.compare, number, (amount, amount)), member=True),
        function("major", (values.major, number, (amount,)), member=True),
        function("minor", (values.minor, number, (amount,)), member=True),
        function("patch", (values.patch, number, (amount,)), member=True),
        function("includes", *_including(kinds), member=True),
    ]


def _including(kinds: Any) -> list[tuple[Callable[..., Any], Any, tuple[Any, ...]]]:
    """`includes`: an attribute is the value, or is a list that has it."""
    amount, many = kinds.Map(kinds.STRING, kinds.DYN), kinds.List(kinds.DYN)
    singles = (kinds.STRING, kinds.INT, kinds.BOOL, amount)
    of_lists = [(_has, kinds.BOOL, (many, single)) for single in singles]
    return [*of_lists, *((_is, kinds.BOOL, (single, single)) for single in singles)]


def _has(several: list[Any], one: Any) -> bool:
    if len(several) > _MOST_INCLUDED:
        raise ExpressionError(f"'includes' function cannot be applied to lists longer than {_MOST_INCLUDED} values")
    return any(type(each) is type(one) and each == one for each in several)


def _is(one: Any, other: Any) -> bool:
    return one == other
