"""CEL expressions that decide which pods are sent to a webhook, where plain pods are queued at all.

Pods are the most frequent objects of a cluster: a pod that names no queue costs it an expression, and no call. The operator's own
writes, of gates and finalizers, cause none.
"""

from __future__ import annotations

from typing import Final

from gangline.api import names
from gangline_webhooks import conditions

_LABELS: Final = (
    *(names.QUEUE_NAME, names.PRIORITY_CLASS, names.MAX_EXEC_TIME, names.PREBUILT_WORKLOAD),
    *(names.MANAGED, names.POD_GROUP, names.POD_GROUP_INDEX),
)
_ANNOTATIONS: Final = (
    *(names.QUEUE_NAME, names.PREBUILT_WORKLOAD, names.ADMISSION_GATED_BY, names.POD_GROUP, names.POD_GROUP_TOTAL),
    *(names.POD_GROUP_FAST, names.RETRIABLE_IN_GROUP, names.REQUIRED_TOPOLOGY, names.PREFERRED_TOPOLOGY),
    *(names.UNCONSTRAINED_TOPOLOGY, names.SLICE_REQUIRED_TOPOLOGY, names.SLICE_SIZE, names.PODSET_GROUP),
    names.SLICE_CONSTRAINTS,
)


def _listed(keys: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{key}'" for key in keys) + "]"


def _has(of: str, part: str, keys: tuple[str, ...]) -> str:
    return f"{_listed(keys)}.exists(k, {of}.metadata.?{part}[?k].hasValue())"


_OURS: Final = (
    f"{_has('object', 'labels', (names.QUEUE_NAME, names.MANAGED, names.POD_GROUP))} || "
    f"{_has('object', 'annotations', (names.QUEUE_NAME, names.POD_GROUP, names.POD_GROUP_TOTAL))}"
)
_WAS_OURS: Final = (
    f"(oldObject != null && ({_has('oldObject', 'labels', (names.QUEUE_NAME, names.MANAGED, names.POD_GROUP))}))"
)
HELD_BY_PARENT: Final = f"object.metadata.?annotations[?'{names.SUSPENDED_BY_PARENT}'].hasValue()"
WAITS: Final = f"{conditions.NAMES_QUEUE} || {HELD_BY_PARENT}"
#: for the namespace's default LocalQueue, and for manageJobsWithoutQueueName
MAY_WAIT: Final = f"{conditions.NAMES_NO_QUEUE} && !{HELD_BY_PARENT}"
IS_OURS: Final = f"{_OURS} || {_WAS_OURS}"
CHANGED: Final = (
    f"{conditions.IS_NEW} || {_listed(_LABELS)}.exists(k, object.metadata.?labels[?k] != oldObject.metadata.?labels[?k]) "
    f"|| {_listed(_ANNOTATIONS)}.exists(k, object.metadata.?annotations[?k] != oldObject.metadata.?annotations[?k])"
)
