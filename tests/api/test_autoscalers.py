"""What cluster autoscalers publish says which flavors can grow; what only looks like it does not."""

from __future__ import annotations

from typing import Any

import pytest

from gangline.api.read import autoscalers
from gangline.api.read.autoscalers import STALE, NodeGroup, growth, node_groups, node_pool
from gangline.api.read.conditions import millis_of

Json = dict[str, Any]
WRITTEN = "2026-01-31 12:00:00.123456789 +0000 UTC"
NOW = millis_of("2026-01-31T12:00:10Z")

#: as cluster autoscaler 1.30 and newer write it
YAML = """\
time: 2026-01-31 12:00:00.123456789 +0000 UTC
autoscalerStatus: Running
clusterWide:
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 5
        ready: 5
        notStarted: 0
      longUnregistered: 0
      unregistered: 0
  scaleUp:
    status: NoActivity
nodeGroups:
- name: https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-prod-gpu-1a2b3c4d-grp
  health:
    status: Healthy
    nodeCounts:
      registered:
        total: 3
    cloudProviderTarget: 3
    minSize: 0
    maxSize: 10
  scaleUp:
    status: NoActivity
  scaleDown:
    status: NoCandidates
- name: aks-big-12345678-vmss
  health:
    status: Healthy
    cloudProviderTarget: 4
    minSize: 1
    maxSize: 4
- name: "eks-spot-0a1b2c3d-1111-2222-3333-444455556666"
  health:
    status: Healthy
    cloudProviderTarget: 1
    minSize: 0
    maxSize: 9
  scaleUp:
    status: Backoff
    backoffInfo:
      errorCode: QUOTA_EXCEEDED
"""
#: as older ones write it
TEXT = """\
Cluster-autoscaler status at 2026-01-31 12:00:00.123456789 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 notStarted=0 longNotStarted=0 registered=3 longUnregistered=0)
               LastProbeTime:      2026-01-31 12:00:00.1 +0000 UTC m=+42
  ScaleUp:     NoActivity (ready=3 registered=3)

NodeGroups:
  Name:        https://content.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-prod-gpu-1a2b3c4d-grp
  Health:      Healthy (ready=3 unready=0 notStarted=0 longNotStarted=0 registered=3 longUnregistered=0 cloudProviderTarget=3 (minSize=0, maxSize=10))
               LastProbeTime:      2026-01-31 12:00:00.1 +0000 UTC m=+42
  ScaleUp:     NoActivity (ready=3 cloudProviderTarget=3)
  ScaleDown:   NoCandidates (candidates=0)

  Name:        spot
  Health:      Unhealthy (ready=0 unready=1 notStarted=0 registered=1 cloudProviderTarget=1 (minSize=0, maxSize=9))
  ScaleUp:     Backoff (ready=0 cloudProviderTarget=1)
"""  # noqa: E501


def status(text: str, written: str = WRITTEN) -> Json:
    meta = {"annotations": {"cluster-autoscaler.kubernetes.io/last-updated": written}}
    return {"metadata": meta, "data": {"status": text}}


def test_both_forms_of_the_status_are_read() -> None:
    gpu, big, spot = node_groups(status(YAML), NOW)
    assert (gpu.stem, gpu.target, gpu.most, gpu.can_grow) == ("gke-prod-gpu-1a2b3c4d", 3, 10, True)
    assert (big.stem, big.target, big.most, big.can_grow) == ("aks-big-12345678-vmss", 4, 4, False), "it is full"
    assert (spot.target, spot.most, spot.can_grow) == (1, 9, False), "it has just failed to grow"
    gpu, spot = node_groups(status(TEXT), NOW)
    assert (gpu.stem, gpu.target, gpu.most, gpu.can_grow) == ("gke-prod-gpu-1a2b3c4d", 3, 10, True)
    assert (spot.name, spot.target, spot.most, spot.can_grow) == ("spot", 1, 9, False)


@pytest.mark.parametrize("written", ["", "yesterday", "2026-01-31 11:54:00 +0000 UTC", "2026-13-31 11:54:00 +0000 UTC"])
def test_an_autoscaler_that_does_not_write_any_more_makes_no_nodes(written: str) -> None:
    assert node_groups(status(YAML, written), NOW) == ()
    assert node_groups(status(YAML), NOW + STALE) == ()


@pytest.mark.parametrize(
    "text", ["", "nodeGroups:", "nodeGroups:\n- name: a\n  health:\n    maxSize: many", "\0", "Initializing"]
)
def test_a_status_without_groups_says_nothing(text: str) -> None:
    assert node_groups(status(text), NOW) == ()


GKE, EKS = "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup"
EKSCTL = "alpha.eksctl.io/nodegroup-name"
GPU = NodeGroup("x/gke-prod-gpu-1a2b3c4d-grp", 3, 10)


