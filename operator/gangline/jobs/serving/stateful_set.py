"""StatefulSets: one Workload for all pods, which start as they come, since their controller may create them one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gangline.api import names
from gangline.api.jobkinds.declaration import number_at, template_at
from gangline.api.jobkinds.serving import REPLICAS, STATEFUL_SET, TEMPLATE
from gangline.jobs.pods.held import HeldPod
from gangline.jobs.serving.parent import named, pod_set
from gangline.kube.resources import Json
from gangline.objects import JobObject

MAIN: Final = "main"
#: label of Kubernetes on the pods: their index
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


class StatefulSet:
    """Implements `ServingKind`."""

    declaration = STATEFUL_SET
    has_many = False
    notes: Mapping[str, str] = {names.POD_GROUP_FAST: "true", names.POD_GROUP_INDEX_LABEL: INDEX_LABEL}

    def templates(self, parent: JobObject) -> Sequence[Json]:
        return [template_at(parent, TEMPLATE)]

    def size(self, parent: JobObject) -> int:
        return 1

    def workload_name(self, parent: JobObject, index: int) -> str:
        return named(self, parent, parent.name)

    def pod_sets(self, parent: JobObject) -> list[Json]:
        template = template_at(parent, TEMPLATE)
        spec: Json = {"spec": template["spec"]}
        return [pod_set(MAIN, number_at(parent, REPLICAS, 1), spec, INDEX_LABEL, "spec.template", asked=template)]

    def adopted_names(self, parent: JobObject) -> Sequence[str]:
        """The names with the object's UID, and without it, as they were before Kueue 0.17."""
        name = parent.name
        return [named(self, parent, name), named(self, parent, name, uid="")]

    def group_of(self, parent: JobObject, pod: HeldPod) -> int | None:
        return 0

    def role(self, parent: JobObject, pod: HeldPod) -> str:
        return MAIN

    def comes_in_stages(self, parent: JobObject) -> bool:
        return False
