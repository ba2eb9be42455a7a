"""Placements that a reader can check by hand."""

from __future__ import annotations

import pytest

from gangline.engine.model import Domain, Expression, Flavor, PreferredTerm, Taint, Toleration, TopologyAssignment
from gangline.engine.topology.placing import PlacedPods
from gangline.engine.topology.topologies import (
    PlacementRequest,
    PlacementRules,
    ReplacementRequest,
    place,
    replace_node,
)

from .topology_cluster import BLOCK, HOST, RACK, ask, ledger, node, pods

#: b1/r1 has 2 + 4 places for pods of 1 cpu, b1/r2 has 8, b2/r3 has 3 + 3.
CLUSTER = (
    node("b1/r1/h1", 2000),
    node("b1/r1/h2", 4000),
    node("b1/r2/h3", 8000),
    node("b2/r3/h4", 3000),
    node("b2/r3/h5", 3000),
)


def test_required_takes_the_tightest_domain_that_holds_everything() -> None:
    answer = place(ledger(CLUSTER), [ask(5, required=RACK)])
    # r1 and r3 both hold 6, r2 holds 8: the first of the tight ones, and inside it the roomiest host first.
    assert pods(answer.assignments["main"]) == {"h1": 1, "h2": 4}
    assert answer.assignments["main"].levels == (HOST,)


def test_required_fails_when_no_single_domain_holds_everything() -> None:
    answer = place(ledger(CLUSTER), [ask(9, required=RACK)])
    assert answer.failed == ("main",)
    assert answer.failure == 'topology "default" allows to fit only 8 out of 9 pod(s)'


def test_preferred_goes_up_and_at_the_top_takes_several() -> None:
    one_block = place(ledger(CLUSTER), [ask(14, preferred=RACK)])
    assert pods(one_block.assignments["main"]) == {"h1": 2, "h2": 4, "h3": 8}
    everywhere = place(ledger(CLUSTER), [ask(20, preferred=HOST)])
    assert pods(everywhere.assignments["main"]) == {"h1": 2, "h2": 4, "h3": 8, "h4": 3, "h5": 3}


def test_unconstrained_keeps_roomy_hosts_whole() -> None:
    answer = place(ledger(CLUSTER), [ask(3, unconstrained=True)])
    assert pods(answer.assignments["main"]) == {"h4": 3}
    best_fit = place(ledger(CLUSTER), [ask(12, unconstrained=True)], profile=PlacementRules(mixed=False))
    assert pods(best_fit.assignments["main"]) == {"h2": 4, "h3": 8}


def test_slices_stay_together() -> None:
    answer = place(ledger(CLUSTER), [ask(8, slices=[(HOST, 4)], required=BLOCK)])
    assert pods(answer.assignments["main"]) == {"h3": 8}
    spread = place(ledger(CLUSTER), [ask(12, slices=[(HOST, 4)], required=BLOCK)])
    assert pods(spread.assignments["main"]) == {"h2": 4, "h3": 8}
    too_many = place(ledger(CLUSTER), [ask(16, slices=[(HOST, 4)], required=BLOCK)])
    assert too_many.failure == 'topology "default" allows to fit only 3 out of 4 slice(s)'


def test_leader_and_workers_are_placed_together() -> None:
    asked = [ask(1, 2000, "leader", required=RACK, group="g"), ask(6, 1000, "workers", required=RACK, group="g")]
    answer = place(ledger(CLUSTER), asked)
    # Only r2 has room for 6 workers beside a leader of 2 cpu.
    assert pods(answer.assignments["leader"]) == {"h3": 1}
    assert pods(answer.assignments["workers"]) == {"h3": 6}


def test_later_pod_sets_see_the_earlier_ones() -> None:
    answer = place(ledger(CLUSTER), [ask(8, name="a", required=HOST), ask(4, name="b", required=HOST)])
    assert pods(answer.assignments["a"]) == {"h3": 8}
    assert pods(answer.assignments["b"]) == {"h2": 4}
    third = place(ledger(CLUSTER), [ask(8, name="a", required=HOST), ask(5, name="b", required=HOST)])
    assert pods(third.assignments["a"]) == {"h3": 8}
    assert third.failed == ("b",)


def test_balanced_spreads_evenly() -> None:
    nodes = [node("b/r1/h1", 6000), node("b/r2/h2", 4000), node("b/r3/h3", 4000)]
    ordinary = place(ledger(nodes), [ask(8, preferred=RACK)])
    assert pods(ordinary.assignments["main"]) == {"h1": 6, "h2": 2}
    balanced = place(ledger(nodes), [ask(8, preferred=RACK)], profile=PlacementRules(balanced=True))
    assert pods(balanced.assignments["main"]) == {"h2": 4, "h3": 4}