@pytest.mark.parametrize(
    ("group", "node", "labels", "grows"),
    [
        pytest.param(GPU, "gke-prod-gpu-1a2b3c4d-x9z8", {GKE: "gpu"}, True, id="GKE"),
        pytest.param(GPU, "gke-prod-small-gpu-99999999-x9z8", {GKE: "small-gpu"}, False, id="another pool of GKE"),
        pytest.param(NodeGroup("x/gke-prod-gpu-1a2b3c4d-grp", 10, 10), "gke-prod-gpu-1a2b3c4d-x9z8", {}, False, id="full"),
        pytest.param(NodeGroup("aks-a-12345678-vmss", 1, 2), "aks-a-12345678-vmss00000a", {"agentpool": "a"}, True, id="AKS"),
        pytest.param(
            NodeGroup("eks-a-0a1b2c3d-1111-2222-3333-444455556666", 1, 2), "ip-10-0-0-1.ec2.internal", {EKS: "a"}, True, id="EKS"
        ),
        pytest.param(
            NodeGroup("eks-b-a-0a1b2c3d-1111-2222-3333-444455556666", 1, 2), "ip-10-0-0-1", {EKS: "a"}, False, id="ends alike"
        ),
        pytest.param(
            NodeGroup("eks-a-b-0a1b2c3d-1111-2222-3333-444455556666", 1, 2), "ip-10-0-0-1", {EKS: "a"}, False, id="begins alike"
        ),
        pytest.param(NodeGroup("eksctl-c-nodegroup-a-NodeGroup-1F", 1, 2), "n", {EKSCTL: "a"}, True, id="eksctl"),
        pytest.param(NodeGroup("a.c.example.com", 1, 2), "i-0", {"kops.k8s.io/instancegroup": "a"}, True, id="kops"),
        pytest.param(NodeGroup("other", 1, 2), "n1", {GKE: "gpu"}, False, id="a managed pool that no group is of"),
    ],
)  # fmt: skip
def test_a_node_group_grows_the_flavor_of_its_nodes(
    group: NodeGroup, node: str, labels: dict[str, str], grows: bool
) -> None:
    found = growth({"gpu": "h100"}, [(node, {"gpu": "h100", **labels})], [group], [])
    assert bool(found) is grows
    assert not growth({"gpu": "h100"}, [(node, {"gpu": "h100", **labels})], [], []), "labels alone say nothing"


def test_what_grows_a_flavor_is_named() -> None:
    node = ("gke-prod-gpu-1a2b3c4d-x9z8", {"gpu": "h100"})
    assert growth({"gpu": "h100"}, [node], [GPU], []) == (
        "node group gke-prod-gpu-1a2b3c4d of the cluster autoscaler (3 of 10 nodes)"
    )
    assert autoscalers.pool_of([("n", {EKS: "a"}), node]) == f"{EKS}=a"
    assert autoscalers.pool_of([node]) == ""


def a_pool(requirements: list[Json], *, limits: Json | None = None, used: Json | None = None, **labels: str) -> Json:
    template = {"metadata": {"labels": labels}, "spec": {"requirements": requirements}}
    spec = {"template": template, **({"limits": limits} if limits else {})}
    return {"metadata": {"name": "gpu"}, "spec": spec, "status": {"resources": used or {}}}


def rule(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pool", "selected", "grows"),
    [
        pytest.param(a_pool([], team="ml"), {"team": "ml"}, True, id="a label of its nodes"),
        pytest.param(a_pool([], team="ml"), {"team": "web"}, False, id="another value"),
        pytest.param(a_pool([]), {"team": "ml"}, False, id="a label that it does not give"),
        pytest.param(a_pool([]), {"karpenter.sh/nodepool": "gpu"}, True, id="its name"),
        pytest.param(a_pool([]), {"karpenter.sh/nodepool": "cpu"}, False, id="another one's"),
        pytest.param(a_pool([]), {"node.kubernetes.io/instance-type": "p5.48xlarge"}, True, id="any instance type"),
        pytest.param(a_pool([rule("zone", "In", "a", "b")]), {"zone": "b"}, True, id="one of its values"),
        pytest.param(a_pool([rule("zone", "In", "a", "b")]), {"zone": "c"}, False, id="none of its values"),
        pytest.param(a_pool([rule("zone", "NotIn", "a")]), {"zone": "a"}, False, id="a barred value"),
        pytest.param(a_pool([rule("zone", "In", "a"), rule("zone", "In", "b")]), {"zone": "a"}, False, id="both must hold"),
        pytest.param(a_pool([rule("zone", "DoesNotExist")]), {"zone": "a"}, False, id="it has no such label"),
        pytest.param(a_pool([rule("zone", "Exists")]), {"zone": "a"}, True, id="any value"),
        pytest.param(a_pool([], limits={"cpu": "8"}, used={"cpu": "4"}, team="ml"), {"team": "ml"}, True, id="below its limit"),
        pytest.param(a_pool([], limits={"cpu": "8"}, used={"cpu": "8"}, team="ml"), {"team": "ml"}, False, id="at its limit"),
        pytest.param(a_pool([], team="ml"), {}, False, id="a flavor without labels is bounded by quota anyway"),
    ],
)  # fmt: skip
def test_a_node_pool_grows_the_flavors_whose_labels_its_nodes_have(
    pool: Json, selected: dict[str, str], grows: bool
) -> None:
    assert bool(growth(selected, [], [], [node_pool(pool)])) is grows
