"""Node health: one table of signals, each with a class and a grace, and what follows from them over time.

    a signal appears ─▶ no new work on the node ─▶ its grace is over: the node is lost ─▶ it is gone: soak ─▶ usable again

The classes: a *Lost* node no longer runs its pods; a *Suspect* one gets no new work until the signal is gone; one *LeavingSoon*
will be drained; on one with a *DegradedDevice* the pods that use devices are lost and the others keep running.

`put_node` reads signals of a node, `note` those that pods report. Neither knows the time: `advance(now)` dates new signals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gangline.engine.model import (
    DEGRADED,
    HEALTH_SIGNALS,
    IGNORE,
    LEAVING,
    LOST,
    HealthPolicy,
    Millis,
    Node,
    Taint,
    Toleration,
    tolerates,
)
from gangline.engine.model.nodes import HealthSignal
from gangline.engine.model.units import millis

#: Losses within this time make a node flapping: each of them doubles its soak …
FLAP_WINDOW: Final = 600_000
#: … up to this factor.
LONGEST_SOAK: Final = 16


#: This long before an announced maintenance a node counts as leaving.
MAINTENANCE_NOTICE: Final[Millis] = 3_600_000

_ROWS: Final[Mapping[str, HealthSignal]] = {signal.kind: signal for signal in HEALTH_SIGNALS}
_VACATED: Final = _ROWS["Vacated"]
_TABLED_TAINTS: Final = frozenset(signal.key for signal in HEALTH_SIGNALS if signal.read == "Taint")
_CONDITIONS: Final[Mapping[str, HealthSignal]] = {
    signal.key: signal for signal in HEALTH_SIGNALS if signal.read == "Condition"
}


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a node counts as lost: the signal, since when it shows, and when its grace was over."""

    kind: str
    detected_at: Millis
    at: Millis
    devices_only: bool = False  # pods that use no device keep running


@dataclass(slots=True)
class _Record:
    """What is recorded of a node."""

    since: dict[str, Millis] = field(default_factory=dict[str, Millis])
    active: dict[str, HealthSignal] = field(default_factory=dict[str, HealthSignal])
    loss: Loss | None = None
    losses: list[Millis] = field(default_factory=list[Millis])
    #: when it came back after its last loss
    returned: Millis | None = None
    usable_from: Millis = 0
    usable: bool = False
    #: this very node, by its UID, was usable once: only such a node can fail, and return
    served: bool = False

    def begin_anew(self) -> None:
        """Another node has the name now: nothing that the last one did counts against it."""
        self.losses, self.returned, self.usable_from, self.served = [], None, 0, False


