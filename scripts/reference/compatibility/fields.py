"""Fields of Kueue's kinds, and what those do in Gangline that need a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from gangline.api import names
from gangline.api.schema import kinds
from gangline.api.schema.json_schema import structural
from gangline.kube.resources import Json


@dataclass(frozen=True, slots=True)
class Support:
    """What a part of Kueue's API does here: `does` is as in Kueue, otherwise, or nothing. `words` say how it differs, or what
    holds without it.
    """

    does: Literal["works", "differs", "no"]
    words: str = ""


def works(words: str) -> Support:
    """The state of what works as in Kueue; the words say what that is where it may surprise."""
    return Support("works", words)


def differs(words: str) -> Support:
    """The state of what has another effect than in Kueue, or another place; the words say which."""
    return Support("differs", words)


def no(words: str) -> Support:
    """The state of what has no effect; the words say what holds instead."""
    return Support("no", words)


#: as in Kueue
WORKS: Final = Support("works")

#: path of a field -> what it does; `[]` stands for the items of a list. A row holds for all fields below its own, too.
Rows: TypeAlias = Mapping[str, Support]

_IN_LOCAL_QUEUES: Final = works("never written, as in Kueue: LocalQueues have it")
_NOT_IN_KUEUE: Final = differs("not in Kueue: read as the recipe means it")

#: kind -> its fields that need a word. Every other field of the CRDs works as in Kueue. A row holds for both versions.
FIELDS: Final[Mapping[str, Rows]] = {
    "Workload": {
        "spec.podSets[].template": differs(
            "the webhook checks what decides; the schema leaves it open: nothing is pruned, `kubectl explain` ends there"
        ),
        # v1beta1 only
        "spec.priorityClassName": works("in v1beta2 `priorityClassRef.name`"),
        "spec.priorityClassSource": works("in v1beta2 `priorityClassRef.group`"),
        "status.accumulatedPastExexcutionTimeSeconds": works("in v1beta2 `accumulatedPastExecutionTimeSeconds`"),
        "status.admission.podSetAssignments[].topologyAssignment.domains": works("in v1beta2 `slices`"),
    },
    "ClusterQueue": {
        "status.fairSharing.admissionFairSharingStatus": _IN_LOCAL_QUEUES,
        # v1beta1 only
        "spec.admissionChecks": works("in v1beta2 `admissionChecksStrategy`"),
        "spec.cohort": works("in v1beta2 `cohortName`"),
        "spec.preemption.reclaimOutOfCohort": _NOT_IN_KUEUE,
        "status.pendingWorkloadsStatus": works("never written, as in Kueue: the visibility API took its place"),
    },
    "LocalQueue": {
        # v1beta1 only
        "status.flavorUsage": works("in v1beta2 `flavorsUsage`"),
        "status.flavors": works(
            "never written, as in Kueue from 0.15 on: read the ResourceFlavors of the ClusterQueue"
        ),
    },
    "AdmissionCheck": {
        # v1beta1 only
        "spec.retryDelayMinutes": works("kept; it decides nothing, as in Kueue"),
    },
    "MultiKueueConfig": {
        "spec.quotaManagement": differs("a cluster that was lost counts until workerLostTimeout"),
    },
    "ResourceFlavor": {
        "spec.nodeTaints[].timeAdded": works("kept; it decides nothing, as in Kueue"),
    },
}


def is_covered(path: str, rows: Rows) -> bool:
    """Whether a row is about this field, or about one that it is in."""
    return any(path == row or path.startswith((f"{row}.", f"{row}[]")) for row in rows)


def fields_of_kinds() -> dict[str, set[str]]:
    """Kind of Kueue -> the paths of all its fields, in all versions."""
    return {
        kind.kind: {path for version in kind.versions for path in _paths(structural(version.model))}
        for kind in kinds.KINDS
        if kind.group == names.GROUP
    }


def _paths(schema: Json, path: str = "") -> Iterator[str]:
    """Every field of a kind but its head. Conditions are one field, and so is a pod template."""
    for name, inner in schema.get("properties", {}).items():
        if not path and name in ("apiVersion", "kind", "metadata"):
            continue
        whole = f"{path}{name}"
        yield whole
        if name not in ("conditions", "template"):
            yield from _paths(inner.get("items", inner), f"{whole}[]." if "items" in inner else f"{whole}.")
