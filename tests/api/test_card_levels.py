"""Cards in topology assignments: one write with the admission, and the same when it is read."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import orjson
import pytest
from hypothesis import given

from gangline.api.read import parse, render
from gangline.api.read.workloads import admissions
from gangline.engine import model

HOST = "kubernetes.io/hostname"
NAMES = st.text("GPU-abc:1#/~", min_size=1, max_size=40).filter(lambda name: name != "-")
SEATS = st.builds(
    lambda card, milli, memory, how: model.CardSeat(card, milli, memory, how == "alone", "" if how == "alone" else how),
    NAMES,
    st.integers(0, 4000),
    st.integers(0, 1 << 20),
    st.sampled_from(["", "alone", "1g.10gb"]),
)
PODS = st.lists(SEATS, max_size=3).map(tuple)


@st.composite
def domains(draw: st.DrawFn) -> tuple[model.Domain, ...]:
    found: list[model.Domain] = []
    for number in range(draw(st.integers(1, 4))):
        pods = draw(st.lists(PODS, min_size=1, max_size=4))
        found.append(model.Domain((f"n{number}",), len(pods), tuple(pods) if any(pods) else ()))
    return tuple(found)


def admission(*placed: model.Domain) -> model.Admission:
    topology = model.TopologyAssignment((HOST,), placed)
    return model.Admission(
        "cq", (model.PodSetAssignment("main", sum(each.count for each in placed), {}, {}, topology),)
    )


@given(domains())
def test_cards_come_back_as_they_were_written(placed: tuple[model.Domain, ...]) -> None:
    written = orjson.loads(orjson.dumps(render.admission(admission(*placed))))
    assert parse.admission(written) == admission(*placed)


def test_a_written_card() -> None:
    seat = model.CardSeat("GPU-1", 500, 8192)
    pods = ((seat,), (seat,), (model.CardSeat("GPU-2", 1000, 40960, alone=True),))
    written = render.topology_assignment(
        model.TopologyAssignment((HOST,), (model.Domain(("n1",), 3, pods), model.Domain(("n2",), 1)))
    )
    assert written["levels"] == [HOST, "gangline.io/card-1"]
    (part,) = written["slices"]
    assert part["podCounts"] == {"individual": [2, 1, 1]}
    assert part["valuesPerLevel"][1] == {"individual": {"roots": ["GPU-1:500:8192:", "GPU-2:1000:40960:alone", "-"]}}


@pytest.mark.parametrize(
    "value", ["GPU-1", "GPU-1:500", "GPU-1:-1:3:", ":1:1:", "GPU-1:9999999999999999999:1:", "x" * 200]
)
def test_what_is_no_card_is_refused(value: str) -> None:
    body: Any = render.admission(admission(model.Domain(("n1",), 1, ((model.CardSeat("c", 1, 1),),))))
    (row,) = body["podSetAssignments"]
    row["topologyAssignment"]["slices"][0]["valuesPerLevel"][1] = {"universal": value}
    with pytest.raises(parse.ParseError, match=r"podSetAssignments\[0\].topologyAssignment.slices"):
        parse.admission(body)


def test_few_bytes_do_not_stand_for_many_pods() -> None:
    body: Any = render.admission(admission(model.Domain(("n1",), 1, ((model.CardSeat("c", 1, 1),),))))
    (row,) = body["podSetAssignments"]
    row["topologyAssignment"]["slices"][0]["podCounts"] = {"universal": 2_000_000_000}
    with pytest.raises(parse.ParseError, match="more than 100000 pods with cards"):
        parse.admission(body)


@given(domains())
def test_without_cards_the_hosts_stay_with_as_many_pods(placed: tuple[model.Domain, ...]) -> None:
    written = orjson.loads(orjson.dumps(render.topology_assignment(model.TopologyAssignment((HOST,), placed))))
    stripped = admissions.stripped(written)
    hosts = tuple(model.Domain(each.values, each.count) for each in placed)
    assert stripped == render.topology_assignment(model.TopologyAssignment((HOST,), hosts))
    assert admissions.stripped(stripped) is stripped, "there is nothing left to take out"
