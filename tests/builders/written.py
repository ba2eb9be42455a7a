"""Objects as users write them, for tests."""

from __future__ import annotations

from typing import Any

import yaml

Json = dict[str, Any]

#: the ClusterQueue of a published GKE recipe, verbatim
RECIPE = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata:
  name: tpu-training-cq
spec:
  resourceGroups:
  - flavors:
    - name: tpu-v6e-slice
      resources:
      - name: google.com/tpu
        nominalQuota: 32
  queueingStrategy: BestEffortFIFO
  preemption:
    reclaimWithinCohort: Never
    reclaimOutOfCohort:
      enable: true
      reclaimMoreThanNominalQuota: false
"""


def recipe() -> Json:
    return yaml.safe_load(RECIPE)


def cluster_queue(version: str = "v1beta2", **spec: Any) -> Json:
    group = {
        "coveredResources": ["cpu", "nvidia.com/gpu"],
        "flavors": [
            {
                "name": "h100",
                "resources": [
                    {"name": "cpu", "nominalQuota": "64"},
                    {"name": "nvidia.com/gpu", "nominalQuota": 8},
                ],
            }
        ],
    }
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": "team"},
        "spec": {"resourceGroups": [group], "namespaceSelector": {}, **spec},
    }


def template(**metadata: Any) -> Json:
    container = {
        "name": "main",
        "image": "trainer",
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 4}},
    }
    return {"metadata": metadata, "spec": {"containers": [container], "restartPolicy": "Never"}}


def job(*, queue: str = "", labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    labels = dict(labels or {})
    if queue:
        labels["kueue.x-k8s.io/queue-name"] = queue
    metadata: Json = {"name": "train", "namespace": "team"}
    if labels:
        metadata["labels"] = labels
    if annotations:
        metadata["annotations"] = annotations
    body = {"parallelism": 8, "completions": 8, "completionMode": "Indexed", "template": template(), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def gpujob(*, queue: str = "research", **spec: Any) -> Json:
    metadata: Json = {"name": "llama", "namespace": "team"}
    if queue:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": queue}
    roles = [{"name": "worker", "replicas": 8, "gpus": 4, "template": template()}]
    return {
        "apiVersion": "gangline.io/v1alpha1",
        "kind": "GPUJob",
        "metadata": metadata,
        "spec": {"framework": "PyTorch", "roles": roles, **spec},
    }


def workload(**spec: Any) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "job-train-12345", "namespace": "team"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 8, "template": template()}], **spec},
    }
