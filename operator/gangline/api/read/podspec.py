"""A pod's requirements of its node, read from its spec as Kubernetes reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import orjson

from gangline.api.read.reading import Json, ParseError, amounts, at, child, items, labels, number, root, text, texts
from gangline.engine.model import UNLIMITED, Affinity, Expression, PreferredTerm, Taint, Toleration

#: Resources that a pod may request as a whole, besides its containers.
_POD_LEVEL: Final = ("cpu", "memory")
_HUGE_PAGES: Final = "hugepages-"
SELECTOR_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_HOST: Final = "kubernetes.io/hostname"
_DURING: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_OPERATORS: Final = SELECTOR_OPERATORS | {"Gt", "Lt"}
#: Fields of a pod's spec that decide where it can run and have no counterpart in the engine's model.
_SHAPING: Final = ("hostNetwork", "resourceClaims", "runtimeClassName", "schedulerName", "topologySpreadConstraints")
#: Known templates; a queue of 15,000 workloads has a few hundred different ones.
_KNOWN: Final = 4096
#: A template of more bytes is read each time, so that the cache cannot fill the memory.
MOST_KEPT: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class PodNeeds:
    """The requirements of a pod: shared by all pod sets with an equal template."""

    requests: dict[str, int]
    node_selector: dict[str, str]
    tolerations: tuple[Toleration, ...]
    affinity: Affinity
    preferred_affinity: tuple[PreferredTerm, ...]
    shape: str


def needs(spec: Json) -> PodNeeds:
    """The needs of a pod with this spec. Equal specs are read once. Raises ParseError, its path relative to the spec."""
    try:
        raw = orjson.dumps(spec)
    except orjson.JSONEncodeError as error:  # nested too deeply, or text that is not UTF-8
        raise ParseError("", f"is not JSON: {error}") from None
    return _known(raw) if len(raw) <= MOST_KEPT else _needs(spec)


@lru_cache(maxsize=_KNOWN)
def _known(raw: bytes) -> PodNeeds:
    return _needs(root(orjson.loads(raw)))


def _needs(spec: Json) -> PodNeeds:
    affinity = child(spec, "affinity", "")
    node_affinity = child(affinity, "nodeAffinity", "affinity")
    return PodNeeds(
        requests=requests(spec),
        node_selector=dict(labels(spec, "nodeSelector", "")),
        tolerations=tolerations(spec, "tolerations", ""),
        affinity=_on_node(_required(node_affinity, "affinity.nodeAffinity"), text(spec, "nodeName", "")),
        preferred_affinity=_preferred(node_affinity, "affinity.nodeAffinity"),
        shape=_shape(spec, affinity),
    )


# --- requests ---------------------------------------------------------------------------------------------------------


def requests(spec: Json) -> dict[str, int]:
    """The requests of one pod, per resource, in engine units: those of its containers; resources of the pod as a whole replace
    them; overhead is added. Requests default to limits.
    """
    running = aggregated(spec)
    running.update(_pod_level(spec, running))
    _add(running, amounts(spec, "overhead", ""))
    return running


def aggregated(spec: Json, counted: Callable[[dict[str, int]], dict[str, int]] | None = None) -> dict[str, int]:
    """The larger of what a pod's containers and sidecars need together and the peak of its init containers. `counted`: what the
    requests of one container count for.
    """
    running: dict[str, int] = {}
    for i, container in enumerate(items(spec, "containers", "")):
        _add(running, _needed(container, f"containers[{i}]", counted))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for i, container in enumerate(items(spec, "initContainers", "")):
        path = f"initContainers[{i}]"
        needed = _needed(container, path, counted)
        if text(container, "restartPolicy", path) == "Always":
            _add(running, needed)
            _add(sidecars, needed)
        else:  # besides the sidecars that run by then
            _raise_to(starting, {name: min(UNLIMITED, size + sidecars.get(name, 0)) for name, size in needed.items()})
    _raise_to(running, starting)
    return running


def by_container(spec: Json) -> tuple[list[dict[str, int]], list[tuple[dict[str, int], bool]]]:
    """The requests of each container; and of each init container, with whether it runs on beside them (a sidecar)."""
    running = [_container(each, f"containers[{i}]") for i, each in enumerate(items(spec, "containers", ""))]
    starting: list[tuple[dict[str, int], bool]] = []
    for i, container in enumerate(items(spec, "initContainers", "")):
        path = f"initContainers[{i}]"
        starting.append((_container(container, path), text(container, "restartPolicy", path) == "Always"))
    return running, starting


def _needed(container: Json, path: str, counted: Callable[[dict[str, int]], dict[str, int]] | None) -> dict[str, int]:
    found = _container(container, path)
    return found if counted is None else counted(found)


def _container(container: Json, path: str) -> dict[str, int]:
    resources, path = child(container, "resources", path), f"{path}.resources"
    requested = dict(amounts(resources, "requests", path))
    for resource, limit in amounts(resources, "limits", path).items():
        requested.setdefault(resource, limit)
    return requested


def _pod_level(spec: Json, aggregated: dict[str, int]) -> dict[str, int]:
    """Resources of the pod as a whole; a limit counts only without any request."""
    resources = child(spec, "resources", "")
    limits = amounts(resources, "limits", "resources")
    found = {resource: limit for resource, limit in limits.items() if resource not in aggregated}
    found |= amounts(resources, "requests", "resources")
    return {name: size for name, size in found.items() if is_pod_level(name)}


def is_pod_level(resource: str) -> bool:
    """Whether a pod may request it as a whole."""
    return resource in _POD_LEVEL or resource.startswith(_HUGE_PAGES)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for resource, size in more.items():
        total[resource] = min(UNLIMITED, total.get(resource, 0) + size)


def _raise_to(total: dict[str, int], other: dict[str, int]) -> None:
    for resource, size in other.items():
        if size > total.get(resource, -1):
            total[resource] = size


# --- selection --------------------------------------------------------------------------------------------------------


def taints(parent: Json, key: str, path: str) -> tuple[Taint, ...]:
    where = at(path, key)
    return tuple(_taint(taint, f"{where}[{i}]") for i, taint in enumerate(items(parent, key, path)))


def _taint(taint: Json, path: str) -> Taint:
    effect = text(taint, "effect", path, "NoSchedule")
    return Taint(text(taint, "key", path), text(taint, "value", path), effect)


def tolerations(parent: Json, key: str, path: str) -> tuple[Toleration, ...]:
    where = at(path, key)
    return tuple(_toleration(row, f"{where}[{i}]") for i, row in enumerate(items(parent, key, path)))


def _toleration(row: Json, path: str) -> Toleration:
    operator = text(row, "operator", path) or "Equal"
    return Toleration(text(row, "key", path), operator, text(row, "value", path), text(row, "effect", path))


def _expressions(parent: Json, key: str, path: str, operators: frozenset[str]) -> tuple[Expression, ...]:
    where = at(path, key)
    return tuple(_expression(row, f"{where}[{i}]", operators) for i, row in enumerate(items(parent, key, path)))


def _expression(row: Json, path: str, operators: frozenset[str]) -> Expression:
    return Expression(text(row, "key", path), _operator(row, path, operators), texts(row, "values", path))


def _operator(expression: Json, path: str, operators: frozenset[str]) -> str:
    return check_operator(text(expression, "operator", path), path, operators)


def check_operator(operator: str, path: str, operators: frozenset[str]) -> str:
    """The operator of the condition at `path`, if it is one of these. Raises ParseError."""
    if operator not in operators:
        raise ParseError(f"{path}.operator", f'"{operator}" is not one of {", ".join(sorted(operators))}')
    return operator


def _required(node_affinity: Json, path: str) -> Affinity:
    path = f"{path}.requiredDuringSchedulingIgnoredDuringExecution"
    required = child(node_affinity, "requiredDuringSchedulingIgnoredDuringExecution", "affinity.nodeAffinity")
    terms = items(required, "nodeSelectorTerms", path)
    return tuple(_term(term, f"{path}.nodeSelectorTerms[{i}]") for i, term in enumerate(terms))


def _preferred(node_affinity: Json, path: str) -> tuple[PreferredTerm, ...]:
    key = "preferredDuringSchedulingIgnoredDuringExecution"
    return tuple(
        PreferredTerm(
            number(term, "weight", f"{path}.{key}[{i}]"),
            _term(child(term, "preference", f"{path}.{key}[{i}]"), f"{path}.{key}[{i}].preference"),
        )
        for i, term in enumerate(items(node_affinity, key, path))
    )


def _term(term: Json, path: str) -> tuple[Expression, ...]:
    """Conditions on labels and on the node's name."""
    found = _expressions(term, "matchExpressions", path, _NODE_OPERATORS)
    fields = _expressions(term, "matchFields", path, _NODE_OPERATORS)
    return found + tuple(replace(each, field=True) for each in fields)


