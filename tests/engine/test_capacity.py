"""Quota is a promise; healthy nodes are what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders.engine import gang, group, of, reported_pending
from tests.engine.node_world import FLAVOR, POOL, TPU, NodeWorld, node, plain, pools, queue, slices

from gangline.engine.model import (
    AdmissionCheck,
    Admit,
    BoundPod,
    CheckRef,
    ClusterQueue,
    ConcurrentAdmission,
    Flavor,
    ForeignPod,
    Fungibility,
    Node,
    PodSet,
    Preempt,
    PreemptionPolicy,
    Recovery,
    Settings,
    Taint,
    Toleration,
    Workload,
    WorkloadPods,
)
from gangline.engine.nodes.node_rooms import FitTable, NodeRooms, PodShape
from gangline.engine.nodes.packer import NodeAssignment, PackedPodSet, Packer
from gangline.engine.occupancy.node_ledger import NodeLedger
from gangline.engine.topology.node_filter import NodeSelection

LABELS = FLAVOR.node_labels


def nodes(count: int, **fields: Any) -> list[Any]:
    return [node(f"n{number}", **fields) for number in range(count)]


def why(world: NodeWorld, name: str) -> tuple[str, str]:
    found = world.engine.explain(f"team/{name}")
    assert found is not None
    return found.reason, found.message.partition(": ")[2]


# --- bounded by what is there -----------------------------------------------------------------------------------------


def test_a_gang_waits_for_nodes_though_quota_is_free() -> None:
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 3))
    report = reported_pending(world.decide())["w1"]
    assert report.explanation.reason == "WaitingForCapacity"
    assert report.explanation.message == (
        "couldn't assign flavors to pod set main: insufficient healthy capacity in flavor tpu:"
        " room for 2 out of 3 pods of pod set main"
    )
    assert (report.explanation.requested, report.explanation.available, report.explanation.short) == (3, 2, 1)
    world.put(node("n2"))
    assert of(world.decide(), Admit) == ["w1"]


def test_a_node_that_fails_is_no_room_from_the_first_moment() -> None:
    world = NodeWorld(*nodes(2), queue(100))
    world.put(replace(world.nodes["n1"], ready=False, conditions={"Ready": ("False", world.now)}))
    world.put(plain("w1", 2), plain("w2", 1))
    assert of(world.decide(), Admit) == ["w2"]
    message = "room for 0 out of 2 pods of pod set main (1 of its 2 nodes can't be used)"
    assert f"{message}. 2 whole nodes of tpu needed: 0 free now" in why(world, "w1")[1]
    world.finish("w2")
    world.repair("n1")
    assert of(world.decide(), Admit) == ["w1"]  # it was never lost: no soak


def test_a_cordoned_node_gets_no_new_work_and_keeps_what_it_has() -> None:
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 2))
    world.settle(2)
    world.put(replace(world.nodes["n0"], unschedulable=True))
    assert world.settle(3) == []
    world.finish("w1")
    world.put(plain("w2", 2))
    assert of(world.decide(), Admit) == []


def test_room_is_counted_over_all_queues_that_use_a_flavor() -> None:
    world = NodeWorld(*nodes(2), queue(100), queue(100, "r"), plain("w1", 1), plain("w2", 1, queue="r"))
    world.put(plain("w3", 1, queue="r"))
    assert sorted(of(world.decide(), Admit)) == ["w1", "w2"]
    world.finish("w1")  # of another queue, of another tree
    assert of(world.decide(), Admit) == ["w3"]


def test_two_halves_are_no_whole() -> None:
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 2, chips=2))
    world.settle(2)
    world.bind()
    pods = world.pods["team/w1"]
    world.pods["team/w1"] = [replace(pod, node=f"n{number}") for number, pod in enumerate(pods)]
    world.tell("team/w1")
    world.put(plain("w2", 1, chips=4))
    assert of(world.decide(), Admit) == []
    assert why(world, "w2")[0] == "WaitingForCapacity"
    world.put(plain("w3", 2, chips=2))
    assert of(world.decide(), Admit) == ["w3"]


def test_where_pods_really_are_counts() -> None:
    """Room was kept on one node; the scheduler chose the other, where room was kept for somebody else."""
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 1), plain("w2", 1))
    world.decide()
    world._add("team/w1", "main", "n1")
    world.tell("team/w1")
    world.decide()
    assigned = {key: world.engine._store.capacity._holdings[key].assigned for key in ("team/w1", "team/w2")}
    assert assigned["team/w1"].bound == {("main", "n1"): 1}
    assert assigned["team/w2"].kept == {("main", "n0"): 1}


def test_selectors_and_taints_choose_among_the_nodes_of_a_flavor() -> None:
    special = node("n0", labels={"zone": "a"}, taints=(Taint("dedicated"),))
    world = NodeWorld(special, node("n1"), queue(100))

    def asks(name: str, **fields: Any) -> Any:
        return gang(name, pod_sets=(PodSet("main", 1, {TPU: 4}, **fields),))

    world.put(asks("w1", node_selector={"zone": "a"}), asks("w2", node_selector={"zone": "b"}))
    world.put(asks("w3", node_selector={"zone": "a"}, tolerations=(Toleration("dedicated", "Exists"),)))
    assert of(world.decide(), Admit) == ["w3"]
    assert why(world, "w2")[0] == "WaitingForCapacity"


def test_a_taint_that_goes_makes_room() -> None:
    world = NodeWorld(node("n0", taints=(Taint("dedicated"),)), queue(100), plain("w1", 1))
    assert of(world.decide(), Admit) == []
    world.put(node("n0"))
    assert of(world.decide(), Admit) == ["w1"]


def test_what_nodes_do_not_report_does_not_bound() -> None:
    groups = (group({"tpu": {TPU: 100, "license": 100}}),)
    world = NodeWorld(*nodes(1), ClusterQueue("q", groups=groups))
    world.put(gang("w1", pod_sets=(PodSet("main", 1, {TPU: 4, "license": 50}),)))
    assert of(world.decide(), Admit) == ["w1"]


def test_fewer_pods_where_fewer_have_room() -> None:
    pod_set = PodSet("main", 4, {TPU: 4}, min_count=2)
    world = NodeWorld(*nodes(3), queue(100), gang("w1", pod_sets=(pod_set,)))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    assert admit.admission.pod_sets[0].count == 3


# --- bounded by quota alone -------------------------------------------------------------------------------------------


def test_kueue_where_nodes_say_nothing() -> None:
    free = Flavor("tpu")
    assert of(NodeWorld(free, *nodes(1), queue(100), plain("w1", 9)).decide(), Admit) == ["w1"]
    assert of(NodeWorld(queue(100), plain("w1", 9)).decide(), Admit) == ["w1"]
    of_other_flavor = node("n0", labels={"accelerator": "other"})
    assert of(NodeWorld(of_other_flavor, queue(100), plain("w1", 9)).decide(), Admit) == ["w1"]


def test_an_autoscaled_flavor_is_bounded_by_quota_alone() -> None:
    world = NodeWorld(*nodes(1), queue(100), plain("w1", 9))
    assert of(world.decide(), Admit) == []
    world.put(Flavor("tpu", node_labels=LABELS, autoscaled=True))
    assert of(world.decide(), Admit) == ["w1"]


def test_nodes_that_a_check_provides_need_not_be_there() -> None:
    check = AdmissionCheck("nodes", "kueue.x-k8s.io/provisioning-request")
    world = NodeWorld(*nodes(1), check, queue(100, checks=(CheckRef("nodes"),)), plain("w1", 9))
    assert of(world.decide(), Admit) == ["w1"]


# --- preemption -------------------------------------------------------------------------------------------------------


def test_room_is_made_by_preemption_where_the_queue_allows_it() -> None:
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 1))
    world.decide()
    world.put(plain("w2", 1))
    world.decide()
    world.put(plain("w3", 1, priority=1))
    assert of(world.decide(), Preempt) == ["w2"]
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["w3"]
    assert why(world, "w2")[0] == "WaitingForCapacity"


def test_no_preemption_without_a_policy_or_a_lower_priority() -> None:
    never = queue(100, preemption=PreemptionPolicy())
    world = NodeWorld(*nodes(1), never, plain("w1", 1))
    world.decide()
    world.put(plain("w2", 1, priority=1))
    assert of(world.decide(), Preempt) == []
    world = NodeWorld(*nodes(1), queue(100), plain("w1", 1))
    world.decide()
    world.put(plain("w2", 1))
    assert of(world.decide(), Preempt) == []


def test_nobody_goes_in_vain() -> None:
    """Even without everybody else it would not fit: two nodes are not there."""
    world = NodeWorld(*nodes(2), queue(100), plain("w1", 2))
    world.decide()
    world.put(plain("w2", 4, priority=1))
    assert of(world.decide(), Preempt) == []


def test_the_next_flavor_when_the_first_has_no_healthy_nodes() -> None:
    other = Flavor("spot", node_labels={"accelerator": "spot"})
    groups = (group({"tpu": {TPU: 100}, "spot": {TPU: 100}}),)
    config = ClusterQueue("q", groups=groups, fungibility=Fungibility())
    world = NodeWorld(other, node("n0"), node("s0", labels={"accelerator": "spot"}), config)
    world.fail("n0")
    world.put(plain("w1", 1))
    (admit,) = world.decide()
    assert isinstance(admit, Admit)
    assert admit.admission.pod_sets[0].flavors == {TPU: "spot"}


# --- exclusive domains ------------------------------------------------------------------------------------------------


def test_each_child_job_takes_a_domain_for_itself() -> None:
    world = NodeWorld(*pools(3), queue(1000), slices("w1", 2), slices("w2", 2))
    assert of(world.decide(), Admit) == ["w1"]
    assert why(world, "w2") == (
        "WaitingForCapacity",
        "insufficient healthy capacity in flavor tpu: 2 free domains of pool needed for pod set slice, 1 available",
    )
    world.put(*(node(f"p3-n{number}", "p3") for number in range(4)))
    assert of(world.decide(), Admit) == ["w2"]


def test_a_domain_with_a_failed_node_is_none() -> None:
    world = NodeWorld(*pools(2), queue(1000))
    world.fail("p1-n3")
    world.put(slices("w1", 2), slices("w2", 1))
    assert of(world.decide(), Admit) == ["w2"]


def test_a_domain_that_others_use_may_still_be_taken_if_there_is_room() -> None:
    world = NodeWorld(*pools(1, size=5), queue(1000), plain("w1", 1), slices("w2", 1))
    assert sorted(of(world.decide(), Admit)) == ["w1", "w2"]
    world = NodeWorld(*pools(1, size=4), queue(1000), plain("w1", 1), slices("w2", 1))
    assert of(world.decide(), Admit) == ["w1"]


def test_domains_are_made_free_by_preemption() -> None:
    world = NodeWorld(*pools(2), queue(1000), slices("w1", 1), slices("w2", 1))
    world.settle(2)
    world.put(slices("w3", 2, priority=1))
    assert sorted(of(world.decide(), Preempt)) == ["w1", "w2"]
    world.complete_evictions()
    assert of(world.decide(), Admit) == ["w3"]


def test_a_gang_has_its_own_domains_or_none_while_it_has_too_few() -> None:
    world = NodeWorld(*pools(3), queue(1000), slices("w1", 2), slices("w2", 1))
    own = world.engine.domains_of
    assert own("team/w1", "pool") is None, "it is not admitted"
    assert sorted(of(world.decide(), Admit)) == ["w1", "w2"]
    assert (own("team/w1", "pool"), own("team/w2", "pool")) == ({"p0", "p1"}, {"p2"})
    assert own("team/w1", "zone") is None
    world.remove_node("p1-n3")
    world.decide()
    assert own("team/w1", "pool") == frozenset(), "one of two"
    assert own("team/w2", "pool") == {"p2"}


def test_a_gang_that_nodes_do_not_bound_has_no_domains_of_its_own() -> None:
    spot = Flavor("spot")
    world = NodeWorld(*pools(1), spot, queue(1000, flavor="spot"), slices("w1", 2))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.domains_of("team/w1", "pool") is None


# --- spares -----------------------------------------------------------------------------------------------------------


def test_spare_nodes_stay_idle() -> None:
    world = NodeWorld(*nodes(4), queue(100, recovery=Recovery(spares=1, lend=False)), plain("w1", 4))
    assert of(world.decide(), Admit) == []
    assert "room for 3 out of 4 pods of pod set main, 1 held back as spare" in why(world, "w1")[1]
    world.put(plain("w2", 3))
    assert of(world.decide(), Admit) == ["w2"]


def test_spares_are_a_share_rounded_up_or_a_number() -> None:
    for policy, room in ((Recovery(spares_percent=10), 3), (Recovery(spares=1, spares_percent=50), 2)):
        world = NodeWorld(*nodes(4), queue(100, recovery=policy), *(plain(f"w{number}", 1) for number in range(4)))
        assert len(of(world.decide(), Admit)) == room


def test_spares_are_lent_to_those_who_will_make_way() -> None:
    world = NodeWorld(*nodes(4), queue(100, recovery=Recovery(spares=1)))
    world.put(plain("w1", 3, priority=1), plain("w2", 1, priority=1))
    assert of(world.decide(), Admit) == ["w1"]
    world.put(plain("w3", 1, priority=0))
    assert of(world.decide(), Admit) == ["w3"]


def test_spare_domains() -> None:
    world = NodeWorld(*pools(3), queue(1000, recovery=Recovery(spares=1, lend=False)), slices("w1", 2), slices("w2", 1))
    assert of(world.decide(), Admit) == ["w1"]
    assert (
        f"1 free domains of {POOL} needed for pod set slice, 0 available, 1 held back as spare" in why(world, "w2")[1]
    )


def test_pod_sets_without_pods_ask_for_no_room() -> None:
    capacity = NodeWorld(*pools(1), queue(16)).engine._store.capacity
    asks = [(PodSet("none", 0, {TPU: 4}), 0, (FLAVOR.name,)), (PodSet("some", 1, {TPU: 4}), 1, (FLAVOR.name,))]
    assert [member.name for member in capacity.grounds.members(asks)] == ["some"]


def test_a_node_takes_no_more_pods_than_it_has_slots() -> None:
    small = replace(node("n0", chips=8), allocatable={TPU: 8, "pods": 2})
    world = NodeWorld(small, queue(8), plain("w1", 2, chips=1), plain("w2", 1, chips=1))
    world.decide()
    assert world.running() == ["w1"], "there are chips for both, but a slot for none of w2"


def test_a_whole_domain_is_shared_with_no_other_gang_of_its_kind() -> None:
    """Each takes half of the chips of every node of a pool, and the pool for itself alone."""

    def half(name: str) -> Workload:
        one = slices(name, children=1, pods=4)
        return replace(one, pod_sets=(replace(one.pod_sets[0], requests={TPU: 2}),))

    world = NodeWorld(*pools(1), queue(16), half("w1"), half("w2"))
    world.decide()
    assert world.running() == ["w1"]
    world.put(*(replace(each, labels={**each.labels, POOL: "p1"}, name=f"m{n}") for n, each in enumerate(pools(1))))
    world.decide()
    assert world.running() == ["w1", "w2"]


def test_the_successor_of_a_pod_that_ends_on_an_unusable_node_has_room_elsewhere_at_once() -> None:
    """A drained node: its pods may take their grace period, and are not waited for."""
    world = NodeWorld(*pools(1, size=2), queue(1000), plain("w1", 1))
    world.settle(2)
    [pod] = world.pods["team/w1"]
    world.pods["team/w1"] = [replace(pod, terminating=True)]
    world.tell("team/w1")
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {pod.node: 1}}
    world.put(replace(world.nodes[pod.node], unschedulable=True))
    world.decide()
    (other,) = world.nodes.keys() - {pod.node}
    assert world.engine.places_of("team/w1") == {"main": {other: 1}}


def test_gangs_whose_nodes_are_made_for_them_have_no_room_of_their_own() -> None:
    check = AdmissionCheck("nodes", "kueue.x-k8s.io/provisioning-request")
    provisioned = queue(1000, name="p", checks=(CheckRef("nodes"),))
    world = NodeWorld(*pools(1, size=2), queue(1000), check, provisioned, plain("w1", 1), plain("w2", 1, queue="p"))
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {"p0-n0": 1}}
    assert world.workloads["team/w2"].admission is not None and world.engine.places_of("team/w2") is None
    assert world.engine.places_of("team/unknown") is None


def test_room_for_the_pods_of_a_parent_is_that_of_its_variant() -> None:
    """With concurrent admission a variant holds what the parent's pods use: they are no pods of others."""
    world = NodeWorld(
        *pools(1, size=2),
        queue(1000, concurrent_admission=ConcurrentAdmission()),
        settings=Settings(pods_ready=None, gates={"ConcurrentAdmission": True}),
    )
    parent = replace(plain("w1", 1), has_variants=True)
    world.put(parent, replace(plain("w2", 1), variant_of=parent.uid))
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {"p0-n0": 1}}
    world.put(replace(parent, admission=world.workloads["team/w2"].admission, admitted=True))
    world.put(ForeignPod("team/pod", "p0-n0", {TPU: 4}), WorkloadPods("team/w1", (BoundPod("pod", "main", "p0-n0"),)))
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {"p0-n0": 1}}
    assert not world.engine._store.node_ledger.nodes["p0-n0"].others


