"""Whether a flavor can get more nodes: what cluster autoscalers publish, read on its own, without any setting of ours.

Two sources say more than that nodes belong to a pool. The status ConfigMap of the cluster autoscaler (also that of GKE and AKS)
lists its node groups with their sizes and limits. Karpenter's NodePools say which nodes they make, and how many resources these
may have. A label of a managed pool alone says nothing: the pool may be of a fixed size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from gangline import bounded
from gangline.api.read.reading import Json, amounts, child, items, labels, text, texts

#: namespace and name of the ConfigMap, the key of the text in it, and the annotation that says when it was written
STATUS_MAP: Final = ("kube-system", "cluster-autoscaler-status")
_STATUS: Final = "status"
_UPDATED: Final = "cluster-autoscaler.kubernetes.io/last-updated"
#: the autoscaler writes every 10 s; one that has not done so for this long is not running, in milliseconds
STALE: Final = 300_000
#: characters of the longest status that is read, and node groups in it
_LONGEST: Final = 1 << 20
_MOST_GROUPS: Final = 2_000
#: labels by which providers and installers say which pool, and so which node group, a node is of
POOL_LABELS: Final = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "kops.k8s.io/instancegroup",
    "karpenter.sh/nodepool",
)
_KARPENTER: Final = "karpenter.sh/nodepool"
#: Karpenter gives these to nodes by itself: a NodePool that does not mention them can make nodes of any value
_KARPENTERS_OWN: Final = frozenset(
    {
        *(
            "kubernetes.io/arch",
            "kubernetes.io/os",
            "node.kubernetes.io/instance-type",
            "node.kubernetes.io/windows-build",
        ),
        *("topology.kubernetes.io/zone", "topology.kubernetes.io/region", "karpenter.sh/capacity-type"),
    }
)
_KARPENTERS_DOMAINS: Final = ("karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.k8s.gcp/")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A node group of the cluster autoscaler. `able`: it is healthy, and has not failed to grow a moment ago."""

    name: str
    target: int
    most: int
    able: bool = True

    @property
    def can_grow(self) -> bool:
        return self.able and self.target < self.most

    @property
    def stem(self) -> str:
        """The last part of the provider's name, by which that of its nodes usually begins."""
        return self.name.rpartition("/")[2].removesuffix("-grp")


#: label -> values that its nodes may have, and values that they may not have
Requirements: TypeAlias = Mapping[str, tuple[frozenset[str] | None, frozenset[str]]]


@dataclass(frozen=True, slots=True)
class KarpenterNodePool:
    """A NodePool of Karpenter. `full`: its nodes have all of a resource that they may have."""

    name: str
    labels: Mapping[str, str]
    requirements: Requirements
    full: bool = False


#: a node's name and its labels
NamedNode: TypeAlias = tuple[str, Mapping[str, str]]


# --- reading ----------------------------------------------------------------------------------------------------------


def node_groups(config_map: Json, now: int) -> tuple[NodeGroup, ...]:
    """The node groups of an autoscaler that runs; () if the status is too old, or says that it does not. Raises ParseError."""
    written = labels(child(config_map, "metadata", ""), "annotations", "metadata").get(_UPDATED, "")
    status = text(child(config_map, "data", ""), _STATUS, "data")
    at = _time_of(written)
    if at is None or now - at > STALE:
        return ()
    return _groups_in(status)


