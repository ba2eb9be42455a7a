"""Which nodes a pod may run on at all: taints, node selector, required affinity; and its preference for each of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gangline.engine.model import Affinity, Expression, PodSet, PreferredTerm, Taint, Toleration
from gangline.engine.model.nodes import RESERVED
from gangline.engine.model.selection import NAME_FIELD, expression_matches, integer, tolerates
from gangline.engine.topology.policy_filter import PolicyAsk

# --- node terms -------------------------------------------------------------------------------------------------------
# Many terms of node affinity at once: judging a node takes time by its labels, not by the number of terms.
#
# A pod template may hold thousands of terms, and a cluster thousands of nodes. So the terms are arranged by label once, in time
# by their size; each term is a bit, and a label of a node says by one number which terms fail because of it.


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


# --- node filter ------------------------------------------------------------------------------------------------------


#: Why a node is excluded ("" = it is not), as failure texts name it, and its preferred-affinity score.
Verdict: TypeAlias = tuple[str, int]

_BINDING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """What a pod set requires of a node, apart from capacity. Equal selections share their verdicts."""

    tolerations: tuple[Toleration, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    affinity: Affinity = ()
    preferred: tuple[PreferredTerm, ...] = ()
    #: what a placement policy looks at besides; None = there is none, or it excludes nothing and looks at nothing
    policy: PolicyAsk | None = None
    #: the windows of Reservations on whose nodes the pods may be, by name
    windows: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        pod_set: PodSet,
        tolerations: tuple[Toleration, ...],
        *,
        scored: bool,
        policy: PolicyAsk | None = None,
    ) -> NodeSelection:
        """The selection of a pod set. `tolerations` are the flavor's, added to the pods' own; `scored`: preferences count."""
        return cls(
            tolerations=pod_set.tolerations + tolerations,
            selector=tuple(sorted(pod_set.node_selector.items())),
            affinity=pod_set.affinity,
            preferred=pod_set.preferred_affinity if scored else (),
            policy=policy,
            windows=pod_set.windows,
        )

    def judge(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> Verdict:
        """The first reason that excludes a node, or its score."""
        return _judge_of(self).judge(name, labels, taints)


#: No requirements: every node is as good as any other.
ANY_NODE = NodeSelection()


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


class _Judge:
    """A selection, prepared for many nodes: whoever wrote it, a node costs time by its own labels and taints only."""

    __slots__ = ("_preferred", "_required", "_selection", "_tolerated", "_weights")

    def __init__(self, selection: NodeSelection) -> None:
        self._selection = selection
        self._tolerated: dict[Taint, bool] = {}
        self._required = NodeTerms(selection.affinity) if selection.affinity else None
        self._preferred = NodeTerms([term.expressions for term in selection.preferred]) if selection.preferred else None
        #: weight -> the preferred terms that have it, one bit each
        self._weights: dict[int, int] = {}
        for number, term in enumerate(selection.preferred):
            self._weights[term.weight] = self._weights.get(term.weight, 0) | 1 << number

    def judge(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> Verdict:
        for taint in taints:
            if taint.effect == RESERVED and taint.value not in self._selection.windows:
                return f"reserved ({taint.value.partition('/')[0]})", 0
            if taint.effect in _BINDING_EFFECTS and not self._tolerates(taint):
                return f'taint "{_taint_text(taint)}"', 0
        for key, value in self._selection.selector:
            if labels.get(key) != value:
                return "nodeSelector", 0
        if self._required is not None and not self._required.matching(labels, name):
            return "affinity", 0
        return "", self._score(name, labels) if self._preferred is not None else 0

    def _tolerates(self, taint: Taint) -> bool:
        known = self._tolerated.get(taint)
        if known is None:
            known = self._tolerated[taint] = any(tolerates(each, taint) for each in self._selection.tolerations)
        return known

    def _score(self, name: str, labels: Mapping[str, str]) -> int:
        matching = self._preferred.matching(labels, name) if self._preferred is not None else 0
        return (
            sum(weight * (matching & terms).bit_count() for weight, terms in self._weights.items()) if matching else 0
        )


#: The judges of the selections that were asked last, by the selection's identity. Nodes are judged one after the other for the
#: same selection, and a large one is kept no longer than that.
_KEPT: Final = 4
_judges: dict[int, tuple[NodeSelection, _Judge]] = {}


def _judge_of(selection: NodeSelection) -> _Judge:
    found = _judges.get(id(selection))
    if found is None:
        while len(_judges) >= _KEPT:
            del _judges[next(iter(_judges))]
        found = _judges[id(selection)] = selection, _Judge(selection)
    return found[1]