def apart(name: str, pods: int, chips: int = 1) -> Workload:
    """A node takes one of its pods, whatever room it has."""
    workload = plain(name, pods, chips)
    return replace(workload, pod_sets=(replace(workload.pod_sets[0], most_per_node=1),))


def test_pods_that_keep_apart_get_a_node_each() -> None:
    world = NodeWorld(*nodes(3), queue(100), apart("w1", 3))
    assert of(world.decide(), Admit) == ["w1"]
    assert world.engine.places_of("team/w1") == {"main": {"n0": 1, "n1": 1, "n2": 1}}
    world.put(plain("w2", 3, 3))
    assert of(world.decide(), Admit) == ["w2"], "beside them there is room for others"
    world.remove_node("n1")
    world.decide()
    assert world.engine.places_of("team/w1") == {"main": {"n0": 1, "n2": 1}}


def test_pods_that_keep_apart_need_as_many_nodes_as_pods() -> None:
    world = NodeWorld(*nodes(2), queue(100), apart("w1", 3))
    report = reported_pending(world.decide())["w1"]
    assert "room for 2 out of 3 pods of pod set main" in report.explanation.message
    world.put(node("n2"))
    assert of(world.decide(), Admit) == ["w1"]


def test_where_a_gang_was_is_looked_up_and_not_searched() -> None:
    """A gang of many nodes is assigned anew: each node is compared a few times, not with each of the others."""
    ledger = NodeLedger()
    rooms = NodeRooms(ledger)
    names = [Counted(f"n{number}") for number in range(400)]
    for name in names:
        ledger.put_node(Node(name, LABELS, {TPU: 8}), usable=True)
    packer = Packer(rooms, "w", NodeAssignment(kept={("main", Counted(name)): 1 for name in names}), ())
    ground = rooms.ground(LABELS)
    assert ground is not None
    shape = PodShape(((TPU, 8),), NodeSelection())
    one = PackedPodSet("main", 400, {TPU: 8}, shape, ground, (FLAVOR.name,))
    table = FitTable(dict.fromkeys(names, 1), 400, 0)
    Counted.compared = 0
    assert len(list(packer._in_order(one, table, names))) == 400
    assert Counted.compared < 10 * 400


class Counted(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__
