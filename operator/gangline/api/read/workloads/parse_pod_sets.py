"""The pod sets of a Workload from JSON (v1beta2): what its pods need and count for, and what they ask of topologies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import orjson

from gangline import bounded
from gangline.api.label_syntax import annotation_faults, label_faults
from gangline.api.read import counting, podspec
from gangline.api.read.reading import Json, ParseError, child, flag, items, number, optional_number, text
from gangline.api.sharing import neighbours, traits
from gangline.engine import model


class Counted(NamedTuple):
    """Pod sets, and why they are not admitted, see `counting.violation` and `counting.unclaimable`."""

    pod_sets: tuple[model.PodSet, ...]
    violation: str
    unclaimable: str


#: Pod sets by the rules that hold for them and their JSON; a queue of 15,000 workloads has a few hundred different ones.
_KNOWN: Final[dict[bytes, Counted]] = {}
_MOST_KNOWN: Final = 4096
_CLAIMS: Final = b'"resourceClaims"'
#: names of shares are of one namespace
_NAMED: Final = tuple(f'"{key}"'.encode() for key in neighbours.KEYS)


def pod_sets_of(
    spec: Json, whole: Mapping[str, tuple[str, int]], rules: counting.NamespaceRules, namespace: str
) -> Counted:
    """Equal pod sets are read once, and are one object afterwards, which makes comparing them cheap as well."""
    bodies = items(spec, "podSets", "spec")
    try:
        content = orjson.dumps([bodies, whole])
    except orjson.JSONEncodeError as error:
        raise ParseError("spec.podSets", f"is not JSON: {error}") from None
    shape = rules.digest + content
    if _CLAIMS in content:
        shape += rules.of_claims(bodies)
    named = any(key in content for key in _NAMED)
    if named:
        shape += b"\0" + namespace.encode()
    known = _KNOWN.get(shape)
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _count(bodies, whole, rules)
        if named:
            own = (replace(each, shares=neighbours.within(namespace, each.shares)) for each in known.pod_sets)
            known = known._replace(pod_sets=tuple(own))
        if len(content) <= podspec.MOST_KEPT:
            _KNOWN[shape] = known
    return known


def _count(bodies: Sequence[Json], whole: Mapping[str, tuple[str, int]], rules: counting.NamespaceRules) -> Counted:
    specs = [_completed_spec(body, f"spec.podSets[{i}]", rules) for i, body in enumerate(bodies)]
    asked = [
        _asked(body, spec, f"spec.podSets[{i}]", rules)
        for i, (body, spec) in enumerate(zip(bodies, specs, strict=True))
    ]
    pod_sets = [
        _pod_set(body, spec, f"spec.podSets[{i}]", whole, rules, asked[i])
        for i, (body, spec) in enumerate(zip(bodies, specs, strict=True))
    ]
    named = [(pod_set.name, spec) for pod_set, spec in zip(pod_sets, specs, strict=True)]
    faults = (f"spec.podSets[{i}].template.{each.fault}" for i, each in enumerate(asked) if each.fault)
    countable = _within_64_bits(pod_sets)
    violation = (
        _impossible(bodies)
        or counting.violation(specs, rules)
        or next(faults, "")
        or _beyond_counting(pod_sets, countable)
    )
    return Counted(countable, violation, counting.unclaimable(named, rules))


def _impossible(bodies: Sequence[Json]) -> str:
    """Why no pod of a template can exist; "" if it can. Webhooks refuse such a template where they see it."""
    for i, body in enumerate(bodies):
        path = f"spec.podSets[{i}].template"
        meta = child(child(body, "template", f"spec.podSets[{i}]"), "metadata", path)
        for part, faults in (("labels", label_faults), ("annotations", annotation_faults)):
            for value, fault in faults(child(meta, part, f"{path}.metadata")):
                named = "" if value is None else f"Invalid value: {bounded.shown(str(value))}: "
                return f"{path}.metadata.{part}: {named}{fault}"
    return ""


def _completed_spec(body: Json, path: str, rules: counting.NamespaceRules) -> Json:
    spec = child(child(body, "template", path), "spec", f"{path}.template")
    try:
        return counting.completed(spec, rules)
    except ParseError as error:
        raise error.within(f"{path}.template.spec") from None


def _asked(body: Json, spec: Json, path: str, rules: counting.NamespaceRules) -> counting.GpuShares:
    needs(spec, f"{path}.template.spec")  # a spec that cannot be read is an error of that field
    template, explained = child(body, "template", path), rules.resources.transformations
    try:
        return counting.gpu_shares(template, spec, explained, rules.cards, rules.claims)
    except ParseError as error:
        raise error.within(path) from None


def _within_64_bits(pod_sets: Sequence[model.PodSet]) -> tuple[model.PodSet, ...]:
    """The requests of one pod, such that all pods of the workload together request at most UNLIMITED."""
    pods = sum(pod_set.count for pod_set in pod_sets)
    most = model.UNLIMITED // max(1, pods)
    return tuple(
        replace(
            pod_set,
            requests=_at_most(most, pod_set.requests),
            quota=None if pod_set.quota is None else _at_most(most, pod_set.quota),
            charges=_at_most(most, pod_set.charges),
        )
        if any(
            size > most for each in (pod_set.requests, pod_set.quota or {}, pod_set.charges) for size in each.values()
        )
        else pod_set
        for pod_set in pod_sets
    )


def _beyond_counting(asked: Sequence[model.PodSet], bounded: Sequence[model.PodSet]) -> str:
    """Why pods that together request more than 64 bits can say are not admitted: no quota is known to be enough for them."""
    for i, (before, after) in enumerate(zip(asked, bounded, strict=True)):
        cut = sorted(name for name, size in before.requests.items() if size > after.requests[name])
        if cut:
            return f"spec.podSets[{i}].count: all pods together request more of {cut[0]} than can be counted"
    return ""


def _at_most(most: int, requests: model.Requests) -> dict[str, int]:
    return {name: min(most, size) for name, size in requests.items()}


def _pod_set(
    body: Json,
    spec: Json,
    path: str,
    whole: Mapping[str, tuple[str, int]],
    rules: counting.NamespaceRules,
    asked: counting.GpuShares,
) -> model.PodSet:
    found = needs(spec, f"{path}.template.spec")
    count = number(body, "count", path, 1)
    if count < 0:
        raise ParseError(f"{path}.count", f"{count} must not be negative")
    name = text(body, "name", path, "main")
    exclusive, domains = whole.get(name, ("", 0))
    quota = rules.quota(spec, found.requests)
    return model.PodSet(
        name=name,
        count=count,
        requests=found.requests,
        quota=None if quota is found.requests else quota,
        charges=asked.charges,
        shares=asked.shares,
        min_count=optional_number(body, "minCount", path),
        node_selector=found.node_selector,
        tolerations=found.tolerations,
        affinity=found.affinity,
        preferred_affinity=found.preferred_affinity,
        topology=_topology_request(child(body, "topologyRequest", path), f"{path}.topologyRequest"),
        shape=found.shape,
        exclusive=exclusive,
        domains=domains,
        most_per_node=podspec.neighbours(child(body, "template", path)).most_per_node if found.shape else 0,
        traits=traits.traits(_template_annotations(body, path), spec, images=rules.images),
    )


def _template_annotations(body: Json, path: str) -> Json:
    metadata = child(child(body, "template", path), "metadata", f"{path}.template")
    return child(metadata, "annotations", f"{path}.template.metadata")


def needs(spec: Json, path: str) -> podspec.PodNeeds:
    """The needs of pods with this spec; `path` is the path of the spec."""
    try:
        return podspec.needs(spec)
    except ParseError as error:
        raise error.within(path) from None


def _topology_request(body: Json, path: str) -> model.TopologyRequest | None:
    if not body:
        return None
    request = model.TopologyRequest(
        required=text(body, "required", path),
        preferred=text(body, "preferred", path),
        unconstrained=flag(body, "unconstrained", path, False),
        slices=_slices(body, path),
        group=text(body, "podSetGroupName", path),
    )
    return None if request == model.TopologyRequest() else request


def _slices(body: Json, path: str) -> tuple[model.Slice, ...]:
    key = "podsetSliceRequiredTopologyConstraints"
    layers = [
        (text(layer, "topology", f"{path}.{key}[{i}]"), number(layer, "size", f"{path}.{key}[{i}]", 1))
        for i, layer in enumerate(items(body, key, path))
    ]
    level = text(body, "podSetSliceRequiredTopology", path)
    if level and not layers:
        layers = [(level, number(body, "podSetSliceSize", path, 1))]
    if any(size < 1 for _, size in layers):
        raise ParseError(path, "the size of a slice must be 1 or more")
    return tuple(model.Slice(topology, size) for topology, size in layers)
