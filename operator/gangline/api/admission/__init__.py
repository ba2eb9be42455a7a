"""Defaulting and validation of all objects that users write: pure functions on JSON.

`default` completes an object as it is stored, `validate` reports its errors; both look the kind up in `KINDS`. A rule asks the
`Context` for facts of the cluster.

More than a dozen modules: one for each kind, and one for each rule that several kinds share.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from gangline.api import names
from gangline.api.admission import (
    admissioncheck,
    batch_job,
    clusterqueue,
    cohort,
    flavor,
    gpujob,
    jobset,
    localqueue,
    multikueue,
    queuepolicy,
    topology,
    workload,
)
from gangline.api.admission.findings import NOTHING, Context, FieldError, Json, Result, Rules, metadata, text

__all__ = [
    "KINDS",
    "NOTHING",
    "Context",
    "FieldError",
    "Json",
    "Result",
    "Rules",
    "UnknownKindError",
    "default",
    "validate",
    "warnings",
]

#: (group, kind) -> its rules, for every version of it
KINDS: Final[Mapping[tuple[str, str], Rules]] = {
    (names.GROUP, "AdmissionCheck"): admissioncheck.RULES,
    (names.GROUP, "ClusterQueue"): clusterqueue.RULES,
    (names.GROUP, "Cohort"): cohort.RULES,
    (names.GROUP, "LocalQueue"): localqueue.RULES,
    (names.GROUP, "MultiKueueCluster"): multikueue.RULES,
    (names.GROUP, "MultiKueueConfig"): multikueue.RULES,
    (names.GROUP, "ResourceFlavor"): flavor.RULES,
    (names.GROUP, "Topology"): topology.RULES,
    (names.GROUP, "Workload"): workload.RULES,
    (names.OWN_GROUP, "GPUJob"): gpujob.RULES,
    (names.OWN_GROUP, "QueuePolicy"): queuepolicy.RULES,
    ("batch", "Job"): batch_job.RULES,
    ("jobset.x-k8s.io", "JobSet"): jobset.RULES,
}


class UnknownKindError(LookupError):
    """There are no rules for this kind."""


def default(obj: Json, old: Json | None, context: Context) -> Result:
    """A completed copy of `obj` and warnings for its author. `old` is None at creation. Raises UnknownKindError.

    Idempotent.
    """
    rules = _rules(obj)
    if _is_leaving(obj):
        return Result(obj)
    completed = copy.deepcopy(obj)
    warnings = rules.default(completed, old, context)
    return Result(completed, tuple(warnings))


def validate(obj: Json, old: Json | None, context: Context) -> list[FieldError]:
    """The errors of `obj`, as a new object (`old` is None) or as a change of `old`. Raises UnknownKindError."""
    rules = _rules(obj)
    return [] if _is_leaving(obj) else rules.validate(obj, old, context)


def warnings(obj: Json) -> list[str]:
    """What the author of a valid object should know. Raises UnknownKindError."""
    return _rules(obj).warn(obj)


def _rules(obj: Json) -> Rules:
    api_version, kind = text(obj.get("apiVersion")), text(obj.get("kind"))
    try:
        return KINDS[api_version.rpartition("/")[0], kind]
    except KeyError:
        raise UnknownKindError(
            f"no admission rules for {kind or 'an object without kind'} of {api_version!r}"
        ) from None


def _is_leaving(obj: Json) -> bool:
    """An object that is being deleted can only lose its finalizers, and no rule may prevent that."""
    return metadata(obj).get("deletionTimestamp") is not None
