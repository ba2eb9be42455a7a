"""The objects that give a team its queue: flavors of the nodes that there are, quota, namespace, LocalQueue and rights. Pure.

In: the nodes and objects of a cluster, and what is wished. Out: manifests. What a wish leaves open stays as the cluster has it,
so the same wish made again changes nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gangline import bounded
from gangline.api import label_syntax, names, quantity
from gangline.api.read.setup_faults import PASSING_TAINTS, quotas
from gangline.engine.model import Flavor, Node, Taint, is_accelerator
from gangline.kube import resources as kube
from gangline.kube.ownership import CLUSTER_ROLES
from gangline.kube.resources import Json

#: labels by which kinds of GPU nodes differ, the most telling first
PRODUCT_LABELS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "cloud.google.com/gke-tpu-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "node.kubernetes.io/instance-type",
)
#: the flavor of nodes that nothing tells apart
_ONLY: Final = "default"
_GIB: Final = 1 << 30
_NAME: Final = "kubernetes.io/metadata.name"
#: characters of the name of a user or a group, and how many there may be of each
_LONGEST: Final = 253
_MOST: Final = 64
#: an amount of GPUs that no cluster has
_MOST_GPUS: Final = 10_000_000


class WishError(ValueError):
    """A wish that cannot be met: `flag` is the option at fault."""

    def __init__(self, flag: str, message: str) -> None:
        super().__init__(message)
        self.flag = flag


@dataclass(frozen=True, slots=True)
class TeamWishes:
    """What is wished for a team. None, or nothing, leaves what the cluster has, or the usual.

    `gpus`: quota by flavor, "" = of the only one. `borrowing`: GPUs that the team may borrow of each flavor. `terminals`: the
    team may run commands in the pods of its namespace.
    """

    team: str
    namespace: str = ""
    queue: str = ""
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    cohort: str | None = None
    borrowing: int | None = None
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    leads: tuple[str, ...] = ()
    flavor_label: str = ""
    terminals: bool = False


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes of one kind, and the flavor for them. `exists`: there is a ResourceFlavor that selects exactly these."""

    flavor: str
    labels: Mapping[str, str]
    nodes: tuple[Node, ...]
    resource: str
    taints: tuple[Taint, ...] = ()
    exists: bool = False

    def amount(self, resource: str) -> int:
        """What all of its nodes offer, in the engine's units."""
        return sum(node.allocatable.get(resource, 0) for node in self.nodes)

    @property
    def gpus(self) -> int:
        return self.amount(self.resource) if self.resource else 0

    def __str__(self) -> str:
        """One line: how many nodes, of what, with which taints."""
        said = [f"{self.gpus} {self.resource}"] if self.resource else []
        said += [f"{quantity.format(self.amount(each), each)} {each}" for each in ("cpu", "memory", "pods")]
        by = ", ".join(f"{key}={value}" for key, value in self.labels.items()) or "all nodes"
        taints = ", ".join(f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in self.taints)
        one = "" if len(self.nodes) == 1 else "s"
        return f"{self.flavor}: {len(self.nodes)} node{one} ({by}) with {', '.join(said)}" + (
            f"; tainted {taints}" if taints else ""
        )


# --- nodes ------------------------------------------------------------------------------------------------------------


def kinds_of(nodes: Sequence[Node], flavors: Iterable[Flavor], label: str = "") -> list[NodeKind]:
    """The kinds of nodes with accelerators; all nodes as one kind where none has any. `label` tells kinds apart, instead of those
    that are known. Raises WishError.
    """
    known = sorted(flavors, key=lambda flavor: flavor.name)
    if not nodes:
        raise WishError("--kubeconfig", "the cluster has no nodes: there is nothing to give quota of")
    by_resource: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        offered = [
            resource for resource in sorted(node.allocatable) if is_accelerator(resource) and node.allocatable[resource]
        ]
        if offered:
            by_resource[max(offered, key=lambda resource: node.allocatable[resource])].append(node)
    if not by_resource:
        return [_kind_of({}, nodes, "", known, set())]
    found: list[NodeKind] = []
    taken: set[str] = set()
    for resource, members in sorted(by_resource.items()):
        key = _telling(members, label)
        groups: dict[str, list[Node]] = defaultdict(list)
        for node in members:
            groups[node.labels[key] if key else ""].append(node)
        for value, each in sorted(groups.items()):
            kind = _kind_of({key: value} if key else {}, each, resource, known, taken)
            taken.add(kind.flavor)
            found.append(kind)
    return found


