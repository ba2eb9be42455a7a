"""Faults of flavors, queues and policies by which jobs never start, or start on no node: each with what mends it.

In: flavors, nodes and queues as values or as the API server has them. Out: faults, in words for administrators. `gangline admin
doctor` looks for all of them, `gangline why` for those that concern one job.
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gangline import bounded
from gangline.api import names, quantity
from gangline.api.read import policy_reader
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.api.read.reading import ParseError, child, items, labels, text, texts
from gangline.engine.model import (
    Flavor,
    LabelSelector,
    Node,
    Requests,
    Taint,
    Toleration,
    expression_matches,
    tolerates,
)
from gangline.kube.resources import Json

#: names that are compared with a misspelt one, and characters of each; what a text lists
_COMPARED: Final = 256
_CHARACTERS: Final = 128
_LISTED: Final = 4
#: how alike two names are of which one is taken for the other, misspelt
_ALIKE: Final = 0.75
#: taints of nodes that cannot be used for a while: no flavor tolerates them
PASSING_TAINTS: Final = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/",
    "gangline.io/",
)
#: effects of taints that keep pods away
_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
#: resources that every pod should ask for, and that nodes have under these names
_USUAL: Final = ("cpu", "memory")

#: what pods ask of cards by these names is no resource of nodes
_OF_CARDS: Final = frozenset(
    {names.HAMI_CORES, names.HAMI_PERCENT, names.HAMI_MEMORY, names.TENCENT_MEMORY, names.TENCENT_CORES}
)
_OWN: Final = f"{names.OWN_GROUP}/"

#: a resource's flavor and name -> quota
Quotas: TypeAlias = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class SetupFault:
    """`subject`: the object at fault, as in `ResourceFlavor a100`. `advice`: the command or field that mends it. `serious`: jobs
    never start, or never run, because of it.
    """

    subject: str
    detail: str
    advice: str
    serious: bool = True

    def __str__(self) -> str:
        return f"{self.subject}: {self.detail}. To mend it: {self.advice}"


@dataclass(slots=True)
class FlavorsAndNodes:
    """The flavors by name, and all nodes. Flavors that an autoscaler makes nodes for are `autoscaled`."""

    flavors: Mapping[str, Flavor]
    nodes: Sequence[Node]
    _found: dict[str, list[Node]] = field(default_factory=dict[str, list[Node]])

    def nodes_of(self, flavor: str) -> list[Node]:
        """The nodes with the flavor's labels; all where it has none."""
        if flavor not in self._found:
            wanted = self.flavors[flavor].node_labels.items()
            self._found[flavor] = [node for node in self.nodes if wanted <= node.labels.items()]
        return self._found[flavor]

    def flavor_faults(self, name: str, tolerations: Iterable[Toleration] = ()) -> Iterator[SetupFault]:
        """Faults of one flavor: no node has its labels, or its nodes have taints that neither it nor these `tolerations` of pods
        tolerate.
        """
        flavor = self.flavors.get(name)
        if flavor is None or not self.nodes:
            return
        mine = self.nodes_of(name)
        if not mine and not flavor.autoscaled:
            yield SetupFault(f"ResourceFlavor {name}", *self._without_nodes(flavor))
            return
        tolerated = (*flavor.tolerations, *tolerations)
        kept_away = {node.name: taints for node in mine if (taints := _untolerated(node, flavor, tolerated))}
        everywhere = len(kept_away) == len(mine)
        if kept_away and (everywhere or flavor.node_labels):
            yield _tainted(flavor, kept_away, len(mine), everywhere)

    def _without_nodes(self, flavor: Flavor) -> tuple[str, str]:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(flavor.node_labels.items()))
        detail = f"no node has its labels {labels}, so a job that is admitted to it never runs"
        for key, value in sorted(flavor.node_labels.items()):
            there = sorted({node.labels[key] for node in self.nodes if key in node.labels})
            if value in there:
                continue
            if not there:
                keys = sorted({each for node in self.nodes for each in node.labels})
                near = close(key, keys)
                more = f" (close is {near})" if near else ""
                return f"{detail}: no node has a label {key}{more}", _relabelled(flavor, key, near, value)
            return f"{detail}: nodes have {key}={_some(there)}", _relabelled(flavor, key, key, close(value, there))
        return f"{detail}: no node has all of them", _relabelled(flavor, "", "", "")

    def resource_faults(self, queue: Json, rules: ResourceRules = EVERYTHING) -> Iterator[SetupFault]:
        """Resources for which a ClusterQueue has quota and that no node of the flavor offers: misspelt, or without a device
        plugin. Those that the configuration counts otherwise are left out.
        """
        made = {output for each in rules.transformations.values() for output in each.outputs}
        made |= {*rules.devices.resources.values(), *rules.devices.extended.values(), *rules.devices.consumed}
        offered = sorted({resource for node in self.nodes for resource in node.allocatable})
        for (flavor, resource), amount in sorted(quotas(queue).items()):
            known = self.flavors.get(flavor)
            if known is None or known.autoscaled or not amount or resource in made:
                continue
            if resource == "pods" or resource in _OF_CARDS or resource.startswith(_OWN):
                continue
            mine = self.nodes_of(flavor)
            if not mine or any(node.allocatable.get(resource) or node.capacity.get(resource) for node in mine):
                continue
            yield SetupFault(f"ClusterQueue {queue['metadata']['name']}", *_not_offered(flavor, resource, offered))

    def misspelt(self, subject: str, wanted: Iterable[str]) -> Iterator[SetupFault]:
        """Resources that a job asks for and no node offers, while nodes offer one of a similar name."""
        offered = sorted({resource for node in self.nodes for resource in node.allocatable})
        for resource in sorted(wanted):
            if offered and resource not in offered and (near := close(resource, offered)):
                detail = f"it asks for {resource}, which no node offers; close is {near}"
                yield SetupFault(subject, detail, f"ask for {near} in the pods of the job")

    def quota_faults(
        self, queues: Iterable[Json], resources: Collection[str] | None = None, *, named: bool = True
    ) -> Iterator[SetupFault]:
        """Flavors of which all queues together have more quota than the nodes have. `queues`: all ClusterQueues and Cohorts;
        `resources`: those in question, None = all; `named`: the fault may name the queues.
        """
        owners: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
        for queue in queues:
            for (flavor, resource), amount in quotas(queue).items():
                known = self.flavors.get(flavor)
                if (
                    known is None
                    or known.autoscaled
                    or not amount
                    or (resources is not None and resource not in resources)
                ):
                    continue
                owners[flavor, resource].append((-amount, queue["metadata"]["name"]))
        for (flavor, resource), held in sorted(owners.items()):
            amount = -sum(size for size, _ in held)
            there = sum(
                max(node.capacity.get(resource, 0), node.allocatable.get(resource, 0)) for node in self.nodes_of(flavor)
            )
            if there and amount > there:
                yield _oversized(flavor, resource, amount, there, sorted(held) if named else [])


