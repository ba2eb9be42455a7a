"""Many terms of node affinity at once: judging a node takes time by its labels, not by the number of terms.

A pod template may hold thousands of terms, and a cluster thousands of nodes. So the terms are arranged by label once, in time by
their size; each term is a bit, and a label of a node says by one number which terms fail because of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gangline.engine.model import Expression
from gangline.engine.topology.expressions import NAME_FIELD, expression_matches, integer

#: Terms, one bit each: the first term is bit 0.
Terms: TypeAlias = int


class NodeTerms:
    """Terms of which each matches a node if all its expressions do; one without expressions matches none."""

    def __init__(self, terms: Sequence[tuple[Expression, ...]]) -> None:
        self._possible: Terms = 0
        self._labels: dict[str, _Label] = {}
        self._name = _Label()
        #: labels that a node has of those that the terms name -> the terms that fail because it lacks the others
        self._lacking: dict[frozenset[str], Terms] = {}
        for number, expressions in enumerate(terms):
            if expressions:
                self._possible |= 1 << number
                self._add(1 << number, expressions)
        for each in (*self._labels.values(), self._name):
            each.arrange()

    def _add(self, term: Terms, expressions: Sequence[Expression]) -> None:
        listed: dict[int, tuple[_Label, set[str]]] = {}
        for each in expressions:
            if each.field and each.key != NAME_FIELD:
                if not expression_matches(each, {}):  # no node has this field
                    self._possible &= ~term
                continue
            label = self._name if each.field else self._labels.setdefault(each.key, _Label())
            if each.operator != "In":
                label.add(term, each)
            elif id(label) in listed:
                listed[id(label)][1].intersection_update(each.values)
            else:
                listed[id(label)] = label, set(each.values)
        for label, values in listed.values():
            label.add_values(term, values)

    def matching(self, labels: Mapping[str, str], name: str) -> Terms:
        """The terms that match a node of this name, with these labels."""
        present = self._labels.keys() & labels.keys()
        failed = self._name.failing(name) | self._failing_without(frozenset(present))
        for key in present:
            failed |= self._labels[key].failing(labels[key])
        return self._possible & ~failed

    def _failing_without(self, present: frozenset[str]) -> Terms:
        failed = self._lacking.get(present)
        if failed is None:
            failed = 0
            for key, label in self._labels.items():
                if key not in present:
                    failed |= label.absent
            self._lacking[present] = failed
        return failed


@dataclass(slots=True, eq=False)
class _Bounds:
    """Terms that demand more than a bound."""

    all: Terms = 0
    rows: list[tuple[int, Terms]] = field(default_factory=list[tuple[int, Terms]])
    #: the terms of this row and of all later ones, whose bounds are as high or higher
    as_high: list[Terms] = field(default_factory=list[Terms])

    def add(self, term: Terms, bound: int) -> None:
        self.all |= term
        self.rows.append((bound, term))

    def arrange(self) -> None:
        self.rows.sort()
        terms = 0
        self.as_high = [terms := terms | term for _, term in reversed(self.rows)][::-1]

    def failing(self, number: int | None) -> Terms:
        if number is None:
            return self.all
        first = bisect_left(self.rows, (number, 0))
        return self.as_high[first] if first < len(self.rows) else 0


@dataclass(slots=True, eq=False)
class _Label:
    """Which terms fail by the value of one label."""

    #: fail where a node lacks the label, and where it has it with any value
    absent: Terms = 0
    present: Terms = 0
    #: have a list of allowed values; those that allow a value
    limited: Terms = 0
    allowing: dict[str, Terms] = field(default_factory=dict[str, Terms])
    #: those that exclude a value
    excluding: dict[str, Terms] = field(default_factory=dict[str, Terms])
    #: of Gt; and of Lt, where bound and value are negated
    above: _Bounds = field(default_factory=_Bounds)
    below: _Bounds = field(default_factory=_Bounds)

    def add(self, term: Terms, expression: Expression) -> None:
        """Add an expression of any operator but In."""
        match expression.operator:
            case "NotIn":
                for value in expression.values:
                    self.excluding[value] = self.excluding.get(value, 0) | term
            case "Exists":
                self.absent |= term
            case "DoesNotExist":
                self.present |= term
            case "Gt" | "Lt" as operator:
                self.absent |= term
                bound = integer(expression.values[0] if expression.values else "")
                if bound is None:
                    self.present |= term
                elif operator == "Gt":
                    self.above.add(term, bound)
                else:
                    self.below.add(term, -bound)
            case _:
                self.absent |= term
                self.present |= term

    def add_values(self, term: Terms, values: set[str]) -> None:
        """The values of operator In."""
        self.absent |= term
        self.limited |= term
        for value in values:
            self.allowing[value] = self.allowing.get(value, 0) | term

    def arrange(self) -> None:
        self.above.arrange()
        self.below.arrange()

    def failing(self, value: str) -> Terms:
        failed = self.present | (self.limited & ~self.allowing.get(value, 0)) | self.excluding.get(value, 0)
        if self.above.all or self.below.all:
            number = integer(value)
            failed |= self.above.failing(number) | self.below.failing(None if number is None else -number)
        return failed
