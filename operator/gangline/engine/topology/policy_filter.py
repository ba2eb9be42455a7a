"""The filters of a placement policy: what excludes a node for a pod, whatever is free on it. Reasons are counted over all nodes.

An input that nobody gives excludes where it says that something is there (a label, an image, RDMA), and does not where it is a
measurement: a node whose load nobody knows is not excluded for its load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, Protocol

from gangline.engine.cards.card_amounts import is_of_card, is_trait
from gangline.engine.interference.joining import Company, in_company
from gangline.engine.interference.pair_speeds import PairSpeeds
from gangline.engine.model import PlacementFilter, PlacementPolicy, PodSet, Requests, Share, Traits, accelerators
from gangline.engine.model.company import class_digest
from gangline.engine.model.devices import AFFINITY, ANTI_AFFINITY, EXCLUSION, SLOWDOWN
from gangline.engine.model.nodes import INTERFACE
from gangline.engine.model.queues import BANDWIDTH_FIT, MEM_SAFE
from gangline.engine.occupancy.power_ledger import power_marks

#: resources of nodes that stand for RDMA: by their group, and by their whole names
RDMA_GROUP: Final = "rdma"
RDMA_RESOURCES: Final = frozenset({"vpc.amazonaws.com/efa", "nvidia.com/hostdev"})
#: labels by which feature discovery says that a node has RDMA
RDMA_LABELS: Final = (
    "feature.node.kubernetes.io/rdma.available",
    "feature.node.kubernetes.io/rdma.capable",
)
#: digits before and after the point of the longest number that is read
_MOST_DIGITS: Final = 9
#: where images without a registry are from
_REGISTRY: Final = "docker.io"


class NodeFacts(Protocol):
    """A node as policies see it."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def annotations(self) -> Mapping[str, str]: ...
    @property
    def images(self) -> Mapping[str, int]: ...
    @property
    def total(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class PolicyAsk:
    """What a policy looks at for one pod set. Equal ones share their verdicts."""

    filters: tuple[PlacementFilter, ...]
    traits: Traits
    #: whom the pods may have as company; None = anybody
    company: Company | None = None

    def excludes(self, node: NodeFacts) -> str:
        """The first reason that excludes a node, whatever is free on it; "" = none."""
        for each in self.filters:
            rule = _FILTERS.get(each.name)
            reason = rule(each, self.traits, node) if rule is not None else ""
            if reason:
                return reason
        return ""

    @property
    def interfaces(self) -> Requests:
        """What a pod has to find free of interfaces, as rooms count it."""
        bounds = any(each.name == BANDWIDTH_FIT for each in self.filters)
        return _of_interfaces(self.traits) if bounds else _NOTHING

    def on_cards(self, shares: tuple[Share, ...]) -> tuple[Share, ...]:
        """What a pod asks of cards, with the margin and the company that the policy wants. A pod with a card, a slice or an
        instance for itself needs no margin.
        """
        if self.company is not None:
            shares = tuple(in_company(each, self.company) for each in shares)
        safe = next((each for each in self.filters if each.name == MEM_SAFE), None)
        if safe is None:
            return shares
        return tuple(
            each
            if each.exclusive or each.unit or each.profile
            else replace(each, beyond=safe.beyond, headroom=safe.headroom)
            for each in shares
        )


def _node_label(rule: PlacementFilter, _: Traits, node: NodeFacts) -> str:
    found = node.labels.get(rule.label)
    if found is not None and (not rule.values or found in rule.values):
        return ""
    return f"no label {rule.label}{_one_of(rule.values)}"


def _one_of(values: Sequence[str]) -> str:
    if not values:
        return ""
    return f"={values[0]}" if len(values) == 1 else f" in ({' '.join(values)})"


def _image_present(_: PlacementFilter, traits: Traits, node: NodeFacts) -> str:
    return "" if all(full_name(image) in node.images for image in traits.images) else "image not present"


def _rdma(rule: PlacementFilter, _: Traits, node: NodeFacts) -> str:
    if rule.resource:
        return "" if node.total.get(rule.resource, 0) > 0 else f"no {rule.resource}"
    if any(node.labels.get(label) == "true" for label in RDMA_LABELS):
        return ""
    return "" if any(amount > 0 and stands_for_rdma(name) for name, amount in node.total.items()) else "no RDMA"


def _node_metric(rule: PlacementFilter, _: Traits, node: NodeFacts) -> str:
    found = number(node.annotations.get(rule.annotation))
    if found is None:
        return ""
    if rule.most is not None and found > rule.most:
        return f"{rule.annotation} above {rule.most}"
    if rule.least is not None and found < rule.least:
        return f"{rule.annotation} below {rule.least}"
    return ""


def _telemetry(rule: PlacementFilter, _: Traits, node: NodeFacts) -> str:
    return node.annotations.get(rule.annotation, "")


#: By the names of QueuePolicy.spec.placement.filters, and Telemetry for its telemetry rules: those that look at what does not
#: change as pods come and go.
_FILTERS: Final[Mapping[str, Callable[[PlacementFilter, Traits, NodeFacts], str]]] = {
    "NodeLabel": _node_label,
    "ImagePresent": _image_present,
    "RDMA": _rdma,
    "NodeMetric": _node_metric,
    "Telemetry": _telemetry,
}


def stands_for_rdma(resource: str) -> bool:
    return resource.partition("/")[0] == RDMA_GROUP or resource in RDMA_RESOURCES


def number(text: str | None) -> float | None:
    """A number without a sign, at most nine digits before and after its point; None for anything else."""
    if text is None or len(text) > 2 * _MOST_DIGITS + 1:
        return None
    whole, point, part = text.partition(".")
    if not _digits(whole) or (point and not _digits(part)):
        return None
    return int(whole) + (int(part) / 10 ** len(part) if point else 0)


def _digits(text: str) -> bool:
    return 0 < len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit()


def full_name(image: str) -> str:
    """An image by its registry, repository and tag or digest, as nodes list it."""
    first, slash, _ = image.partition("/")
    if not slash:
        image = f"{_REGISTRY}/library/{image}"
    elif "." not in first and ":" not in first and first != "localhost":
        image = f"{_REGISTRY}/{image}"
    return image if "@" in image or ":" in image.rpartition("/")[2] else f"{image}:latest"


# --- what placed pods leave on a host for policies ----------------------------------------------------------------------

#: Beside resources, the rooms count these marks; no resource has a name with spaces, and no request is for one.
KIND_MARK: Final = "class "
#: percent of accelerators that pods request and do not use (negative: they use more than they request)
SPARED: Final = "spared percent"


def kind_mark(kind: str) -> str:
    """The mark of a pod of this kind."""
    return KIND_MARK + class_digest(kind)


def kinds_on(free: Mapping[str, int]) -> dict[str, int]:
    """How many placed pods of each kind are on a host, by mark, as what is free of it says."""
    return {name: -amount for name, amount in free.items() if amount < 0 and name.startswith(KIND_MARK)}


def how_many_join(company: Company, free: Mapping[str, int], most: int) -> tuple[int, str]:
    """How many pods, of `most`, may join those that are on a host, one after the other; and why not one may."""
    if not company.speeds.has_nodes:
        return most, ""
    there = kinds_on(free)
    for number in range(most):
        reason = company.refuses_node(there)
        if reason:
            return number, "" if number else reason
        there[company.kind] = there.get(company.kind, 0) + 1
    return most, ""


def company_of(policy: PlacementPolicy, traits: Traits) -> Company | None:
    """Whom pods of a queue with this policy may have as company; None = anybody."""
    if policy.interference is None or not isinstance(policy, InformedPolicy):
        return None
    return Company(traits.kind, policy.interference, policy.speeds, traits.max_slowdown)


@dataclass(frozen=True, slots=True)
class InformedPolicy(PlacementPolicy):
    """A policy with what is known of pairs: `speeds` stays the same object while nothing changes."""

    speeds: PairSpeeds = field(default_factory=PairSpeeds)

    @classmethod
    def of(cls, policy: PlacementPolicy, speeds: PairSpeeds) -> InformedPolicy:
        said = {each.name: getattr(policy, each.name) for each in fields(PlacementPolicy)}
        return cls(**said, speeds=speeds)


def marks_of(traits: Traits, requests: Requests, shares: Sequence[Share] = ()) -> dict[str, int]:
    """The marks of one pod."""
    found = dict.fromkeys((name for share in shares for name in share.names), 1)
    if traits.kind:
        found[kind_mark(traits.kind)] = 1
    if traits.kind or shares:
        found |= power_marks(requests, shares, traits.kind)
    if traits.max_slowdown:
        found[f"{SLOWDOWN}{traits.max_slowdown}"] = 1
    if traits.interfaces:
        found |= _of_interfaces(traits)
    if traits.utilisation is not None:
        found[SPARED] = 100 * accelerators(requests) - traits.utilisation
    return found


def with_marks(pod_set: PodSet) -> Requests:
    """What one placed pod takes of a host, with its marks."""
    marks = marks_of(pod_set.traits, pod_set.requests, pod_set.shares)
    return {**pod_set.requests, **marks} if marks else pod_set.requests


def said_by(requests: Requests) -> tuple[str, int | None, tuple[str, ...]]:
    """What one pod's requests say by their marks: its kind of work as a mark, percent of one accelerator, None where unsaid, and
    the names of its shares.
    """
    kind = next((name for name in requests if name.startswith(KIND_MARK)), "")
    spared = requests.get(SPARED)
    names = tuple(name for name in requests if name.startswith(_NAMES))
    return kind, None if spared is None else 100 * accelerators(requests) - spared, names


def _of_interfaces(traits: Traits) -> dict[str, int]:
    return {INTERFACE + name: amount for name, amount in traits.interfaces}


_NOTHING: Final[Requests] = {}
#: marks that are names of shares
_NAMES: Final = (AFFINITY, ANTI_AFFINITY, EXCLUSION, SLOWDOWN)


def is_mark(name: str) -> bool:
    """Cards may have spaces in their names, but their amounts have a sign that marks have not."""
    return is_trait(name) or (" " in name and not is_of_card(name))