# --- faults of flavors ------------------------------------------------------------------------------------------------


def _relabelled(flavor: Flavor, old: str, key: str, value: str) -> str:
    """The advice that makes a flavor select nodes: a command where a close label is known."""
    label = " ".join(f"{name}={text}" for name, text in sorted(flavor.node_labels.items()))
    by_nodes = f"kubectl label node NODE {label}"
    if not key or not value:
        return f"correct spec.nodeLabels (kubectl edit resourceflavor {flavor.name}), or label the nodes: {by_nodes}"
    changed: dict[str, str | None] = {key: value} if key == old else {old: None, key: value}
    return f"{_patch('resourceflavor', flavor.name, {'nodeLabels': changed})}, or label the nodes: {by_nodes}"


def _untolerated(node: Node, flavor: Flavor, tolerations: Sequence[Toleration]) -> tuple[Taint, ...]:
    """The taints of a node that keep the flavor's pods away for good. Taints that the flavor declares are tolerated by each pod
    that is admitted to it.
    """
    declared = {(taint.key, taint.effect) for taint in flavor.taints}
    return tuple(
        taint
        for taint in node.taints
        if taint.effect in _KEEPS_AWAY
        and not taint.key.startswith(PASSING_TAINTS)
        and (taint.key, taint.effect) not in declared
        and not any(tolerates(each, taint) for each in tolerations)
    )


