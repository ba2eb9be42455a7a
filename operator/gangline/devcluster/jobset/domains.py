"""Exclusive topology: the domain in which a child Job may run alone. Pure.

JobSet itself lets the scheduler find the place of a Job's first pod by affinity and sends the others after it. The stand-in
chooses before the pods exist: a domain without pods of another Job, where all of the Job's pods fit on healthy nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from gangline.api.read import parse, podspec
from gangline.devcluster.jobset.children import EXCLUSIVE, JOB_KEY, Child
from gangline.engine import tolerates
from gangline.engine.model import ForeignPod, Node
from gangline.kube.resources import Json


def choose(
    child: Child, nodes: Iterable[Json], pods: Sequence[Json], jobs: Iterable[Json], other_than: Set[str] = frozenset()
) -> str:
    """The first domain, by name, that is free and large enough; "" when there is none."""
    level = child.exclusive_by
    known = [parse.node(node) for node in nodes]
    places = {node.name: node.labels[level] for node in known if level in node.labels}
    taken = {*other_than, *_held(level, jobs, child.key), *_occupied(places, pods, child.key)}
    room = _room(child, known, pods, level)
    return next((domain for domain in sorted(room) if domain not in taken and room[domain] >= child.pods), "")


def _held(level: str, jobs: Iterable[Json], mine: str) -> Iterator[str]:
    """Domains of other Jobs that run, or are about to."""
    for job in jobs:
        meta, status = job["metadata"], job.get("status") or {}
        ended = any(
            row["type"] in ("Complete", "Failed") and row["status"] == "True" for row in status.get("conditions") or ()
        )
        if (meta.get("annotations") or {}).get(EXCLUSIVE) != level or meta["labels"].get(JOB_KEY) == mine:
            continue
        if not ended and (not job["spec"].get("suspend") or status.get("active")):
            yield (job["spec"]["template"]["spec"].get("nodeSelector") or {}).get(level, "")


def _occupied(places: Mapping[str, str], pods: Iterable[Json], mine: str) -> Iterator[str]:
    """Domains with a pod of another Job, even one that is ending."""
    for pod in pods:
        key = (pod["metadata"].get("labels") or {}).get(JOB_KEY)
        if key is not None and key != mine and (bound := parse.foreign_pod(pod)) is not None:
            yield places.get(bound.node, "")


def _room(child: Child, nodes: Iterable[Node], pods: Iterable[Json], level: str) -> dict[str, int]:
    """Domain -> how many of the Job's pods fit on its healthy nodes now."""
    needs = podspec.needs(child.group["template"]["spec"]["template"]["spec"])
    used = _used(filter(None, map(parse.foreign_pod, pods)))
    room: dict[str, int] = defaultdict(int)
    for node in nodes:
        if level in node.labels and _suits(node, needs):
            free = (
                (node.allocatable.get(resource, 0) - used[node.name].get(resource, 0)) // size
                for resource, size in needs.requests.items()
                if size > 0
            )
            room[node.labels[level]] += max(0, min(free, default=child.pods))
    return room


def _used(pods: Iterable[ForeignPod]) -> Mapping[str, Mapping[str, int]]:
    used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pod in pods:
        for resource, size in pod.requests.items():
            used[pod.node][resource] += size
    return used


def _suits(node: Node, needs: podspec.PodNeeds) -> bool:
    if not node.ready or node.unschedulable:
        return False
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    barriers = [taint for taint in node.taints if taint.effect in ("NoSchedule", "NoExecute")]
    return all(any(tolerates(toleration, taint) for toleration in needs.tolerations) for taint in barriers)