def _telling(nodes: Sequence[Node], label: str) -> str:
    """The label that says of what kind a node is; "" = none. Raises WishError where the wished one is not on all."""
    if label:
        without = [node.name for node in nodes if label not in node.labels]
        if without:
            raise WishError(
                "--flavor-label", f"{len(without)} GPU nodes have no label {label}, such as {sorted(without)[0]}"
            )
        return label
    return next((key for key in PRODUCT_LABELS if all(key in node.labels for node in nodes)), "")


def _kind_of(
    labels: Mapping[str, str], nodes: Sequence[Node], resource: str, known: Sequence[Flavor], taken: set[str]
) -> NodeKind:
    taints = {
        taint: None
        for node in nodes
        for taint in node.taints
        if taint.effect in ("NoSchedule", "NoExecute") and not taint.key.startswith(PASSING_TAINTS)
    }
    same = next((flavor for flavor in known if dict(flavor.node_labels) == dict(labels)), None)
    if same is not None:
        return NodeKind(same.name, labels, tuple(nodes), resource, tuple(taints), exists=True)
    there = {flavor.name for flavor in known} | taken
    name = _free_name(next(iter(labels.values()), "") or _ONLY, there)
    return NodeKind(name, labels, tuple(nodes), resource, tuple(taints))


def _free_name(value: str, there: set[str]) -> str:
    """A flavor's name from the value of a label, which no other flavor has."""
    name = _as_name(value) or _ONLY
    return (
        name
        if name not in there
        else next(f"{name}-{n}" for n in range(2, len(there) + 3) if f"{name}-{n}" not in there)
    )


@bounded.parser(_LONGEST, instead="", worst=("A_", "_", "a"))
def _as_name(value: str) -> str:
    """The letters and digits of a text as a name of an object; "" where it has none."""
    return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:50].strip("-")


# --- the objects ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """What the cluster has. `bindings`: RoleBindings and ClusterRoleBindings by name."""

    queues: Sequence[Json] = ()
    cohorts: Sequence[Json] = ()
    bindings: Mapping[str, Json] = field(default_factory=dict[str, Json])

    def queue(self, name: str) -> Json | None:
        return next((each for each in self.queues if each["metadata"]["name"] == name), None)


def checked(wishes: TeamWishes) -> TeamWishes:
    """The wishes with the usual names. Raises WishError naming the option of one that is no name."""
    complete = TeamWishes(
        wishes.team,
        wishes.namespace or wishes.team,
        wishes.queue or "gpus",
        wishes.gpus,
        wishes.cohort,
        wishes.borrowing,
        wishes.users,
        wishes.groups,
        wishes.leads,
        wishes.flavor_label,
        wishes.terminals,
    )
    for flag, value in (("TEAM", complete.team), ("--namespace", complete.namespace), ("--queue", complete.queue)):
        if faults := label_syntax.dns_label_faults(value[:_LONGEST]):
            raise WishError(flag, f"{value[:80]!r} is no name: {faults[0]}")
    if complete.namespace in (*names.EXCLUDED_NAMESPACES, names.KUEUE_NAMESPACE):
        raise WishError("--namespace", f"Gangline manages no jobs in {complete.namespace}")
    if complete.cohort and (faults := label_syntax.dns_subdomain_faults(complete.cohort[:_LONGEST])):
        raise WishError("--cohort", f"{complete.cohort[:80]!r} is no name: {faults[0]}")
    for flag, people in (("--user", complete.users), ("--group", complete.groups), ("--lead", complete.leads)):
        if len(people) > _MOST:
            raise WishError(flag, f"there are more than {_MOST}: make a group of them")
        for each in people:
            if not each.strip() or len(each) > _LONGEST or not each.isprintable():
                raise WishError(flag, f"{each[:80]!r} is no name of a user or group")
    for flag, amounts in (("--gpus", complete.gpus.values()), ("--borrow", [complete.borrowing or 0])):
        if any(not 0 <= each <= _MOST_GPUS for each in amounts):
            raise WishError(flag, "a number of GPUs is wanted, of 0 or more")
    if complete.flavor_label and any(label_syntax.label_faults({complete.flavor_label: ""})):
        raise WishError("--flavor-label", f"{complete.flavor_label[:80]!r} is no name of a label")
    return complete


