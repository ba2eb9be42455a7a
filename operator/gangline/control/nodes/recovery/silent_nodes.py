"""Nodes that fall silent, found within seconds, where a policy asks for it (`recovery.probeNodes`).

Kubernetes calls a node unreachable when it has been silent for 40 s and more. Here a node is silent when two independent signs
say so: its Lease is overdue while most other nodes renew theirs, and nothing answers at its kubelet's port, neither accepting nor
refusing a connection, while another node does answer. So a kubelet that restarts, an API server that is away and a network that
keeps this process from the nodes move no gang. A node that has never answered is never silent.

A silent node gets the taint `gangline.io/silent`: for the engine it is lost, the Kubernetes scheduler puts no pod there, and the
next leader knows. The taint goes with the next renewal of the Lease, or with the last policy that asks.

Only nodes with pods of the policies' gangs are probed. Leases are watched only while a policy asks: one small event per node
every 10 s.

The times at which each node last renewed its Lease, by this process's own clock.

A kubelet renews the Lease of its node every quarter of the Lease's duration. Only that a renewal arrived counts, and when: the
times written in Leases are those of other clocks, and are compared for equality alone. Times here are seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from gangline.api import names
from gangline.control.kernel.context import Context
from gangline.control.parts.part import Part
from gangline.control.writes.outgoing import Priority, Write
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.errors import ApiError
from gangline.kube.reflector import Event, Reflector, Removed, Upsert
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import NodeObject, Stored

log = logging.getLogger(__name__)


NAMESPACE: Final = "kube-node-lease"
#: Kubernetes' default, and the most that counts
DURATION: Final = 40
LONGEST: Final = 3600
#: Kubelets add up to 4 % to the time between two renewals; and a renewal takes a moment. A node that is later is only probed.
_LATE: Final = 1.04
_SLACK: Final = 0.1


@dataclass(frozen=True, slots=True)
class _Renewal:
    written: str
    heard: float
    interval: float


class NodeLeases:
    """The Leases of all nodes that have one."""

    def __init__(self) -> None:
        self._renewals: dict[str, _Renewal] = {}

    def put(self, lease: Stored, now: float) -> bool:
        """Store a Lease. Returns whether it was renewed; the first sight of it is no renewal, since it may be old."""
        name, spec = lease.name, lease.spec
        written, before = str(spec.get("renewTime")), self._renewals.get(name)
        if before is not None and before.written == written:
            return False
        self._renewals[name] = _Renewal(written, now, _duration(spec) / 4 * _LATE + _SLACK)
        return before is not None

    def remove(self, name: str) -> None:
        self._renewals.pop(name, None)

    def clear(self) -> None:
        self._renewals.clear()

    def overdue(self, now: float) -> list[str]:
        """Nodes that should have renewed their Lease; none where most others are overdue too: then the API server, or the way
        to it, is the likely cause.
        """
        late = sorted(name for name, last in self._renewals.items() if last.heard + last.interval < now)
        on_time = len(self._renewals) - len(late)
        return late if on_time and on_time >= (len(self._renewals) - 1) / 2 else []

    def on_time(self, late: Iterable[str]) -> list[str]:
        """The nodes that are not late."""
        return sorted(self._renewals.keys() - set(late))


def _duration(spec: Json) -> int:
    value = spec.get("leaseDurationSeconds")
    return min(value, LONGEST) if type(value) is int and value > 0 else DURATION


TAINT: Final[Json] = {"key": names.SILENT, "effect": "NoSchedule"}
#: seconds between two looks at the Leases, and between two first probes of nodes that have not answered yet
PERIOD: Final = 0.25
FIRST_PROBES: Final = 1.0
#: seconds within which a node answers: enough for a lost packet that is sent again
ANSWER_WITHIN: Final = 1.5
#: at the same time
MOST_PROBES: Final = 64
KUBELET_PORT: Final = 10250

#: says within ANSWER_WITHIN whether anything answers at an address and a port
Probe = Callable[[str, int], Awaitable[bool]]


async def answers(address: str, port: int) -> bool:
    """Whether anything answers at this address and port: a refusal is an answer, too. Nothing is sent."""
    try:
        async with asyncio.timeout(ANSWER_WITHIN):
            _, writer = await asyncio.open_connection(address, port)
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:  # TimeoutError is one
        return False
    writer.close()
    return True


class SilentNodes(Part):
    """Taints silent nodes, and untaints them when they are heard again. `policy` returns the recovery policy of a Workload."""

    name = "silence"

    def __init__(
        self,
        context: Context,
        policy: Callable[[str], model.Recovery | None],
        *,
        probe: Probe = answers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = context.client
        self._mirror = context.mirror
        self._pods = context.pods
        self._writer = context.writer
        self._policy = policy
        self._probe = probe
        self._clock = clock
        self._leases = NodeLeases()
        self._answered: set[str] = set()  # nodes that have answered
        self._probing: dict[str, asyncio.Task[None]] = {}
        self._tainted: set[str] = set()
        self._changed = context.mirror.changes.nodes.subscribe(worth=context.mirror.has(kube.NODES))
        self._next_first = 0.0

    # --- the taint ----------------------------------------------------------------------------------------------------

    def act(self, now: int) -> None:
        for name in self._changed.take():
            node = self._mirror.nodes.get(name)
            if node is not None and is_silent(node):
                self._tainted.add(name)
            else:
                self._tainted.discard(name)
                if node is None:
                    self._answered.discard(name)

    def _mark(self, name: str, *, silent: bool) -> None:
        """Set or remove the taint, on the newest version of the node."""
        key = ObjectKey(kube.NODES, "", name)
        if self._writer.pending(key):
            return

        def body() -> Json | None:
            node = self._mirror.nodes.get(name)
            if node is None or is_silent(node) == silent:
                return None
            rest = [taint for taint in node.taints if taint.get("key") != names.SILENT]
            taints = [*rest, dict(TAINT)] if silent else rest
            return {
                "metadata": {"resourceVersion": node.resource_version},
                "spec": {"taints": taints or None},
            }

        def failed(error: ApiError) -> None:  # it is tried again while the reason for it lasts
            log.warning("node %s: its taint %s could not be changed: %s", name, names.SILENT, error)

        self._writer.submit(Write(key, "patch", body, priority=Priority.START_STOP, on_error=failed))

    # --- the watch ----------------------------------------------------------------------------------------------------

    async def run(self, leading: Callable[[], bool]) -> None:
        """Run until cancelled."""
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                if leading() and self._asked():
                    if watching is None or watching.done():
                        watching = asyncio.create_task(self._watch())
                    self._attempt_to_look()
                else:
                    if watching is not None:
                        watching.cancel()
                        watching = None
                    self._leases.clear()
                    self._answered.clear()
                    for name in self._tainted if leading() else ():
                        self._mark(name, silent=False)
                await asyncio.sleep(PERIOD)
        finally:
            for task in (*self._probing.values(), *([watching] if watching is not None else [])):
                task.cancel()

    async def _watch(self) -> None:
        await Reflector(self._client, kube.LEASES, namespace=NAMESPACE, decode=Stored).run(self.hear)

    def hear(self, event: Event) -> None:
        """Note that a Lease was renewed, or is gone."""
        if isinstance(event, Upsert):
            name = event.obj.name
            if self._leases.put(event.obj, self._clock()) and name in self._tainted:
                self._mark(name, silent=False)
        elif isinstance(event, Removed):
            self._leases.remove(event.key.rpartition("/")[2])

    def _attempt_to_look(self) -> None:
        try:
            self.look(self._clock())
        except Exception:
            log.exception("silent nodes were not looked for")

    # --- judgement ----------------------------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Probe the nodes that are overdue; and now and then those that have never answered."""
        late = self._leases.overdue(now)
        for name in late:
            if name in self._answered and name not in self._tainted and self._is_ours(name):
                self._start(name, partial(self._judge, name, late))
        if now >= self._next_first:
            self._next_first = now + FIRST_PROBES
            strangers = (name for name in self._leases.on_time(late) if name not in self._answered)
            for name in itertools.islice(filter(self._is_ours, strangers), MOST_PROBES):
                self._start(name, partial(self._probe_first, name))

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        if name in self._probing or len(self._probing) >= MOST_PROBES:
            return
        task = self._probing[name] = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: self._probing.pop(name, None))

    async def _probe_first(self, name: str) -> None:
        if await self._reaches(name):
            self._answered.add(name)

    async def _judge(self, name: str, late: list[str]) -> None:
        """Taint a node that does not answer although another one does."""
        others = self._answered.intersection(self._leases.on_time(late))
        witness = min(others, default=None)
        if witness is None:
            return
        heard, seen = await asyncio.gather(self._reaches(name), self._reaches(witness))
        if not seen:
            log.warning("node %s does not answer, but neither does %s: nothing is concluded", name, witness)
        elif not heard and name in self._leases.overdue(self._clock()):
            log.info("node %s is silent: its Lease is overdue, and it does not answer", name)
            self._mark(name, silent=True)

    async def _reaches(self, name: str) -> bool:
        place = _place(self._mirror.nodes.get(name))
        return place is not None and await self._probe(*place)

    def _asked(self) -> bool:
        policies = self._mirror.objects[kube.QUEUE_POLICIES].values()
        return any((policy.spec.get("recovery") or {}).get("probeNodes") is True for policy in policies)

    def _is_ours(self, node: str) -> bool:
        """Whether the node has pods of a gang whose queue has a policy that asks for probes."""
        policies = map(self._policy, {pod.workload for pod in self._pods.on(node)})
        return any(policy is not None and policy.enabled and policy.probe_nodes for policy in policies)


def is_silent(node: NodeObject) -> bool:
    """Whether the node has the taint of silent nodes."""
    return any(taint.get("key") == names.SILENT for taint in node.taints)


def _place(node: NodeObject | None) -> tuple[str, int] | None:
    """The address and port of the node's kubelet; None for a node without an internal address."""
    status = node.status if node is not None else {}
    rows = status.get("addresses") or ()
    address = next((row.get("address") for row in rows if row.get("type") == "InternalIP"), None)
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    return (address, port if type(port) is int and 0 < port < 65536 else KUBELET_PORT) if address else None
