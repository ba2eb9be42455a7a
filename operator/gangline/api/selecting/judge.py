"""Which devices an expression selects, of groups of devices: the devices of one ResourceSlice each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import orjson

from gangline.api.selecting import device_values
from gangline.api.selecting.expressions import CelExpression, ExpressionError, compiled

#: compiled expressions that are kept
_MOST_COMPILED: Final = 256

#: whether a device is selected, or why that cannot be said
Verdict = bool | str


class DeviceGroup(NamedTuple):
    """`devices`: a JSON list of devices of one driver, as in `spec.devices` of a ResourceSlice."""

    driver: str
    devices: bytes


class UnavailableError(RuntimeError):
    """Expressions cannot be evaluated for now; the message says why."""


class Judge(Protocol):
    def fault(self, expression: str) -> str:
        """Why an expression does not compile; "" if it does. Raises UnavailableError."""
        ...

    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> Sequence[tuple[Verdict, ...] | None]:
        """A verdict for each device of each group; None for groups that are not judged yet. Raises UnavailableError."""
        ...


class Judges(Protocol):
    def of(self, namespace: str) -> Judge:
        """The judge for the selectors of a namespace: where they take time, each namespace waits for its own only."""
        ...


class LocalJudge:
    """Evaluates in this process: for expressions of administrators, and within the process of all others."""

    def of(self, namespace: str) -> LocalJudge:
        return self

    def fault(self, expression: str) -> str:
        found = _known(expression)
        return found if isinstance(found, str) else ""

    def judge(self, expression: str, groups: Sequence[DeviceGroup]) -> list[tuple[Verdict, ...]]:
        return [judged(expression, each.driver, orjson.loads(each.devices)) for each in groups]


def judged(expression: str, driver: str, devices: Sequence[dict[str, Any]]) -> tuple[Verdict, ...]:
    """A verdict for each of these devices of one driver."""
    found = _known(expression)
    return tuple(_verdict(found, driver, device) for device in devices)


@lru_cache(maxsize=_MOST_COMPILED)
def _known(expression: str) -> CelExpression | str:
    """The compiled expression, or the words of the error where it does not compile."""
    try:
        return compiled(expression)
    except ExpressionError as error:
        return str(error)


def _verdict(expression: CelExpression | str, driver: str, device: dict[str, Any]) -> Verdict:
    if isinstance(expression, str):
        return expression
    try:
        return expression.selects(device_values.value(driver, device))
    except (device_values.UnfitError, ExpressionError) as error:
        return str(error)