def manifests(wishes: TeamWishes, kinds: Sequence[NodeKind], cluster: ClusterObjects) -> list[Json]:
    """The objects, in an order in which they can be applied. `wishes`: `checked`. Raises WishError."""
    before = cluster.queue(wishes.team)
    shares = gpu_shares(wishes, kinds, cluster)
    if before is not None:
        _refuse_to_lose(before, kinds)
    order = [*(flavor for flavor, _ in quotas(before or {})), *wishes.gpus]  # jobs try flavors in this order
    used = [kind for kind in kinds if kind.flavor in shares]
    used.sort(key=lambda kind: order.index(kind.flavor) if kind.flavor in order else len(order))
    made = [_flavor(kind) for kind in used if not kind.exists]
    made.append(_cluster_queue(wishes, used, shares, before))
    made.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": wishes.namespace}})
    made.append(
        {
            "apiVersion": names.V1BETA2,
            "kind": "LocalQueue",
            "metadata": {"name": wishes.queue, "namespace": wishes.namespace},
            "spec": {"clusterQueue": wishes.team},
        }
    )
    return [*made, *_bindings(wishes, cluster.bindings)]


def gpu_shares(wishes: TeamWishes, kinds: Sequence[NodeKind], cluster: ClusterObjects) -> dict[str, int]:
    """Quota of GPUs by flavor: as wished, else as the team's queue has it, else all that no queue has. Raises WishError."""
    owned, before = _owned_by_others(wishes.team, cluster), cluster.queue(wishes.team)
    by_name = {kind.flavor: kind for kind in kinds}
    has = quotas(before) if before is not None else {}
    kept = {
        kind.flavor: has.get((kind.flavor, kind.resource), 0) for kind in kinds if any(f == kind.flavor for f, _ in has)
    }
    if wishes.gpus:
        wanted = {_named(flavor, kinds): amount for flavor, amount in wishes.gpus.items()}
        return kept | {flavor: _granted(by_name[flavor], amount, owned) for flavor, amount in wanted.items()}
    if before is not None:
        return kept
    return {kind.flavor: max(0, kind.gpus - owned.get((kind.flavor, kind.resource), 0)) for kind in kinds}


def _owned_by_others(team: str, cluster: ClusterObjects) -> dict[tuple[str, str], int]:
    total: dict[tuple[str, str], int] = defaultdict(int)
    for each in (*cluster.queues, *cluster.cohorts):
        if each["metadata"]["name"] != team or each in cluster.cohorts:
            for key, amount in quotas(each).items():
                total[key] += amount
    return total


def _named(flavor: str, kinds: Sequence[NodeKind]) -> str:
    there = ", ".join(f"{kind.flavor} ({kind.gpus} GPUs)" for kind in kinds)
    if not flavor and len(kinds) > 1:
        raise WishError(
            "--gpus", f"there are several flavors, {there}: say --gpus FLAVOR=N for each that the team gets"
        )
    name = flavor or kinds[0].flavor
    if name not in {kind.flavor for kind in kinds}:
        raise WishError("--gpus", f"there is no flavor {name[:80]!r}; there is: {there}")
    return name


def _granted(kind: NodeKind, wanted: int, owned: Mapping[tuple[str, str], int]) -> int:
    if wanted and not kind.resource:
        raise WishError("--gpus", "no node offers GPUs or other accelerators: is the device plugin running?")
    others = owned.get((kind.flavor, kind.resource), 0)
    if wanted + others > kind.gpus:
        theirs = f", of which other queues own {others}" if others else ""
        left = max(0, kind.gpus - others)
        raise WishError(
            "--gpus",
            f"the nodes of {kind.flavor} have {kind.gpus} GPUs{theirs}: at most {left} are left to own. "
            "With --cohort and --borrow the team may use what others leave idle",
        )
    return wanted


