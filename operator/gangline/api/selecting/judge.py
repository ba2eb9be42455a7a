"""Which devices an expression selects, of groups of devices: the devices of one ResourceSlice each."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import orjson

from gangline.api.selecting import values
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
        return expression.selects(values.value(driver, device))
    except (values.UnfitError, ExpressionError) as error:
        return str(error)


# --- verdicts ---------------------------------------------------------------------------------------------------------
#
# Verdicts that are known already: devices of a slice are judged once by each expression, for as long as both are in use.
#
# Each namespace has its own: expressions of one do not push those of another out.


#: expressions whose words are kept, and slices whose verdicts are kept, over all expressions: about 25 MB
_MOST_FAULTS: Final = 1024
_MOST_GROUPS: Final = 250_000
#: what is said of a claim whose selectors are being evaluated
_LATER: Final = "its CEL selectors are being evaluated"


class CelVerdicts:
    """Asks `judge` for what is not known. Equal rows of verdicts are one object."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._faults: OrderedDict[str, str] = OrderedDict()
        self._known: OrderedDict[str, dict[DeviceGroup, tuple[Verdict, ...]]] = OrderedDict()
        #: slices whose verdicts are known, over all expressions
        self.kept = 0
        self._rows: dict[tuple[Verdict, ...], tuple[Verdict, ...]] = {}

    def fault(self, expression: str) -> str:
        """Why an expression does not compile; "" if it does. Raises UnavailableError."""
        if expression not in self._faults:
            self._faults[expression] = self._judge.fault(expression)
            if len(self._faults) > _MOST_FAULTS:
                self._faults.popitem(last=False)
        self._faults.move_to_end(expression)
        return self._faults[expression]

    def ask(self, expressions: Iterable[str]) -> None:
        """Ask why each of these does not compile, if that is not known. Raises UnavailableError."""
        unavailable: UnavailableError | None = None
        for expression in expressions:
            try:
                self.fault(expression)
            except UnavailableError as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable

    def of(self, expression: str, groups: Sequence[DeviceGroup]) -> list[tuple[Verdict, ...]]:
        """A verdict for each device of each group. Raises UnavailableError."""
        known = self._known.setdefault(expression, {})
        self._known.move_to_end(expression)
        unknown = list(dict.fromkeys(group for group in groups if group not in known))
        if unknown:
            found = self._judge.judge(expression, unknown)
            judged = {group: row for group, row in zip(unknown, found, strict=True) if row is not None}
            known.update({group: self._rows.setdefault(row, row) for group, row in judged.items()})
            self.kept += len(judged)
        answer = [known.get(group) for group in groups]
        while self.kept > _MOST_GROUPS and self._known:
            self.kept -= len(self._known.popitem(last=False)[1])
            self._rows.clear()
        complete = [row for row in answer if row is not None]
        if len(complete) < len(answer):
            raise UnavailableError(_LATER)
        return complete
