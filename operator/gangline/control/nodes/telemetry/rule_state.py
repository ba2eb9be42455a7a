"""What one telemetry rule says of the nodes at present: their numbers, which are excluded, and which workloads have to leave.

A node that is not measured is not excluded, and its periods in a row begin anew. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gangline import bounded
from gangline.api.telemetry_rules import Limit, TelemetryRule
from gangline.engine.model import EXCLUDED, TAKEN, Millis
from gangline.telemetry import Sample

#: A number counts for so many periods, and for so many milliseconds at least.
PERIODS_KEPT: Final = 2
KEPT_LEAST: Final[Millis] = 60_000
#: labels that have the name of a node, the first that is there; of an instance the part before its port
NODE_LABELS: Final = ("node", "Hostname", "hostname", "instance")
#: Scorers read numbers of so many digits, and nothing above this.
DIGITS: Final = 3
LARGEST: Final = 999_999_999.0
#: characters of a name of a node
LONGEST_NAME: Final = 253


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of nodes in an answer, and what is wrong with it, "" = nothing."""

    values: Mapping[str, float]
    trouble: str = ""


def kept(rule: TelemetryRule) -> Millis:
    """How long a number of the rule counts."""
    return max(PERIODS_KEPT * rule.period, KEPT_LEAST)


def measured(samples: Iterable[Sample], rule: TelemetryRule, known: Callable[[str], bool], now: Millis) -> Measured:
    """The numbers of known nodes. One with several has none, and neither has one whose number is too old or from the future."""
    values: dict[str, float] = {}
    several, unknown, untimely = set[str](), 0, 0
    for sample in samples:
        node = _node_of(sample.labels, rule.node_label)
        if not node or not known(node):
            unknown += 1
        elif abs(now - sample.at * 1000) > kept(rule):
            untimely += 1
        elif node in values:
            several.add(node)
        else:
            values[node] = sample.value
    said = (
        (len(several), f"several values for {bounded.some(sorted(several), 3)}: aggregate them by node"),
        (unknown, f"{unknown} values are of no known node"),
        (untimely, f"{untimely} values are too old, or of the future"),
    )
    for node in several:
        del values[node]
    return Measured(values, "; ".join(text for count, text in said if count))


def _node_of(labels: Mapping[str, Any], chosen: str) -> str:
    for label in (chosen,) if chosen else NODE_LABELS:
        value = labels.get(label)
        if isinstance(value, str) and value and len(value) <= LONGEST_NAME:
            return value.rpartition(":")[0] if label == "instance" and ":" in value else value
    return ""


def number_text(value: float) -> str:
    """A number as scorers read it: without a sign, and so rounded that small changes are none."""
    value = min(abs(max(value, 0.0)), LARGEST)  # -0.0 has a sign, too
    if value >= 1e-9:
        value = round(value, DIGITS - 1 - math.floor(math.log10(value)))
    return f"{min(value, LARGEST):.9f}".rstrip("0").rstrip(".")


@dataclass(slots=True)
class RuleState:
    """A rule with what it says of nodes. `scored`: scorers look at its numbers; `as_load`: and at what was placed since."""

    rule: TelemetryRule
    scored: bool = False
    as_load: bool = False
    values: Mapping[str, float] = field(default_factory=dict[str, float])
    #: when the last answer came, 0 = none counts
    at: Millis = 0
    #: what is wrong with the query or its answer, "" = nothing
    trouble: str = ""
    #: the last question was not answered
    failed: bool = False
    #: nodes that violate the limit for exclusion, and those that violate the one for eviction with the periods in a row
    excluding: set[str] = field(default_factory=set[str])
    violating: dict[str, int] = field(default_factory=dict[str, int])
    #: CPU that was taken of nodes when they were measured
    taken: Mapping[str, int] = field(default_factory=dict[str, int])

    def recall(self, nodes: Iterable[str], now: Millis) -> None:
        """Go on from the nodes that were excluded before: by another operator, or by an earlier form of the rule."""
        if self.rule.exclude is not None:
            self.excluding = set(nodes)
        elif self.rule.evict is not None:
            self.violating = dict.fromkeys(nodes, 0)
        self.at = now

    def take(self, found: Measured, now: Millis) -> None:
        """An answer came."""
        exclude, evict = self.rule.exclude, self.rule.evict
        self.values, self.at, self.trouble, self.failed = found.values, now, found.trouble, False
        self.excluding = _violators(exclude, found.values, self.excluding) if exclude is not None else set()
        found_now = _violators(evict, found.values, self.violating.keys()) if evict is not None else set()
        self.violating = {node: self.violating.get(node, 0) + 1 for node in found_now}

    def fail(self, trouble: str) -> None:
        """A question was not answered. What is known counts for a while."""
        self.trouble, self.failed = trouble, True

    def expire(self, now: Millis) -> list[str]:
        """Forget what is too old. Returns the nodes that it was about."""
        if not self.at or now - self.at <= kept(self.rule):
            return []
        concerned = [*self.values, *self.excluded()]
        self.at, self.values, self.taken = 0, {}, {}
        self.excluding.clear()
        self.violating.clear()
        return concerned

    def excluded(self) -> list[str]:
        """The nodes on which no pods are placed."""
        return sorted(self.excluding | self.violating.keys())

    def due(self) -> list[str]:
        """The nodes from which a workload has to leave, those first that violate the rule for longest."""
        found = (node for node, periods in self.violating.items() if periods >= self.rule.periods)
        return sorted(found, key=lambda node: (-self.violating[node], node))

    def evicted_from(self, node: str) -> None:
        """A workload leaves the node: the next one does so only after as many periods again."""
        self.violating[node] = 0

    def marks(self, node: str) -> dict[str, str]:
        """What the engine learns of a node."""
        found: dict[str, str] = {}
        reading, value = self.rule.reading, self.values.get(node)
        if value is not None and self.scored:
            found[reading] = number_text(value)
            if self.as_load and (taken := self.taken.get(node)) is not None:
                found[reading + TAKEN] = str(max(0, taken))
        limit = self.rule.exclude if node in self.excluding else self.rule.evict if node in self.violating else None
        if limit is not None:
            found[reading + EXCLUDED] = f"telemetry rule {self.rule.name} {limit.text}"
        return found

    def why_evicted(self, node: str) -> str:
        """What is said to those who have to leave a node. It is one of `due`."""
        rule, limit = self.rule, self.rule.evict
        text = limit.text if limit is not None else ""
        return (
            f"Node {node} violates telemetry rule {rule.name} of QueuePolicy {rule.policy}: {self.values[node]:.6g}, which is "
            f"{text}, and so in {self.violating[node]} periods in a row. The workload is stopped and queued again"
        )


def _violators(limit: Limit, values: Mapping[str, float], before: Iterable[str]) -> set[str]:
    known = set(before)
    return {node for node, value in values.items() if limit.violated(value, before=node in known)}