def _on_node(affinity: Affinity, name: str) -> Affinity:
    """The affinity of pods that name their node."""
    if not name:
        return affinity
    itself = Expression("metadata.name", "In", (name,), field=True)
    return tuple((*term, itself) if term else term for term in affinity) or ((itself,),)


# --- rules between pods -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Rules of a pod about the pods beside it. `most_per_node`: how many of its kind a node takes, 0 = any number.

    `others`: there are rules that only the scheduler can judge: about other pods, other domains than nodes, or claims of devices.
    """

    most_per_node: int = 0
    others: bool = False


def neighbours(template: Json) -> Neighbours:
    """What a pod template says of neighbours. What can't be read is left to the scheduler."""
    try:
        spec = child(template, "spec", "")
        own = labels(child(template, "metadata", ""), "labels", "metadata")
        return _neighbours(spec, own)
    except ParseError:
        return Neighbours(others=True)


def _neighbours(spec: Json, own: Mapping[str, str]) -> Neighbours:
    affinity = child(spec, "affinity", "")
    apart = items(child(affinity, "podAntiAffinity", "affinity"), _DURING, "affinity.podAntiAffinity")
    together = items(child(affinity, "podAffinity", "affinity"), _DURING, "affinity.podAffinity")
    spread = items(spec, "topologySpreadConstraints", "")
    spreads = any(row.get("whenUnsatisfiable") != "ScheduleAnyway" for row in spread)
    others = spreads or bool(together or spec.get("resourceClaims"))
    known = [_is_about_its_kind(term, own) for term in apart]
    alone = any(known) or _has_ports_of_the_host(spec)
    return Neighbours(1 if alone else 0, others or not all(known))


