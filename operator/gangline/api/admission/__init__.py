"""Defaulting and validation of all objects that users write: pure functions on JSON.

`default` completes an object as it is stored, `validate` reports its errors; both look the kind up in `KINDS`. A rule asks the
`AdmissionFacts` for facts of the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangline.api import jobkinds, names, object_size
from gangline.api.admission import multikueue, workload
from gangline.api.admission.findings import (
    NOTHING,
    TOO_LONG,
    AdmissionFacts,
    DefaultedObject,
    FieldError,
    Json,
    KindRules,
    metadata,
    text,
)
from gangline.api.admission.of_jobs import batch_job, declared_job, gpu_shares, gpujob, jobset, queued_pod, serving
from gangline.api.admission.of_jobs.jobs import queue_name
from gangline.api.admission.of_queues import (
    clusterqueue,
    job_profile,
    other_kinds,
    queuepolicy,
    quotaplan,
    reservation,
)

__all__ = [
    "KINDS",
    "NOTHING",
    "AdmissionFacts",
    "DefaultedObject",
    "FieldError",
    "Json",
    "KindRules",
    "UnknownKindError",
    "default",
    "validate",
    "warnings",
]

#: (group, kind) -> its rules, for every version of it; those of declared jobs follow from their declarations
KINDS: Final[Mapping[tuple[str, str], KindRules]] = {
    (names.GROUP, "AdmissionCheck"): other_kinds.ADMISSION_CHECK,
    (names.GROUP, "ClusterQueue"): clusterqueue.RULES,
    (names.GROUP, "Cohort"): other_kinds.COHORT,
    (names.GROUP, "LocalQueue"): other_kinds.LOCAL_QUEUE,
    (names.GROUP, "MultiKueueCluster"): multikueue.RULES,
    (names.GROUP, "MultiKueueConfig"): multikueue.RULES,
    (names.GROUP, "ResourceFlavor"): other_kinds.FLAVOR,
    (names.GROUP, "Topology"): other_kinds.TOPOLOGY,
    (names.GROUP, "Workload"): workload.RULES,
    (names.OWN_GROUP, "GPUJob"): gpujob.RULES,
    (names.OWN_GROUP, "QueuePolicy"): queuepolicy.RULES,
    (names.OWN_GROUP, "Reservation"): reservation.RULES,
    (names.OWN_GROUP, "QuotaPlan"): quotaplan.RULES,
    (names.OWN_GROUP, "JobProfile"): job_profile.RULES,
    ("", "Pod"): queued_pod.RULES,
    ("apps", "Deployment"): serving.DEPLOYMENT_RULES,
    ("apps", "StatefulSet"): serving.STATEFUL_SET_RULES,
    ("batch", "Job"): batch_job.RULES,
    ("jobset.x-k8s.io", "JobSet"): jobset.RULES,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): serving.LEADER_WORKER_SET_RULES,
}


#: nothing is known of the cluster
NO_FACTS: Final = AdmissionFacts()
#: groups of kinds that make no pods; those of a GPUJob are the operator's to write
_OWN: Final = (names.GROUP, names.OWN_GROUP)
#: groups of kinds that make new pods when their template changes
_SERVING: Final = frozenset(each.group for each in jobkinds.own.SERVING_KINDS)


class UnknownKindError(LookupError):
    """There are no rules for this kind."""


def default(obj: Json, old: Json | None, context: AdmissionFacts) -> DefaultedObject:
    """`obj` completed, and warnings for its author. `old` is None at creation. Raises UnknownKindError.

    Neither is changed: the result shares all parts of `obj` that stay as they are. Idempotent.
    """
    rules = _rules(obj)
    if _is_leaving(obj):
        return DefaultedObject(obj)
    completed = dict(obj)
    warnings = rules.default(completed, old, context)
    group = _group(obj)
    if group in _SERVING or (old is None and group not in _OWN):  # pods of other kinds keep what they were made with
        gpu_shares.expose(completed)
    return DefaultedObject(completed, tuple(warnings))


def validate(obj: Json, old: Json | None, context: AdmissionFacts) -> list[FieldError]:
    """The errors of `obj`, as a new object (`old` is None) or as a change of `old`. Raises UnknownKindError."""
    rules = _rules(obj)
    if _is_leaving(obj):
        return []
    return _too_large(obj, old) or rules.validate(obj, old, context)


def _too_large(obj: Json, old: Json | None) -> list[FieldError]:
    """What users write is read up to a size. What was too large before may be changed: it has to be suspended, and mended."""
    if not metadata(obj).get("namespace"):  # an administrator's
        return []
    written = {name: value for name, value in obj.items() if name != "status"}
    if not object_size.is_too_large(written) or (old is not None and object_size.is_too_large(old)):
        return []
    said = object_size.excess(written)
    path, _, words = said.partition(": ")
    return [FieldError(path, NOTHING, words, TOO_LONG)]


def warnings(obj: Json, context: AdmissionFacts = NO_FACTS) -> list[str]:
    """What the author of a valid object should know. Raises UnknownKindError."""
    rules = _rules(obj)
    found = [*rules.warn(obj), *rules.doubt(obj, context)]
    if queue_name(obj) and not text(obj.get("apiVersion")).startswith(f"{names.GROUP}/"):
        found += gpu_shares.doubts(obj)
    return found


def _rules(obj: Json) -> KindRules:
    group, kind = _group(obj), text(obj.get("kind"))
    declaration = jobkinds.declaration_of(group, kind)
    found = KINDS.get((group, kind)) or (declared_job.rules(declaration) if declaration is not None else None)
    if found is None:
        raise UnknownKindError(
            f"no admission rules for {kind or 'an object without kind'} of {text(obj.get('apiVersion'))!r}"
        )
    return found


def _group(obj: Json) -> str:
    return text(obj.get("apiVersion")).rpartition("/")[0]


def _is_leaving(obj: Json) -> bool:
    """Whether the object is being deleted: it can only lose its finalizers then, and no rule may prevent that."""
    return metadata(obj).get("deletionTimestamp") is not None
