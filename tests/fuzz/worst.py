"""The worst texts that a parser can be given, and how much work it has with them, counted in steps of the interpreter."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import gangline
import gangline_webhooks
from gangline.bounded import PARSERS, Parser

MEGABYTE = 2**20
#: what is hard for readers of numbers, durations, times, lists, selectors, JSON and names
PIECES = (
    *("9", "0", "٣", "-", "+", ".", "1.", "1e", "e9", "1Ki", "1h", "1h1", "1µs", "T", "2026-01-31T12:00:00Z"),
    *(",", "a,", "a=b,", "1-", "0,1,", ":", "/", "a/b", " ", "\n", "\t", "=", '"', "\\", "'", "[", "]", "{", "}", "("),
    *('{"a":', '[{"a":', "[],{},", '"a":1,', "\\u0000", "\x00", "é", "\U0001f600", "%", "$(", "!", "*", "a", "A-"),
)


def parsers() -> dict[str, Parser]:
    """Every marked function of the code base, whatever has been imported by now."""
    for package in (gangline, gangline_webhooks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return dict(PARSERS)


def texts(parser: Parser, size: int) -> Iterator[str]:
    """Texts of `size` characters: pieces over and over, alone and as a JSON list, and brackets that are closed."""
    for piece in dict.fromkeys((*parser.worst, *PIECES)):
        row = (piece * (size // len(piece) + 1))[:size]
        yield row
        yield f"1{row[1:]}"
        yield f"[{row[1:-2].rstrip(',')}]"
    half = size // 2
    yield "[" * half + "]" * half
    level = '{"a":'
    yield level * (size // 6) + "1" + "}" * (size // 6)


def call(parser: Parser, text: str) -> object:
    """What it makes of the text; an error that is no ValueError is raised."""
    function = inspect.unwrap(parser.call)
    first, *rest = inspect.signature(function).parameters.values()
    given: Any = text.encode(errors="surrogatepass") if str(first.annotation).startswith("bytes") else text
    more = [_any(each) for each in rest if each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: _any(each) for each in rest if each.default is each.empty and each.kind is each.KEYWORD_ONLY}
    try:
        answer = parser.call(given, *more, **named)
        if inspect.isawaitable(answer):
            return asyncio.run(answer)  # type: ignore[arg-type]
        return list(answer) if inspect.isgenerator(answer) else answer
    except ValueError:
        return None


def _any(parameter: inspect.Parameter) -> Any:
    """Something to give for a further parameter."""
    return {"int": 1, "float": 1.0, "str": "spec.field", "bool": False}.get(str(parameter.annotation))


def steps(work: Callable[[], object]) -> int:
    """Instructions of Python that it takes; what a function in C does counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
