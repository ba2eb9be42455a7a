"""Rules of AdmissionChecks, Cohorts, ResourceFlavors, LocalQueues and Topologies."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.admission import syntax
from gangline.api.admission.findings import (
    AdmissionFacts,
    FieldError,
    Json,
    KindRules,
    duplicate,
    immutable,
    invalid,
    mapping,
    objects,
    required,
    spec,
    text,
    too_many,
)
from gangline.api.admission.of_queues import quotas
from gangline.api.admission.of_queues.finalizers import keep_while_in_use

# --- AdmissionCheck ---------------------------------------------------------------------------------------------------


def validate_admission_check(check: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    controller = spec(check).get("controllerName")
    errors = [] if controller else [required("spec.controllerName")]
    if old is not None:
        errors += immutable("spec.controllerName", controller, spec(old).get("controllerName"))
    parameters = mapping(spec(check).get("parameters"))
    if parameters:
        errors += _parameters(parameters)
    return errors


def _parameters(parameters: Json) -> list[FieldError]:
    errors = syntax.dns_subdomain("spec.parameters.apiGroup", parameters.get("apiGroup"))
    errors += syntax.dns_label("spec.parameters.name", parameters.get("name"))
    if not parameters.get("kind"):
        errors.append(required("spec.parameters.kind"))
    return errors


ADMISSION_CHECK: Final = KindRules(validate=validate_admission_check)


# --- cohort. A cycle among cohorts is not refused here: it makes the tree inactive, as in Kueue -----------------------


def validate_cohort(cohort: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(cohort)
    parent = body.get("parentName")
    rules = quotas.QuotaRules(has_parent=bool(parent), parent_word="parent", lending_within_nominal=False)
    errors = syntax.dns_subdomain("spec.parentName", parent) if parent else []
    errors += quotas.check_groups("spec.resourceGroups", body.get("resourceGroups"), rules)
    return errors + quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight"))


COHORT: Final = KindRules(validate=validate_cohort)


# --- ResourceFlavor ---------------------------------------------------------------------------------------------------


def default(flavor: Json, old: Json | None, context: AdmissionFacts) -> list[str]:
    keep_while_in_use(flavor, old)
    return []


def validate_flavor(flavor: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(flavor)
    errors = [
        *syntax.label_map("spec.nodeLabels", body.get("nodeLabels")),
        *syntax.taints("spec.nodeTaints", body.get("nodeTaints")),
        *syntax.tolerations("spec.tolerations", body.get("tolerations")),
    ]
    topology = body.get("topologyName")
    if topology:
        errors += syntax.dns_subdomain("spec.topologyName", topology)
        if not mapping(body.get("nodeLabels")):
            errors.append(required("spec.nodeLabels", "at least one nodeLabel is required when topology is set"))
    if old is not None and spec(old).get("topologyName"):
        errors += immutable("spec.topologyName", topology, spec(old).get("topologyName"))
    return errors


FLAVOR: Final = KindRules(validate=validate_flavor, default=default)


# --- localqueue -------------------------------------------------------------------------------------------------------
#
# LocalQueue. One without a ClusterQueue is inactive, until it gets one; that another is not written over it, the CRD says.


def validate_local_queue(queue: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    body = spec(queue)
    target = body.get("clusterQueue")
    errors = syntax.dns_subdomain("spec.clusterQueue", target) if target else []
    return errors + quotas.check_weight("spec.fairSharing", mapping(body.get("fairSharing")).get("weight"))


LOCAL_QUEUE: Final = KindRules(validate=validate_local_queue)


# --- topology: the levels of a cluster, outermost first ---------------------------------------------------------------


MAX_LEVELS: Final = 16
HOSTNAME: Final = "kubernetes.io/hostname"


def validate_topology(topology: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    levels = _levels(topology)
    errors = [] if levels else [required("spec.levels")]
    if len(levels) > MAX_LEVELS:
        errors.append(too_many("spec.levels", len(levels), MAX_LEVELS))
    seen: set[str] = set()
    for i, label in enumerate(levels):
        path = f"spec.levels[{i}].nodeLabel"
        errors += syntax.label_key(path, label)
        if label in seen:
            errors.append(duplicate(path, label))
        seen.add(label)
        if label == HOSTNAME and i < len(levels) - 1:
            errors.append(invalid(path, label, f"the {HOSTNAME} label can only be used at the lowest level"))
    return errors + _update(topology, old)


def _update(topology: Json, old: Json | None) -> list[FieldError]:
    """Levels may change only in v1beta2, and only while hosts are the lowest level before and after."""
    if old is None:
        return []
    new_levels, old_levels = _levels(topology), _levels(old)
    hosts_below = new_levels[-1:] == [HOSTNAME] and old_levels[-1:] == [HOSTNAME]
    if topology.get("apiVersion") == names.V1BETA2 and hosts_below:
        return []
    return immutable("spec.levels", new_levels, old_levels)


def _levels(topology: Json) -> list[str]:
    return [text(level.get("nodeLabel")) for level in objects(spec(topology).get("levels"))]


TOPOLOGY: Final = KindRules(validate=validate_topology)
