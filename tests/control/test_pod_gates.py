"""Places for the pods of a placed gang, and the room that strangers take."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.objects import PodObject, altered

from gangline.control.feed.pod_index import PodIndex
from gangline.control.nodes.gates import pod_gates
from gangline.control.nodes.gates.pod_gates import CardChoice
from gangline.engine import model

Json = dict[str, Any]
INDEX = pod_gates.INDEX_LABEL


def topology(*counts: int) -> model.TopologyAssignment:
    domains = tuple(model.Domain(("r", f"h{number}"), count) for number, count in enumerate(counts))
    return model.TopologyAssignment(("rack", "host"), domains)


def a_pod(
    name: str, *, index: int | None = None, at: str = "", phase: str = "Pending", gated: bool = True
) -> PodObject:
    labels = {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/tas": "true"}
    if index is not None:
        labels[INDEX] = str(index)
    gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": "other"}] if gated else [{"name": "other"}]
    metadata = {
        "name": name,
        "namespace": "ns",
        "resourceVersion": "1",
        "labels": labels,
        "annotations": {"kueue.x-k8s.io/workload": "w"},
    }
    spec = {"schedulingGates": gates, "nodeSelector": {"rack": "r", "host": at} if at else {"pool": "p"}}
    return PodObject({"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def hosts(found: list[tuple[PodObject, pod_gates.Selector]]) -> dict[str, str]:
    return {pod.name: place["host"] for pod, place in found}


def test_ranks_follow_the_order_of_the_domains() -> None:
    gang = [a_pod(f"p{index}", index=index) for index in (3, 1, 0, 2)]
    found = pod_gates.places(topology(2, 2), gang, pod_gates.rank_of({"count": 4}))
    assert hosts(found) == {"p0": "h0", "p1": "h0", "p2": "h1", "p3": "h1"}


def test_a_replacement_gets_the_lost_ones_place() -> None:
    gang = [
        a_pod("p0", index=0, at="h0", gated=False),
        a_pod("lost", index=1, at="h0", gated=False, phase="Failed"),
        a_pod("new", index=1),
    ]
    assert hosts(pod_gates.places(topology(1, 1), gang, pod_gates.rank_of({"count": 2}))) == {"new": "h1"}


def test_pods_without_rank_fill_what_is_free() -> None:
    gang = [a_pod("a", at="h0", gated=False), a_pod("b"), a_pod("c"), a_pod("too-many")]
    assert hosts(pod_gates.places(topology(2, 1), gang, pod_gates.rank_of({}))) == {"b": "h0", "c": "h1"}


def test_ranks_of_grouped_pods_count_through_the_groups() -> None:
    request = {"podIndexLabel": INDEX, "subGroupIndexLabel": "group", "subGroupCount": 2}
    rank = pod_gates.rank_of({"count": 4, "topologyRequest": request})
    pod = a_pod("x", index=1)
    pod["metadata"]["labels"]["group"] = "1"
    assert rank(pod) == 3


def test_workers_that_are_numbered_from_one_follow_the_order_of_the_domains() -> None:
    gang = [a_pod(f"p{index}", index=index) for index in (3, 1, 2)]
    for pod in gang:
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] = "1"
    found = pod_gates.places(topology(1, 2), gang, pod_gates.rank_of({"count": 3}))
    assert hosts(found) == {"p1": "h0", "p2": "h1", "p3": "h1"}
    assert (
        pod_gates.rank_of({"count": 3})(altered(gang[0], metadata=gang[0].metadata | {"labels": {INDEX: "0"}})) is None
    )


def test_workers_of_a_group_are_numbered_after_their_leader() -> None:
    counts = {"leader": 1, "worker": 2}
    request = {"required": "rack", "podSetGroupName": "gang"}
    rows = [{"name": name, "count": count, "topologyRequest": request} for name, count in counts.items()]
    assigned = tuple(
        model.PodSetAssignment(name, count, {"cpu": "f"}, {"cpu": 1}, topology=topology(*[1] * count))
        for name, count in counts.items()
    )
    gang = [a_pod("w1", index=1), a_pod("w2", index=2), a_pod("l0", index=0)]
    for pod, role in zip(gang, ("worker", "worker", "leader"), strict=True):
        pod["metadata"]["labels"]["kueue.x-k8s.io/podset"] = role
    admission = model.Admission("cq", assigned)
    workload = model.Workload("w", "ns", "w", "lq", (), admission=admission, admitted=True)
    chosen = {
        pod["metadata"]["name"]: body["spec"]["nodeSelector"]["host"]
        for pod, body in pod_gates.ungating(workload, rows, reversed(gang))
    }
    assert chosen == {"l0": "h0", "w1": "h0", "w2": "h1"}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_no_domain_gets_more_than_its_share(counts: list[int], data: st.DataObject) -> None:
    size = sum(counts)
    numbered = data.draw(st.booleans())
    gang: list[Json] = []
    for number in range(data.draw(st.integers(0, size + 2))):
        gang.append(a_pod(f"p{number:02}", index=number if numbered else None))
    found = pod_gates.places(topology(*counts), gang, pod_gates.rank_of({"count": size}))
    for number, count in enumerate(counts):
        assert sum(host == f"h{number}" for host in hosts(found).values()) <= count
    assert len(found) == min(len(gang), size)


def test_ungating_keeps_other_gates_and_selectors_and_is_fenced() -> None:
    assignment = model.PodSetAssignment("main", 1, {"gpu": "f"}, {"gpu": 1}, topology=topology(1))
    workload = model.Workload(
        "u",
        "ns",
        "w",
        "lq",
        (model.PodSet("main", 1, {"gpu": 1}),),
        admission=model.Admission("cq", (assignment,)),
        admitted=True,
    )
    ((_, body),) = pod_gates.ungating(workload, [{"name": "main", "count": 1}], [a_pod("p")])
    assert body == {
        "metadata": {"resourceVersion": "1"},
        "spec": {"nodeSelector": {"pool": "p", "rack": "r", "host": "h0"}, "schedulingGates": [{"name": "other"}]},
    }


def test_strangers_take_room_until_they_end() -> None:
    changes: list[model.Change] = []
    subject = PodIndex(changes.append, lambda workload: {})
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    metadata = {"name": "s", "namespace": "ns", "resourceVersion": "1"}
    stranger = PodObject({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
    subject.upsert(stranger)
    subject.upsert(altered(stranger, metadata={**stranger.metadata, "resourceVersion": "2"}))
    assert changes == [model.Put(model.ForeignPod("ns/s", "n", {"cpu": 2000}))]
    subject.upsert(altered(stranger, status={"phase": "Succeeded"}))
    assert changes[-1] == model.Gone(model.ForeignPod, "ns/s")


def test_pods_of_a_placed_gang_are_not_strangers() -> None:
    changes: list[model.Change] = []
    subject = PodIndex(changes.append, lambda workload: {})
    changed = subject.changed_placed.subscribe(worth=lambda workload: True)
    subject.upsert(a_pod("p"))
    assert changed.take() == {"ns/w"}
    assert changes == []
    subject.remove("ns/p")
    assert subject.of("ns/w") == []


def test_after_a_swap_the_new_pod_gets_the_free_place_and_not_its_ranks() -> None:
    """h1 was lost and h9 taken for it: by rank the new pod of rank 1 would be sent to where rank 2 sits."""
    domains = tuple(model.Domain(("r", host), 1) for host in ("h0", "h2", "h9"))
    stayed = [a_pod(f"p{index}", index=index, at=host, gated=False) for index, host in ((0, "h0"), (2, "h2"))]
    gang = [*stayed, a_pod("new", index=1)]
    found = pod_gates.places(model.TopologyAssignment(("rack", "host"), domains), gang, pod_gates.rank_of({"count": 3}))
    assert hosts(found) == {"new": "h9"}


def test_a_pod_that_no_longer_belongs_to_its_gang_is_a_stranger() -> None:
    changes: list[model.Change] = []
    store = PodIndex(changes.append, lambda workload: {})
    store.upsert(a_pod("p0", gated=False))
    left = a_pod("p0", gated=False, phase="Running")
    left["metadata"]["annotations"] = {}
    left["spec"] |= {"nodeName": "n", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    store.upsert(left)
    assert store.of("ns/w") == []
    assert [change.item.key for change in changes if isinstance(change, model.Put)] == ["ns/p0"]  # type: ignore[union-attr]


# --- cards --------------------------------------------------------------------------------------------------------------


def on_cards(*cards: str) -> model.TopologyAssignment:
    pods = tuple((model.CardSeat(card, 500, 8),) for card in cards)
    return model.TopologyAssignment(("host",), (model.Domain(("h0",), len(pods), pods),))


def with_cards(pod: PodObject, cards: str) -> PodObject:
    return altered(pod, metadata={**pod.metadata, "annotations": {"gangline.io/cards": cards}})


def test_each_pod_is_told_its_card_and_a_later_one_gets_what_is_left() -> None:
    place = {"host": "h0"}
    choice = CardChoice(on_cards("a", "a", "b"), [])
    found = [choice.annotations(a_pod(f"p{number}"), place) for number in range(4)]
    assert found == [{"gangline.io/cards": card} for card in ("a", "a", "b")] + [{}]
    started = [with_cards(a_pod("p0", at="h0", gated=False), "b"), a_pod("old", at="h0", gated=False)]
    choice = CardChoice(on_cards("a", "a", "b"), started)
    assert choice.annotations(a_pod("p1"), place) == {"gangline.io/cards": "a"}
    assert choice.annotations(a_pod("p2"), place) == {}, "one pod started before its card was chosen"
    assert CardChoice(topology(2), []).annotations(a_pod("p0"), {"host": "h0"}) == {}


def test_hami_is_told_in_its_own_words() -> None:
    pod = a_pod("p0")
    pod["spec"]["containers"] = [{"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"}}}]
    assert CardChoice(on_cards("a"), []).annotations(pod, {"host": "h0"}) == {
        "gangline.io/cards": "a",
        "nvidia.com/use-gpuuuid": "a",
    }
