"""The additions of a provisioned request to the pods: the annotations by which they use its nodes, and node labels from its
status.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangline.api import label_syntax, names
from gangline.api.schema.v1beta2.provisioning import ProvisioningRequestConfigSpec
from gangline.control.checks.provisioning.groups import Group
from gangline.control.checks.provisioning.naming import template_name
from gangline.kube.resources import Json
from gangline.objects import Stored


def pod_set_updates(request: Stored, groups: Sequence[Group], config: ProvisioningRequestConfigSpec) -> list[Json]:
    """`podSetUpdates` of the check: one for each pod set that was requested, alone or merged with another."""
    spec = request.spec
    asked = {row["podTemplateRef"]["name"] for row in spec.get("podSets") or ()}
    annotations = {names.CONSUMES: request.name, names.PROVISIONING_CLASS: spec["provisioningClassName"]}
    update: Json = {"annotations": annotations}
    if config.pod_set_updates is not None:
        update["nodeSelector"] = dict(_node_selector(request, config))
    requested = [group for group in groups if template_name(request.name, group.name) in asked]
    return [{"name": member, **update} for group in requested for member in group.members]


def unusable_details(request: Stored, config: ProvisioningRequestConfigSpec) -> list[str]:
    """Details that the configuration names and that the request's status does not have, or not as the value of a label."""
    found = dict(_node_selector(request, config))
    wanted = (config.pod_set_updates.node_selector if config.pod_set_updates else None) or ()
    return [row.value_from_provisioning_class_detail for row in wanted if row.key not in found]


def _node_selector(request: Stored, config: ProvisioningRequestConfigSpec) -> Iterator[tuple[str, str]]:
    details: Json = request.status.get("provisioningClassDetails") or {}
    for row in (config.pod_set_updates.node_selector if config.pod_set_updates else None) or ():
        value = details.get(row.value_from_provisioning_class_detail)
        if isinstance(value, str) and label_syntax.is_value(value):
            yield row.key, value
