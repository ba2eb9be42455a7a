"""Cohorts say their share where fair sharing is on."""

from __future__ import annotations

from typing import Any

import pytest
from tests.context import a_context
from tests.control.test_minimal_objects import whole

from gangline.control.feed.mirror import Mirror
from gangline.control.queues.queue_statuses import QueueStatuses
from gangline.control.writes.outgoing import Write
from gangline.engine import Engine, model
from gangline.kube import resources as kube
from gangline.kube.reflector import Upsert

Json = dict[str, Any]


class Writer:
    """Renders each write at once, as if there were nothing else to do."""

    backlog = 0

    def __init__(self) -> None:
        self.sent: dict[tuple[str, str], Any] = {}

    def submit(self, write: Write) -> None:
        self.sent[write.key.resource.kind, write.key.name] = write.body() if callable(write.body) else write.body


def quotas(nominal: str) -> Json:
    resources = [{"name": "cpu", "nominalQuota": nominal}]
    return {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}]}


def running(cpus: int) -> model.Workload:
    assigned = model.PodSetAssignment("main", 1, {"cpu": "f"}, {"cpu": cpus * 1000})
    pods = model.PodSet("main", 1, {"cpu": cpus * 1000})
    return model.Workload("w", "ns", "w", "lq", (pods,), admission=model.Admission("q", (assigned,)), admitted=True)


@pytest.mark.parametrize("fair", [True, False])
def test_a_cohort_shows_its_weighted_share_as_long_as_it_borrows_and_then_zero(fair: bool) -> None:
    engine = Engine(model.Settings(fair_sharing=model.FairSharing()))
    mirror, writer = Mirror(engine.observe), Writer()
    part = QueueStatuses(a_context(mirror=mirror, writes=None, writer=writer, engine=engine, now=lambda: 0), fair=fair)  # type: ignore[arg-type]
    for kind, spec, name in (
        ("ResourceFlavor", {}, "f"),
        ("Cohort", {"parentName": "all"}, "team"),
        ("Cohort", quotas("8"), "all"),
        ("ClusterQueue", {"cohortName": "team", **quotas("2")}, "q"),
    ):
        mirror.upsert(kube.BY_KIND[kind], whole(kind, {"spec": spec}, name))
    part.lead()
    engine.observe(model.Put(running(7)))
    writer.sent.clear()
    part._queued.clear()
    part.act(0)
    shown = {name: body for (kind, name), body in writer.sent.items() if kind == "Cohort"}
    if not fair:
        assert shown == {}
        return
    # 7 used, 2 of them its own: 5 of the 10 that the cohort above can lend
    assert shown == {
        "team": {"status": {"fairSharing": {"weightedShare": 500}}},
        "all": {"status": {"fairSharing": {"weightedShare": 0}}},
    }
    mirror.remove(kube.CLUSTER_QUEUES, "q")
    engine.observe(model.Gone(model.Workload, "ns/w"))
    engine.decide(1, 10)
    writer.sent.clear()
    part.act(0)
    assert writer.sent["Cohort", "team"] == {"status": {"fairSharing": {"weightedShare": 0}}}


@pytest.mark.parametrize("fair", [True, False])
def test_a_cohort_without_queues_shows_a_share_of_zero(fair: bool) -> None:
    engine = Engine(model.Settings(fair_sharing=model.FairSharing()))
    mirror, writer = Mirror(engine.observe), Writer()
    part = QueueStatuses(a_context(mirror=mirror, writes=None, writer=writer, engine=engine, now=lambda: 0), fair=fair)  # type: ignore[arg-type]
    cohort = whole("Cohort", {"spec": {}}, "new")
    mirror.upsert(kube.COHORTS, cohort)
    part.observe(kube.COHORTS, Upsert(cohort))
    part.act(0)
    assert writer.sent == ({("Cohort", "new"): {"status": {"fairSharing": {"weightedShare": 0}}}} if fair else {})
    cohort["status"] = {"fairSharing": {"weightedShare": 0}}
    part.observe(kube.COHORTS, Upsert(cohort))
    assert part._new_cohorts == set()
