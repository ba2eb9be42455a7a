"""What the proof blames, and what it lets pass, on revisions made by hand."""

from __future__ import annotations

import itertools
from typing import Any

from bench.evidence import Revision, requests
from bench.official import Kind
from bench.proof import Proof
from hypothesis import given
from hypothesis import strategies as st

from bench import evidence
from gangline.api.read import podspec

Json = dict[str, Any]
GPU = "nvidia.com/gpu"


class Store:
    """An API server's store: each change has the next number and comes a second after the one before."""

    def __init__(self, quota: int = 8, cohort: str = "", borrowing: int | None = None) -> None:
        self.proof = Proof()
        self.numbers = itertools.count(1)
        for name in ("a", "b") if cohort else ("a",):
            self.queue(name, quota, cohort, borrowing)
        for name in ("n1", "n2"):
            self.node(name, "True")

    def put(self, kind: Kind, name: str, *, gone: bool = False, namespace: str = "ns", **body: Any) -> None:
        number = next(self.numbers)
        meta = {"namespace": namespace, **body.pop("metadata", {}), "name": name, "resourceVersion": str(number)}
        if kind not in (evidence.WORKLOADS, evidence.PODS):
            del meta["namespace"]
        self.proof.take(Revision.of(kind, {"metadata": meta, **body}, gone=gone, at=float(number)))

    def queue(self, name: str, quota: int, cohort: str = "", borrowing: int | None = None) -> None:
        amount = {
            "name": GPU,
            "nominalQuota": quota,
            **({"borrowingLimit": borrowing} if borrowing is not None else {}),
        }
        group = {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [amount]}]}
        self.put(
            evidence.CLUSTER_QUEUES,
            name,
            spec={"resourceGroups": [group], **({"cohortName": cohort} if cohort else {})},
        )

    def node(self, name: str, ready: str) -> None:
        self.put(evidence.NODES, name, status={"conditions": [{"type": "Ready", "status": ready}]})

    def grant(self, name: str, gpus: int, *, queue: str = "a", pods: int = 2, asked: int = 2, **more: Any) -> None:
        row = {"name": "main", "count": pods, "flavors": {GPU: "h100"}, "resourceUsage": {GPU: str(gpus)}}
        rows = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        status = {"admission": {"clusterQueue": queue, "podSetAssignments": [row]}, "conditions": rows, **more}
        self.put(evidence.WORKLOADS, name, spec={"podSets": [{"name": "main", "count": asked}]}, status=status)

    def release(self, name: str) -> None:
        self.put(evidence.WORKLOADS, name, gone=True)

    def pod(self, name: str, gang: str, gpus: int = 4, node: str = "n1", **more: Any) -> None:
        meta = {
            "uid": f"{name}-uid",
            "annotations": {"kueue.x-k8s.io/workload": gang},
            "labels": {"kueue.x-k8s.io/podset": "main"},
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}],
        }
        meta.update(more.pop("metadata", {}))
        spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"limits": {GPU: gpus}}}]}
        self.put(evidence.PODS, name, metadata=meta, spec=spec, **more)

    def blamed(self) -> list[str]:
        """Without the revision."""
        said, self.proof.violations = self.proof.violations, []
        return [text.partition("): ")[2] for text in said]


def test_a_life_as_it_should_be() -> None:
    store = Store()
    store.grant("w", 8)
    store.pod("p0", "w")
    store.pod("p1", "w", node="n2")
    store.pod("p0", "w", status={"phase": "Succeeded"})
    store.put(evidence.PODS, "p1", gone=True)
    store.release("w")
    store.grant("v", 8)
    assert store.blamed() == []
    assert store.proof.checked == 4


def test_a_reservation_beyond_the_quota_is_blamed_when_it_is_made_and_not_when_quota_is_lowered() -> None:
    store = Store()
    store.grant("w", 8)
    store.queue("a", 4)
    store.grant("w", 8)
    assert store.blamed() == []
    store.grant("v", 1)
    assert store.blamed() == ["ClusterQueue a has 4 of nvidia.com/gpu in h100; reserved are 9"]


def test_in_a_cohort_the_tree_and_the_borrowing_limit_count() -> None:
    store = Store(cohort="pool", borrowing=4)
    store.grant("w", 12)
    store.grant("v", 5, queue="b")
    assert store.blamed() == ["the tree of cohort pool has 16 of nvidia.com/gpu in h100; reserved are 17"]
    store.release("v")
    store.grant("w", 13)
    assert store.blamed() == ["ClusterQueue a has 12 of nvidia.com/gpu in h100; reserved are 13"]