def test_balanced_placement_disregards_inner_layers_when_it_adds_up_again() -> None:
    """As in Kueue: r1 counts 4 × 3 places then, not 4 × 2, so the exact fit of r2 is preferred to it."""
    nodes = [*(node(f"b/r1/h{n}", 3000) for n in range(4)), *(node(f"b/r2/h{n}", 4000) for n in (4, 5))]
    asked = [ask(8, preferred=BLOCK, slices=[(RACK, 4), (HOST, 2)])]
    ordinary = place(ledger(nodes), asked)
    assert pods(ordinary.assignments["main"]) == {"h0": 2, "h1": 2, "h2": 2, "h3": 2}
    balanced = place(ledger(nodes), asked, profile=PlacementRules(balanced=True))
    assert pods(balanced.assignments["main"]) == {"h4": 4, "h5": 4}


def test_exclusions_are_counted_and_named() -> None:
    nodes = [
        node("b/r/h1", taints=(Taint("gpu", "a"),)),
        node("b/r/h2", taints=(Taint("soft", effect="PreferNoSchedule"),)),
        node("b/r/h3", labels={"zone": "z2"}),
        node("b/r/h4", 500, labels={"zone": "z1"}),
        node("b/r/h5", ready=False),
        node("b/r/h6", unschedulable=True),
    ]
    pod_requests = {"node_selector": {"zone": "z1"}}
    answer = place(ledger(nodes), [ask(1, required=RACK, pod_set=pod_requests)])
    assert answer.failure == (
        'topology "default" doesn\'t allow to fit any of 1 pod(s). '
        'Total nodes: 4; excluded: nodeSelector: 2, resource "cpu": 1, taint "gpu=a:NoSchedule": 1'
    )


def test_tolerations_of_pod_set_and_flavor_add_up() -> None:
    nodes = [node("b/r/h1", taints=(Taint("gpu"), Taint("team", "x", "NoExecute")))]
    flavor = Flavor("tas", tolerations=(Toleration("gpu", "Exists"),), topology="default")
    assert not place(ledger(nodes, flavor=flavor), [ask(1, required=HOST)]).ok
    tolerant = ask(1, required=HOST, pod_set={"tolerations": (Toleration("team", "Equal", "x"),)})
    assert place(ledger(nodes, flavor=flavor), [tolerant]).ok
    assert not place(ledger(nodes), [tolerant]).ok


@pytest.mark.parametrize(
    ("expression", "host"),
    [
        (Expression("gen", "In", ("5",)), "h5"),
        (Expression("gen", "NotIn", ("3", "4")), "h5"),
        (Expression("gen", "Gt", ("4",)), "h5"),
        (Expression("gen", "Lt", ("4",)), "h3"),
        (Expression("spot", "Exists"), "h4"),
    ],
)
def test_required_affinity_chooses_nodes(expression: Expression, host: str) -> None:
    nodes = [
        node("b/r/h3", labels={"gen": "3"}),
        node("b/r/h4", labels={"gen": "4", "spot": ""}),
        node("b/r/h5", labels={"gen": "5"}),
    ]
    answer = place(ledger(nodes), [ask(1, required=HOST, pod_set={"affinity": ((expression,),)})])
    assert pods(answer.assignments["main"]) == {host: 1}


@pytest.mark.parametrize(
    "expression",
    [
        Expression("gen", "Gt", ("x",)),
        Expression("gen", "Lt"),
        Expression("gen", "Gt", ("1_0",)),
        Expression("gen", "Is"),
    ],
)
def test_expressions_without_meaning_match_nothing(expression: Expression) -> None:
    pod_requests = {"affinity": ((expression,),)}
    answer = place(ledger([node("b/r/h", labels={"gen": "11"})]), [ask(1, required=HOST, pod_set=pod_requests)])
    assert answer.failure.endswith("Total nodes: 1; excluded: affinity: 1")


