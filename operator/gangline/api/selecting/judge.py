"""Which devices an expression selects, of groups of devices: the devices of one ResourceSlice each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol, cast

import orjson

from gangline.api.selecting import device_values
from gangline.api.selecting.expressions import Expression, ExpressionError, compiled

#: compiled expressions that are kept
_MOST_COMPILED: Final = 256
#: slices whose devices are kept as values
_MOST_GROUPS: Final = 4096

#: whether a device is selected, or why that cannot be said
Verdict = bool | str


class Group(NamedTuple):
    """`devices`: a JSON list of devices of one driver, as in `spec.devices` of a ResourceSlice."""

    driver: str
    devices: bytes


class UnavailableError(RuntimeError):
    """Nothing can be evaluated for now; the message says why."""


class Judge(Protocol):
    def fault(self, expression: str) -> str:
        """Why it does not compile; "" if it does. Raises UnavailableError."""
        ...

    def judge(self, expression: str, groups: Sequence[Group]) -> list[tuple[Verdict, ...]]:
        """A verdict for each device of each group. Raises UnavailableError."""
        ...


class LocalJudge:
    """Evaluates in this process: for expressions of administrators, and within the process of all others."""

    def fault(self, expression: str) -> str:
        found = _known(expression)
        return found if isinstance(found, str) else ""

    def judge(self, expression: str, groups: Sequence[Group]) -> list[tuple[Verdict, ...]]:
        found = _known(expression)
        return [tuple(_verdict(found, device) for device in _devices(group)) for group in groups]


@lru_cache(maxsize=_MOST_COMPILED)
def _known(expression: str) -> Expression | str:
    """The words where it does not compile."""
    try:
        return compiled(expression)
    except ExpressionError as error:
        return str(error)


@lru_cache(maxsize=_MOST_GROUPS)
def _devices(group: Group) -> list[dict[str, Any] | str]:
    """Their values; the words where a device has none."""
    return [_value(group.driver, device) for device in cast("list[dict[str, Any]]", orjson.loads(group.devices))]


def _value(driver: str, device: dict[str, Any]) -> dict[str, Any] | str:
    try:
        return device_values.value(driver, device)
    except device_values.UnfitError as error:
        return str(error)


def _verdict(expression: Expression | str, device: dict[str, Any] | str) -> Verdict:
    if isinstance(expression, str):
        return expression
    if isinstance(device, str):
        return device
    try:
        return expression.selects(device)
    except ExpressionError as error:
        return str(error)
