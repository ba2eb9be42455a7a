"""Quotas of the manager cluster follow the sums of the workers'."""

from __future__ import annotations

from typing import Any, cast

import pytest
from tests.context import a_context

from gangline.api import names
from gangline.api.admission.multikueue import CONTROLLER
from gangline.control.checks.multikueue.clusters.remote_queues import RemoteQueues
from gangline.control.checks.multikueue.manager_quotas import PERIOD, ManagerQuotas
from gangline.control.feed.mirror import Mirror
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.parts.messages import Messages, QuotaAutomationChanged, RemoteQuotasMoved
from gangline.control.writes.status.queue_status import Automation
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert
from gangline.kube.resources import Json, ObjectKey, Resource

START = 1_800_000_000_000
PATIENCE = 60.0
UNSUPPORTED = "UnsupportedConfiguration"


def quotas(*flavors: dict[str, str]) -> list[Json]:
    """One resource group; a flavor for each mapping of resource to nominal quota."""
    rows = [
        {"name": f"f{i}", "resources": [{"name": name, "nominalQuota": most} for name, most in flavor.items()]}
        for i, flavor in enumerate(flavors)
    ]
    return [{"coveredResources": list(flavors[0]), "flavors": rows}]


class Worker:
    """In place of a connection: what it has shown of the queues there."""

    def __init__(self) -> None:
        self.queues = RemoteQueues(lambda: None)
        self.connected, self.lost_at, self.hidden = True, 0, ""

    def hides_queues(self) -> str:
        return self.hidden

    def cluster_queue(self, name: str, *flavors: dict[str, str]) -> None:
        self._see(kube.CLUSTER_QUEUES, {"metadata": {"name": name}, "spec": {"resourceGroups": quotas(*flavors)}})

    def local_queue(self, name: str, cluster_queue: str) -> None:
        meta = {"namespace": "team", "name": name}
        self._see(kube.LOCAL_QUEUES, {"metadata": meta, "spec": {"clusterQueue": cluster_queue}})

    def remove(self, resource: Resource, key: str) -> None:
        self.queues.sink(resource)(Removed(key, "u"))

    def _see(self, resource: Resource, obj: Json) -> None:
        self.queues.sink(resource)(Upsert(self.queues.decode(obj)))


