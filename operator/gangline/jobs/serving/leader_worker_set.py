"""LeaderWorkerSets: each of their groups, a leader and its workers, has a Workload of its own, and starts as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gangline import bounded
from gangline.api.jobkinds.declaration import JobError, Path, at, number_at, shown, template_at
from gangline.api.jobkinds.serving import (
    GROUP_SIZE,
    LEADER_TEMPLATE,
    LEADER_WORKER_SET,
    MOST_REPLICAS,
    REPLICAS,
    WORKER_TEMPLATE,
)
from gangline.jobs.pods.held import SET_NAME, HeldPod
from gangline.jobs.serving.parent import comes_from_elsewhere, named, pod_set
from gangline.kube.resources import Json
from gangline.objects import JobObject

LEADER, WORKER, MAIN = "leader", "worker", "main"
#: the controller's label on pods: their index in their group
INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_OWN_KEYS: Final = "leaderworkerset.sigs.k8s.io"
#: annotation: the workers of a group are created once its leader has a node
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


class LeaderWorkerSet:
    """Implements `ServingKind`."""

    declaration = LEADER_WORKER_SET
    has_many = True
    notes: Mapping[str, str] = {}

    def templates(self, parent: JobObject) -> Sequence[Json]:
        worker = template_at(parent, WORKER_TEMPLATE)
        return [template_at(parent, LEADER_TEMPLATE), worker] if has_leader(parent) else [worker]

    def size(self, parent: JobObject) -> int:
        """The number of groups: the replicas, or all groups that there are while a rolling update has created more."""
        wanted = replicas(parent)
        present = at(parent, ("status", "replicas"))
        surges = isinstance(present, int) and present > wanted and _is_surging(parent, wanted)
        return min(present, MOST_REPLICAS) if surges else wanted

    def workload_name(self, parent: JobObject, index: int) -> str:
        return named(self, parent, f"{parent.name}-{index}")

    def pod_sets(self, parent: JobObject) -> list[Json]:
        return pod_sets(parent)

    def adopted_names(self, parent: JobObject) -> Sequence[str]:
        count = self.size(parent) if comes_from_elsewhere(parent) else 0
        return [self.workload_name(parent, index) for index in range(count)]

    def group_of(self, parent: JobObject, pod: HeldPod) -> int | None:
        return bounded.whole(pod.group_index)

    def role(self, parent: JobObject, pod: HeldPod) -> str:
        if not has_leader(parent):
            return MAIN
        return WORKER if pod.is_worker else LEADER

    def comes_in_stages(self, parent: JobObject) -> bool:
        late = at(parent, ("spec", "startupPolicy")) == "LeaderReady"
        return late or _EXCLUSIVE in parent.annotations


def has_leader(parent: JobObject) -> bool:
    return at(parent, LEADER_TEMPLATE) is not None


def replicas(parent: JobObject) -> int:
    """The number of groups that the spec asks for. Raises JobError."""
    found = number_at(parent, REPLICAS, 1)
    if found > MOST_REPLICAS:
        raise JobError(f"must be at most {MOST_REPLICAS}", shown(REPLICAS))
    return found


def pod_sets(parent: JobObject) -> list[Json]:
    """The pod sets of each group. Raises JobError."""
    size, worker = number_at(parent, GROUP_SIZE, 1), template_at(parent, WORKER_TEMPLATE)
    if size < 1:
        raise JobError("must be at least 1", shown(GROUP_SIZE))
    if not has_leader(parent):
        return [_pod_set(MAIN, size, worker, INDEX_LABEL, WORKER_TEMPLATE)]
    leader = _pod_set(LEADER, 1, template_at(parent, LEADER_TEMPLATE), "", LEADER_TEMPLATE)
    return [leader, _pod_set(WORKER, size - 1, worker, INDEX_LABEL, WORKER_TEMPLATE)]


def _pod_set(name: str, count: int, template: Json, index_label: str, path: Path) -> Json:
    """A pod set as in Kueue, but without the keys of LeaderWorkerSet's own controller, which differ between the pods."""
    meta = dict(template.get("metadata") or {})
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in (meta.get(part) or {}).items() if key == SET_NAME or not _is_own(key)}
        meta = {**meta, part: kept} if kept else {key: value for key, value in meta.items() if key != part}
    body: Json = {"metadata": meta, "spec": template["spec"]} if meta else {"spec": template["spec"]}
    return pod_set(name, count, body, index_label, shown(path), asked=template)


def _is_own(key: str) -> bool:
    return key.startswith(_OWN_KEYS)


def _is_surging(parent: JobObject, wanted: int) -> bool:
    """Whether a rolling update is under way that may create groups beyond the replicas."""
    surge = at(parent, ("spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge"))
    updated = at(parent, ("status", "updatedReplicas"))
    allowed = surge > 0 if isinstance(surge, int) else isinstance(surge, str) and surge not in ("", "0", "0%")
    return allowed and (updated if isinstance(updated, int) else 0) < wanted
