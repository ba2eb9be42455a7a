"""Verdicts that are known already: devices of a slice are judged once by each expression, for as long as both are in use.

Each namespace has its own: expressions of one do not push those of another out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

from gangline.api.selecting.judge import DeviceGroup, Judge, UnavailableError, Verdict

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
