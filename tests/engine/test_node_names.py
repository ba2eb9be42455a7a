"""Required node affinity to nodes by their names (matchFields): on flavors with node labels, and with a topology."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.engine import of
from tests.engine.test_nothing_is_missed import DISK, FLAVORS, HOSTS, Cluster, job, node, queue

from gangline.engine.model import Admit, Expression

NAMED = Expression("metadata.name", "In", ("n1",), field=True)
NOT_NAMED = Expression("metadata.name", "NotIn", ("n0",), field=True)
SSD = Expression(DISK, "In", ("ssd",))


def admitted(flavor: str, *terms: tuple[Expression, ...], nodes: tuple[Any, ...] = ()) -> list[str]:
    """The nodes that a job with this affinity is admitted to, none if it waits."""
    world = Cluster(*FLAVORS, HOSTS, queue("qa", flavor), *(nodes or (node("n0"), node("n1"))))
    world.put(job("x", "qa", 6, pod_set={"affinity": terms}))
    found = [each for each in world.settle() if isinstance(each, Admit)]
    if not found:
        return []
    topology = found[0].admission.pod_sets[0].topology
    if topology is not None:
        return [domain.values[-1] for domain in topology.domains]
    return [name for _, name in world.engine._store.capacity._holdings["team/x"].assigned.kept]


@pytest.mark.parametrize("flavor", ["a", "placed"])
def test_a_job_goes_to_the_node_that_it_names(flavor: str) -> None:
    assert admitted(flavor, (NAMED,)) == ["n1"]
    assert admitted(flavor, (NOT_NAMED,)) == ["n1"]
    assert admitted(flavor, (NAMED, SSD)) == ["n1"]
    assert admitted(flavor, (NAMED, Expression(DISK, "In", ("hdd",)))) == []
    assert admitted(flavor, (Expression(DISK, "In", ("hdd",)),), (NAMED,)) == ["n1"], "terms are alternatives"
    assert admitted(flavor, (NAMED,), nodes=(node("n0"),)) == []
    assert admitted(flavor, (Expression("metadata.uid", "In", ("n1",), field=True),)) == [], "there is no such field"


@pytest.mark.parametrize("flavor", ["a", "placed"])
def test_a_label_of_that_name_is_another_thing(flavor: str) -> None:
    labelled = Expression("metadata.name", "In", ("n1",))
    assert admitted(flavor, (labelled,)) == []


def test_of_several_flavors_the_name_of_a_node_decides_on_nodes_alone() -> None:
    """As in Kueue, where only the labels of a flavor are compared with affinities."""
    world = Cluster(*FLAVORS, queue("qa", "narrow", "a"), node("n0"), node("n1", disk=""))
    world.put(job("x", "qa", 6, pod_set={"affinity": ((NAMED,),)}))
    assert of(world.settle(), Admit) == ["x"]
    assert world.workloads["team/x"].admission is not None
    assert world.workloads["team/x"].admission.pod_sets[0].flavors == {"cpu": "a"}