def _is_about_its_kind(term: Json, own: Mapping[str, str]) -> bool:
    """Whether a term of anti-affinity keeps pods with the pod's own labels off its node, and no others."""
    selector = child(term, "labelSelector", "")
    wanted = labels(selector, "matchLabels", "labelSelector")
    plain = term.keys() <= {"labelSelector", "topologyKey"} and selector.keys() <= {"matchLabels"}
    return plain and term.get("topologyKey") == _HOST and bool(wanted) and wanted.items() <= own.items()


def _has_ports_of_the_host(spec: Json) -> bool:
    containers = (*items(spec, "containers", ""), *items(spec, "initContainers", ""))
    ports = (port for container in containers for port in items(container, "ports", "containers"))
    return any(spec.get("hostNetwork") or port.get("hostPort") for port in ports)


# --- shape ------------------------------------------------------------------------------------------------------------


def _shape(spec: Json, affinity: Json) -> str:
    """A digest of all other fields that decide where the pod can run; "" if there are none."""
    facts = {key: spec[key] for key in _SHAPING if spec.get(key)}
    facts |= {key: affinity[key] for key in ("podAffinity", "podAntiAffinity") if affinity.get(key)}
    facts |= dict(_container_facts(spec, "containers")) | dict(_container_facts(spec, "initContainers"))
    if not facts:
        return ""
    return hashlib.blake2b(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _container_facts(spec: Json, key: str) -> Iterator[tuple[str, Any]]:
    """Ports on the host and claims on devices."""
    for i, container in enumerate(items(spec, key, "")):
        path = f"{key}[{i}]"
        if ports := [port for port in items(container, "ports", path) if port.get("hostPort")]:
            yield f"{path}.ports", ports
        if claims := child(container, "resources", path).get("claims"):
            yield f"{path}.claims", claims
