"""Rules meet objects before anybody has checked their shape: they must hold up against anything."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.builders.written import Json, cluster_queue, gpujob, job, recipe, workload
from tests.cluster.serving import deployment, leader_worker_set, stateful_set
from tests.fuzz.objects import jobset

from gangline.api.admission import KINDS, AdmissionFacts, default, validate

CONTEXT = AdmissionFacts(lambda *_: True, lambda *_: True, lambda *_: False)
leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
examples: list[Json] = [
    *(recipe(), cluster_queue(), cluster_queue("v1beta1"), job(queue="q"), gpujob(), workload(), jobset()),
    *(deployment("d", "q", 2), stateful_set("s", "q", 2), leader_worker_set("l", "q", 2, 2)),
]


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    """A good object with up to three places replaced by anything."""
    obj: Any = copy.deepcopy(draw(st.sampled_from(examples)))
    for _ in range(draw(st.integers(0, 3))):
        *way, last = draw(st.sampled_from([path for path in places(obj) if path not in (("apiVersion",), ("kind",))]))
        target = obj
        for step in way:
            target = target[step]
        target[last] = draw(values)
    return obj


@st.composite
def typed(draw: st.DrawFn) -> Json:
    """Any object that calls itself one of our kinds."""
    group, kind = draw(st.sampled_from(sorted(KINDS)))
    version = draw(st.sampled_from(["v1", "v1alpha1", "v1beta1", "v1beta2"]))
    names = st.sampled_from(["spec", "metadata", "status"])
    fields = draw(st.dictionaries(names, st.dictionaries(st.text(max_size=8), values, max_size=4) | values))
    return {**fields, "apiVersion": f"{group}/{version}", "kind": kind}


@given(damaged() | typed(), st.none() | damaged())
def test_no_object_breaks_a_rule(obj: Json, old: Json | None):
    before = copy.deepcopy(obj)
    result = default(obj, old, CONTEXT)
    assert obj == before
    for errors in (validate(obj, old, CONTEXT), validate(result.obj, old, CONTEXT)):
        assert all(str(error) and error.path for error in errors)
    assert default(result.obj, old, CONTEXT).obj == result.obj


@given(st.sampled_from(examples))
def test_good_objects_are_good(obj: Json):
    assert validate(default(obj, None, CONTEXT).obj, None, CONTEXT) == []
