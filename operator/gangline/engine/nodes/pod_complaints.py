"""Complaints of gangs' pods about their nodes, and which of them count.

Pods belong to users, so a complaint alone is weak evidence: of the gangs of one namespace only one is heard at a time. A user
can then make no more nodes Suspect than those of one of the user's own gangs, whatever happens to the others. A node that gangs
of two namespaces complain of counts in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gangline.engine.model import Millis

#: node and kind of signal
Complaint: TypeAlias = tuple[str, str]


class Complaints:
    """Complaints by node and kind, each with the gangs (namespace/name) that make it and the time since when they do."""

    def __init__(self) -> None:
        self._made: dict[Complaint, dict[str, Millis]] = {}
        #: namespace -> its gangs that complain, and their complaints
        self._by: dict[str, dict[str, set[Complaint]]] = {}
        #: namespace -> the gang that is heard
        self._heard: dict[str, str] = {}

    def put(self, complaint: Complaint, gangs: Mapping[str, Millis]) -> set[Complaint]:
        """Take note that these gangs complain now, and no others. Returns the complaints whose `since` may have changed."""
        old = self._made.pop(complaint, {})
        if gangs:
            self._made[complaint] = dict(gangs)
        changed = {complaint}
        for gang in old.keys() - gangs.keys():
            changed |= self._withdraw(gang, complaint)
        for gang in sorted(gangs.keys() - old.keys()):
            namespace = _namespace(gang)
            self._by.setdefault(namespace, {}).setdefault(gang, set()).add(complaint)
            self._heard.setdefault(namespace, gang)
        return changed

    def _withdraw(self, gang: str, complaint: Complaint) -> set[Complaint]:
        """Withdraw a gang's complaint. Where the gang that was heard has no complaint left, another one of its namespace is
        heard. Returns the complaints whose `since` may have changed.
        """
        namespace = _namespace(gang)
        others = self._by[namespace]
        others[gang].discard(complaint)
        if others[gang]:
            return set()
        del others[gang]
        if self._heard[namespace] != gang:
            return set()
        if not others:
            del self._by[namespace], self._heard[namespace]
            return set()
        self._heard[namespace] = min(others)
        return set(others[min(others)])

    def since(self, complaint: Complaint) -> Millis | None:
        """The time since when the complaint counts, 0 = since it is known; None for one that does not count."""
        gangs = self._made.get(complaint, {})
        heard = [at for gang, at in gangs.items() if self._heard[_namespace(gang)] == gang]
        if heard:
            return min(heard)
        return min(gangs.values()) if len({_namespace(gang) for gang in gangs}) > 1 else None


def _namespace(gang: str) -> str:
    return gang.partition("/")[0]
