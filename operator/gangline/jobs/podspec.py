"""Pod templates: what admission adds to one, how that is removed, and when two of them are equal.

A template is the JSON of `PodTemplateSpec`: `{"metadata": {…}, "spec": {…}}`. No function changes its arguments. A changed
template has copies of what is changed only, and shares all else with the one that it was made from: what a user writes into a
template costs nothing where it is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import orjson

from gangline import bounded
from gangline.api import names, quantity
from gangline.jobs.base import JobError, Json, PodSetInfo
from gangline.objects import Stored

#: Where a template may differ from its original once admission has been injected: (part, field).
_INJECTED_MAPS = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_INJECTED_LISTS = (("spec", "tolerations"), ("spec", "schedulingGates"))
_HOST_LABEL = "kubernetes.io/hostname"
#: characters of the layers of slices
_LONGEST_LAYERS = 16_384
_AMOUNTS = ("requests", "limits")
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def merge(template: Json, info: PodSetInfo, path: str = "spec.template") -> Json:
    """The template with an admission injected.

    Raises JobError, naming the key below `path`, if the template already has another value for it.
    """
    merged = dict(template)
    for (part, name), added in zip(_INJECTED_MAPS, (info.labels, info.annotations, info.node_selector), strict=True):
        if added:
            section = _section(merged, part)
            section[name] = _union(section.get(name) or {}, added, f"{path}.{part}.{name}")
    for (part, name), extra in zip(_INJECTED_LISTS, (info.tolerations, info.scheduling_gates), strict=True):
        if extra:
            section = _section(merged, part)
            section[name] = _appended(section.get(name) or [], extra)
    patience = [row for row in info.patience if not _tolerated(merged, row["key"])]
    if patience:
        _section(merged, "spec")["tolerations"] = _appended(merged["spec"].get("tolerations") or [], patience)
    return merged


def additions(template: Json, info: PodSetInfo, path: str, replaced: Collection[str] = ()) -> Json:
    """What an admission adds to the pods of a template that it can't be merged into, those parts that there are.

    `replaced`: the lists that the job's controller puts in place of the template's; such a list has the template's entries, too.
    Raises JobError, naming the key below `path`, if the template already has another value for it.
    """
    merged = merge(template, info, path)
    patience = [dict(row) for row in info.patience if row in (merged.get("spec") or {}).get("tolerations", ())]
    added = additions_of(info)
    if tolerations := [*added.get("tolerations", ()), *patience]:
        added["tolerations"] = tolerations
    return {part: merged["spec"][part] if part in replaced else rows for part, rows in added.items()}


def additions_of(info: PodSetInfo) -> Json:
    """What an admission adds to any pods of a pod set, in the form of `additions`."""
    parts: Json = {
        "labels": dict(info.labels),
        "annotations": dict(info.annotations),
        "nodeSelector": dict(info.node_selector),
        "tolerations": [dict(row) for row in info.tolerations],
        "schedulingGates": [dict(gate) for gate in info.scheduling_gates],
    }
    return {part: added for part, added in parts.items() if added}


def parts_of(template: Json) -> Json:
    """The parts of a template to which an admission adds, in the form of `additions`."""
    rows = [((template.get(part) or {}).get(name), name) for part, name in (*_INJECTED_MAPS, *_INJECTED_LISTS)]
    return {name: found for found, name in rows if found}


def lacking(have: Json, wanted: Json) -> list[str]:
    """What of `wanted` is not in `have`, as fields such as nodeSelector[pool]. Both have the form of `additions`.

    Fields that an API server fills in, and entries that others add, are not missed.
    """
    missing: list[str] = []
    for part, added in wanted.items():
        there: Any = have.get(part) or ()
        if isinstance(added, dict):
            found = there if isinstance(there, dict) else {}
            missing += [f"{part}[{key}]" for key, value in added.items() if found.get(key) != value]
        elif not all(any(_covers(row, item) for row in there) for item in added):
            missing.append(part)
    return missing


def _covers(row: Any, item: Json) -> bool:
    """Whether a row has all that an item says. An API server does not keep empty fields of a toleration or a gate."""
    return isinstance(row, dict) and all((row.get(name) or "") == (value or "") for name, value in item.items())


def keep_off(template: Json, hosts: Sequence[str]) -> Json:
    """The template with an affinity that avoids these hosts if there are others: it must not wait for ever."""
    if not hosts:
        return template
    kept = dict(template)
    affinity = _section(_section(_section(kept, "spec"), "affinity"), "nodeAffinity")
    other = {"key": _HOST_LABEL, "operator": "NotIn", "values": sorted(hosts)}
    wish = {"weight": 100, "preference": {"matchExpressions": [other]}}
    affinity[_PREFERRED] = [*(affinity.get(_PREFERRED) or ()), wish]
    return kept


def restore(template: Json, original: Json, keep_labels: Collection[str] = ()) -> Json:
    """The template with all fields that admission may have added reset to `original`.

    Labels named in `keep_labels` stay as they are: they belong to the job's own controller.
    """
    restored = dict(template)
    for part, name in (*_INJECTED_MAPS, *_INJECTED_LISTS):
        wanted = (original.get(part) or {}).get(name)
        if name == "labels":
            kept = {key: value for key, value in labels_of(template).items() if key in keep_labels}
            wanted = {**(wanted or {}), **kept}
        if wanted:
            _section(restored, part)[name] = wanted
        elif restored.get(part):
            _section(restored, part).pop(name, None)
    affinity = (original.get("spec") or {}).get("affinity")
    if affinity:
        _section(restored, "spec")["affinity"] = affinity
    elif restored.get("spec"):
        _section(restored, "spec").pop("affinity", None)
    return restored


def same(template: Json, original: Json, *, injected: bool = False) -> bool:
    """Whether a job's template is the one that its Workload was made from.

    With `injected`, the template may have an admission on top: more labels, annotations, node selectors and gates, and any
    tolerations. Absent, null and empty fields are equal.
    """
    if not injected:
        return _alike(template, original)
    for part, name in _INJECTED_MAPS:
        have, want = ((each.get(part) or {}).get(name) or {} for each in (template, original))
        if any(have.get(key) != value for key, value in want.items() if not _is_empty(value)):
            return False
    for part, name in _INJECTED_LISTS:
        have, want = ((each.get(part) or {}).get(name) or () for each in (template, original))
        if name != "tolerations" and not {*map(_canonical, want)} <= {*map(_canonical, have)}:
            return False
    return _alike(_without_injected(template), _without_injected(original))


def _without_injected(template: Json) -> Json:
    """The template without the fields that admission may have added something to."""
    result = dict(template)
    for part, name in (*_INJECTED_MAPS, *_INJECTED_LISTS):
        if result.get(part):
            _section(result, part).pop(name, None)
    if (result.get("spec") or {}).get("affinity"):
        _section(_section(result, "spec"), "affinity").pop("nodeAffinity", None)
    return result


def _canonical(value: Any) -> bytes:
    """Equal texts for equal values, without empty fields."""
    return orjson.dumps(_pruned(value), option=orjson.OPT_SORT_KEYS)


def same_containers(template: Json, original: Json, *, tolerations: bool) -> bool:
    """Whether two templates have the same containers, other resources and, if these count, tolerations.

    Equal quantities are equal, however they are written.
    """
    fields = ("initContainers", "containers", "resources", "overhead", *(("tolerations",) if tolerations else ()))
    pairs = ([(each.get("spec") or {}).get(field) for each in (template, original)] for field in fields)
    return all(mine == theirs or _alike(_counted(mine), _counted(theirs)) for mine, theirs in pairs)


def _counted(value: Any) -> Any:
    """JSON with the quantities of `requests` and `limits` as numbers: "1000m" and "1" are the same amount."""
    if isinstance(value, list):
        return [_counted(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _amounts(item) if key in _AMOUNTS else _counted(item) for key, item in value.items()}


def _amounts(resources: Any) -> Any:
    try:
        return {name: quantity.parse_number(amount) for name, amount in resources.items()}
    except (AttributeError, quantity.QuantityError):
        return resources  # not quantities: equal only to the very same


def labels_of(template: Json) -> dict[str, str]:
    return (template.get("metadata") or {}).get("labels") or {}


def annotations_of(template: Json) -> dict[str, str]:
    return (template.get("metadata") or {}).get("annotations") or {}


def without_labels(template: Json, dropped: Collection[str]) -> Json:
    """A copy of the template without the labels named in `dropped`."""
    kept = {key: value for key, value in labels_of(template).items() if key not in dropped}
    result = dict(template)
    if kept:
        _section(result, "metadata")["labels"] = kept
    elif result.get("metadata"):
        _section(result, "metadata").pop("labels", None)
    return result


def topology_request(template: Json, pod_index_label: str, path: str = "spec.template") -> Json | None:
    """`topologyRequest` of a pod set (v1beta2): what the annotations of its template ask, and how its pods are numbered.

    As in Kueue the numbers stand there even if nothing is asked, for queues that place every pod. `pod_index_label`: "" for pods
    without such a label. None if there is nothing to say.
    """
    asked = annotations_of(template)
    request: Json = {}
    if level := asked.get(names.REQUIRED_TOPOLOGY):
        request["required"] = level
    if level := asked.get(names.PREFERRED_TOPOLOGY):
        request["preferred"] = level
    if names.UNCONSTRAINED_TOPOLOGY in asked:
        request["unconstrained"] = asked[names.UNCONSTRAINED_TOPOLOGY] == "true"
    if group := asked.get(names.PODSET_GROUP):
        request["podSetGroupName"] = group
    request |= _slices(asked, path)
    if pod_index_label:
        request["podIndexLabel"] = pod_index_label
    return request or None


def _slices(asked: Mapping[str, str], path: str) -> Json:
    def where(annotation: str) -> str:
        return f"{path}.metadata.annotations[{annotation}]"

    found: Json = {}
    if level := asked.get(names.SLICE_REQUIRED_TOPOLOGY):
        found["podSetSliceRequiredTopology"] = level
    if size := asked.get(names.SLICE_SIZE):
        number = bounded.whole(size)
        if not number:
            raise JobError(f"{bounded.shown(size)} is not a whole number of at least 1", where(names.SLICE_SIZE))
        found["podSetSliceSize"] = number
    if layers := asked.get(names.SLICE_CONSTRAINTS):
        try:
            found["podsetSliceRequiredTopologyConstraints"] = bounded.load_json(
                layers, most_bytes=_LONGEST_LAYERS, most_depth=4
            )
        except ValueError as error:
            raise JobError(f"is {error}", where(names.SLICE_CONSTRAINTS)) from None
    return found


def draft(template: Json) -> Json:
    """A copy whose metadata, annotations, spec and containers may be changed in place. What is in these is shared with the
    template, and may be replaced.
    """
    copied = dict(template)
    if "metadata" in copied:
        metadata = _section(copied, "metadata")
        if "annotations" in metadata:
            _section(metadata, "annotations")
    if "spec" in copied:
        spec = _section(copied, "spec")
        for kind in ("initContainers", "containers"):
            if isinstance(spec.get(kind), list):
                spec[kind] = [dict(each) if isinstance(each, dict) else each for each in spec[kind]]
    return copied


def _section(parent: Json, name: str) -> Json:
    """The object `name` of `parent`, replaced by a copy that may be changed."""
    parent[name] = dict(parent.get(name) or {})
    return parent[name]


def _union(have: Mapping[str, str], added: Mapping[str, str], path: str) -> dict[str, str]:
    for key, value in added.items():
        if key in have and have[key] != value:
            raise JobError(f'is "{have[key]}", but the admission needs "{value}"', f"{path}[{key}]")
    return {**have, **added}


def _appended(have: Sequence[Json], extra: Sequence[Json]) -> list[Json]:
    result = list(have)
    for item in extra:
        if item not in result:
            result.append(dict(item))
    return result


def attempt_of(template: Json) -> int:
    """The attempt of its gang for which the template was started; 0 without the annotation."""
    return bounded.whole(annotations_of(template).get(names.ATTEMPT)) or 0


def _tolerated(template: Json, key: str) -> bool:
    """Whether the template itself says how long its pods tolerate the NoExecute taint `key`."""
    rows = (template.get("spec") or {}).get("tolerations") or ()
    return any((row.get("key") or key) == key and (row.get("effect") or "NoExecute") == "NoExecute" for row in rows)


def _alike(mine: Any, theirs: Any) -> bool:
    """Whether two values are equal, where null and empty fields are equal to absent ones. Looks at each value once."""
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return all(
            _alike(mine[key], theirs[key])
            if key in mine and key in theirs
            else _is_empty(mine.get(key, theirs.get(key)))
            for key in mine.keys() | theirs.keys()
        )
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(_alike, mine, theirs))
    return mine == theirs or (_is_empty(mine) and _is_empty(theirs))


def _is_empty(value: Any) -> bool:
    """Whether the value is null, an empty list, or an object in which everything is empty."""
    return value is None or value == [] or (isinstance(value, dict) and all(map(_is_empty, value.values())))


def _pruned(value: Any) -> Any:
    """A copy without nulls and without empty maps and lists, which are equal to absent ones."""
    if isinstance(value, dict):
        slim = {key: _pruned(item) for key, item in value.items()}
        return {key: item for key, item in slim.items() if item is not None and item != {} and item != []}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


# --- reads runtime hints of jobs; an invalid hint is ignored ----------------------------------------------------------


#: seconds: hints above ten years count as ten years
LONGEST: Final = 10 * 365 * 86_400.0


def annotated(obj: Stored) -> float | None:
    """The annotation that any kind of job, and its Workload, may have: its author's expected runtime, in seconds."""
    return seconds(obj.annotations.get(names.EXPECTED_RUNTIME))


def seconds(text: Any) -> float | None:
    """A duration such as 3h in seconds; None if it is invalid, or not above zero."""
    try:
        return positive(quantity.parse_duration(str(text))) if text is not None else None
    except quantity.QuantityError:
        return None


def by_steps(steps: Any, seconds_per_step: Any) -> float | None:
    """Steps times seconds, as analytic predictors of a step give it; None if one of them is missing or invalid."""
    if steps is None or seconds_per_step is None:
        return None
    try:
        return positive(quantity.parse_number(steps) * quantity.parse_number(seconds_per_step))
    except (quantity.QuantityError, TypeError, ValueError, OverflowError):
        return None


def positive(value: Any) -> float | None:
    """The number, if it is above zero, and not above the longest runtime."""
    if not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    return float(min(value, LONGEST))
