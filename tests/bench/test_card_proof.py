"""What the proof of cards blames, and what it lets pass, on revisions made by hand."""

from __future__ import annotations

from typing import Any

from bench.evidence import Seat
from tests.bench.test_proof import GPU, Store

from bench import evidence

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


class Cards(Store):
    def seat(self, name: str, *seats: str, count: int = 1, node: str = "n1") -> None:
        """A gang with so many pods on a node, each with these seats."""
        levels = [HOST, *(f"gangline.io/card-{each + 1}" for each in range(len(seats)))]
        values = [{"universal": value} for value in (node, *seats)]
        part = {"domainCount": 1, "valuesPerLevel": values, "podCounts": {"universal": count}}
        row = {
            "name": "main",
            "count": count,
            "flavors": {GPU: "h100"},
            "resourceUsage": {GPU: "0"},
            "topologyAssignment": {"levels": levels, "slices": [part]},
        }
        rows = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
        status = {"admission": {"clusterQueue": "a", "podSetAssignments": [row]}, "conditions": rows}
        self.put(evidence.WORKLOADS, name, spec={"podSets": [{"name": "main", "count": count}]}, status=status)

    def sits(self, name: str, gang: str, cards: str, node: str = "n1") -> None:
        annotations = {"kueue.x-k8s.io/workload": gang, "gangline.io/cards": cards}
        self.pod(name, gang, 0, node, metadata={"annotations": annotations})

    def gone(self, name: str) -> None:
        self.put(evidence.PODS, name, gone=True)


def test_a_card_that_is_full_and_not_more() -> None:
    store = Cards()
    store.seat("w1", "GPU-a:500:8192:")
    store.seat("w2", "GPU-a:250:1024:", count=2)
    store.sits("p1", "w1", "GPU-a")
    assert store.blamed() == [] and store.proof.cards.checked == 3


def test_a_card_is_over_full_by_status_alone() -> None:
    store = Cards()
    store.seat("w1", "GPU-a:500:8192:")
    store.seat("w2", "GPU-b:600:0:", "GPU-a:600:0:")
    assert store.blamed() == ["card GPU-a is over-full by ns/w1, ns/w2: 1100 of 1000"]
    store.release("w1")
    store.seat("w3", "GPU-a:400:0:")
    assert store.blamed() == []


def test_memory_counts_where_the_size_is_known_and_who_is_alone_is_alone() -> None:
    store = Cards()
    store.proof.cards.memory = {"GPU-a": 8192}
    store.seat("w1", "GPU-a:0:8192:")
    assert store.blamed() == []
    store.seat("w2", "GPU-a:0:1:")
    assert store.blamed() == ["card GPU-a is over-full by ns/w1, ns/w2: 8193 of 8192 MiB"]
    store.seat("w3", "GPU-b:0:0:alone")
    store.seat("w4", "GPU-b:0:0:")
    assert store.blamed() == ["card GPU-b is over-full by ns/w3, ns/w4: 2 pods, one of them alone"]


def test_pods_that_run_on_where_their_gang_had_its_seats_count_until_they_are_gone() -> None:
    store = Cards()
    store.seat("w1", "GPU-a:600:0:")
    store.sits("p1", "w1", "GPU-a")
    store.seat("w1", "GPU-b:600:0:", node="n2")
    assert store.blamed() == []
    store.seat("w2", "GPU-a:500:0:")
    assert store.blamed() == ["card GPU-a is over-full by ns/w1, ns/w2 with their pods: 1100 of 1000"]
    store.gone("p1")
    store.seat("w2", "GPU-a:500:0:")
    assert store.blamed() == []


def test_a_pod_off_its_cards_is_blamed() -> None:
    store = Cards()
    store.seat("w1", "GPU-a:500:0:")
    store.sits("p1", "w1", "GPU-b")
    store.gone("p1")
    store.sits("p1", "w1", "GPU-a", node="n2")
    assert [text.partition(",")[0] for text in store.blamed()] == [
        "a pod of ns/w1 was bound to n1 with cards GPU-b",
        "a pod of ns/w1 was bound to n2 with cards GPU-a",
    ]


def test_domains_in_their_compact_form() -> None:
    parts = [
        {
            "domainCount": 3,
            "valuesPerLevel": [
                {"individual": {"prefix": "n", "roots": ["1", "1", "2"]}},
                {"individual": {"prefix": "GPU-", "roots": ["a:500:1", "b:1000:2", "c:9:3"], "suffix": ":"}},
                {"individual": {"roots": ["-", "d:1:1:alone", "-"]}},
            ],
            "podCounts": {"individual": [2, 1, 1]},
        }
    ]
    levels = [HOST, "gangline.io/card-1", "gangline.io/card-2"]
    found = list(evidence._places("main", {"levels": levels, "slices": parts}))
    assert [(each.host, each.count) for each in found] == [("n1", 2), ("n1", 1), ("n2", 1)]
    assert found[0].seats == (Seat("GPU-a", 500, 1, False),)
    assert found[1].seats == (Seat("GPU-b", 1000, 2, False), Seat("d", 1, 1, True))
    whole = [{**parts[0], "valuesPerLevel": parts[0]["valuesPerLevel"][:1]}]
    found = list(evidence._places("main", {"levels": [HOST], "slices": whole}))
    assert [(each.host, each.count, each.seats) for each in found] == [("n1", 2, ()), ("n1", 1, ()), ("n2", 1, ())]
    assert list(evidence._places("main", {"levels": ["example.com/rack"], "slices": whole})) == []
