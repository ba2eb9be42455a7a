"""Verdicts that are known already: devices of a slice are judged once by each expression, for as long as both are in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from gangline.api.selecting.judge import Group, Judge, Verdict

#: expressions whose words are kept, and slices whose verdicts are kept, over all expressions: about 100 MB
_MOST_FAULTS: Final = 1024
_MOST_GROUPS: Final = 1_000_000


class Verdicts:
    """Asks `judge` for what is not known. Equal rows of verdicts are one object."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._faults: OrderedDict[str, str] = OrderedDict()
        self._known: OrderedDict[str, dict[Group, tuple[Verdict, ...]]] = OrderedDict()
        #: slices whose verdicts are known, over all expressions
        self.kept = 0
        self._rows: dict[tuple[Verdict, ...], tuple[Verdict, ...]] = {}

    def fault(self, expression: str) -> str:
        """Why it does not compile; "" if it does. Raises UnavailableError."""
        if expression not in self._faults:
            self._faults[expression] = self._judge.fault(expression)
            if len(self._faults) > _MOST_FAULTS:
                self._faults.popitem(last=False)
        self._faults.move_to_end(expression)
        return self._faults[expression]

    def of(self, expression: str, groups: Sequence[Group]) -> list[tuple[Verdict, ...]]:
        """A verdict for each device of each group. Raises UnavailableError."""
        known = self._known.setdefault(expression, {})
        self._known.move_to_end(expression)
        unknown = list(dict.fromkeys(group for group in groups if group not in known))
        if unknown:
            found = self._judge.judge(expression, unknown)
            known.update(zip(unknown, (self._rows.setdefault(row, row) for row in found), strict=True))
            self.kept += len(unknown)
        answer = [known[group] for group in groups]
        while self.kept > _MOST_GROUPS and self._known:
            self.kept -= len(self._known.popitem(last=False)[1])
            self._rows.clear()
        return answer