def test_preferred_affinity_ranks_before_capacity_if_respected() -> None:
    nodes = [node("b/r/h1", 2000), node("b/r/h2", 6000, labels={"fast": "yes"})]
    pod_requests = {"preferred_affinity": (PreferredTerm(5, (Expression("fast", "Exists"),)),)}
    asked = [ask(2, required=HOST, pod_set=pod_requests)]
    assert pods(place(ledger(nodes), asked).assignments["main"]) == {"h1": 2}
    respected = place(ledger(nodes), asked, profile=PlacementRules(respect_preferred_affinity=True))
    assert pods(respected.assignments["main"]) == {"h2": 2}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (ask(1, required="zone"), "no requested topology level: zone"),
        (ask(1, preferred=RACK, slices=[("zone", 1)]), "no requested topology level for slices: zone"),
        (
            ask(1, required=HOST, slices=[(RACK, 1)]),
            f"podset slice topology {RACK} is above the podset topology {HOST}",
        ),
        (
            ask(4, slices=[(RACK, 4), ("zone", 2)]),
            "no requested topology level for additional slice layer: zone",
        ),
        (
            ask(4, slices=[(RACK, 4), (BLOCK, 2)]),
            f"additional slice layer topology {BLOCK} must be at a lower level than {RACK}",
        ),
        (
            ask(4, slices=[(RACK, 4), (HOST, 3)]),
            "additional slice layer size 3 must evenly divide parent layer size 4",
        ),
        (ask(1, slices=[(RACK, 0)]), "slice topology requested, but slice size not provided"),
        (ask(1), "topology level not specified"),
    ],
)
def test_requests_that_make_no_sense_say_so(asked: PlacementRequest, text: str) -> None:
    assert place(ledger(CLUSTER), [asked]).failure == text


def test_no_usable_node() -> None:
    assert place(ledger([]), [ask(1, required=RACK)]).failure == f"no topology domains at level: {RACK}"


def test_a_group_of_three_is_refused() -> None:
    asked = [ask(n, name=f"ps{n}", required=RACK, group="g") for n in (1, 2, 3)]
    answer = place(ledger(CLUSTER), asked)
    assert answer.failed == ("ps1", "ps2", "ps3")
    assert "at most one leader" in answer.failure


def test_pod_sets_without_pods_are_skipped() -> None:
    answer = place(ledger(CLUSTER), [ask(0, name="none", required=RACK), ask(1, name="one", required=RACK)])
    assert list(answer.assignments) == ["one"]


def test_what_ifs_leave_the_ledger_as_it_was() -> None:
    made = ledger(CLUSTER)
    full = TopologyAssignment((HOST,), (Domain(("h3",), 8),))
    made.add(full, {"cpu": 1000})
    asked = [ask(8, required=HOST)]
    assert not place(made, asked).ok
    assert pods(place(made, asked, without=[PlacedPods(full, {"cpu": 1000})]).assignments["main"]) == {"h3": 8}
    assert pods(place(made, asked, simulate_empty=True).assignments["main"]) == {"h3": 8}
    assumed = [PlacedPods(TopologyAssignment((HOST,), (Domain(("h3",), 1),)), {"cpu": 1000})]
    assert not place(made, asked, simulate_empty=True, assumed=assumed).ok
    assert not place(made, asked).ok
    made.remove(full, {"cpu": 1000})
    assert pods(place(made, asked).assignments["main"]) == {"h3": 8}


def test_levels_above_the_host_sum_up_their_nodes() -> None:
    made = ledger(CLUSTER, levels=(BLOCK, RACK))
    answer = place(made, [ask(6, required=RACK)])
    assert [domain.values for domain in answer.assignments["main"].domains] == [("b1", "r1")]
    assert answer.assignments["main"].levels == (BLOCK, RACK)


# --- elastic jobs -----------------------------------------------------------------------------------------------------


def previous(**counts: int) -> TopologyAssignment:
    return TopologyAssignment((HOST,), tuple(Domain((host,), count) for host, count in counts.items()))


def test_growing_keeps_the_old_pods_in_place() -> None:
    answer = place(ledger(CLUSTER), [ask(6, unconstrained=True, previous=previous(h1=1, h5=3))])
    # h1 has one place left, h2 four, h4 three: the first that holds two alone.
    assert pods(answer.assignments["main"]) == {"h1": 1, "h4": 2, "h5": 3}


def test_shrinking_cuts_from_the_end() -> None:
    answer = place(ledger(CLUSTER), [ask(2, unconstrained=True, previous=previous(h1=1, h5=3))])
    assert pods(answer.assignments["main"]) == {"h1": 1, "h5": 1}


def test_a_lost_host_means_a_fresh_placement() -> None:
    answer = place(ledger(CLUSTER), [ask(2, required=HOST, previous=previous(gone=1))])
    assert pods(answer.assignments["main"]) == {"h1": 2}


# --- failed nodes -----------------------------------------------------------------------------------------------------