def _flavor(kind: NodeKind) -> Json:
    spec: Json = {"nodeLabels": dict(kind.labels)} if kind.labels else {}
    if kind.taints:
        spec["tolerations"] = [
            {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
            if taint.value
            else {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            for taint in kind.taints
        ]
    return {"apiVersion": names.V1BETA2, "kind": "ResourceFlavor", "metadata": {"name": kind.flavor}, "spec": spec}


def _cluster_queue(
    wishes: TeamWishes, kinds: Sequence[NodeKind], shares: Mapping[str, int], before: Json | None
) -> Json:
    cohort = wishes.cohort if wishes.cohort is not None else ((before or {}).get("spec") or {}).get("cohortName") or ""
    if wishes.borrowing is not None and not cohort:
        raise WishError("--borrow", "a queue borrows within its cohort: name it with --cohort")
    spec: Json = {"cohortName": cohort} if cohort else {}
    spec["namespaceSelector"] = _selector(wishes.namespace, ((before or {}).get("spec") or {}).get("namespaceSelector"))
    spec["resourceGroups"] = [_group(wishes, each, shares, before) for each in _by_resource(kinds)]
    usual = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"} if cohort else None
    if preemption := ((before or {}).get("spec") or {}).get("preemption") or usual:
        spec["preemption"] = preemption
    return {"apiVersion": names.V1BETA2, "kind": "ClusterQueue", "metadata": {"name": wishes.team}, "spec": spec}


def _selector(namespace: str, before: Json | None) -> Json:
    """A selector of the namespace, and of what is selected already. One that does not go by names stays as it is: doctor says
    what it leaves out.
    """
    if before is None:
        return {"matchLabels": {_NAME: namespace}}
    (key, value), *more = [*(before.get("matchLabels") or {}).items(), ("", "")][:2]
    if key == _NAME and not before.get("matchExpressions") and more == [("", "")] and value != namespace:
        return {"matchExpressions": [{"key": _NAME, "operator": "In", "values": sorted({value, namespace})}]}
    rows = before.get("matchExpressions") or []
    if len(rows) == 1 and not before.get("matchLabels") and (rows[0]["key"], rows[0]["operator"]) == (_NAME, "In"):
        return {"matchExpressions": [{**rows[0], "values": sorted({*rows[0]["values"], namespace})}]}
    return before


def _refuse_to_lose(before: Json, kinds: Sequence[NodeKind]) -> None:
    """Refuse to write a queue of which this command does not know all."""
    known = {kind.flavor for kind in kinds}
    resources = {kind.resource for kind in kinds} | {"cpu", "memory"}
    strange = sorted({f"flavor {flavor}" for flavor, _ in quotas(before) if flavor not in known})
    strange += sorted({resource for _, resource in quotas(before) if resource not in resources})
    if strange:
        name = before["metadata"]["name"]
        raise WishError(
            "TEAM",
            f"ClusterQueue {name} has quota of {', '.join(strange[:4])}, of which no GPU node is known: change it by "
            f"kubectl edit clusterqueue {name}",
        )


def _by_resource(kinds: Sequence[NodeKind]) -> list[list[NodeKind]]:
    """Kinds that share a resource group: those with the same accelerator. A resource may be in one group only, so all that offer
    another accelerator than the first are refused.
    """
    resources = {kind.resource for kind in kinds}
    if len(resources) > 1:
        there = ", ".join(f"{kind.flavor} ({kind.resource})" for kind in kinds)
        raise WishError("--gpus", f"cpu and memory can be counted beside one accelerator only: choose among {there}")
    if not kinds:
        raise WishError("--gpus", "the team gets no quota of any flavor")
    return [list(kinds)]


def _group(wishes: TeamWishes, kinds: Sequence[NodeKind], shares: Mapping[str, int], before: Json | None) -> Json:
    usual = [each for each in ("cpu", "memory") if any(kind.amount(each) for kind in kinds)]
    covered = [*([kinds[0].resource] if kinds[0].resource else []), *usual]
    return {
        "coveredResources": covered,
        "flavors": [
            {
                "name": kind.flavor,
                "resources": [_quota(wishes, kind, each, shares[kind.flavor], before) for each in covered],
            }
            for kind in kinds
        ],
    }


def _quota(wishes: TeamWishes, kind: NodeKind, resource: str, gpus: int, before: Json | None) -> Json:
    """A row of quota; cpu and memory in proportion to the GPUs."""
    row = _row(before, kind.flavor, resource)
    if resource == kind.resource:
        amount: int | str = gpus
        limit = wishes.borrowing if wishes.borrowing is not None else row.get("borrowingLimit")
        more = {name: row[name] for name in ("lendingLimit",) if name in row}
        return {
            "name": resource,
            "nominalQuota": amount,
            **({} if limit is None else {"borrowingLimit": limit}),
            **more,
        }
    if row and not wishes.gpus.keys() & {kind.flavor, ""}:
        return row
    part = kind.amount(resource) * gpus // kind.gpus if kind.gpus else kind.amount(resource)
    amount = part // 1000 if resource == "cpu" else f"{part // _GIB}Gi"
    return {"name": resource, "nominalQuota": amount}


def _row(queue: Json | None, flavor: str, resource: str) -> Json:
    """The quota that a queue has, as it is written."""
    for group in ((queue or {}).get("spec") or {}).get("resourceGroups") or ():
        for each in group.get("flavors") or ():
            for row in each.get("resources") or ():
                if (each["name"], row["name"]) == (flavor, resource):
                    return dict(row)
    return {}


# --- rights -----------------------------------------------------------------------------------------------------------


def binding_names(wishes: TeamWishes) -> dict[str, tuple[kube.Resource, str | None]]:
    """The bindings of a team by name: the kind and the namespace of each."""
    return {
        "gangline-researchers": (kube.ROLE_BINDINGS, wishes.namespace),
        "gangline-team-leads": (kube.ROLE_BINDINGS, wishes.namespace),
        f"gangline-priority-classes-{wishes.team}": (kube.CLUSTER_ROLE_BINDINGS, None),
        "gangline-terminals": (kube.ROLE_BINDINGS, wishes.namespace),
    }


def _bindings(wishes: TeamWishes, there: Mapping[str, Json]) -> list[Json]:
    """RoleBindings of researchers and leads, one by which they list priority classes, and where it is wished one by which all of
    them, and those who are in the team already, may open terminals. Who has a right keeps it. Raises WishError.
    """
    researchers = [*_subjects("Group", wishes.groups), *_subjects("User", wishes.users)]
    leads = _subjects("User", wishes.leads)
    roles = (names.RESEARCHER, names.TEAM_LEAD, names.PRIORITY_CLASSES_VIEWER, names.TERMINAL_USER)
    found: list[Json] = []
    named, inside = [*researchers, *leads], list[Json]()
    if wishes.terminals:
        has = [each for name in ("gangline-researchers", "gangline-team-leads") for each in _bound(there.get(name))]
        inside = [*has, *(each for each in named if each not in has)]
        if not inside:
            raise WishError("--terminals", "say who may open terminals: --group, --user or --lead")
    wanted = (researchers, leads, named, inside)
    for (name, (resource, namespace)), role, subjects in zip(binding_names(wishes).items(), roles, wanted, strict=True):
        kept = _bound(there.get(name))
        both = [*kept, *(each for each in subjects if each not in kept)]
        if both:
            found.append(
                {
                    "apiVersion": resource.api_version,
                    "kind": resource.kind,
                    "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
                    "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": CLUSTER_ROLES.kind, "name": role},
                    "subjects": both,
                }
            )
    return found


def _bound(binding: Json | None) -> list[Json]:
    return list((binding or {}).get("subjects") or ())


def _subjects(kind: str, people: Iterable[str]) -> list[Json]:
    return [{"kind": kind, "apiGroup": CLUSTER_ROLES.group, "name": each} for each in dict.fromkeys(people)]


# --- the job that is tried --------------------------------------------------------------------------------------------


def sample_job(wishes: TeamWishes, kinds: Sequence[NodeKind]) -> Json:
    """A small Job of the team, about which is asked when it would start; nobody creates it."""
    resource = next((kind.resource for kind in kinds if kind.resource), "")
    limits = {resource: "1"} if resource else {"cpu": "1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "gangline-setup-try",
            "namespace": wishes.namespace,
            "labels": {names.QUEUE_NAME: wishes.queue},
        },
        "spec": {
            "suspend": True,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "main", "image": "busybox", "resources": {"limits": limits}}],
                }
            },
        },
    }
