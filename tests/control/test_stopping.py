"""What a preemptor hears of those that it waits for: which of their pods have not ended, until when, and what would end them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders import clusters
from tests.builders.clusters import NOW
from tests.objects import PodObject

from gangline.api.read.conditions import timestamp
from gangline.control.answers.sight import Everybody
from gangline.kube import resources as kube

Json = dict[str, Any]
PREEMPTED = (
    "Preempted to accommodate a workload (UID: wl-urgent, JobUID: job-urgent) due to prioritization in the ClusterQueue"
)
WAITS = (
    "couldn't assign flavors to pod set worker: insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more "
    "needed. Pending the preemption of 1 workload(s)"
)


def here(ready: str, *taints: Json, policy: Json | None = None) -> Any:
    """`urgent` has preempted `victim`, whose pod was deleted 100 s ago and had 30 s; its node is as these say."""
    entries = clusters.submitted("victim", 1, "1h", ago=2000, started=1900)
    status = entries[1][1]["status"]
    at = timestamp((NOW - 130) * 1000)
    status["conditions"] += [
        {"type": kind, "status": "True", "reason": "Preempted", "message": PREEMPTED, "lastTransitionTime": at}
        for kind in ("Evicted", "Preempted")
    ]
    urgent = clusters.submitted("urgent", 1, "1h", ago=140, message=WAITS)
    urgent[1][1]["status"]["conditions"][0]["reason"] = "WaitingForPreemptedWorkloads"
    node: Json = {
        "metadata": {"name": "n7", "uid": "n7"},
        "spec": {"taints": list(taints)},
        "status": {
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": timestamp((NOW - 180) * 1000)}]
        },
    }
    policies = [(kube.QUEUE_POLICIES, policy)] if policy else []
    world = clusters.world_of(
        clusters.flavor("h100"), *clusters.queue("a", 8), *entries, *urgent, (kube.NODES, node), *policies
    )
    job = entries[0][1]
    owner = {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "name": "victim",
        "uid": "job-victim",
        "controller": True,
    }
    assert job["metadata"]["uid"] == "job-victim"
    workload = entries[1][1]["metadata"]["name"]
    world.pods.upsert(
        PodObject(
            {
                "metadata": {
                    "name": "victim-0",
                    "namespace": "ml",
                    "uid": "pod",
                    "resourceVersion": "1",
                    "annotations": {"kueue.x-k8s.io/workload": workload},
                    "labels": {"kueue.x-k8s.io/podset": "worker"},
                    "ownerReferences": [owner],
                    "deletionTimestamp": timestamp((NOW - 70 if ready != "True" else NOW + 20) * 1000),
                },
                "spec": {"nodeName": "n7", "containers": [{"name": "c"}]},
                "status": {"phase": "Running"},
            }
        )
    )
    return world.answers()


async def stopping(answers: Any) -> list[str]:
    _, lines = await answers.why(Everybody(), "ml", "", "urgent")
    return [line.text for line in lines if line.label == "stopping"]


async def test_a_pod_in_its_grace_period_ends_by_itself() -> None:
    assert await stopping(here("True")) == ["gpujob/victim: pod victim-0 on node n7 has 20s left to end"]


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        ({"enabled": False}, "it stays until the node returns; an administrator who is sure that the node is off"),
        ({"enabled": True, "forceDelete": True}, "it is deleted by force in "),
        ({"enabled": True}, "it stays until the node returns, since its successor has its name; an administrator"),
    ],
)
async def test_a_pod_on_a_dead_node_is_named_with_what_ends_it(recovery: Json, words: str) -> None:
    spec = {"clusterQueues": {"names": ["a"]}, "recovery": recovery}
    policy = {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "QueuePolicy",
        "metadata": {"name": "p", "uid": "p"},
        "spec": spec,
    }
    (line,) = await stopping(here("Unknown", policy=policy))
    assert line.startswith("gpujob/victim: pod victim-0 on node n7, out of reach for 3m: ")
    assert words in line
    if not recovery["enabled"]:
        assert "kubectl taint node n7 node.kubernetes.io/out-of-service=lost:NoExecute" in line
