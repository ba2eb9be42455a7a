"""Decides how much of an object is kept: all of it, or only its head.

An object of a user is measured as it comes from the API server, and what its namespace has where it enters the mirror. Its head
is kept if it has too many values or levels, or if its namespace stores too much already. A head says what is needed to hold the
object's quota, to stop the object and to tell its owner why: nobody can make the operator work or store without bounds by what is
written into a job, and nobody keeps more quota by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from gangline.api import jobkinds, names, object_size
from gangline.api.jobkinds.declaration import at, mapping_at, put, rows_at
from gangline.api.object_size import MOST_LEVELS, MOST_VALUES
from gangline.kube import resources as kube
from gangline.kube.resources import Json, Resource, namespace_of
from gangline.objects import Stored, WorkloadObject, view

#: bytes of JSON up to which levels are not counted, as long as there are no more than 254
_SMALL: Final = 8192
#: bytes of memory for the objects of one namespace, unless the process has its own limit: 5,000 jobs of 3 KB with their
#: Workloads take about 150 MB. Those that are kept may grow beyond that, and those with quota are kept beyond that, up to half as
#: much again: what runs has to be seen.
MOST_OF_NAMESPACE: Final = 512 << 20
_GROWTH: Final = 1.5
#: bytes that a field or list entry takes beside its text (measured: 82)
_VALUE: Final = 80
#: where a head says why it is only a head: no object has a field of this name
REASON: Final = "(only its head is kept)"
#: a copy of the whole object, which nothing here reads
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

#: metadata of a head as it is, if it is short
_PLAIN_METADATA: Final = (
    *("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
#: entries of a list or map, and characters of a text, that a head keeps
_MOST_ENTRIES: Final = 64
_LONGEST: Final = 512
#: labels and annotations of a head
_GROUPS: Final = (names.GROUP, names.OWN_GROUP)


class Measure(NamedTuple):
    """The size of an object. `weight`: bytes of memory, about. `values`: at least as many as the object has."""

    weight: int
    values: int
    excess: str


def measure(resource: Resource, obj: Stored) -> Measure:
    """The size of an object; `excess` says by what it is too large, "" if it is not."""
    try:
        text = orjson.dumps(obj)
    except orjson.JSONEncodeError:  # of more than 254 levels
        return Measure(0, 0, object_size.excess(obj))
    opened = text.count(b"{") + text.count(b"[")
    values = opened + text.count(b",")
    weight = len(text) + _VALUE * values
    if values <= MOST_VALUES and (opened <= MOST_LEVELS or len(text) <= _SMALL):
        return Measure(weight, values, "")
    if resource == kube.WORKLOADS:  # users do not write its status, and the places of large gangs are many
        return Measure(
            weight, values, object_size.excess({name: value for name, value in obj.items() if name != "status"})
        )
    return Measure(weight, values, object_size.excess(obj))


# --- heads ------------------------------------------------------------------------------------------------------------


def head(resource: Resource, obj: Stored, why: str) -> Stored:
    """The head of an object, which stands for an object that is not kept whole; `why`: a sentence for its owner."""
    found = {
        "apiVersion": obj.get("apiVersion"),
        "kind": obj.get("kind"),
        "metadata": _metadata(obj.metadata),
        "spec": _spec(resource, obj),
        "status": _status(resource, obj),
        REASON: why,
    }
    return view(resource, found)


def is_head(obj: Stored) -> bool:
    return REASON in obj


def why_head(obj: Stored) -> str:
    """Why an object is only a head, "" if it is whole."""
    return obj.get(REASON, "")


def _metadata(metadata: Json) -> Json:
    found = {name: metadata[name] for name in _PLAIN_METADATA if name in metadata and _is_short(metadata[name])}
    found["finalizers"] = [str(each)[:_LONGEST] for each in (metadata.get("finalizers") or [])[:_MOST_ENTRIES]]
    found["ownerReferences"] = [
        {name: value for name, value in row.items() if not isinstance(value, (dict, list))}
        for row in (metadata.get("ownerReferences") or [])[:_MOST_ENTRIES]
    ]
    for part in ("labels", "annotations"):
        ours = (pair for pair in (metadata.get(part) or {}).items() if pair[0].partition("/")[0] in _GROUPS)
        kept = {key: text for key, text in ours if isinstance(text, str) and len(text) <= _LONGEST}
        found[part] = dict(list(kept.items())[:_MOST_ENTRIES])
    return found


def _spec(resource: Resource, obj: Stored) -> Json:
    """The short fields, where the object is suspended, and of a Workload the sizes of its pod sets."""
    written = mapping_at(obj, ("spec",))
    found: Json = {"spec": dict([pair for pair in written.items() if _is_short(pair[1])][:_MOST_ENTRIES])}
    if (kind := jobkinds.declaration_of(resource.group, resource.kind)) is not None:
        for path in (kind.suspension.path, kind.managed_by):
            if path and _is_short(value := at(obj, path)) and value is not None:
                put(found, path, value)
    if resource == kube.WORKLOADS:
        rows = rows_at(obj, ("spec", "podSets"))[:_MOST_ENTRIES]
        found["spec"]["podSets"] = [{name: value for name, value in row.items() if _is_short(value)} for row in rows]
        reference = mapping_at(obj, ("spec", "priorityClassRef"))
        found["spec"]["priorityClassRef"] = {name: value for name, value in reference.items() if _is_short(value)}
    return found["spec"]


def _is_short(value: Any) -> bool:
    return not isinstance(value, (dict, list)) and (not isinstance(value, str) or len(value) <= _LONGEST)


def _status(resource: Resource, obj: Stored) -> Json:
    """The status as it is, for it says whether pods may still run, and users do not write it; only the short fields of one that
    is too large.
    """
    status = mapping_at(obj, ("status",))
    if resource != kube.WORKLOADS and (
        object_size.has_more_than(MOST_VALUES // 2, status) or object_size.is_deeper_than(MOST_LEVELS, status)
    ):
        return {name: value for name, value in list(status.items())[:_MOST_ENTRIES] if _is_short(value)}
    return status


# --- namespaces -------------------------------------------------------------------------------------------------------


def slim(obj: Stored) -> None:
    """Drop in place what nothing here reads: who wrote which field, and what kubectl remembers of its last command."""
    metadata = obj.metadata
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations")
    if annotations and _LAST_APPLIED in annotations:
        metadata["annotations"] = {key: value for key, value in annotations.items() if key != _LAST_APPLIED}


def received(resource: Resource, obj: Json) -> Stored:
    """An object as it came from the API server, before it waits to be read: its head, if it is too large."""
    found = view(resource, obj)
    if not found.namespace:
        return found
    slim(found)
    found.weight, _, excess = measure(resource, found)
    return head(resource, found, excess) if excess else found


@dataclass(slots=True)
class NamespaceIntake:
    """Decides of each object of a namespace how much of it is kept, and knows what each namespace has."""

    most: int = MOST_OF_NAMESPACE
    #: namespace -> bytes of memory
    stored: Counter[str] = field(default_factory=Counter[str])
    _weights: dict[tuple[Resource, str], int] = field(default_factory=dict[tuple[Resource, str], int])
    #: heads whose namespace stores too much, in the order of their arrival, with the weight of the whole object
    _waiting: dict[str, dict[tuple[Resource, str], int]] = field(
        default_factory=dict[str, dict[tuple[Resource, str], int]]
    )
    #: those of them that hold quota
    _wanted: dict[tuple[Resource, str], None] = field(default_factory=dict[tuple[Resource, str], None])

    def take(self, resource: Resource, obj: Stored, runs: Callable[[], bool] = lambda: False) -> Stored:
        """The object as it is kept: whole, or its head. `runs`: a Workload of it holds quota."""
        namespace = obj.namespace
        if not namespace:
            return obj
        ref, excess = (resource, obj.key), why_head(obj)
        weight: int | None = getattr(obj, "weight", None)
        if weight is None:
            weight, _, too_large = measure(resource, obj)
            excess = too_large or excess
        known = ref in self._weights
        grows = known and ref not in self._waiting.get(namespace, ())
        if known:
            self.forget(*ref)
        total = self.stored[namespace] + weight
        if excess:
            obj = head(resource, obj, excess)
        elif total > self.most * _GROWTH or (total > self.most and not (grows or _holds_quota(obj) or runs())):
            self._waiting.setdefault(namespace, {})[ref] = weight
            obj = head(resource, obj, self._full(namespace))
        if is_head(obj):
            weight = measure(resource, obj).weight
        self._weights[ref] = weight
        self.stored[namespace] += weight
        return obj

    def keep(self, resource: Resource, key: str, weight: int, *, runs: bool) -> str:
        """Count an object that is kept outside of the mirror, instead of what was counted for it before.

        `runs`: it uses resources. Returns why it must not be kept, "" if it may.
        """
        self.forget(resource, key)
        namespace = namespace_of(key)
        if self.stored[namespace] + weight > self.most * (_GROWTH if runs else 1):
            return (
                f"the namespace {namespace} stores more than {self.most >> 20} MiB of pods, jobs and Workloads: "
                "the pod is looked at again when it changes"
            )
        self._weights[resource, key] = weight
        self.stored[namespace] += weight
        return ""

    def _full(self, namespace: str) -> str:
        return (
            f"the namespace {namespace} stores more than {self.most >> 20} MiB of jobs and Workloads: "
            "this one is read when others are deleted"
        )

    def forget(self, resource: Resource, key: str) -> None:
        """Forget an object that is not kept any more."""
        ref, namespace = (resource, key), namespace_of(key)
        weight = self._weights.pop(ref, None)
        if weight is None:
            return
        self.stored[namespace] -= weight
        if not self.stored[namespace]:
            del self.stored[namespace]
        self._stop_waiting(namespace, ref)

    def give_up(self, resource: Resource, key: str) -> None:
        """Keep the head of an object that could not be read again, until the object changes."""
        self._stop_waiting(namespace_of(key), (resource, key))

    def _stop_waiting(self, namespace: str, ref: tuple[Resource, str]) -> None:
        waiting = self._waiting.get(namespace)
        if waiting is not None and waiting.pop(ref, None) is not None and not waiting:
            del self._waiting[namespace]
        self._wanted.pop(ref, None)

    def want(self, resource: Resource, key: str) -> None:
        """Have an object read again before others: a Workload of it holds quota."""
        if (resource, key) in self._waiting.get(namespace_of(key), ()):
            self._wanted[resource, key] = None

    def next_whole(self) -> tuple[Resource, str] | None:
        """A head whose whole object would fit now; None if there is none. The namespaces take turns."""
        for ref in self._wanted:
            if self._fits(ref, self.most * _GROWTH):
                return ref
        for namespace, waiting in self._waiting.items():
            if self._fits(ref := next(iter(waiting)), self.most):
                self._waiting[namespace] = self._waiting.pop(namespace)
                return ref
        return None

    def _fits(self, ref: tuple[Resource, str], most: float) -> bool:
        namespace = namespace_of(ref)
        return self.stored[namespace] + self._waiting[namespace][ref] - self._weights[ref] <= most


def _holds_quota(obj: Stored) -> bool:
    return isinstance(obj, WorkloadObject) and obj.quota_reserved
