"""Where a job names its Workload, and a pod its group: in an annotation, or in a label.

With Kueue's gate WorkloadIdentifierAnnotations the annotation goes first, then the label. Without it, as before Kueue 0.18, only
the label is read, and the annotation where a label couldn't hold the name. One choice holds for a process: `choose`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gangline.api import names
from gangline.api.admission.findings import Json, annotation_path, annotations_of, label_path, labels_of, text
from gangline.bounded import shown

_LONGEST_LABEL: Final = 63
_GATE: Final = "WorkloadIdentifierAnnotations"
_KEYS: Final = (names.PREBUILT_WORKLOAD, names.POD_GROUP)


@dataclass(slots=True)
class _Choice:
    annotations_first: bool = True


_choice: Final = _Choice()


def choose(*, annotations_first: bool) -> None:
    """Called once, when a process has read its configuration. `annotations_first`: the gate is on."""
    _choice.annotations_first = annotations_first


def prebuilt_workload(job: Json | None) -> str:
    """The Workload that a job names, "" = none."""
    return _named(job, names.PREBUILT_WORKLOAD)[0]


def prebuilt_path(job: Json) -> str:
    """The path of the annotation or label by which a job names its prebuilt Workload."""
    return _named(job, names.PREBUILT_WORKLOAD)[1]


def pod_group(pod: Json | None) -> tuple[str, str]:
    """The group of a pod, "" = it stands alone; and the path of its name."""
    return _named(pod, names.POD_GROUP)


def ignored(obj: Json) -> list[str]:
    """A sentence for each of these keys that is written where it is not read."""
    found: list[str] = []
    for key in _KEYS:
        annotated, labelled = annotations_of(obj).get(key), labels_of(obj).get(key)
        name, path = _named(obj, key)
        if annotated and path == label_path(key):
            read = f"the label says {shown(name)}" if name else "write it as a label"
            found.append(f"the {key} annotation {shown(annotated)} is ignored, since the gate {_GATE} is off: {read}")
        elif labelled and labelled != name:
            found.append(f"the {key} label {shown(labelled)} is ignored: the annotation says {shown(name)}")
    return found


def part_for(name: str) -> str:
    """The part of the metadata into which the operator writes such a name: `annotations` or `labels`."""
    return "annotations" if _choice.annotations_first else part_with_room(name)


def part_with_room(name: str) -> str:
    """`labels` if a label can hold the name, else `annotations`: where every version of Kueue reads it."""
    return "labels" if len(name) <= _LONGEST_LABEL else "annotations"


def _named(obj: Json | None, key: str) -> tuple[str, str]:
    annotations = annotations_of(obj)
    annotated, labelled = text(annotations.get(key)), text(labels_of(obj).get(key))
    # the operator itself has written the names of pods whose owner waits in a queue, perhaps while the gate was on
    readable = _choice.annotations_first or len(annotated) > _LONGEST_LABEL or names.SUSPENDED_BY_PARENT in annotations
    if annotated and readable and (_choice.annotations_first or not labelled):
        return annotated, annotation_path(key)
    return labelled, label_path(key)
