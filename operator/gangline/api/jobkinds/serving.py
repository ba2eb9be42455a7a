"""Kinds that serve: without a suspend field, so that their pods wait in their place. `gangline.jobs.serving` has the pod sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gangline.api.jobkinds.declaration import Declaration, Json, Path, Words
from gangline.api.jobkinds.node_loss import BY_ITS_PODS
from gangline.kube.resources import DEPLOYMENTS, LEADER_WORKER_SETS, STATEFUL_SETS

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
KINDS: Final = (DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)