@bounded.parser(64, instead=None, worst=("2026-01-31 12:00:00", " ", "9"))
def _time_of(written: str) -> int | None:
    """Go prints it: 2026-01-31 12:00:00.123456789 +0000 UTC."""
    try:
        return int(datetime.strptime(written[:19], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return None


_LINE: Final = re.compile(r"^( *)(- )?([A-Za-z]+): *(\S.*)?$")
_SIZES: Final = re.compile(r"cloudProviderTarget=(\d{1,9})\b.{0,40}?\bmaxSize=(\d{1,9})\b")


@bounded.parser(
    _LONGEST, instead=(), worst=("- name: a\n  health:\n    maxSize: 1\n", "Name: a\nHealth: ", ": ", "\n", " ")
)
def _groups_in(status: str) -> tuple[NodeGroup, ...]:
    """The node groups that the status of an autoscaler lists: in the YAML of newer autoscalers, or the text of those before 1.30.
    Only lines that are looked for are read.
    """
    found: list[NodeGroup] = []
    rows: dict[str, str] = {}
    section, inside, level = "", False, 0
    for line in status.splitlines():
        row = _LINE.match(line[:1024])
        if row is None:
            continue
        key, value = row[3], (row[4] or "").strip().strip("\"'")
        if not row[1] and not row[2]:  # nodeGroups: in YAML, NodeGroups: in text; what follows at this level ends it
            inside, section = key.lower() == "nodegroups", ""
            continue
        if not inside:
            continue
        if key.lower() == "name" and (row[2] or len(row[1]) <= 2):
            found += _group(rows)
            rows, level = {"name": value}, len(row[1]) + 2
        elif key[:1].isupper():  # the text has a whole section in one line
            rows[key.lower()] = value
        elif len(row[1]) == level:
            section = key
        elif len(row[1]) == level + 2:
            rows.setdefault(f"{section}.{key}", value)
        if len(found) >= _MOST_GROUPS:
            break
    return tuple([*found, *_group(rows)][:_MOST_GROUPS])


@bounded.parser(1024, instead=None, worst=("cloudProviderTarget=1 ", "cloudProviderTarget=", "maxSize=9", " "))
def _sizes(health: str) -> tuple[str, str] | None:
    """The size that is wanted, and the most that is possible, in the text of an older autoscaler."""
    found = _SIZES.search(health)
    return (found[1], found[2]) if found is not None else None


def _group(rows: Mapping[str, str]) -> list[NodeGroup]:
    sizes = _sizes(rows.get("health", "")) or (rows.get("health.cloudProviderTarget"), rows.get("health.maxSize"))
    target, most = sizes
    name, wanted, limit = rows.get("name", ""), bounded.whole(target), bounded.whole(most)
    if not name or wanted is None or limit is None:
        return []
    healthy = (rows.get("health.status") or rows.get("health", "")).startswith("Healthy")
    growing = rows.get("scaleUp.status") or rows.get("scaleup", "")
    return [NodeGroup(name[:512], wanted, limit, healthy and not growing.startswith("Backoff"))]


def node_pool(obj: Json) -> KarpenterNodePool:
    """Read a NodePool of Karpenter. Raises ParseError."""
    template = child(child(obj, "spec", ""), "template", "spec")
    spec, meta = child(template, "spec", "spec.template"), child(template, "metadata", "spec.template")
    wanted: dict[str, tuple[frozenset[str] | None, frozenset[str]]] = {}
    for i, row in enumerate(items(spec, "requirements", "spec.template.spec")):
        path = f"spec.template.spec.requirements[{i}]"
        key, operator = text(row, "key", path), text(row, "operator", path)
        values = frozenset(texts(row, "values", path))
        allowed, barred = wanted.get(key, (None, frozenset[str]()))
        if operator == "In":
            allowed = values if allowed is None else allowed & values
        elif operator == "NotIn":
            barred |= values
        elif operator == "DoesNotExist":
            allowed = frozenset[str]()
        wanted[key] = allowed, barred
    limits = amounts(child(obj, "spec", ""), "limits", "spec")
    used = amounts(child(obj, "status", ""), "resources", "status")
    return KarpenterNodePool(
        text(child(obj, "metadata", ""), "name", "metadata"),
        labels(meta, "labels", "spec.template.metadata"),
        wanted,
        full=any(used.get(name, 0) >= most for name, most in limits.items()),
    )


# --- concluding -------------------------------------------------------------------------------------------------------


def growth(
    selected: Mapping[str, str],
    nodes: Sequence[NamedNode],
    groups: Iterable[NodeGroup],
    pools: Iterable[KarpenterNodePool],
) -> str:
    """The NodePool or node group that can add nodes with these labels; "" if nothing says that one can. `nodes` are those that
    exist.
    """
    for pool in pools:
        if not pool.full and _makes(pool, selected):
            return f"NodePool {pool.name} of Karpenter"
    named = _pools_of(selected)
    for group in groups:
        if group.can_grow and (_is_of(group, named) or any(_has_node(group, node) for node in nodes)):
            return f"node group {group.stem} of the cluster autoscaler ({group.target} of {group.most} nodes)"
    return ""


def pool_of(nodes: Iterable[NamedNode]) -> str:
    """The label and name of a managed pool that one of these nodes is of, "" = of none."""
    return next((f"{key}={found[key]}" for _, found in nodes for key in POOL_LABELS if found.get(key)), "")


def _pools_of(node_labels: Mapping[str, str]) -> list[str]:
    return [node_labels[key] for key in POOL_LABELS if node_labels.get(key)]


def _has_node(group: NodeGroup, node: NamedNode) -> bool:
    """Whether the node is of the group. Google and Azure name nodes after their group, with a few characters more."""
    name, node_labels = node
    rest = name.removeprefix(group.stem) if name.startswith(group.stem) else ""
    return _is_suffix(rest) or _is_of(group, _pools_of(node_labels))


@bounded.parser(8, instead=False, worst=("-", "a"))
def _is_suffix(rest: str) -> bool:
    return re.fullmatch(r"-[a-z0-9]{4}|[0-9a-z]{6}", rest) is not None


def _is_of(group: NodeGroup, pools: Iterable[str]) -> bool:
    """Whether the group has the name of a pool, or one that Amazon's EKS, eksctl or kops build from it."""
    for pool in pools:
        eks = group.stem.removeprefix(f"eks-{pool}-")
        if group.stem == pool or (eks != group.stem and _is_uuid(eks)):
            return True
        if group.stem.startswith(f"{pool}.") or f"-nodegroup-{pool}-NodeGroup-" in group.stem:
            return True
    return False


@bounded.parser(36, instead=False, worst=("-", "a"))
def _is_uuid(rest: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]{27}", rest) is not None


def _makes(pool: KarpenterNodePool, selected: Mapping[str, str]) -> bool:
    """Whether nodes of the pool have all these labels, or may have them."""
    return bool(selected) and all(_may_have(pool, key, value) for key, value in selected.items())


def _may_have(pool: KarpenterNodePool, key: str, value: str) -> bool:
    if key == _KARPENTER:
        return value == pool.name
    if key in pool.labels:
        return pool.labels[key] == value
    if key in pool.requirements:
        allowed, barred = pool.requirements[key]
        return (allowed is None or value in allowed) and value not in barred
    return key in _KARPENTERS_OWN or key.startswith(_KARPENTERS_DOMAINS)