def test_pods_that_run_on_without_their_reservation_hold_it() -> None:
    store = Store()
    store.grant("w", 8)
    store.pod("p0", "w")
    store.pod("p1", "w", node="n2")
    store.release("w")
    store.pod("p0", "w", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    store.grant("v", 4)
    assert store.blamed() == [
        "ClusterQueue a has 8 of nvidia.com/gpu in h100; reserved are 4 and pods beyond their reservations 8"
        " (ns/p0 on n1, ending, ns/p1 on n2)"
    ]
    store.node("n1", "Unknown")
    store.grant("v", 5)
    assert store.blamed() == [
        "ClusterQueue a has 8 of nvidia.com/gpu in h100; reserved are 5 and pods beyond their reservations 4"
        " (ns/p0 on n1, ending, ns/p1 on n2)"
    ]
    store.release("v")
    store.grant("v", 4)
    assert store.blamed() == [], "whose node doesn't answer may be gone for good"


def test_a_pod_that_was_given_up_with_its_node_is_replaced() -> None:
    store = Store(quota=12)
    store.grant("w", 8)
    store.pod("p0", "w")
    store.pod("p1", "w", node="n2")
    store.node("n2", "Unknown")
    store.pod("p1", "w", node="n2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    store.pod("p2", "w")
    store.node("n2", "True")
    store.grant("v", 4)
    assert store.blamed() == []
    store.pod("p0", "w", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    store.pod("p3", "w", node="n2")
    [blamed] = store.blamed()
    assert blamed.startswith(
        "ClusterQueue a has 12 of nvidia.com/gpu in h100; reserved are 12 and pods beyond their reservations 4 "
    )


def test_a_pod_that_was_given_up_with_its_node_counts_until_it_is_told_to_go() -> None:
    store = Store(quota=12)
    store.grant("w", 8)
    store.pod("p0", "w")
    store.pod("p1", "w", node="n2")
    store.node("n2", "Unknown")
    store.node("n2", "True")
    store.release("w")
    store.grant("v", 8)
    [blamed] = store.blamed()
    assert "reserved are 8 and pods beyond their reservations 8" in blamed
    store.pod("p1", "w", node="n2", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    store.grant("v", 8)
    assert store.blamed() == []


def test_a_gang_that_is_admitted_again_needs_no_quota_for_pods_that_have_ended() -> None:
    store = Store()
    store.grant("w", 4, pods=1, reclaimablePods=[{"name": "main", "count": 1}])
    store.grant("v", 4, pods=2)
    assert store.blamed() == []
    store.grant("v", 5, pods=2)
    assert store.blamed() == ["ClusterQueue a has 8 of nvidia.com/gpu in h100; reserved are 9"]


def test_reclaimed_pods_are_free_and_their_successors_are_not() -> None:
    store = Store()
    store.grant("w", 8)
    store.pod("p0", "w", status={"phase": "Succeeded"})
    store.pod("p1", "w")
    store.grant("w", 8, reclaimablePods=[{"name": "main", "count": 1}])
    store.grant("v", 4)
    assert store.blamed() == []
    store.pod("p2", "w")
    assert store.blamed() == [
        "ClusterQueue a has 8 of nvidia.com/gpu in h100; reserved are 8 and pods beyond their reservations 4"
        " (ns/p1 on n1, ns/p2 on n1)"
    ]


def test_half_a_gang_is_blamed() -> None:
    store = Store()
    store.grant("w", 4, pods=1)
    assert store.blamed() == ["ns/w has quota for 1 of 2 pods of pod set main"]


def test_pods_without_or_beyond_an_admission_are_blamed() -> None:
    store = Store(quota=16)
    store.pod("p", "w")
    assert store.blamed() == ["a pod of ns/w was bound to n1, and its gang is not admitted"]
    store.grant("w", 8)
    store.pod("p1", "w")
    store.pod("p2", "w")
    assert store.blamed() == ["ns/w has 3 pods of pod set main, and is admitted with 2"]
    store.put(evidence.PODS, "p", gone=True)
    store.pod("p", "w", metadata={"uid": "anew"})
    assert store.blamed() == ["ns/w has 3 pods of pod set main, and is admitted with 2"]


def test_what_pods_hold_is_added_up_over_time() -> None:
    store = Store()
    store.grant("w", 8)
    store.pod("p0", "w")
    store.pod("p1", "w")
    store.release("w")
    store.put(evidence.PODS, "p0", gone=True)
    store.put(evidence.PODS, "p1", gone=True)
    proof = store.proof
    assert [level.seconds[GPU] for level in (proof.reserved, proof.used, proof.beyond)] == [24.0, 24.0, 12.0]


def test_a_job_may_start_pods_until_it_is_stopped_when_its_workload_is_deleted_but_nobody_else_gets_their_quota() -> (
    None
):
    store = Store()
    store.grant("w", 8)
    store.release("w")
    store.pod("p0", "w")
    assert store.blamed() == []
    store.put(evidence.PODS, "p0", gone=True)
    store.grant("v", 8)
    store.pod("p1", "w")
    assert store.blamed() == [
        "ClusterQueue a has 8 of nvidia.com/gpu in h100; reserved are 8 and pods beyond their reservations 4"
        " (ns/p1 on n1)"
    ]


# --- what pods request: the judge's reading against the operator's -----------------------------------------------------

AMOUNTS = st.sampled_from(["0", "1", "2", "500m", "1500m", "1Gi", "1.5Gi", "100M", "1e3", 3, 0.5])
RESOURCES = st.dictionaries(st.sampled_from(["cpu", "memory", GPU, "hugepages-2Mi"]), AMOUNTS, max_size=3)
NEEDS = st.fixed_dictionaries({}, optional={"requests": RESOURCES, "limits": RESOURCES})
CONTAINER = st.fixed_dictionaries(
    {"name": st.just("c")}, optional={"resources": NEEDS, "restartPolicy": st.sampled_from(["Always"])}
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINER, max_size=3)},
    optional={"initContainers": st.lists(CONTAINER, max_size=3), "resources": NEEDS, "overhead": RESOURCES},
)


@given(SPECS)
def test_the_judge_and_the_operator_read_the_same_requests(spec: Json) -> None:
    ours = podspec.requests(spec)
    assert {name: amount for name, amount in requests(spec).items() if amount} == {n: a for n, a in ours.items() if a}
