"""Whether a start ever took a power domain over its cap, by what nodes, Workloads and pods say, one after the other. Pure.

- A gang draws on the hosts of its admission, and on those to which its pods are bound: on each host what is more of the two.
- An accelerator draws its node's limit, whatever its pods say of themselves. Only where watts were measured of their class, and
  policies trust them, it is these. A node draws its idle watts besides.
- Whoever makes a domain draw more starts something: afterwards it must not draw more than may be used of its cap. Where it does
  already, since a cap was lowered or pods of nobody came, it must not draw more than before.

Nothing here is taken from the engine: it counts by its own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cap:
    """What nodes with one value of a label may draw together, in watts, and how many percent of that are used."""

    label: str
    watts: int
    percent: int = 95


@dataclass(frozen=True, slots=True)
class PoweredNode:
    labels: Mapping[str, str]
    accelerators: int
    idle: int = 0
    limit: int = 700


@dataclass(slots=True)
class PowerProof:
    """`put_…` take what is so now. Those of gangs return the domains over their caps because of it."""

    caps: list[Cap]
    #: class -> watts of an accelerator, as far as they are trusted
    measured: Mapping[str, int] = field(default_factory=dict[str, int])
    #: how often a gang was checked
    checked: int = 0
    #: the most that a domain drew at any time, in watts
    most: int = 0
    #: the resource by which pods ask for accelerators
    resource: str = "nvidia.com/gpu"
    _nodes: dict[str, PoweredNode] = field(default_factory=dict[str, PoweredNode])
    #: gang -> its class, and node -> accelerators: by its admission, and by its pods
    _admitted: dict[str, tuple[str, Mapping[str, int]]] = field(
        default_factory=dict[str, tuple[str, Mapping[str, int]]]
    )
    _bound: dict[str, tuple[str, Mapping[str, int]]] = field(default_factory=dict[str, tuple[str, Mapping[str, int]]])

    def put_node(self, name: str, node: PoweredNode) -> None:
        self._nodes[name] = node

    def put_grant(self, gang: str, on_nodes: Mapping[str, int], kind: str = "") -> list[str]:
        """What a gang may use by its admission; nothing: it is not admitted."""
        return self._put(self._admitted, gang, on_nodes, kind)

    def put_pods(self, gang: str, on_nodes: Mapping[str, int], kind: str = "") -> list[str]:
        """What its pods use."""
        return self._put(self._bound, gang, on_nodes, kind)

    def put_others(self, owner: str, on_nodes: Mapping[str, int]) -> None:
        """Pods of nobody: they count, and nobody asks whether they may."""
        self._put(self._bound, owner, on_nodes, "")

    def _put(
        self,
        table: dict[str, tuple[str, Mapping[str, int]]],
        gang: str,
        on_nodes: Mapping[str, int],
        kind: str,
    ) -> list[str]:
        before = self.draws()
        table.pop(gang, None)
        if on_nodes:
            table[gang] = kind, dict(on_nodes)
            self.checked += 1
        after = self.draws()
        self.most = max(self.most, *after.values(), 0)
        return [
            f"{label}={value} draws {watts} W of {self._usable(label)} W with {gang}"
            for (label, value), watts in after.items()
            if watts > before.get((label, value), 0) and watts > self._usable(label)
        ]

    def _usable(self, label: str) -> int:
        return min(cap.watts * cap.percent // 100 for cap in self.caps if cap.label == label)

    def draws(self) -> dict[tuple[str, str], int]:
        """What each domain draws."""
        by_node: dict[str, list[tuple[str, int]]] = {}
        for gang in {*self._admitted, *self._bound}:
            kind, by_grant = self._admitted.get(gang, ("", {}))
            kind, by_pods = self._bound.get(gang, (kind, {}))
            for node in {*by_grant, *by_pods}:
                by_node.setdefault(node, []).append((kind, max(by_grant.get(node, 0), by_pods.get(node, 0))))
        found: dict[tuple[str, str], int] = {}
        for name, node in self._nodes.items():
            watts = sum(
                count * min(node.limit, self.measured.get(kind, node.limit)) for kind, count in by_node.get(name, ())
            )
            for label in {cap.label for cap in self.caps} & node.labels.keys():
                key = label, node.labels[label]
                found[key] = found.get(key, 0) + node.idle + min(watts, node.accelerators * node.limit)
        return found
