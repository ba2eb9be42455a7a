"""Which nodes count as silent: only those whose Lease is overdue and that don't answer, while others renew and answer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any

import pytest
from tests.builders.objects import a_node, a_pod
from tests.builders.parts import PartWorld
from tests.objects import Stored

from gangline.api import names
from gangline.control.nodes.recovery import silent_nodes
from gangline.control.nodes.recovery.fencing import out_of_reach_since
from gangline.control.nodes.recovery.silent_nodes import FIRST_PROBES, NodeLeases, SilentNodes, answers, is_silent
from gangline.engine import model
from gangline.engine.model import HEALTH_SIGNALS
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert

#: a Lease of 40 s is renewed every 10 s, and overdue a moment later
DUE, OVERDUE = 10.0, 10.6


def lease(name: str, renewed: str, duration: Any = 40) -> Stored:
    meta = {"name": name, "namespace": "kube-node-lease", "uid": name, "resourceVersion": renewed}
    return Stored({"metadata": meta, "spec": {"leaseDurationSeconds": duration, "renewTime": renewed}})


class SilentNodesWorld(PartWorld):
    """Nodes n1 to n3; a gang whose policy asks has a pod on each of `busy`. `deaf` nodes don't answer."""

    def __init__(self, *, busy: tuple[str, ...] = ("n1", "n2", "n3"), asks: bool = True) -> None:
        super().__init__()
        self.deaf: set[str] = set()
        self.probed: list[str] = []
        self.now = 0.0
        self.silence = SilentNodes(
            self.context(),
            lambda workload: model.Recovery(probe_nodes=asks),
            probe=self.probe,
            clock=lambda: self.now,
        )
        for name in ("n1", "n2", "n3"):
            node = a_node(name)
            node["status"]["addresses"] = [{"type": "InternalIP", "address": name}]
            self.mirror.upsert(kube.NODES, node)
            self.hear(name)
        for name in busy:
            self.pods.upsert(a_pod(f"on-{name}", name))

    async def probe(self, address: str, port: int) -> bool:
        assert port == silent_nodes.KUBELET_PORT
        self.probed.append(address)
        return address not in self.deaf

    def hear(self, *nodes: str) -> None:
        for name in nodes:
            self.silence.hear(Upsert(lease(name, str(self.now))))

    async def look(self, now: float) -> list[tuple[str, Any]]:
        """Time passes. Returns the nodes whose taints are written, and what."""
        self.now = now
        self.silence.look(now)
        while self.silence._probing:
            await asyncio.sleep(0)
        return self.written()

    def written(self) -> list[tuple[str, Any]]:
        found = [(name, body()) for _, name, body in self.writer.take()]
        for name, body in found:
            node = self.mirror.get(kube.NODES, name)
            assert node is not None
            assert body["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]
            taints = body["spec"]["taints"]
            spec = {"taints": taints} if taints else {}
            meta = {**node["metadata"], "resourceVersion": f"{node['metadata']['resourceVersion']}+"}
            self.mirror.upsert(kube.NODES, {**node, "metadata": meta, "spec": spec})
        self.silence.act(0)
        return [(name, body["spec"]["taints"]) for name, body in found]


TAINTED = [{"key": names.SILENT, "effect": "NoSchedule"}]


async def test_a_node_that_neither_renews_nor_answers_is_tainted_until_it_renews() -> None:
    world = SilentNodesWorld()
    assert await world.look(1.0) == []
    world.now = DUE
    world.hear("n2", "n3")
    world.deaf = {"n1"}
    assert await world.look(OVERDUE) == [("n1", TAINTED)]
    node = world.mirror.get(kube.NODES, "n1")
    assert node is not None
    assert is_silent(node)
    assert out_of_reach_since(node) == 0, "its pods can't be ended"
    assert await world.look(OVERDUE + 1) == [], "once is enough"
    world.hear("n1")
    assert world.written() == [("n1", None)]


async def test_the_engine_takes_the_taint_for_a_loss() -> None:
    [signal] = [signal for signal in HEALTH_SIGNALS if signal.key == names.SILENT]
    assert (signal.read, signal.means, signal.grace) == ("Taint", "Lost", 0)


async def test_other_taints_stay() -> None:
    world = SilentNodesWorld()
    other = {"key": "example.com/other", "effect": "NoExecute"}
    node = world.mirror.get(kube.NODES, "n1")
    assert node is not None
    world.mirror.upsert(
        kube.NODES, {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}, "spec": {"taints": [other]}}
    )
    await world.look(1.0)
    world.now = DUE
    world.hear("n2", "n3")
    world.deaf = {"n1"}
    assert await world.look(OVERDUE) == [("n1", [other, *TAINTED])]
    world.hear("n1")
    assert world.written() == [("n1", [other])]


