"""Variants as objects: their names and bodies, and which Workload is whose. Pure functions on JSON."""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline.api.read.workloads.parse_workload import names_in
from gangline.api.read.workloads.parse_workload import variant_of as variant_of
from gangline.jobs.workload import name_for
from gangline.kube import resources as kube
from gangline.kube.resources import Json
from gangline.objects import WorkloadObject

#: annotations that follow the parent for as long as a variant waits
_FOLLOWED: Final = (names.ADMISSION_GATED_BY, names.PRIORITY_BOOST, *names.DEPENDENCIES, names.AFTER_MET)
#: the parent is a slice of an elastic job, a variant is not
_SLICES: Final = (names.ELASTIC, names.SLICE_NAME, names.REPLACEMENT_FOR)
#: the longest name without its digest
_LONGEST: Final = 240


def is_parent(workload: WorkloadObject) -> bool:
    return workload.labels.get(names.CONCURRENT_PARENT) == "true"


def is_variant(workload: WorkloadObject) -> bool:
    return bool(variant_of(workload.metadata))


def parent_key(variant: WorkloadObject) -> str:
    """The key of the Workload that owns a variant."""
    uid = variant_of(variant.metadata)
    name = next(owner["name"] for owner in variant.owners if owner.get("uid") == uid)
    return f"{variant.namespace}/{name}"


def flavor_of(variant: WorkloadObject) -> str:
    """The flavor that a variant is for, "" = none."""
    written = variant.annotations.get(names.ALLOWED_FLAVORS, "")
    return next(iter(names_in(written)), "")


def variant_name(parent: WorkloadObject, flavor: str) -> str:
    """The parent's name without its digest, the flavor, and a digest of both."""
    stem = parent.name.rpartition("-")[0] or parent.name
    digest = name_for("Workload", names.GROUP, parent.name, parent.uid, flavor).rpartition("-")[2]
    return f"{f'{stem}-variant-{flavor}'[:_LONGEST].rstrip('.-')}-{digest}"


def variant(parent: WorkloadObject, flavor: str, *, active: bool) -> Json:
    """A new variant for one flavor, with a closed preemption gate."""
    labels = {key: value for key, value in parent.labels.items() if key != names.CONCURRENT_PARENT}
    gates = [gate for gate in parent.spec.get("preemptionGates", ()) if gate["name"] != names.CONCURRENT_GATE]
    return {
        "apiVersion": kube.WORKLOADS.api_version,
        "kind": kube.WORKLOADS.kind,
        "metadata": {
            "name": variant_name(parent, flavor),
            "namespace": parent.namespace,
            "labels": labels,
            "annotations": {
                **{key: value for key, value in parent.annotations.items() if key not in _SLICES},
                names.ALLOWED_FLAVORS: flavor,
            },
            "finalizers": [names.IN_USE_FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": kube.WORKLOADS.api_version,
                    "kind": kube.WORKLOADS.kind,
                    "name": parent.name,
                    "uid": parent.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            **parent.spec,
            "active": active,
            "preemptionGates": [*gates, {"name": names.CONCURRENT_GATE}],
        },
    }


def lagging(parent: WorkloadObject, of: WorkloadObject, *, reserved: bool) -> Json:
    """A patch that makes a variant ask for what its parent asks for, {} = it does. With quota only its priority follows."""
    mine, its = of.spec, parent.spec
    followed = (
        ("priority", "priorityClassRef")
        if reserved
        else ("priority", "priorityClassRef", "podSets", "queueName", "maximumExecutionTimeSeconds")
    )
    spec = {field: its.get(field) for field in followed if mine.get(field) != its.get(field)}
    ours, theirs = (each.annotations for each in (of, parent))
    annotations = {key: theirs.get(key) for key in _FOLLOWED if ours.get(key) != theirs.get(key)}
    return ({"spec": spec} if spec else {}) | ({"metadata": {"annotations": annotations}} if annotations else {})
