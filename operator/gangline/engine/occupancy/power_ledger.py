"""The ledger of power: what the nodes of a power domain (a rack, a PDU) draw at most, and what its cap leaves.

A domain is a value of a node label that a policy names. Whatever stands on its nodes counts, of whichever queue it is.
A node draws its idle watts, and for each accelerator that pods have there the limit of such an accelerator. Where all policies
trust JobProfiles, pods of a class whose watts were measured count with these instead, if that is less.

What a node draws is computed from what the ledger of nodes says is taken there. So it is exact in trials, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from gangline.engine.model import JobProfile, Node, PlacementPolicy, PodSet, Requests, Share, accelerators
from gangline.engine.model.company import class_digest
from gangline.engine.model.nodes import DRAWN, DRAWN_BESIDES
from gangline.engine.model.queues import PowerCap
from gangline.engine.occupancy.fitting import ANY_NUMBER, add

#: the label by which feature discovery names the model of a node's accelerators
_PRODUCT: Final = "nvidia.com/gpu.product"

#: reasons begin so that name a domain
POWER_OF: Final = "power of "
#: domains that one message names
MOST_NAMED: Final = 3

#: A node label and its value.
PowerKey: TypeAlias = tuple[str, str]


class NodeUse(Protocol):
    """A node, and what pods take of it."""

    @property
    def node(self) -> Node: ...
    @property
    def assigned(self) -> Mapping[str, int]: ...
    @property
    def placed(self) -> Mapping[str, int]: ...
    @property
    def others(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class PowerAsk:
    """What decides how much one pod draws: its accelerators, or parts of them, and the digest of its class ("" = none)."""

    accelerators: int
    kind: str = ""

    @classmethod
    def of(cls, requests: Requests, shares: Iterable[Share], kind: str) -> PowerAsk:
        """A pod with a part of a card may draw as much as the whole card does."""
        most = max(accelerators(requests), sum(share.count for share in shares))
        return cls(most, class_digest(kind) if kind else "")

    @classmethod
    def of_pods(cls, pod_set: PodSet) -> PowerAsk:
        return cls.of(pod_set.requests, pod_set.shares, pod_set.traits.kind)


def power_marks(requests: Requests, shares: Iterable[Share], kind: str) -> dict[str, int]:
    """What the ledgers note of a pod beside what it requests: the accelerators of its class, and those that it has without
    requesting any by number.
    """
    ask, counted = PowerAsk.of(requests, shares, kind), accelerators(requests)
    found = {DRAWN_BESIDES: ask.accelerators - counted} if ask.accelerators > counted else {}
    return found | {DRAWN + ask.kind: ask.accelerators} if kind and ask.accelerators else found


@dataclass(frozen=True, slots=True)
class PowerRules:
    """The caps of all policies together. Of several caps of one domain the lowest holds."""

    caps: tuple[PowerCap, ...] = ()
    #: some policy orders nodes by what is left, so that every watt matters
    scored: bool = False

    @classmethod
    def of(cls, policies: Iterable[PlacementPolicy]) -> PowerRules:
        known = [policy for policy in policies if not policy.dry_run]
        caps = {cap for policy in known for cap in policy.power}
        scored = any(score.name == THERMAL for policy in known for score in policy.scores)
        return cls(tuple(sorted(caps, key=_order)), scored and bool(caps))

    def __bool__(self) -> bool:
        return bool(self.caps)

    @property
    def measured(self) -> bool:
        """Whether measured watts of classes count: only if every policy trusts them."""
        return all(cap.measured for cap in self.caps)

    @property
    def gpu_watts(self) -> int:
        """What an accelerator counts on a node that does not say."""
        return max(cap.gpu_watts for cap in self.caps)

    def limit_of(self, key: PowerKey) -> tuple[int, int]:
        """The cap of a domain in watts, and what of it may be used."""
        label, value = key
        found = [
            (cap.watts_of(value) * cap.percent // 100, cap.watts_of(value)) for cap in self.caps if cap.label == label
        ]
        usable, watts = min(found)
        return watts, usable


@dataclass(slots=True)
class PowerDomain:
    """A domain: what its nodes draw at most by what stands there (`used`), and what they may (`usable`, of `cap`), in watts."""

    key: PowerKey
    cap: int
    usable: int
    used: int = 0
    #: its nodes, each with its idle watts and with what it draws with all of its accelerators at work
    nodes: dict[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    #: the most that one of its nodes may draw above its idle watts: while so much is left, the domain bounds no node by itself
    widest: int = 0

    @property
    def left(self) -> int:
        return self.usable - self.used

    @property
    def idle(self) -> int:
        """What its nodes draw without any pods."""
        return sum(idle for idle, _ in self.nodes.values())

    @property
    def name(self) -> str:
        return "=".join(self.key)

    @property
    def text(self) -> str:
        """What is used of it, in words."""
        return f"{POWER_OF}{self.name}: {self.used} W used, {self.usable} W of {self.cap} W may be"


class PowerLedger:
    """The power domains of the nodes of one ledger. `shifted` is called with the nodes for which other amounts may be left."""

    def __init__(
        self,
        rules: PowerRules,
        profiles: Iterable[JobProfile],
        nodes: Mapping[str, NodeUse],
        cards: Callable[[str], tuple[int, str]],
        shifted: Callable[[Iterable[str]], None],
    ) -> None:
        """`cards`: how many cards of a node are known, and their model; 0 = none are."""
        self.rules = rules
        self._profiles = {class_digest(each.name): each.alone for each in profiles} if rules.measured else {}
        self._nodes = nodes
        self._cards = cards
        self._shifted = shifted
        self.domains: dict[PowerKey, PowerDomain] = {}
        #: node -> its domains, and what it draws
        self._of: dict[str, tuple[PowerDomain, ...]] = {}
        self._draws: dict[str, int] = {}
        #: node -> what pods take of it that are being placed
        self._assumed: dict[str, dict[str, int]] = {}
        for name in nodes:
            self.put_node(name)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def put_node(self, name: str) -> None:
        """A node came, or has other labels, cards or watts."""
        node = self._nodes[name].node
        keys = sorted({(cap.label, node.labels[cap.label]) for cap in self.rules.caps if cap.label in node.labels})
        self.remove_node(name)
        if not keys:
            return
        idle, full = node.idle_watts, node.idle_watts + self._most(node) * self.gpu_watts(node)
        found: list[PowerDomain] = []
        for key in keys:
            domain = self.domains.get(key)
            if domain is None:
                domain = self.domains[key] = PowerDomain(key, *self.rules.limit_of(key))
            domain.nodes[name] = idle, full
            domain.widest = max(domain.widest, full - idle)
            found.append(domain)
        self._of[name], self._draws[name] = tuple(found), 0
        self.renew(name)
        self._tell(found)

    def remove_node(self, name: str) -> None:
        """A node is gone, or in no domain any more."""
        domains, draw = self._of.pop(name, ()), self._draws.pop(name, 0)
        for domain in domains:
            del domain.nodes[name]
            domain.used -= draw
            domain.widest = max((full - idle for idle, full in domain.nodes.values()), default=0)
            if not domain.nodes:
                del self.domains[domain.key]
        self._tell(domains)

    def renew(self, name: str) -> None:
        """Something else is taken of a node."""
        domains = self._of.get(name)
        if domains is None:
            return
        draw = self._draw(name)
        more = draw - self._draws[name]
        if not more:
            return
        self._draws[name] = draw
        for domain in domains:
            domain.used += more
        # nodes with room for all that they have are bounded by themselves alone
        every = self.rules.scored
        self._tell(each for each in domains if every or min(each.left, each.left + more) < each.widest)

    def _tell(self, domains: Iterable[PowerDomain]) -> None:
        names = {name for domain in domains for name in domain.nodes}
        if names:
            self._shifted(sorted(names))

    def assume(self, name: str, amounts: Requests, sign: int) -> None:
        """Pods that are being placed take this of a node, too (sign -1: not any more)."""
        if name in self._of:
            add(self._assumed.setdefault(name, {}), amounts, sign)
            if not any(self._assumed[name].values()):
                del self._assumed[name]
            self.renew(name)

    # --- watts --------------------------------------------------------------------------------------------------------

    def gpu_watts(self, node: Node) -> int:
        """What one accelerator of a node draws at most."""
        return node.gpu_watts or self.rules.gpu_watts

    def _most(self, node: Node) -> int:
        known, _ = self._cards(node.name)
        return known or accelerators(node.allocatable)

    def _draw(self, name: str) -> int:
        """What a node draws at most by what is taken of it."""
        use = self._nodes[name]
        node, taken = use.node, dict[str, int]()
        for each in (use.assigned, use.placed, use.others, self._assumed.get(name, _NOTHING)):
            add(taken, each)
        wanted = accelerators(taken) + taken.get(DRAWN_BESIDES, 0)
        at_work = min(wanted, self._most(node))
        if at_work <= 0:
            return node.idle_watts
        limit, by_class = self.gpu_watts(node), 0
        saved = 0
        if self._profiles:
            for mark, count in taken.items():
                if mark.startswith(DRAWN) and count > 0:
                    watts = self._watts(node, mark.removeprefix(DRAWN))
                    if watts < limit:
                        saved += count * (limit - watts)
                        by_class += count
        # where several pods share a card, or more is taken than there is, fewer are at work than pods say: the highest it can be
        return node.idle_watts + min(at_work * limit, wanted * limit - (saved if by_class <= at_work else 0))

    def _watts(self, node: Node, kind: str) -> int:
        """What an accelerator of a node draws with pods of a class, as far as that is trusted; at most its limit."""
        limit = self.gpu_watts(node)
        rows = self._profiles.get(kind, ())
        model = (self._cards(node.name)[1] or node.labels.get(_PRODUCT, "")).lower()
        found = [row.watts for row in rows if row.watts and row.gpu.lower() in model]
        return min(limit, max(found)) if found else limit

    def watts(self, name: str, ask: PowerAsk) -> int:
        """What one pod adds on a node at most."""
        node = self._nodes[name].node
        return ask.accelerators * self._watts(node, ask.kind)

    # --- asking -------------------------------------------------------------------------------------------------------

    def domains_of(self, name: str) -> tuple[PowerDomain, ...]:
        return self._of.get(name, ())

    def peers(self, name: str) -> Iterator[str]:
        """The nodes for which something else is left when the node draws more."""
        return (peer for domain in self.domains_of(name) for peer in domain.nodes)

    def affected(self, name: str) -> Iterator[str]:
        """The nodes that may get fewer or more pods, or other points, once a few pods more or fewer are on this one."""
        for domain in self.domains_of(name):
            if self.rules.scored or domain.left < 2 * domain.widest:
                yield from domain.nodes

    def how_many(self, name: str, ask: PowerAsk, *, empty: bool = False) -> int:
        """How many such pods the caps of a node's domains allow there, or would if no pod ran (`empty`)."""
        domains = self._of.get(name)
        if not domains:
            return ANY_NUMBER
        watts = self.watts(name, ask)
        if watts <= 0:
            return ANY_NUMBER
        return max(0, min((each.usable - each.idle if empty else each.left) // watts for each in domains))

    def refuses(self, name: str, ask: PowerAsk) -> str:
        """Why not one such pod more is allowed on a node; "" = one is."""
        domains = self._of.get(name)
        if not domains:
            return ""
        watts = self.watts(name, ask)
        return next((each.text for each in domains if 0 < watts > each.left), "")

    def why(self, names: Iterable[str], ask: PowerAsk) -> str:
        """The domains of these nodes with the least left, in words."""
        found = {domain.key: domain for name in names for domain in self.domains_of(name) if self.watts(name, ask)}
        least = sorted(found.values(), key=lambda each: (each.left, each.key))
        more = f"; {len(least) - MOST_NAMED} more" if len(least) > MOST_NAMED else ""
        return "; ".join(each.text for each in least[:MOST_NAMED]) + more

    def used(self, names: Iterable[str]) -> dict[PowerKey, int]:
        """What is used of the domains of these nodes."""
        return {domain.key: domain.used for name in names for domain in self.domains_of(name)}

    def exceeds(self, before: Mapping[PowerKey, int]) -> PowerDomain | None:
        """A domain of which more is used than `before`, and more than may be; None if there is none."""
        for key, used in before.items():
            domain = self.domains.get(key)
            if domain is not None and domain.used > used and domain.left < 0:
                return domain
        return None

    def split(self, fitting: Iterable[tuple[str, int]], ask: PowerAsk, held_back: PowerAsk | None) -> dict[str, int]:
        """How many pods each node may get at most, so that all together are within every cap: of so many that fit there, nodes
        with most room first. `held_back` is left in every domain for one more pod.
        """
        left: dict[PowerKey, int] = {}
        found: dict[str, int] = {}
        for name, count in sorted(fitting, key=lambda each: (-each[1], each[0])):
            domains, watts = self.domains_of(name), self.watts(name, ask)
            if not domains or watts <= 0:
                continue
            kept = self.watts(name, held_back) if held_back is not None else 0
            for each in domains:
                left.setdefault(each.key, each.left - kept)
            found[name] = max(0, min(count, *(left[each.key] // watts for each in domains)))
            for each in domains:
                left[each.key] -= found[name] * watts
        return found


def _order(cap: PowerCap) -> tuple[object, ...]:
    return cap.label, cap.watts, cap.own, cap.percent, cap.gpu_watts, cap.measured


#: the scorer that looks at what is left of caps
THERMAL: Final = "Thermal"
_NOTHING: Final[Mapping[str, int]] = {}