def _tainted(flavor: Flavor, kept_away: Mapping[str, Sequence[Taint]], nodes: int, everywhere: bool) -> SetupFault:
    taints = sorted(
        {taint for each in kept_away.values() for taint in each}, key=lambda taint: (taint.key, taint.value)
    )
    shown = _some([f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in taints])
    which = f"all {nodes} of its nodes have" if everywhere else f"{len(kept_away)} of its {nodes} nodes have"
    if nodes == 1:
        which = "its node has"
    detail = f"{which} the taint {shown}, which it does not tolerate, so pods that are admitted to it are not scheduled there"
    wanted = [
        *flavor.tolerations,
        *(
            Toleration(taint.key, "Equal" if taint.value else "Exists", taint.value, taint.effect)
            for taint in taints[:_LISTED]
        ),
    ]
    advice = _patch("resourceflavor", flavor.name, {"tolerations": [_written(each) for each in wanted]})
    return SetupFault(f"ResourceFlavor {flavor.name}", detail, advice, serious=everywhere)


def _written(toleration: Toleration) -> dict[str, str]:
    parts = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {name: text for name, text in parts.items() if text}


def _not_offered(flavor: str, resource: str, offered: Sequence[str]) -> tuple[str, str]:
    detail = f"it has quota for {resource} of flavor {flavor}, and no node of the flavor offers {resource}"
    near = close(resource, [each for each in offered if each != resource])
    if resource in offered:
        return (
            f"{detail}, while other nodes do",
            f"correct spec.nodeLabels of the flavor (kubectl edit resourceflavor {flavor}), "
            "or see whether the device plugin runs on its nodes",
        )
    if near:
        return (
            f"{detail}; they offer {near}",
            f"name {near} in spec.resourceGroups of the queue, and in the jobs that ask for it",
        )
    return (
        detail,
        f"see whether the device plugin that offers {resource} runs: kubectl get nodes -o yaml shows status.allocatable",
    )


def _oversized(flavor: str, resource: str, amount: int, there: int, owners: Sequence[tuple[int, str]]) -> SetupFault:
    more = f" ({_some([f'{name} {quantity.format(-size, resource)}' for size, name in owners])})" if owners else ""
    quota, most = quantity.format(amount, resource), quantity.format(there, resource)
    detail = f"the quota of it is {quota} {resource}{more}, and its nodes have {most}"
    edit = f"kubectl edit clusterqueue {owners[0][1] if owners else 'NAME'}"
    advice = f"{edit}, and lower nominalQuota of {resource}, so that the sum is at most {most}"
    return SetupFault(
        f"ResourceFlavor {flavor}", f"{detail}: jobs are admitted for which there is no room", advice, serious=False
    )


# --- faults of queues -------------------------------------------------------------------------------------------------


def quotas(queue: Json) -> Quotas:
    """The nominal quota of a ClusterQueue or a Cohort, in the engine's units. What cannot be read is 0."""
    try:
        return dict(_nominal(queue))
    except ParseError:
        return {}


def _nominal(queue: Json) -> Iterator[tuple[tuple[str, str], int]]:
    for group in items(child(queue, "spec", ""), "resourceGroups", "spec"):
        for flavor in items(group, "flavors", "spec.resourceGroups"):
            for each in items(flavor, "resources", "spec.resourceGroups.flavors"):
                resource = text(each, "name", "")
                yield (text(flavor, "name", ""), resource), _amount(each.get("nominalQuota", 0), resource)


def _amount(written: Any, resource: str) -> int:
    try:
        return quantity.parse(written, resource)
    except quantity.QuantityError:
        return 0


