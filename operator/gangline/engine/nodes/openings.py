"""Which flavors may have more room than before, by what the ledger of nodes has logged.

A node opens every flavor whose labels it has or had, whichever workload, queue or flavor the change was about: flavors share
nodes across cohort trees.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangline.engine.model import Flavor, Node
from gangline.engine.occupancy.node_ledger import NodeLedger


class Openings:
    def __init__(self, ledger: NodeLedger, flavors: Mapping[str, Flavor]) -> None:
        self._log = ledger.openings
        self._flavors = flavors
        self._seen = self._log.end
        self._forget()

    def regard_flavors(self) -> None:
        """Flavors changed: they may select other nodes."""
        self._forget()

    def _forget(self) -> None:
        #: the labels that flavors ask for; and the flavors by the values that a node has of these
        self._keys: tuple[str, ...] | None = None
        self._selecting: dict[tuple[str | None, ...], frozenset[str]] = {}

    @property
    def unread(self) -> bool:
        """Whether something was logged since the last call of `flavors`."""
        return self._log.end != self._seen

    def flavors(self) -> frozenset[str]:
        """The flavors that may have more room than at the last call."""
        logged, self._seen = self._log.since(self._seen), self._log.end
        if logged is None:
            return frozenset(self._flavors)
        found: set[str] = set()
        for values in {self._values(each) for each in logged if isinstance(each, Node)}:
            found |= self._selected(values)
        found.update(each for each in logged if isinstance(each, str))
        return frozenset(found)

    def _values(self, node: Node) -> tuple[str | None, ...]:
        if self._keys is None:
            self._keys = tuple(sorted({key for flavor in self._flavors.values() for key in flavor.node_labels}))
        return tuple(node.labels.get(key) for key in self._keys)

    def _selected(self, values: tuple[str | None, ...]) -> frozenset[str]:
        known = self._selecting.get(values)
        if known is None:
            labels = dict(zip(self._keys or (), values, strict=True)).items()
            known = frozenset(name for name, flavor in self._flavors.items() if flavor.node_labels.items() <= labels)
            self._selecting[values] = known
        return known
