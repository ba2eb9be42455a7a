"""One expression: compiled, and evaluated for one device after the other.

The environment is that of Kubernetes for devices, as far as the runtime of CEL has it: the standard library, strings, optional
values, `cel.bind`, quantities, semantic versions, and `includes` of lists. It bounds how deep an expression may be and how
often its macros iterate; what else an expression may cost is bounded by the process that it is evaluated in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from gangline import bounded
from gangline.api.selecting import amounts, device_values, domains
from gangline.api.selecting.domains import LONGEST

#: characters of an error that are kept
_MOST_WORDS: Final = 1000
_FIELDS: Final = (device_values.DRIVER, device_values.SHARED, device_values.ATTRIBUTES, device_values.CAPACITY)
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
        self._whole = domains.names_device_itself(text)
        try:
            return _compile(domains.with_empty_domains(text))
        except ExpressionError:
            return program

    def selects(self, device: dict[str, Any]) -> bool:
        """`device`: from `device_values.value`. Raises ExpressionError."""
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
    environment = _environment(domains.names_device_itself(text))
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
        function("quantity", (amounts.of_quantity, amount, (text,))),
        function("isQuantity", (amounts.is_quantity, truth, (text,))),
        function("semver", (amounts.of_version, amount, (text,)), (amounts.of_version, amount, (text, truth))),
        function("isSemver", (amounts.is_version, truth, (text,)), (amounts.is_version, truth, (text, truth))),
        function("sign", (amounts.sign, number, (amount,)), member=True),
        function("isInteger", (amounts.is_integer, truth, (amount,)), member=True),
        function("asInteger", (amounts.as_integer, number, (amount,)), member=True),
        function("asApproximateFloat", (amounts.as_float, real, (amount,)), member=True),
        function("add", (amounts.add, amount, (amount, amount)), (amounts.add, amount, (amount, number)), member=True),
        function("sub", (amounts.sub, amount, (amount, amount)), (amounts.sub, amount, (amount, number)), member=True),
        function("isLessThan", (amounts.is_less, truth, (amount, amount)), member=True),
        function("isGreaterThan", (amounts.is_greater, truth, (amount, amount)), member=True),
        function("compareTo", (amounts.compare, number, (amount, amount)), member=True),
        function("major", (amounts.major, number, (amount,)), member=True),
        function("minor", (amounts.minor, number, (amount,)), member=True),
        function("patch", (amounts.patch, number, (amount,)), member=True),
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