def test_only_the_failed_nodes_pods_move_and_stay_in_the_required_domain() -> None:
    made = ledger([*CLUSTER, node("b2/r3/h6", 2000)])
    existing = previous(h4=3, h6=2)
    made.add(existing, {"cpu": 1000})
    made.remove_node("h6")
    answer = replace_node(made, [ReplacementRequest(ask(5, required=RACK), existing)], "h6")
    assert pods(answer.assignments["main"]) == {"h4": 3, "h5": 2}


def test_no_room_in_the_required_domain() -> None:
    made = ledger(CLUSTER)
    existing = previous(h1=2, h2=4)
    made.add(existing, {"cpu": 1000})
    made.remove_node("h2")
    answer = replace_node(made, [ReplacementRequest(ask(6, required=RACK), existing)], "h2")
    assert answer.failure == (
        'topology "default" doesn\'t allow to fit any of 4 pod(s). '
        'Total nodes: 4; excluded: resource "cpu": 1, topologyDomain: 3'
    )


def test_another_lost_host_is_told_first() -> None:
    existing = previous(h1=1, h9=1, h2=1)
    answer = replace_node(ledger(CLUSTER), [ReplacementRequest(ask(3, unconstrained=True), existing)], "h2")
    assert answer.failure.endswith("it contains the stale domain h9")


def test_pod_sets_not_on_the_host_are_left_out() -> None:
    asked = [
        ReplacementRequest(ask(1, name="here", unconstrained=True), previous(h1=1)),
        ReplacementRequest(ask(1, name="there", unconstrained=True), previous(h2=1)),
    ]
    assert list(replace_node(ledger(CLUSTER), asked, "h2").assignments) == ["there"]


def test_pods_beyond_whole_slices_are_placed_as_well_with_the_room_of_a_slice() -> None:
    """Kueue gives them no place: 8 of 9 would run, and the ninth stay at its gate for ever."""
    asked = ask(9, slices=[(HOST, 4)], required=BLOCK)
    answer = place(ledger(CLUSTER), [asked])
    assert pods(answer.assignments["main"]) == {"h2": 4, "h3": 5}
    as_in_kueue = place(ledger(CLUSTER), [asked], profile=PlacementRules(whole=False))
    assert pods(as_in_kueue.assignments["main"]) == {"h3": 8}
    too_many = place(ledger(CLUSTER), [ask(13, slices=[(HOST, 4)], required=BLOCK)])
    assert too_many.failure and not too_many.assignments


def test_an_incomplete_slice_is_mended_in_its_own_domain() -> None:
    made = ledger([node(f"b/r{rack}/h{rack}{n}", 2000) for rack in (1, 2) for n in (1, 2, 3)])
    existing = previous(h11=2, h12=2, h21=2, h22=2)
    made.add(existing, {"cpu": 1000})
    made.remove_node("h12")
    asked = ask(8, slices=[(RACK, 4)], preferred=BLOCK)
    answer = replace_node(made, [ReplacementRequest(asked, existing)], "h12")
    assert pods(answer.assignments["main"]) == {"h11": 2, "h13": 2, "h21": 2, "h22": 2}


@pytest.mark.parametrize(("leader", "fits"), [(1000, True), (2000, False)])
def test_a_leader_leaves_whole_inner_slices_on_its_host(leader: int, fits: bool) -> None:
    """Beside a leader of 2 cpu a host of 3 has room for one worker, which is no slice of two."""
    hosts = ledger([node("b/r/h1", 3000), node("b/r/h2", 3000)])
    layers = [(RACK, 4), (HOST, 2)]
    asked = [
        ask(1, leader, "leader", required=RACK, group="g"),
        ask(4, 1000, "workers", required=RACK, slices=layers, group="g"),
    ]
    answer = place(hosts, asked)
    assert answer.ok == fits
    if fits:
        assert pods(answer.assignments["workers"]) == {"h1": 2, "h2": 2}


def test_a_preferred_node_outside_the_required_domain_is_no_replacement() -> None:
    preferred = node("b1/r2/h3", 8000, labels={"disk": "ssd"})
    made = ledger([node("b1/r1/h1", 2000), node("b1/r1/h2", 4000), preferred])
    existing = previous(h1=2, h2=1)
    made.add(existing, {"cpu": 1000})
    made.remove_node("h1")
    wish = {"preferred_affinity": (PreferredTerm(10, (Expression("disk", "In", ("ssd",)),)),)}
    asked = [ReplacementRequest(ask(3, required=RACK, pod_set=wish), existing)]
    answer = replace_node(made, asked, "h1", profile=PlacementRules(respect_preferred_affinity=True))
    assert pods(answer.assignments["main"]) == {"h2": 3}
