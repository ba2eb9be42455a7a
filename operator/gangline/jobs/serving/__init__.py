"""Deployments, StatefulSets and LeaderWorkerSets, whose pods wait in their place: the Workloads that each of them has.

Pure functions on JSON. A Deployment needs none: each of its pods is queued alone (`gangline.jobs.pods`). A StatefulSet has one
Workload, a LeaderWorkerSet one for each of its groups; its pods become pod groups of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.jobs.serving.leader_worker_set import LeaderWorkerSet
from gangline.jobs.serving.parent import ServingKind
from gangline.jobs.serving.stateful_set import StatefulSet
from gangline.kube.resources import Resource

KINDS: Final[tuple[ServingKind, ...]] = (StatefulSet(), LeaderWorkerSet())
BY_RESOURCE: Final[Mapping[Resource, ServingKind]] = {kind.declaration.resource: kind for kind in KINDS}
BY_FRAMEWORK: Final[Mapping[str, ServingKind]] = {kind.declaration.framework: kind for kind in KINDS}