def coverage_faults(queue: Json, rules: ResourceRules = EVERYTHING) -> Iterator[SetupFault]:
    """Whether a ClusterQueue has no quota for resources that nearly every pod asks for."""
    covered = {resource for _, resource in quotas(queue)}
    if not covered:
        return
    lacking = [
        each for each in _USUAL if each not in covered and not (rules.excluded and each.startswith(rules.excluded))
    ]
    if lacking:
        what, it, name = " and ".join(lacking), "it" if len(lacking) == 1 else "them", queue["metadata"]["name"]
        yield SetupFault(
            f"ClusterQueue {name}",
            f"it has no quota for {what}: jobs that ask for {it} are never admitted",
            f"kubectl edit clusterqueue {name}, and add {what} to coveredResources and to each flavor of spec.resourceGroups; or "
            f"leave {it} out of the accounting: resources.excludeResourcePrefixes of the configuration",
            serious=False,
        )


def selector_faults(
    queue: str,
    selector: LabelSelector | None,
    used_by: Iterable[str],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Iterator[SetupFault]:
    """Namespaces whose jobs a ClusterQueue refuses though LocalQueues there lead to it. `used_by`: the namespaces of these;
    `namespaces`: the labels of each.
    """
    users = sorted(set(used_by))
    refused = [each for each in users if not selects(selector, namespaces.get(each, {}))]
    if refused:
        whose = f"namespace {refused[0]}" if len(refused) == 1 else f"namespaces {_some(refused)}"
        why = "it has no namespaceSelector" if selector is None else f"its namespaceSelector is {_shown(selector)}"
        detail = f"it admits no job of {whose}, though a LocalQueue there leads to it: {why}"
        yield SetupFault(f"ClusterQueue {queue}", detail, _selecting(queue, selector, refused))
    elif not users and not any(selects(selector, labels) for labels in namespaces.values()):
        why = "without a namespaceSelector" if selector is None else f"with namespaceSelector {_shown(selector)}"
        yield SetupFault(
            f"ClusterQueue {queue}",
            f"{why} it admits jobs of no namespace",
            _selecting(queue, selector, []),
            serious=False,
        )


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a namespace with these labels is selected. No selector selects nothing, an empty one everything."""
    return selector is not None and all(expression_matches(each, labels) for each in selector.expressions)


def _selecting(queue: str, selector: LabelSelector | None, refused: Sequence[str]) -> str:
    exact = selector is not None and all(each.operator == "In" and each.values for each in selector.expressions)
    by_name = any(each.key == "kubernetes.io/metadata.name" for each in (selector.expressions if selector else ()))
    edit = f"kubectl edit clusterqueue {queue}, and let spec.namespaceSelector select"
    if refused and exact and selector is not None and not by_name:
        labels = " ".join(f"{each.key}={each.values[0]}" for each in selector.expressions)
        return f"kubectl label namespace {' '.join(refused[:_LISTED])} {labels}, or {edit} it"
    if not refused:
        return f"{edit} the namespaces of its teams, or all of them ({{}})"
    named: Json = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": refused[0]}}}
    if selector is None and len(refused) == 1:
        return _patch("clusterqueue", queue, named)
    return f"{edit} {_some(refused)}, for example by the label kubernetes.io/metadata.name"


def _shown(selector: LabelSelector) -> str:
    return (
        _some(
            [f"{each.key} {each.operator} {','.join(each.values[:_LISTED])}".strip() for each in selector.expressions]
        )
        or "{}"
    )


def lost_local_queue(key: str, cluster_queue: str, known: Iterable[str]) -> SetupFault:
    """A LocalQueue whose ClusterQueue does not exist."""
    namespace, _, name = key.partition("/")
    near = close(cluster_queue, list(known))
    more = f" (close is {near})" if near else ""
    wanted = (
        f"create it anew for {near}"
        if near
        else "create the ClusterQueue, or create the LocalQueue anew for another one"
    )
    advice = f"{wanted}, since spec.clusterQueue cannot be changed: kubectl delete localqueue {name} -n {namespace}"
    return SetupFault(
        f"LocalQueue {key}", f"it leads to ClusterQueue {cluster_queue}, which does not exist{more}", advice
    )


def idle_policies(policies: Iterable[Json], queues: Sequence[Json]) -> Iterator[SetupFault]:
    """QueuePolicies that select none of these ClusterQueues."""
    there = [queue["metadata"]["name"] for queue in queues]
    for policy in policies:
        try:
            if not any(policy_reader.selects(policy, queue) for queue in queues):
                wanted = child(child(policy, "spec", ""), "clusterQueues", "spec")
                by_label = labels(wanted, "matchLabels", "spec.clusterQueues")
                yield _idle(policy["metadata"]["name"], texts(wanted, "names", "spec.clusterQueues"), by_label, there)
        except ParseError:  # its condition Active says so
            continue


def _idle(name: str, wanted: Sequence[str], by_label: Mapping[str, str], queues: Sequence[str]) -> SetupFault:
    """The fault of a policy. `wanted`, `by_label`: by what it selects queues; `queues`: those that exist."""
    if not wanted and not by_label:
        detail, near = "it selects no ClusterQueue, since spec.clusterQueues names none", ""
    else:
        by = [
            *(f"name {each}" for each in wanted),
            *(f"label {key}={value}" for key, value in sorted(by_label.items())),
        ]
        near = next((found for each in wanted if (found := close(each, queues))), "")
        detail = f"it selects no ClusterQueue ({_some(by)})" + (f"; close is {near}" if near else "")
    if near:
        return SetupFault(
            f"QueuePolicy {name}",
            detail,
            _patch("queuepolicy", name, {"clusterQueues": {"names": [near]}}),
            serious=False,
        )
    there = f" ({_some(sorted(queues))})" if queues else ""
    edit = f"kubectl edit queuepolicy {name}"
    advice = f"{edit}, and name ClusterQueues{there} in spec.clusterQueues.names, or their labels in matchLabels"
    return SetupFault(f"QueuePolicy {name}", detail, advice, serious=False)


# --- pods and nodes ---------------------------------------------------------------------------------------------------


def wider_than_nodes(
    groups: Iterable[Json], requests: Requests, largest: Mapping[str, Requests | None]
) -> tuple[str, tuple[str, ...], int] | None:
    """The resource of which a pod asks for more than any node of a group's flavors has, these flavors, and the most that one has.
    None if it fits, or if nodes do not bound one of the flavors. `largest`: flavor -> the most of a node; None = unbounded.
    """
    for group in groups:
        flavors = tuple(flavor["name"] for flavor in group.get("flavors") or ())
        found = [largest.get(flavor) for flavor in flavors]
        if not flavors or None in found:
            continue
        for resource in group.get("coveredResources") or ():
            most = max(each.get(resource, 0) for each in found if each is not None)
            if requests.get(resource, 0) > most:
                return resource, flavors, most
    return None


def most_of(nodes: Iterable[Node]) -> dict[str, int]:
    """The most of each resource that one of the nodes has."""
    found: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable.items():
            found[resource] = max(amount, found.get(resource, 0))
    return found


# --- texts ------------------------------------------------------------------------------------------------------------


def close(name: str, among: Sequence[str]) -> str:
    """The one of these names that is most like this one; "" if none is."""
    candidates = {each[:_CHARACTERS]: each for each in among[:_COMPARED] if each != name}
    found = difflib.get_close_matches(name[:_CHARACTERS], candidates, n=1, cutoff=_ALIKE)
    return candidates[found[0]] if found else ""


def _some(texts: Sequence[str]) -> str:
    return bounded.some(texts, _LISTED)


def _patch(kind: str, name: str, spec: Json) -> str:
    body = shlex.quote(json.dumps({"spec": spec}, separators=(",", ":")))
    return f"kubectl patch {kind} {name} --type merge -p {body}"
