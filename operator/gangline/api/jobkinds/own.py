"""The kinds that Gangline has code of its own for: Jobs, JobSets, GPUJobs, pods, StatefulSets and LeaderWorkerSets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gangline.api import names
from gangline.api.jobkinds.declaration import Declaration, Json, Path, Words, labelled
from gangline.api.jobkinds.node_loss import ALWAYS_RESTARTS, BY_ITS_PODS, BY_ITS_SPEC, REPLACES
from gangline.kube.resources import DEPLOYMENTS, GPU_JOBS, JOB_SETS, JOBS, LEADER_WORKER_SETS, STATEFUL_SETS

# --- the kinds with a module of their own in `gangline.jobs`: what they have in common with all others ----------------


#: on the pods of a JobSet
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
#: of Jobs and JobSets
EXPIRY: Final[Path] = ("spec", "ttlSecondsAfterFinished")
JOB: Final = Declaration(
    resource=JOBS,
    framework="batch/job",
    optional=False,
    by_default=True,
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller="kubernetes.io/job-controller",
    expiry=EXPIRY,
    elastic=True,
    node_loss=REPLACES,
    words=Words(
        pod_sets="`main`: min(parallelism, completions)",
        ready="pods ready or succeeded",
        finished="Complete, Failed",
    ),
)
JOB_SET: Final = Declaration(
    resource=JOB_SETS,
    framework="jobset.x-k8s.io/jobset",
    by_default=True,
    shipped=True,
    managed_by=("spec", "managedBy"),
    controller="jobset.sigs.k8s.io/jobset-controller",
    expiry=EXPIRY,
    holds_children=True,
    node_loss=ALWAYS_RESTARTS,
    pod_set_of=labelled(REPLICATED_JOB),
    words=Words(
        pod_sets="each replicated job: replicas × min(parallelism, completions)",
        ready="all Jobs ready or succeeded",
        finished="Completed, Failed",
    ),
)
GPU_JOB: Final = Declaration(
    resource=GPU_JOBS,
    holds_children=True,
    node_loss=BY_ITS_SPEC,
    pod_set_of=labelled(names.ROLE_LABEL),
    words=Words(pod_sets="each role: its replicas", ready="all roles ready", finished="Complete, Failed"),
)
KINDS: Final = (JOB, GPU_JOB, JOB_SET)


# --- serving ----------------------------------------------------------------------------------------------------------
#
# Kinds that serve: without a suspend field, so that their pods wait in their place. `gangline.jobs.serving` has the pod sets.


#: the pod template of Deployments and StatefulSets
TEMPLATE: Final[Path] = ("spec", "template")
REPLICAS: Final[Path] = ("spec", "replicas")
#: those of LeaderWorkerSets; without a template of leaders, the first worker leads
LEADER_TEMPLATE: Final[Path] = ("spec", "leaderWorkerTemplate", "leaderTemplate")
WORKER_TEMPLATE: Final[Path] = ("spec", "leaderWorkerTemplate", "workerTemplate")
GROUP_SIZE: Final[Path] = ("spec", "leaderWorkerTemplate", "size")
#: Kueue's bound of the replicas of a LeaderWorkerSet
MOST_REPLICAS: Final = 1_000_000


def _makes(*kinds: str) -> Callable[[Json, Json], bool]:
    return lambda owner, child: child.get("kind") in kinds


DEPLOYMENT: Final = Declaration(
    resource=DEPLOYMENTS,
    framework="deployment",
    optional=False,
    shipped=True,
    by_pods=True,
    node_loss=BY_ITS_PODS,
    creates=_makes("ReplicaSet"),
    words=Words(pod_sets="each pod alone, `main`: 1", ready="each pod ready", finished="never"),
)
STATEFUL_SET: Final = Declaration(
    resource=STATEFUL_SETS,
    framework="statefulset",
    optional=False,
    shipped=True,
    by_pods=True,
    node_loss=BY_ITS_PODS,
    creates=_makes("Pod"),
    words=Words(pod_sets="`main`: replicas", ready="all pods ready", finished="never"),
)
LEADER_WORKER_SET: Final = Declaration(
    resource=LEADER_WORKER_SETS,
    framework="leaderworkerset.x-k8s.io/leaderworkerset",
    shipped=True,
    by_pods=True,
    node_loss=BY_ITS_PODS,
    followed=(REPLICAS,),
    creates=_makes("StatefulSet", "Pod"),
    words=Words(
        pod_sets="each group alone: `leader`: 1 and `worker`: size - 1, or `main`: size",
        ready="all pods of the group ready",
        finished="never",
    ),
)
SERVING_KINDS: Final = (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