class NodeHealth:
    """The standing of every node that is or was known, or that pods name."""

    def __init__(self, policy: HealthPolicy, soak: Callable[[Node], Millis]) -> None:
        self._policy = policy
        self.nodes: dict[str, Node] = {}
        self._records: dict[str, _Record] = {}
        #: node -> signals that pods report, and since when; 0 = since they were noted
        self._notes: dict[str, dict[str, Millis]] = {}
        self._dirty: set[str] = set()
        #: nodes whose standing time alone will change, and when
        self._due: dict[str, Millis] = {}
        #: how long a node that was lost stays unused after its return; 0 = it is used at once
        self.soak = soak
        self._last: dict[str, Node] = {}
        self._lost: dict[str, Loss] = {}
        self._unfit: set[str] = set()
        #: changes whenever a standing does
        self.version = 0

    # --- facts --------------------------------------------------------------------------------------------------------

    def put_node(self, node: Node | None, name: str) -> None:
        old = self.nodes.get(name)
        if node is None:
            self.nodes.pop(name, None)
            if old is not None:
                self.note(name, "Deleted", active=True)
        else:
            last, record = self._last.get(name), self._records.get(name)
            if last is not None and last.uid != node.uid and record is not None:
                record.begin_anew()
            self.nodes[name] = self._last[name] = node
            for kind in ("Deleted", "Unknown"):
                self._notes.get(name, {}).pop(kind, None)
        self._dirty.add(name)

    def note(self, node: str, kind: str, *, active: bool, since: Millis = 0) -> None:
        """Pods report a signal of a node, by the kind of signal. `since` may lie in the future."""
        notes = self._notes.setdefault(node, {})
        if notes.get(kind) == (since if active else None):
            return
        if active:
            notes[kind] = since
            self.renew(node, kind)
        else:
            notes.pop(kind, None)
        self._dirty.add(node)

    def renew(self, node: str, kind: str) -> None:
        """A signal that shows already was reported again: its duration begins anew."""
        record = self._records.get(node)
        if record is not None and record.since.pop(kind, None) is not None:
            self._dirty.add(node)

    def regard_policies(self) -> None:
        """Flavors, queues or their policies changed: the soak time of nodes may be another."""
        self._dirty.update(name for name, record in self._records.items() if record.returned is not None)

    def forget(self, node: str) -> None:
        """Forget a node that nothing names any more."""
        if node not in self.nodes:
            for table in (self._records, self._notes, self._due, self._last, self._lost):
                table.pop(node, None)
            self._dirty.discard(node)
            self._unfit.discard(node)
            self.version += 1

    # --- time ---------------------------------------------------------------------------------------------------------

    def advance(self, now: Millis) -> set[str]:
        """Bring every standing up to `now`. Returns the nodes whose standing changed."""
        due = {name for name, when in self._due.items() if when <= now}
        changed = {name for name in sorted(self._dirty | due) if self._review(name, now)}
        self._dirty.clear()
        self.version += bool(changed)
        return changed

    def next_due(self) -> Millis | None:
        return min(self._due.values(), default=None)

    @property
    def unsettled(self) -> bool:
        """Whether there are facts that `advance` has not processed."""
        return bool(self._dirty)

    def _review(self, name: str, now: Millis) -> bool:
        record = self._records.setdefault(name, _Record())
        before = record.loss, record.usable, tuple(record.active)
        signals, later = self._signals(name, now)
        record.since = {signal.kind: min(since, record.since.get(signal.kind, since)) for signal, since in signals}
        ripening = {signal.kind: record.since[signal.kind] + self.grace(signal) for signal, _ in signals}
        ends = {signal.kind: record.since[signal.kind] + signal.lasts for signal, _ in signals if signal.lasts}
        # a signal that may become a loss keeps new work away at once, any other when its grace is over
        record.active = {
            signal.kind: signal
            for signal, _ in signals
            if (signal.means in (LOST, DEGRADED) or ripening[signal.kind] <= now)
            and ends.get(signal.kind, now + 1) > now
        }
        loss = self._loss(record, ripening, now)
        if loss is not None and record.loss is None:
            record.losses = [at for at in record.losses if at > now - FLAP_WINDOW] + [now]
        elif loss is None and record.loss is not None and record.served:
            record.returned = now
        if record.returned is not None and name in self.nodes:
            # computed each time: the node's labels, by which its policy is found, may arrive later than the node
            record.usable_from = record.returned + self._soak(name, record)
            if loss is None and record.usable_from <= now:
                record.returned = None
        record.loss = _same_or_worse(record.loss, loss)
        record.usable = name in self.nodes and not record.active and record.usable_from <= now
        record.served |= record.usable
        self._note_standing(name, record)
        times = [when for when in (*later, *ripening.values(), *ends.values(), record.usable_from) if when > now]
        if times:
            self._due[name] = min(times)
        else:
            self._due.pop(name, None)
        return before != (record.loss, record.usable, tuple(record.active))

    def _note_standing(self, name: str, record: _Record) -> None:
        if record.loss is not None:
            self._lost[name] = record.loss
        else:
            self._lost.pop(name, None)
        node = self.nodes.get(name)
        if record.active or (node is not None and any(taint.effect == "NoExecute" for taint in node.taints)):
            self._unfit.add(name)
        else:
            self._unfit.discard(name)

    def _soak(self, name: str, record: _Record) -> Millis:
        times = min(2 ** (len(record.losses) - 1), LONGEST_SOAK)
        return self.soak(self._last[name]) * times if name in self._last else 0

    def _loss(self, record: _Record, ripening: Mapping[str, Millis], now: Millis) -> Loss | None:
        """The signal that made the node lost, the first to do so."""
        found = [
            Loss(kind, record.since[kind], ripening[kind], devices_only=signal.means == DEGRADED)
            for kind, signal in record.active.items()
            if signal.means in (LOST, DEGRADED) and ripening[kind] <= now
        ]
        return min(found, key=lambda loss: (loss.devices_only, loss.at, loss.kind), default=None)

    @property
    def patience_with_devices(self) -> Millis:
        """How long devices that a node had may be missing before pods that use them are lost."""
        return self.grace(_ROWS["DevicesMissing"])

    def grace(self, signal: HealthSignal) -> Millis:
        chosen = self._policy.grace(signal.kind)
        return signal.grace if chosen is None else chosen

    # --- reading ------------------------------------------------------------------------------------------------------

    def _signals(self, name: str, now: Millis) -> tuple[list[tuple[HealthSignal, Millis]], list[Millis]]:
        """The signals that show now, each with the time since when it does as far as the node says; and times at which more
        will.
        """
        found = [(_ROWS[kind], since or now) for kind, since in sorted(self._notes.get(name, {}).items())]
        later: list[Millis] = []
        node = self.nodes.get(name)
        if node is None:
            return found, later
        found.extend((signal, min(since, now)) for signal, since in self._signals_of(node, now))
        for signal, begins in _announced(node):
            notice = begins - MAINTENANCE_NOTICE
            if notice <= now:
                found.append((signal, now))
            else:
                later.append(notice)
        return found, later

    def _signals_of(self, node: Node, now: Millis) -> Iterator[tuple[HealthSignal, Millis]]:
        status, at = node.conditions.get("Ready", ("True" if node.ready else "False", 0))
        if status != "True":
            yield _ROWS["Unreachable" if status == "Unknown" else "NotReady"], at or now
        for kind, (status, at) in sorted(node.conditions.items()):
            signal = self._condition(kind) if status == "True" else None
            if signal is not None:
                yield signal, at or now
        taints = {taint.key for taint in node.taints}
        for signal in HEALTH_SIGNALS:
            if (
                (signal.read == "Taint" and signal.key in taints)
                or (signal.read == "Cordon" and node.unschedulable)
                or (signal.read == "Label" and _reads(node.labels, signal))
                or (signal.read == "Annotation" and _reads(node.annotations, signal))
            ):
                yield signal, now

    def _condition(self, kind: str) -> HealthSignal | None:
        """The row of a node condition: the table's, unless the policy overrides it."""
        means = self._policy.conditions.get(kind)
        known = _CONDITIONS.get(kind)
        if means is None:
            return known
        if means == IGNORE:
            return None
        return HealthSignal(kind, "Condition", kind, means, known.grace if known else 0)

    # --- asking -------------------------------------------------------------------------------------------------------

    def was_known(self, name: str) -> bool:
        """Whether the node existed once."""
        return name in self._last

    def last(self, name: str) -> Node | None:
        """The node as it was last observed."""
        return self._last.get(name)

    def usable(self, name: str) -> bool:
        """Whether new work may go there: the node is known, shows no signal, and has soaked."""
        record = self._records.get(name)
        return record is not None and record.usable

    def loss(self, name: str) -> Loss | None:
        record = self._records.get(name)
        return record.loss if record else None

    def failing(self, name: str) -> bool:
        """Whether the node shows a signal by which it is lost, now or once its grace is over."""
        record = self._records.get(name)
        return record is not None and any(signal.means in (LOST, DEGRADED) for signal in record.active.values())

    def lost(self) -> dict[str, Loss]:
        return dict(sorted(self._lost.items()))

    def unfit(self) -> list[str]:
        """Nodes that show any signal, or a taint that evicts pods."""
        return sorted(self._unfit)

    def last_known(self) -> Iterable[Node]:
        """Every node as it was last observed, until it is forgotten."""
        return self._last.values()

    def leaving(self, name: str) -> str:
        """The signal that announces the node's removal, "" = none."""
        record = self._records.get(name)
        signals = record.active.values() if record else ()
        return next((signal.kind for signal in signals if signal.means == LEAVING), "")

    def is_vacated(self, name: str, tolerations: Iterable[Toleration]) -> bool:
        """Whether somebody wants gangs off the node that don't tolerate that."""
        node = self.nodes.get(name)
        found = [taint for taint in node.taints if taint.key == _VACATED.key] if node is not None else []
        return bool(found) and not any(tolerates(each, taint) for each in tolerations for taint in found)

    def why_unusable(self, name: str) -> str:
        """The reason in a word, "" for a usable node."""
        record = self._records.get(name)
        if record is None or record.usable:
            return ""
        if record.loss is not None:
            return record.loss.kind
        return next(iter(record.active), "Soaking" if name in self.nodes else "Deleted")

    def soaks_until(self, name: str) -> Millis:
        """When a node that came back is used again, as far as time decides it; 0 for any other node."""
        record = self._records.get(name)
        return record.usable_from if record is not None and record.returned is not None else 0

    def untolerated(self, name: str, tolerations: Iterable[Toleration]) -> Taint | None:
        """The NoExecute taint of a node that evicts pods with these tolerations, rows of the table excepted."""
        node = self.nodes.get(name)
        for taint in node.taints if node else ():
            if (
                taint.effect == "NoExecute"
                and taint.key not in _TABLED_TAINTS
                and not any(tolerates(each, taint) for each in tolerations)
            ):
                return taint
        return None


def _same_or_worse(known: Loss | None, found: Loss | None) -> Loss | None:
    """The loss that counts: it keeps its first signal and time, unless only devices were lost and now the whole node is."""
    if known is None or found is None or (known.devices_only and not found.devices_only):
        return found
    return known


def _reads(values: Mapping[str, str], signal: HealthSignal) -> bool:
    value = values.get(signal.key)
    if value is None or (not signal.values and value.lower() in ("", "false", "none")):
        return False
    return not signal.values or value in signal.values


#: digits of the longest time that is read, in seconds since the epoch
_MOST_DIGITS = 12


def _announced(node: Node) -> Iterator[tuple[HealthSignal, Millis]]:
    for signal in HEALTH_SIGNALS:
        if signal.read == "Due":
            value = node.labels.get(signal.key, "")
            if 0 < len(value) <= _MOST_DIGITS and value.isascii() and value.isdigit():
                yield signal, millis(int(value))