class Manager:
    """One ClusterQueue behind the check, with one LocalQueue; writes here succeed at once."""

    def __init__(self) -> None:
        self.now = START
        self.writes = 0
        self.shown: list[str] = []
        self.workers = {"a": Worker(), "b": Worker()}
        self.mirror = Mirror(lambda change: None, messages=Messages())
        self.part = ManagerQuotas(
            a_context(
                mirror=self.mirror,
                writes=cast(Any, self),
                wake=lambda: None,
                quarantine=Quarantine(lambda subject, obj, what: pytest.fail(what)),
            ),
            lambda: cast(Any, self.workers),
            patience=PATIENCE,
        )
        self.mirror.messages.subscribe(QuotaAutomationChanged, lambda message: self.shown.append(message.cluster_queue))
        self.config(["a", "b"], quotaManagement="Automated")
        parameters = {"apiGroup": names.GROUP, "kind": "MultiKueueConfig", "name": "all"}
        self.put(
            kube.ADMISSION_CHECKS,
            {"metadata": {"name": "elsewhere"}, "spec": {"controllerName": CONTROLLER, "parameters": parameters}},
        )
        self.queue(quotas({"cpu": "5"}))
        meta = {"namespace": "team", "name": "lq"}
        self.put(kube.LOCAL_QUEUES, {"metadata": meta, "spec": {"clusterQueue": "cq"}})

    def put(self, resource: Resource, obj: Json) -> None:
        self.writes += 1
        meta = {"uid": f"u{self.writes}", **obj["metadata"], "resourceVersion": str(self.writes)}
        stored = {"status": {}, **obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta}
        self.mirror.upsert(resource, stored)
        self.part.observe(resource, Upsert(stored))

    def config(self, clusters: list[str], **spec: Any) -> None:
        self.put(kube.MULTI_KUEUE_CONFIGS, {"metadata": {"name": "all"}, "spec": {"clusters": clusters, **spec}})

    def queue(self, groups: list[Json], check: str = "elsewhere") -> None:
        checked = {"admissionChecks": [{"name": check}]}
        spec = {"resourceGroups": groups, "admissionChecksStrategy": checked}
        self.put(kube.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": spec})

    def act(self) -> dict[str, str]:
        """A second later: the nominal quotas, as they are then."""
        self.now += PERIOD
        self.mirror.messages.publish(RemoteQuotasMoved())
        self.part.act(self.now)
        queue = self.mirror.get(kube.CLUSTER_QUEUES, "cq") or {}
        flavors = [flavor for group in queue["spec"]["resourceGroups"] for flavor in group["flavors"]]
        return {row["name"]: row["nominalQuota"] for row in flavors[0]["resources"]}

    def says(self) -> Automation | None:
        return self.part.automation_of("cq")

    # as Writes

    def send(self, key: ObjectKey, verb: str, body: Json, **_: Any) -> None:
        assert verb == "patch"
        raw = self.mirror.get(key.resource, key.text) or {}
        assert body["metadata"]["resourceVersion"] == raw["metadata"]["resourceVersion"]
        self.put(key.resource, {**raw, "spec": {**raw["spec"], **body["spec"]}})


@pytest.fixture
def manager() -> Manager:
    made = Manager()
    for worker in made.workers.values():
        worker.cluster_queue("there", {"cpu": "8"}, {"cpu": "2500m"})
        worker.local_queue("lq", "there")
    return made


def test_the_quota_is_the_sum_over_workers_and_flavors(manager: Manager) -> None:
    assert manager.act() == {"cpu": "21"}
    assert manager.says() == Automation(
        True, "QuotaAutomated", "ClusterQueue quota is automatically managed based on MultiKueue workers."
    )
    assert manager.shown == ["cq"]
    written = manager.writes
    manager.workers["b"].cluster_queue("there", {"cpu": "1"})
    assert manager.act() == {"cpu": "11500m"}
    assert manager.act() == {"cpu": "11500m"}
    assert manager.writes == written + 1, "what is as it should be is not written"
    assert manager.shown == ["cq"]


def test_only_queues_behind_local_queues_of_the_same_name_count_and_each_once(manager: Manager) -> None:
    worker = manager.workers["a"]
    worker.cluster_queue("another", {"cpu": "100"})
    worker.local_queue("other", "another")
    meta = {"namespace": "team", "name": "lq2"}
    manager.put(kube.LOCAL_QUEUES, {"metadata": meta, "spec": {"clusterQueue": "cq"}})
    worker.local_queue("lq2", "there")
    assert manager.act() == {"cpu": "21"}
    worker.remove(kube.LOCAL_QUEUES, "team/lq")
    worker.remove(kube.LOCAL_QUEUES, "team/lq2")
    assert manager.act() == {"cpu": "10500m"}


def test_a_resource_that_no_worker_has_gets_nothing_and_limits_go(manager: Manager) -> None:
    groups = quotas({"cpu": "5", "memory": "1Gi"})
    groups[0]["flavors"][0]["resources"][0]["borrowingLimit"] = "1"
    manager.queue(groups)
    assert manager.act() == {"cpu": "21", "memory": "0"}
    queue = manager.mirror.get(kube.CLUSTER_QUEUES, "cq") or {}
    assert "borrowingLimit" not in queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]


def test_a_worker_that_was_lost_counts_until_it_is_given_up(manager: Manager) -> None:
    lost = manager.workers["a"]
    lost.connected, lost.lost_at = False, manager.now
    assert manager.act() == {"cpu": "21"}
    manager.now = lost.lost_at + 60_000
    assert manager.act() == {"cpu": "10500m"}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (quotas({"memory": "1Gi"}), "manager-side coveredResources is missing resources configured on workers: [cpu]"),
        (
            quotas({"cpu": "1"}, {"cpu": "1"}),
            "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor",
        ),
        ([], "Quota automation requires that the manager-side ClusterQueue has exactly one ResourceFlavor"),
    ],
)
def test_a_queue_for_which_it_cannot_be_done_says_why_and_is_left_alone(
    manager: Manager, groups: list[Json], words: str
) -> None:
    manager.queue(groups)
    written = manager.writes
    manager.now += PERIOD
    manager.part.act(manager.now)
    assert manager.writes == written
    assert manager.says() == Automation(False, UNSUPPORTED, words)


def test_a_worker_that_hides_its_queues_leaves_the_quota_as_it_is(manager: Manager) -> None:
    manager.workers["b"].hidden = "its account may not list localqueues.kueue.x-k8s.io"
    assert manager.act() == {"cpu": "5"}
    assert manager.says() == Automation(
        False, UNSUPPORTED, 'cluster "b": its account may not list localqueues.kueue.x-k8s.io'
    )


def test_nobody_is_managed_unasked(manager: Manager) -> None:
    manager.config(["a", "b"])
    assert manager.act() == {"cpu": "5"}
    assert manager.says() == Automation(
        False, "NotRequested", "MultiKueue manager quota automation has not been requested."
    )
    manager.mirror.remove(kube.MULTI_KUEUE_CONFIGS, "all")
    manager.act()
    assert manager.says() == Automation(False, UNSUPPORTED, "The referenced MultiKueueConfig was not found.")
    manager.queue(quotas({"cpu": "5"}), check="of-somebody-else")
    assert manager.act() == {"cpu": "5"}
    assert manager.says() is None
    assert manager.shown == ["cq"] * 3
