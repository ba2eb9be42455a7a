"""What is said of a Reservation or QuotaPlan before it is stored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import clusters
from tests.control.test_capacity import node, reservation
from tests.control.test_room import flavor
from tests.control.test_whatif import at, plan

from gangline.api.read import alternatives
from gangline.api.read.expansion import expand
from gangline.control.answers.ahead import capacity
from gangline.control.answers.ahead.plan_checks import MOST, WrongPlanError, check
from gangline.kube import resources as kube

Json = dict[str, Any]
NODES = ("n1", "n2", "n3")


def told(*entries: clusters.Entry, kind: str = "Reservation", name: str = "mine", spec: Any) -> list[str]:
    here = clusters.world_of(flavor(gpu="h100"), *clusters.queue("a", 32), *map(node, NODES), *entries)
    return check(here.answers().source, {"kind": kind, "name": name, "spec": spec})["warnings"]


def spec_of(entry: clusters.Entry) -> Json:
    return entry[1]["spec"]


def test_an_overlap_is_said_with_the_next_free_time_and_other_nodes() -> None:
    other = reservation("upkeep", ["n1", "n2"], 1, 3)
    mine = spec_of(reservation("mine", ["n2"], 2, 4, {"clusterQueues": ["a"]}))
    assert told(other, spec=mine) == [
        f"Not honoured: Reservation upkeep has n2, too, from {at(2)} until {at(3)}: only whom both are for may use them",
        f"Instead: The same nodes are in no other reservation from {at(3)} until {at(5)}",
        "Instead: Nodes of flavor h100 that are in no other reservation at that time: n3",
    ]
    assert told(other, spec=spec_of(reservation("mine", ["n2"], 3, 4, {"clusterQueues": ["a"]}))) == []
    assert told(other, name="upkeep", spec=mine) == [], "it takes the place of the one of its name"


def test_too_many_nodes_are_said_with_what_there_is() -> None:
    window = {"start": at(1), "end": at(2)}
    found = told(spec={"window": window, "nodes": {"anyOf": {"flavor": "h100", "count": 6}}})
    assert found == [
        "Not honoured: spec.nodes.anyOf asks for 6 nodes of flavor h100, which has 3 nodes",
        "Instead: 3 nodes of flavor h100 can be reserved",
    ]


def test_queues_may_have_been_made_just_now() -> None:
    owners = {"clusterQueues": ["new"], "localQueues": [{"namespace": "ml", "name": "new"}]}
    assert told(spec=spec_of(reservation("mine", ["n1"], 1, 2, owners))) == []
    assert told(kind="QuotaPlan", spec={**spec_of(plan(gpus=8)), "clusterQueue": "new"}) == []


def test_a_second_plan_of_a_queue_is_said_with_where_its_overrides_could_be() -> None:
    spec = spec_of(plan(gpus=8))
    assert told(kind="QuotaPlan", spec=spec) == []
    assert told(plan(gpus=4), kind="QuotaPlan", name="p", spec=spec) == [], "it is changed"
    assert told(plan(gpus=4), kind="QuotaPlan", spec=spec) == [
        "Not honoured: QuotaPlan p of ClusterQueue a is older: as long as it exists, this one has no effect",
        "Instead: QuotaPlan p could have these overrides, too",
    ]


def test_so_much_is_said_and_no_more() -> None:
    others = [reservation(f"r{number:02}", ["n1"], 1, 2, {"users": [f"u{number}"]}) for number in range(40)]
    found = told(*others, spec=spec_of(reservation("mine", ["n1"], 1, 2)))
    assert found[MOST] == f"Not honoured: … and {40 - MOST} more"
    assert found[MOST + 1].startswith("Instead: The same nodes") and len(found) == MOST + 3, (
        "alternatives are not left out"
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (None, "spec.kind: must be Reservation or QuotaPlan, not None"),
        ({"kind": "Job", "name": "x"}, "spec.kind: must be Reservation or QuotaPlan, not 'Job'"),
        ({"kind": ["Reservation"], "name": "x"}, "spec.kind"),
        ({"kind": "Reservation", "name": 7}, "spec.name: must be a name"),
        ({"kind": "Reservation", "name": "x" * 300}, "spec.name: must be a name"),
        ({"kind": "Reservation", "name": "x", "spec": []}, "spec.spec.nodes: is required"),
        ({"kind": "Reservation", "name": "x", "spec": {"nodes": {}}}, "spec.spec.nodes: give names"),
        ({"kind": "QuotaPlan", "name": "x", "spec": {"clusterQueue": 1}}, "spec.spec.clusterQueue"),
    ],
)
def test_what_is_no_plan_is_refused_by_its_field(asked: Any, words: str) -> None:
    with pytest.raises(WrongPlanError) as error:
        check(clusters.world_of().answers().source, asked)
    assert str(error.value).startswith(words) or words in str(error.value)


def test_the_answer_says_what_the_status_says_afterwards() -> None:
    """The operator expands what is stored by the same functions."""
    entries = [reservation("upkeep", ["n1", "n2"], 1, 3)]
    mine = reservation("mine", ["n2", "n9"], 2, 4, {"clusterQueues": ["a"]})
    before = told(*entries, spec=spec_of(mine))
    here = clusters.world_of(flavor(gpu="h100"), *clusters.queue("a", 32), *map(node, NODES), *entries, mine)
    stored = expand(here.mirror.objects[kube.RESERVATIONS].values(), *capacity.around(here.answers().source))
    own = next(each for each in stored if each.name == "mine")
    assert before == alternatives.said(own.troubles, own.advice) and len(before) == 4
