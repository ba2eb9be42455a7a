"""Gates of pods that come one after the other, while the writes of earlier ones are on their way."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.builders.objects import HOST, T, a_pod, a_workload
from tests.builders.parts import PartWorld
from tests.objects import PodObject, altered

from gangline.api import names
from gangline.control.nodes.gates.elastic_gates import ElasticGates
from gangline.control.nodes.gates.gate_removal import GateRemoval
from gangline.control.nodes.gates.pod_gates import PodGates
from gangline.kube import resources as kube
from gangline.kube.errors import Conflict, Forbidden
from gangline.kube.resources import ObjectKey

HOSTS = ("n1", "n2", "n3", "n4")


class GatedGang(PartWorld):
    """A gang of four with a place on each of `HOSTS`, and an API server that answers when the test says so."""

    def __init__(self, gates: type[GateRemoval] = PodGates) -> None:
        super().__init__((kube.WORKLOADS, a_workload(*HOSTS, owner="train")))
        self.gates = gates(self.context())
        self.at: dict[str, PodObject] = {}

    def comes(self, name: str) -> None:
        pod = a_pod(name, "", phase="Pending", ready=False)
        pod["metadata"]["labels"][names.TAS_LABEL] = "true"
        if isinstance(self.gates, ElasticGates):
            pod["metadata"]["annotations"][names.SLICE_NAME] = "w"
        pod["spec"]["schedulingGates"] = [{"name": self.gates.gate}]
        self.at[name] = pod
        self.pods.upsert(pod)

    def look(self, now: int = T) -> list[str]:
        """The pods for which a write is submitted; it stays on its way."""
        before = len(self.writer.writes)
        self.gates.act(now)
        new = self.writer.writes[before:]
        self.writer.busy |= {write.key for write in new}
        return [write.key.name for write in new]

    def answer(self, name: str, error: Exception | None = None, *, came_through: bool = False) -> None:
        """The write of a pod ends. `came_through`: it had its effect all the same, which is not seen yet."""
        write = next(write for write in self.writer.writes if write.key.name == name)
        self.writer.writes.remove(write)
        self.writer.busy.discard(write.key)
        body: Any = write.body
        written = altered(self.at[name], spec={**self.at[name].spec, **body["spec"]})
        written["metadata"] = {**written["metadata"], "resourceVersion": "2"}
        if error is None or came_through:
            self.at[name] = written
        if error is not None:
            assert write.on_error is not None
            write.on_error(error)  # type: ignore[arg-type]
        else:
            assert write.on_done is not None
            write.on_done(written)

    def places(self) -> Counter[str]:
        """What the API server has."""
        return Counter(host for pod in self.at.values() if (host := (pod["spec"].get("nodeSelector") or {}).get(HOST)))


def test_each_pod_gets_a_place_of_its_own_whenever_it_comes() -> None:
    world = GatedGang()
    for name in ("d", "b", "a", "c"):  # each sorts before or after one that is on its way
        world.comes(name)
        assert world.look() == [name]
    for name in ("b", "d", "c", "a"):
        world.answer(name)
    assert world.places() == Counter(HOSTS)


def test_each_pod_of_a_host_gets_a_card_of_its_own_whenever_it_comes() -> None:
    world = GatedGang()
    workload = a_workload("n1", "n1", owner="train", version=2)
    cards = [
        {
            "domainCount": 1,
            "podCounts": {"universal": 1},
            "valuesPerLevel": [{"universal": "n1"}, {"universal": f"{card}:500:8192:"}],
        }
        for card in ("GPU-a", "GPU-b")
    ]
    [row] = workload["status"]["admission"]["podSetAssignments"]
    row["topologyAssignment"] = {"levels": [HOST, f"{names.CARD_LEVEL}1"], "slices": cards}
    world.mirror.upsert(kube.WORKLOADS, workload)
    chosen: list[str] = []
    for name in ("d", "a"):
        world.comes(name)
        assert world.look() == [name]
        chosen.append(world.writer.writes[-1].body["metadata"]["annotations"][names.CARDS])  # type: ignore[index, call-overload]
    assert chosen == ["GPU-a", "GPU-b"]


def test_a_conflict_may_hide_that_an_earlier_try_came_through() -> None:
    world = GatedGang()
    world.comes("d")
    world.look()
    world.answer("d", Conflict(409, "Conflict", "the object has been modified"), came_through=True)
    world.comes("a")
    assert world.look() == ["a"]
    world.answer("a")
    assert world.places() == Counter(("n1", "n2"))
    world.pods.upsert(world.at["d"])  # its newest version is seen
    for name in ("b", "c"):
        world.comes(name)
    assert world.look() == ["b", "c"]
    world.answer("b")
    world.answer("c")
    assert world.places() == Counter(HOSTS)


def test_a_conflict_is_forgotten_for_the_next_try() -> None:
    """That one is not forgotten with it: its pod still has the place for which it was asked."""
    world = GatedGang()
    world.comes("d")
    world.look()
    world.answer("d", Conflict(409, "Conflict", "the object has been modified"))
    world.at["d"]["metadata"] = {**world.at["d"]["metadata"], "resourceVersion": "3"}
    world.pods.upsert(altered(world.at["d"]))
    assert world.look() == ["d"], "its newest version still waits"
    world.comes("a")
    assert world.look(T + 61_000) == ["a"]
    for name in ("a", "d"):
        world.answer(name)
    assert world.places() == Counter(("n1", "n2"))


def test_a_conflict_with_a_version_that_was_seen_before_its_answer_came() -> None:
    """The scheduler says that a new pod waits at its gate, just as the gate is taken off: nothing else happens afterwards."""
    world = GatedGang()
    world.comes("d")
    world.look()
    world.at["d"]["metadata"] = {**world.at["d"]["metadata"], "resourceVersion": "3"}
    world.pods.upsert(altered(world.at["d"]))
    assert world.look() == [], "it may come through"
    world.answer("d", Conflict(409, "Conflict", "the object has been modified"))
    assert world.woken
    assert world.look() == ["d"]
    world.answer("d")
    assert world.places() == Counter(("n1",))


def test_a_pod_with_another_write_on_its_way_is_looked_at_again() -> None:
    """The watch shows the other write before its answer is there: nothing else happens afterwards."""
    world = GatedGang()
    world.comes("d")
    other = ObjectKey.of(kube.PODS, world.at["d"])
    world.writer.busy.add(other)
    assert world.look(T) == []
    assert world.gates.due is not None and T < world.gates.due <= T + 1000
    assert world.look(world.gates.due) == [], "it is still on its way"
    world.writer.busy.discard(other)
    assert world.look(T + 1000) == ["d"]


def test_a_pod_whose_start_was_refused_is_tried_again() -> None:
    world = GatedGang()
    world.comes("d")
    world.look()
    world.answer("d", Forbidden(403, "Forbidden", "no"))
    assert world.woken
    assert world.look() == []
    assert world.gates.due == T + 60_000
    assert world.look(T + 60_000) == ["d"]


def test_a_place_that_was_refused_is_free_again() -> None:
    world = GatedGang()
    world.comes("d")
    world.look()
    world.answer("d", Forbidden(403, "Forbidden", "no"))
    for name in ("a", "b", "c"):
        world.comes(name)
    assert world.look() == ["a", "b", "c", "d"]
    for name in ("a", "b", "c", "d"):
        world.answer(name)
    assert world.places() == Counter(HOSTS)


def test_no_more_pods_of_an_elastic_job_start_than_are_admitted() -> None:
    world = GatedGang(ElasticGates)
    asked: list[str] = []
    for name in ("e", "d", "c", "b", "a"):
        world.comes(name)
        asked += world.look()
    assert asked == ["e", "d", "c", "b"]
    for name in asked:
        world.answer(name)
    world.comes("a")
    assert world.look() == []


def test_no_pod_of_an_elastic_job_starts_while_its_workload_may_be_cut() -> None:
    world = GatedGang(ElasticGates)
    world.comes("a")
    world.writes.waiting = True
    assert world.look() == []
    world.writes.waiting = False
    assert world.look() == ["a"]
