"""Cards under running gangs that are lost: those that failed at once, and those that are missing once they have been for a while.

A driver that starts again, or replaces what it publishes, may list fewer cards for a moment. Nobody moves for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gangline.engine.model import BoundPod, Millis
from gangline.engine.nodes.pod_locations import PodLocations
from gangline.engine.queues.workload_state import WorkloadState
from gangline.engine.state.store import Store

#: the cause where a card of a gang has failed, and its node has not
CARD_FAILED: Final = "CardFailed"
#: the cause where a card of a gang is missing in an inventory that lists others
CARD_MISSING: Final = "CardMissing"


class LostCardsWatch:
    """`watch` takes the cards as they are now; then the others answer."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failed: dict[str, frozenset[str]] = {}
        #: host -> its missing cards, and since when that is known
        self._missing: dict[str, dict[str, Millis]] = {}
        self._due: list[Millis] = []

    def watch(self, now: Millis) -> None:
        lost = self._store.node_ledger.cards.lost()
        self._failed = {host: cards.failed for host, cards in lost.items() if cards.failed}
        before = self._missing
        self._missing = {
            host: {card: before.get(host, {}).get(card, now) for card in sorted(cards.missing)}
            for host, cards in lost.items()
            if cards.missing
        }
        grace = self._store.health.patience_with_devices
        self._due = [
            since + grace for cards in self._missing.values() for since in cards.values() if since + grace > now
        ]

    def next_due(self) -> Millis | None:
        """When next a missing card will count as lost."""
        return min(self._due, default=None)

    def hosts(self) -> set[str]:
        """The hosts where a card is lost, or will be."""
        return {*self._failed, *self._missing}

    def under(self, seats: Mapping[str, Iterable[str]], now: Millis) -> dict[str, tuple[str, Millis]]:
        """The hosts of these cards where one is lost: the cause, and since when it shows."""
        grace = self._store.health.patience_with_devices
        found: dict[str, tuple[str, Millis]] = {}
        for host, cards in seats.items():
            missing = self._missing.get(host, {})
            over = [missing[card] for card in cards if card in missing and missing[card] + grace <= now]
            if not self._failed.get(host, frozenset()).isdisjoint(cards):
                found[host] = CARD_FAILED, now
            elif over:
                found[host] = CARD_MISSING, min(over)
        return found


# --- unbound pods -----------------------------------------------------------------------------------------------------
# Pods that the scheduler can't bind to the node that they were sent to: for how long that is tolerated.
#
# The room that the engine keeps for a pod may be another's all the same: pods of others come first, and the scheduler knows rules
# that the engine does not (ports, affinity between pods, resources that somebody else claims). A refusal counts once it has
# lasted longer than two of the scheduler's tries: what is only slow, such as a pod of others that ends, is waited for.


#: So long a pod may be refused before the engine acts, in milliseconds. The scheduler waits up to 10 s before it tries again.
TOLERATED: Final = 20_000
#: A gang that is sent back to its queue waits before it is tried again: at first so long, then twice as long each time.
FIRST_PAUSE: Final = 30_000
LONGEST_PAUSE: Final = 600_000
#: the cause where a pod can't be bound to its node
UNSCHEDULABLE: Final = "Unschedulable"


class UnboundPods:
    """Watches which pods are refused, and since when that is known."""

    def __init__(self, pods: PodLocations) -> None:
        self._pods = pods
        #: workload and pod -> since when
        self._since: dict[tuple[str, str], Millis] = {}
        #: workloads with pods that have been refused for too long
        self.overdue: frozenset[str] = frozenset()

    def watch(self, now: Millis) -> None:
        refused = ((key, pod.name) for key, pods in self._pods.refused().items() for pod in pods)
        self._since = {each: self._since.get(each, now) for each in refused}
        self.overdue = frozenset(key for (key, _), since in self._since.items() if since + TOLERATED <= now)

    def next_due(self) -> Millis | None:
        return min((since + TOLERATED for since in self._since.values()), default=None)

    def under(self, gang: WorkloadState, now: Millis) -> Mapping[str, tuple[BoundPod, Millis]]:
        """The nodes to which pods of the gang have not been bound for too long, with the first such pod, and since when.

        Nodes that the gang was moved off already, perhaps by another process, are left out: its pods there are about to go.
        """
        found: dict[str, tuple[BoundPod, Millis]] = {}
        gang.nodes.set_refusing(gang.nodes.refusing & {pod.node for pod in self._pods.refused().get(gang.key, ())})
        for pod in self._pods.refused().get(gang.key, ()):
            since = self._since.get((gang.key, pod.name), now)
            moved = pod.node in gang.nodes.refusing or (
                pod.node in gang.workload.avoid and since <= gang.workload.healed_at
            )
            if since + TOLERATED <= now and not moved:
                found.setdefault(pod.node, (pod, since))
        return found


def pause(count: int) -> Millis:
    """How long a gang waits that was sent back for the `count`th time."""
    return min(LONGEST_PAUSE, FIRST_PAUSE << min(count - 1, 16))
