"""Workloads are read by hand; what comes out is what the model of their CRD says, for whatever the API server accepts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.api import modelled_workload
from tests.api.generated import KEYS, NAMES, TIMES, Json, objects, with_defaults
from tests.examples import examples

from gangline.api import names
from gangline.api.read import models, parse
from gangline.api.schema.json_schema import structural
from gangline.api.schema.v1beta2.workload import Workload
from gangline.engine import model

SCHEMA = structural(Workload)
T0 = "2026-01-31T12:00:00Z"
METADATA = {"name": "x", "namespace": "y", "uid": "u", "creationTimestamp": T0}
#: facts that only metadata says
OF_METADATA = frozenset(
    (
        *(
            "uid",
            "namespace",
            "name",
            "boost",
            "created",
            "gates",
            "job_uid",
            "checkpoint_seconds",
            "start_by",
            "unscheduled_seconds",
        ),
        *("replaced", "avoid", "healed_at", "restarts_whole", "allowed_flavors", "variant_of", "has_variants"),
        *("unowned", "lone_pod", "waits_for", "array"),
        "replaces",
    )
)


def _conditions(kinds: list[str]) -> st.SearchStrategy[list[Json]]:
    rows = {
        "type": st.sampled_from(kinds),
        "status": st.sampled_from(["True", "False", "Unknown"]),
        "reason": st.sampled_from(["OnHold", "WaitForRecovery", "Overdue", "Preempted", "CausedByJob"]),
        "message": NAMES,
        "lastTransitionTime": TIMES,
    }
    row = st.fixed_dictionaries(rows, optional={"observedGeneration": st.integers(0, 9)})
    return st.lists(row, max_size=8, unique_by=lambda condition: condition["type"])


RESERVED = {"type": names.QUOTA_RESERVED, "status": "True", "reason": "x", "message": "", "lastTransitionTime": T0}
OTHERS = [
    *(names.ADMITTED, names.EVICTED, names.PODS_READY, names.PREEMPTED, names.REQUEUED),
    *(names.FINISHED, names.BACKFILLED, names.OVERRUN, names.STALLED, names.DEACTIVATION_TARGET, "Other"),
    *(names.PODS_REFUSED, names.PODS_UNSCHEDULED),
]
CONDITIONS = st.one_of(
    _conditions(OTHERS).map(lambda others: [RESERVED, *others]), _conditions([names.QUOTA_RESERVED, *OTHERS])
)
TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "spec": st.builds(
            lambda requests, zone: {
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                "nodeSelector": {"zone": zone},
            },
            st.dictionaries(KEYS, st.sampled_from(["1", "200m", "2Ti", 3]), max_size=2),
            NAMES,
        )
    },
)
EVICTIONS = st.lists(
    st.fixed_dictionaries(
        {
            "reason": st.sampled_from([names.PREEMPTED, "PodsReadyTimeout"]),
            "underlyingCause": NAMES,
            "count": st.integers(0, 5),
        }
    ),
    max_size=3,
)


@st.composite
def topology_assignments(draw: st.DrawFn) -> Json:
    """Slices that do not contradict themselves: the schema alone would accept others, too."""
    levels = draw(st.integers(1, 3))
    return {
        "levels": [f"level-{i}" for i in range(levels)],
        "slices": draw(st.lists(_slices(levels), max_size=2)),
    }


def _slices(levels: int) -> st.SearchStrategy[Json]:
    def of(domains: int) -> st.SearchStrategy[Json]:
        individual = st.fixed_dictionaries(
            {"roots": st.lists(NAMES, min_size=domains, max_size=domains)}, optional={"prefix": NAMES, "suffix": NAMES}
        )
        values = st.one_of(
            st.builds(lambda value: {"universal": value}, NAMES),
            st.builds(lambda said: {"individual": said}, individual),
        )
        count = st.integers(1, 9)
        counts = st.one_of(
            st.builds(lambda pods: {"universal": pods}, count),
            st.builds(lambda pods: {"individual": pods}, st.lists(count, min_size=domains, max_size=domains)),
        )
        return st.fixed_dictionaries(
            {
                "domainCount": st.just(domains),
                "valuesPerLevel": st.lists(values, min_size=levels, max_size=levels),
                "podCounts": counts,
            }
        )

    return st.integers(1, 3).flatmap(of)


SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "name": st.sampled_from(["main", "a"]),  # few, so that admissions speak of pod sets that there are
    "conditions": CONDITIONS,
    "template": TEMPLATES,
    "evictions": EVICTIONS,
    "topologyAssignment": topology_assignments(),
}
#: mostly with both parts, since there is nothing to compare in others
WORKLOADS = st.one_of(
    st.fixed_dictionaries({part: objects(SCHEMA["properties"][part], SPECIAL) for part in ("spec", "status")}),
    objects(SCHEMA, SPECIAL),
)


@examples(150)
@given(WORKLOADS)
def test_by_hand_a_workload_is_read_as_its_model_says(body: Json) -> None:
    obj = {"metadata": METADATA, **with_defaults(body, SCHEMA)}
    by_hand = parse.workload(obj)
    expected = modelled_workload.facts(models.read(Workload, obj, ""))
    assert {name: getattr(by_hand, name) for name in expected} == expected


def test_every_fact_is_compared_but_those_of_metadata() -> None:
    compared = set(modelled_workload.facts(Workload()))
    assert compared | OF_METADATA == {field.name for field in fields(model.Workload)}
    assert not compared & OF_METADATA
