"""What is fuzzed, found by code: every route of the webhooks and of the operator, and every marked reader of texts.

A target takes any bytes and raises for a finding alone: an answer that says that something broke or that an API server could
not use, and an error that is not declared.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from tests.fuzz import operator_http, webhooks, worst
from tests.fuzz.draw import Draw

from gangline import bounded

#: bytes of a whole review
LONGEST = 32_768


@dataclass(frozen=True)
class Target:
    """`seeds` are inputs to begin with; nothing is tried that has more bytes than `longest`."""

    name: str
    run: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]] = lambda: ()
    longest: int = 4096


@functools.cache
def targets() -> dict[str, Target]:
    """By name, which is a file's, too."""
    found = [*_reviews(), *_operator(), *_parsers(), *_json()]
    return {target.name: target for target in found}


def _reviews() -> Iterable[Target]:
    for method, path in webhooks.webhooks().routes():
        name = f"webhooks{path.replace('/', '-')}"
        if method != "POST":
            yield Target(f"{name}-{method.lower()}", functools.partial(_plain, method, path))
            continue
        drawn, whole = webhooks.DRAWN.get(path, (webhooks.drawn_review, webhooks.whole_reviews))
        yield Target(name, functools.partial(_drawn, path, drawn), _beginnings)
        yield Target(f"{name}-raw", functools.partial(webhooks.judge, path), whole, LONGEST)


def _drawn(path: str, made: Callable[[Draw], bytes], data: bytes) -> None:
    webhooks.judge(path, made(Draw(data)))


def _plain(method: str, path: str, data: bytes) -> None:
    """With any parameters, a header and a body."""
    draw = Draw(data)
    query, header = draw.text().encode(), draw.raw(draw.byte())
    status, answer = webhooks.webhooks().ask(method, path, data, query, ((b"x", header),))
    assert status < 500, f"HTTP {status}: {answer[:300]!r}"


def _beginnings() -> Iterable[bytes]:
    """Each object as it is, and with one change."""
    for number in range(40):
        yield bytes((number, 1, 0))
        yield bytes((number, 0, 1, number % 12, number)) + b"\x00\x01\x041h1m"


def _operator() -> Iterable[Target]:
    served = operator_http.operator_http()
    for app in served.apps:
        for method, pattern in served.routes(app):
            if method == "HEAD":  # the same handlers as GET
                continue
            name = f"{app}-{method.lower()}{re.sub(r'[^a-z0-9.]+', '-', pattern).rstrip('-')}"
            yield Target(name, functools.partial(_asked, app, method, pattern), operator_http.whole_requests)


def _asked(app: str, method: str, pattern: str, data: bytes) -> None:
    operator_http.judge(app, operator_http.drawn_request(app, method, pattern, Draw(data)))


def _parsers() -> Iterable[Target]:
    for name, parser in worst.parsers().items():
        texts = [text.encode() for text in (*parser.worst, *worst.PIECES)]
        yield Target(f"parser-{name}", functools.partial(_read, parser), lambda texts=texts: texts)


def _read(parser: bounded.Parser, data: bytes) -> None:
    """UTF-8, in which surrogates are let through, as JSON lets them."""
    worst.call(parser, data.decode(errors="surrogateescape"))


def _json() -> Iterable[Target]:
    """Whatever reads JSON agrees with others of what it is."""
    texts = [b'{"a": [1, {"b": null}], "c": "\\u00e9"}', b"[" * 101 + b"]" * 101, b'[1e5, -0.0, "\\"[{"]']
    yield Target("json-load_json", _loaded, lambda: texts)
    yield Target("json-load_shallow", _cut, lambda: texts)


def _loaded(data: bytes) -> None:
    try:
        document = bounded.load_json(data, most_bytes=4096, most_depth=5)
    except bounded.BadJsonError as error:
        assert len(str(error)) < 200
        return
    assert not _deeper(document, 5)


def _cut(data: bytes) -> None:
    """What is no deeper than allowed comes as it is; what is deeper, with nulls in place of the rest."""
    try:
        whole: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            bounded.load_shallow(data, 5)
        except bounded.BadJsonError:
            return
        return
    assert bounded.load_shallow(data, 5) == whole
    cut = orjson.loads(bounded._cut(data, 5))
    assert cut == _shallow(whole, 5)


def _deeper(value: object, most: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_deeper(each, most - 1) for each in inner)


def _shallow(value: Any, most: int) -> Any:
    if not isinstance(value, dict | list):
        return value
    if most == 0:
        return None
    if isinstance(value, dict):
        return {name: _shallow(inner, most - 1) for name, inner in value.items()}
    return [_shallow(inner, most - 1) for inner in value]
