"""Expressions in which a domain without attributes is an empty map, as in Kubernetes: has(device.attributes["no.such"].x) is
false.

The runtime of CEL takes maps without defaults, so `device.attributes["d"]` is compiled as an optional lookup instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from gangline import bounded

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
