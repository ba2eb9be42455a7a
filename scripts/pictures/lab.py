"""The cluster of the pictures: three teams in a cohort, their nodes and jobs, as manifests.

The pods' processes are simulated, as in every local cluster: `gangline.io/simulated-runtime` says how long they run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gangline.devcluster.nodes import EqualNodes

Json = dict[str, Any]
QUEUES, GANGS = "kueue.x-k8s.io/v1beta2", "gangline.io/v1alpha1"
ACCELERATOR: Final = "cloud.google.com/gke-accelerator"
MODELS: Final = {"h100": "nvidia-h100-80gb", "a100": "nvidia-tesla-a100", "l4": "nvidia-l4"}
NODES: Final = (
    EqualNodes("h100", 20, {"nvidia.com/gpu": 8}, {ACCELERATOR: MODELS["h100"]}),
    EqualNodes("a100", 16, {"nvidia.com/gpu": 8}, {ACCELERATOR: MODELS["a100"]}),
    EqualNodes("l4", 4, {"nvidia.com/gpu": 4}, {ACCELERATOR: MODELS["l4"]}),
)
#: team -> GPUs of each flavor that it owns; of each flavor one node is nobody's: the spare
QUOTAS: Final = {
    "language": {"h100": 96, "a100": 32},
    "vision": {"h100": 40, "a100": 56},
    "science": {"h100": 16, "a100": 32},
}
HELD: Final = ("team-vision", "nerf-city")
CORDONED: Final = "a100-15"
#: the job that loses a node
SWAPPED: Final = ("team-vision", "segment-anything-37")


def settings() -> Iterator[Json]:
    """Namespaces, flavors, priorities, queues and their policies."""
    for team in (*QUOTAS, "platform"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"team-{team}"}}
    for flavor, model in MODELS.items():
        spec = {"nodeLabels": {ACCELERATOR: model}}
        yield {"apiVersion": QUEUES, "kind": "ResourceFlavor", "metadata": {"name": flavor}, "spec": spec}
    for name, value in {"normal": 100, "urgent": 1000}.items():
        yield {
            "apiVersion": QUEUES,
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": name},
            "value": value,
            "description": f"{name} work",
        }
    for team, quota in QUOTAS.items():
        yield from _queue(team, quota, {"cohortName": "lab", "preemption": PREEMPTION})
    yield from _queue("platform", {"l4": 16}, {})
    backfill = {"depth": 2, "quantiles": {"running": "0.5", "candidate": "0.9"}, "revoke": "Overdue"}
    yield {
        "apiVersion": GANGS,
        "kind": "QueuePolicy",
        "metadata": {"name": "lab"},
        "spec": {
            "clusterQueues": {"names": list(QUOTAS)},
            "backfill": backfill,
            "floor": "Off",
            "recovery": {"spares": 1, "lend": False, "soak": "20m"},
        },
    }


PREEMPTION: Final = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def _queue(team: str, quota: dict[str, int], more: Json) -> Iterator[Json]:
    flavors = [
        {"name": flavor, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}
        for flavor, gpus in quota.items()
    ]
    selector = {"matchLabels": {"kubernetes.io/metadata.name": f"team-{team}"}}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
    spec = {"namespaceSelector": selector, "resourceGroups": groups, **more}
    yield {"apiVersion": QUEUES, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": spec}
    place = {"name": "gpus", "namespace": f"team-{team}"}
    yield {"apiVersion": QUEUES, "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": team}}


# --- jobs -------------------------------------------------------------------------------------------------------------


def _job(
    team: str, name: str, gpus: int, flavor: str, hint: str, user: str, *, runs: str = "", priority: str = "normal"
) -> Json:
    """A gang: a GPUJob of whole nodes, or a Job of one pod if it is smaller. `runs`: how long it runs, if not as its hint."""
    per_pod = min(gpus, 8)
    labels = {
        "kueue.x-k8s.io/queue-name": "gpus",
        "kueue.x-k8s.io/priority-class": priority,
        "gangline.io/user": user,
    }
    metadata = {
        "name": name,
        "namespace": f"team-{team}",
        "labels": labels,
        "annotations": {"gangline.io/expected-runtime": hint},
    }
    image = f"example.com/{name.rstrip('0123456789').rstrip('-')}"
    pod: Json = {
        "nodeSelector": {ACCELERATOR: MODELS[flavor]},
        "containers": [{"name": "main", "image": image}],
    }
    template = {"metadata": {"annotations": {"gangline.io/simulated-runtime": runs or hint}}, "spec": pod}
    if gpus > 8:
        spec: Json = {
            "framework": "PyTorch",
            "workers": gpus // per_pod,
            "gpusPerWorker": per_pod,
            "template": template,
        }
        return {"apiVersion": GANGS, "kind": "GPUJob", "metadata": metadata, "spec": spec}
    pod |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1}
    pod["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": per_pod}}
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "suspend": True, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


#: they start at once and use all quota, borrowed quota included
RUNNING: Final = (
    _job("language", "llama-70b-pretrain", 64, "h100", "9h", "ada"),
    _job("language", "llama-8b-sft-29", 16, "h100", "2h40m", "mira"),
    _job("language", "rlhf-round-13", 16, "h100", "3h30m", "ada"),
    _job("vision", "video-diffusion-13", 32, "h100", "5h", "yuki"),
    _job("vision", "segment-anything-37", 8, "h100", "1h20m", "ben"),
    _job("science", "protein-fold-15", 16, "h100", "4h", "cleo"),
    _job("vision", "vit-large-17", 32, "a100", "6h", "sam"),
    _job("vision", "pose-net-41", 8, "a100", "50m", "ben"),
    *(_job("vision", f"detr-sweep-{121 + n}", 4, "a100", f"{40 + 12 * n}m", "yuki") for n in range(4)),
    _job("science", "md-ensemble-17", 16, "a100", "7h", "cleo"),
    _job("science", "climate-emulator-25", 16, "a100", "3h", "emil"),
    _job("language", "eval-harness-89", 8, "a100", "25m", "noor"),
    _job("language", "eval-harness-90", 8, "a100", "40m", "noor"),
)
#: they start a moment later, on borrowed quota: those that were admitted last are preempted first
BORROWING: Final = tuple(
    _job("vision", f"detr-sweep-{125 + n}", 4, "a100", f"{70 + 15 * n}m", "yuki") for n in range(4)
)
#: they wait: for quota, for nodes, for ever
WAITING: Final = (
    _job("language", "mixtral-8x22b", 64, "h100", "6h", "noor"),
    _job("language", "llama-8b-sft-30", 16, "h100", "2h", "mira"),
    _job("language", "dpo-run-25", 16, "h100", "1h30m", "mira"),
    _job("language", "qwen-sft-45", 8, "h100", "50m", "noor"),
    _job("language", "qwen-sft-46", 8, "h100", "1h", "noor"),
    _job("language", "llama-405b", 256, "h100", "24h", "ada"),
    _job("vision", "vjepa-large", 32, "h100", "4h", "sam"),
    _job("vision", "segment-anything-38", 8, "h100", "1h10m", "ben"),
    _job("vision", "nerf-city", 8, "h100", "1h", "sam"),
    _job("science", "genome-lm-9", 24, "h100", "5h", "emil"),
    _job("science", "protein-fold-16", 16, "h100", "4h", "cleo"),
    _job("vision", "vit-large-18", 32, "a100", "4h", "sam"),
    _job("vision", "pose-net-42", 8, "a100", "3 hours", "ben", runs="3h"),
    *(_job("vision", f"detr-sweep-{129 + n}", 4, "a100", f"{45 + 10 * n}m", "yuki") for n in range(4)),
    _job("science", "md-ensemble-18", 16, "a100", "7h", "cleo"),
    _job("science", "climate-emulator-26", 16, "a100", "3h", "emil"),
)
#: it comes later and takes back what was lent: sweeps of the vision team are preempted
RECLAIMING: Final = _job("language", "eval-harness-91", 8, "a100", "30m", "mira")
#: an urgent job of the science team stops a less urgent one
URGENT: Final = _job("science", "outbreak-fold", 16, "h100", "45m", "cleo", priority="urgent")


def small() -> Iterator[Json]:
    """Short jobs of the platform team, which come every few seconds, wait, run and end."""
    for number in range(48):
        seconds = 24 + number * 7 % 19
        yield _job("platform", f"ci-gpu-{number + 1}", 4, "l4", f"{seconds + 4}s", "ci", runs=f"{seconds}s")