async def test_a_kubelet_that_is_away_while_its_node_answers_moves_nothing() -> None:
    world = SilentNodesWorld()
    await world.look(1.0)
    world.now = DUE
    world.hear("n2", "n3")
    assert await world.look(OVERDUE + 20) == []


async def test_a_node_that_renews_is_not_even_asked() -> None:
    world = SilentNodesWorld()
    await world.look(1.0)
    world.probed.clear()
    world.now = DUE
    world.hear("n1", "n2", "n3")
    world.deaf = {"n1"}
    assert await world.look(OVERDUE) == []
    assert world.probed == []


async def test_when_most_leases_are_overdue_the_api_server_is_the_cause() -> None:
    world = SilentNodesWorld()
    await world.look(1.0)
    world.deaf = {"n1", "n2"}
    assert await world.look(60.0) == []
    world.hear("n3")
    assert {name for name, _ in await world.look(61.0)} == {"n1", "n2"}, "two of three: the circuit breaker is for that"


async def test_when_no_other_node_answers_the_way_there_is_the_cause() -> None:
    world = SilentNodesWorld()
    await world.look(1.0)
    world.now = DUE
    world.hear("n2", "n3")
    world.deaf = {"n1", "n2", "n3"}
    assert await world.look(OVERDUE) == []


async def test_a_node_that_never_answered_is_never_silent() -> None:
    world = SilentNodesWorld()
    world.deaf = {"n1"}
    await world.look(1.0)
    world.now = DUE
    world.hear("n2", "n3")
    assert await world.look(OVERDUE) == []
    world.deaf.clear()
    world.hear("n1")
    await world.look(OVERDUE + FIRST_PROBES)
    world.deaf = {"n1"}
    world.now = OVERDUE + DUE
    world.hear("n2", "n3")
    assert await world.look(2 * OVERDUE + FIRST_PROBES) == [("n1", TAINTED)]


async def test_nodes_without_gangs_whose_policy_asks_are_left_alone() -> None:
    for world in (SilentNodesWorld(busy=("n2", "n3")), SilentNodesWorld(asks=False)):
        await world.look(1.0)
        world.now = DUE
        world.hear("n2", "n3")
        world.deaf = {"n1"}
        assert await world.look(OVERDUE) == []
        assert "n1" not in world.probed


async def test_a_lease_that_is_gone_is_not_overdue() -> None:
    world = SilentNodesWorld()
    await world.look(1.0)
    world.now = DUE
    world.hear("n2", "n3")
    world.silence.hear(Removed("kube-node-lease/n1", "n1"))
    world.deaf = {"n1"}
    assert await world.look(OVERDUE) == []


async def test_the_taint_goes_when_no_policy_asks_any_more() -> None:
    world = SilentNodesWorld()
    node = world.mirror.get(kube.NODES, "n1")
    assert node is not None
    world.mirror.upsert(
        kube.NODES, {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}, "spec": {"taints": TAINTED}}
    )
    world.silence.act(0)
    running = asyncio.ensure_future(world.silence.run(lambda: True))
    while not world.writer.writes:
        await asyncio.sleep(0.01)
    running.cancel()
    assert world.written()[0] == ("n1", None)


def test_only_that_a_renewal_arrives_counts_not_the_time_in_it() -> None:
    leases = NodeLeases()
    assert not leases.put(lease("a", "2020-01-01"), 100.0), "the first sight of an old Lease is no renewal"
    leases.put(lease("b", "2020-01-01"), 100.0)
    assert not leases.put(lease("a", "2020-01-01"), 105.0)
    assert leases.put(lease("a", "1999-01-01"), 105.0), "clocks that go back renew, too"
    assert leases.overdue(110.0) == []
    assert leases.overdue(110.6) == ["b"]
    assert leases.on_time(["b"]) == ["a"]


@pytest.mark.parametrize("duration", [None, "forty", -1, 0, True])
def test_a_lease_without_a_usable_duration_has_the_default(duration: Any) -> None:
    leases = NodeLeases()
    leases.put(lease("a", "1", duration), 0.0)
    leases.put(lease("b", "1", 10**12), 0.0)
    assert leases.overdue(10.4) == []
    assert leases.overdue(10.6) == ["a"]
    assert leases.overdue(1000.0) == [], "an hour is the most"


async def test_a_refusal_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await answers("127.0.0.1", port)
    assert await answers("127.0.0.1", port), "closed, and so refused"
    assert not await answers("not an address", port)
    monkeypatch.setattr(silent_nodes, "ANSWER_WITHIN", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        place = full.getsockname()
        for _ in range(3):  # more than it keeps: the kernel does not answer the next ones
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(place)
        assert not await answers(*place)
