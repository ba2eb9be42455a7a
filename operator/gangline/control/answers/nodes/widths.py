"""Pods that are larger than any node of their queue's flavors: no end of any job lets them start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline.api.read import parse
from gangline.control.answers.workloads.reasons import count
from gangline.control.answers.workloads.words import amount
from gangline.control.feed.mirror import Mirror
from gangline.engine import Engine
from gangline.engine.model import Node, PodSet
from gangline.kube import resources as kube
from gangline.kube.resources import Json


@dataclass(slots=True)
class Widths:
    """The largest nodes of each flavor, counted once per answer."""

    mirror: Mirror
    engine: Engine
    _largest: dict[str, Mapping[str, int] | None] = field(default_factory=dict[str, "Mapping[str, int] | None"])

    def too_wide(self, key: str, cluster_queue: str) -> str:
        """Why a pod of the Workload fits on no node; "" if one does, or if nodes may be added, or are elsewhere."""
        value = self.mirror.workload_value(key)
        queue = self.mirror.get(kube.CLUSTER_QUEUES, cluster_queue)
        if value is None or queue is None or _has_checks(queue.spec):
            return ""
        return next((text for each in value.pod_sets if (text := self._why(each, queue.spec))), "")

    def _why(self, pods: PodSet, spec: Json) -> str:
        for group in spec.get("resourceGroups") or ():
            flavors = [flavor["name"] for flavor in group.get("flavors") or ()]
            found = [self._of(flavor) for flavor in flavors]
            if not flavors or None in found or not pods.count:
                continue
            for resource in group.get("coveredResources") or ():
                most = max(each.get(resource, 0) for each in found if each is not None)
                wanted = pods.requests.get(resource, 0)
                if wanted > most:
                    asked = f"each pod of {pods.name} asks {count(wanted, resource)}"
                    return f"{asked}, and no node of {', '.join(flavors)} has more than {amount(most, resource)}"
        return ""

    def _of(self, flavor: str) -> Mapping[str, int] | None:
        """The most that a node of the flavor has of each resource; None if nodes do not bound it."""
        if flavor not in self._largest:
            self._largest[flavor] = self._find(flavor)
        return self._largest[flavor]

    def _find(self, name: str) -> Mapping[str, int] | None:
        raw = self.mirror.flavor(name)
        try:
            flavor = parse.flavor(raw) if raw is not None else None
        except parse.ParseError:
            flavor = None
        if flavor is None or flavor.autoscaled or not flavor.node_labels:
            return None
        nodes = [node for node in self.engine.nodes().values() if flavor.node_labels.items() <= node.labels.items()]
        return _most(nodes) if nodes else None


def _most(nodes: list[Node]) -> dict[str, int]:
    found: dict[str, int] = {}
    for node in nodes:
        for resource, n in node.allocatable.items():
            found[resource] = max(n, found.get(resource, 0))
    return found


def _has_checks(spec: Json) -> bool:
    return bool(spec.get("admissionChecks") or spec.get("admissionChecksStrategy"))
