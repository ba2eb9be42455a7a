"""Node affinity of many terms: the same as Kubernetes' rule applied term by term, at a cost that the terms do not multiply."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.engine.model import Expression, PreferredTerm, Taint, Toleration, expression_matches, tolerates
from gangline.engine.topology.node_filter import NodeSelection, NodeTerms

KEYS = ("a", "b", "c")
VALUES = ("", "1", "2", "-3", "+2", "x", "99999999999999999999")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near")


@st.composite
def expressions(draw: st.DrawFn) -> Expression:
    field = draw(st.integers(0, 5)) == 0
    key = draw(st.sampled_from(("metadata.name", "metadata.uid") if field else KEYS))
    values = st.sampled_from(("n1", "n2") if field else VALUES)
    return Expression(key, draw(st.sampled_from(OPERATORS)), tuple(draw(st.lists(values, max_size=3))), field=field)


terms = st.lists(st.lists(expressions(), max_size=3).map(tuple), max_size=6)
nodes = st.lists(
    st.tuples(st.sampled_from(("n1", "n2")), st.dictionaries(st.sampled_from((*KEYS, "d")), st.sampled_from(VALUES))),
    min_size=1,
    max_size=4,
)


@given(terms, nodes)
def test_all_at_once_is_one_by_one(
    affinity: list[tuple[Expression, ...]], cluster: list[tuple[str, dict[str, str]]]
) -> None:
    together = NodeTerms(affinity)
    for name, labels in cluster:
        matching = together.matching(labels, name)
        for number, term in enumerate(affinity):
            alone = bool(term) and all(expression_matches(each, labels, name) for each in term)
            assert bool(matching >> number & 1) == alone


@given(
    terms,
    st.lists(st.tuples(st.integers(1, 4), st.lists(expressions(), max_size=2).map(tuple)), max_size=5),
    st.lists(st.builds(Toleration, st.sampled_from(("", "t", "u")), st.sampled_from(("Equal", "Exists"))), max_size=3),
    nodes,
    st.lists(st.builds(Taint, st.sampled_from(("t", "u"))), max_size=2),
)
def test_a_selection_judges_by_these_terms(
    affinity: list[tuple[Expression, ...]],
    preferred: list[tuple[int, tuple[Expression, ...]]],
    tolerations: list[Toleration],
    cluster: list[tuple[str, dict[str, str]]],
    taints: list[Taint],
) -> None:
    wanted = tuple(PreferredTerm(weight, each) for weight, each in preferred)
    selection = NodeSelection(tuple(tolerations), affinity=tuple(affinity), preferred=wanted)
    for name, labels in cluster:

        def matches(term: tuple[Expression, ...], labels: dict[str, str] = labels, name: str = name) -> bool:
            return bool(term) and all(expression_matches(each, labels, name) for each in term)

        reason, score = selection.judge(name, labels, taints)
        if not all(any(tolerates(each, taint) for each in tolerations) for taint in taints):
            assert reason.startswith("taint ")
        elif affinity and not any(map(matches, affinity)):
            assert reason == "affinity"
        else:
            assert (reason, score) == ("", sum(each.weight for each in wanted if matches(each.expressions)))


def _steps(work: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    lines = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def _of_other_labels(number: int) -> tuple[Expression, ...]:
    return (Expression(f"label{number}", "Exists"),)


def _of_host_names(number: int) -> tuple[Expression, ...]:
    return (Expression("host", "NotIn", (f"n{number}",)), Expression("gpu", "Gt", (f"{number}",)))


def _of_fields(number: int) -> tuple[Expression, ...]:
    return (Expression("metadata.name", "In", (f"m{number}",), field=True),)


@pytest.mark.parametrize("term", [_of_other_labels, _of_host_names, _of_fields])
@pytest.mark.parametrize("part", ["affinity", "preferred", "tolerations"])
def test_a_further_node_costs_the_same_for_any_number_of_terms(
    part: str, term: Callable[[int], tuple[Expression, ...]]
) -> None:
    def of(count: int) -> NodeSelection:
        match part:
            case "affinity":
                return NodeSelection(affinity=tuple(map(term, range(count))))
            case "preferred":
                return NodeSelection(preferred=tuple(PreferredTerm(1 + n % 100, term(n)) for n in range(count)))
            case _:
                return NodeSelection(tuple(Toleration(f"t{n}", "Exists") for n in range(count)))

    def judged(selection: NodeSelection) -> int:
        def look(number: int) -> object:
            return selection.judge(f"n{number}", {"host": f"n{number}", "gpu": "0"}, (Taint("dedicated"),))

        look(0)
        return _steps(lambda: [look(number) for number in range(1, 50)])

    few, many = judged(of(100)), judged(of(2000))
    assert many <= 1.1 * few
