"""Rows K1 to K4: what Kim and Kim measured (KNOM 2020), placed by QueuePolicies.

Eight jobs on one node with four cards of 12 GB. Everything is as a cluster has it: cards that a device plugin publishes,
Workloads with annotations, and the operator's readers; only the writes are left out. Seconds are those of their tables.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from tests.builders import clusters, objects
from tests.builders.objects import container
from tests.engine.test_placing import APART, CARD, MEMORY, TOGETHER, TRIALS, UTILISATION

from gangline.api.read.conditions import timestamp
from gangline.engine.model import Admit
from gangline.kube import resources as kube

Json = dict[str, Any]
CARDS = [f"GPU-{number}" for number in range(4)]
#: MiB that LAMMPS was measured to use: two of them ran on one card, which by what they declare they could not
MEASURED_LAMMPS = 5_600


def node() -> clusters.Entry:
    rows = "".join(f"{card},10,{CARD},100,TITAN Xp,0,true,{number},hami-core:" for number, card in enumerate(CARDS))
    meta = {
        "name": "n",
        "uid": "n",
        "labels": {"kubernetes.io/hostname": "n"},
        "annotations": {"hami.io/node-nvidia-register": rows},
    }
    ready = {"type": "Ready", "status": "True"}
    return kube.NODES, {
        "kind": "Node",
        "metadata": meta,
        "spec": {},
        "status": {"allocatable": {"cpu": "6", "pods": "110"}, "conditions": [ready]},
    }


def policy(placement: Json | None) -> list[clusters.Entry]:
    body = {"kind": "QueuePolicy", "metadata": {"name": "knom", "uid": "knom"}}
    spec = {"clusterQueues": {"names": ["q"]}, "placement": placement}
    return [(kube.QUEUE_POLICIES, {**body, "spec": spec})] if placement else []


def queue() -> list[clusters.Entry]:
    quotas = [{"name": "titan", "resources": [{"name": "cpu", "nominalQuota": 6}]}]
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quotas}]}
    active = {"type": "Active", "status": "True", "reason": "Ready", "message": ""}
    meta = {"name": "q", "uid": "q"}
    return [
        (
            kube.CLUSTER_QUEUES,
            {"kind": "ClusterQueue", "metadata": meta, "spec": spec, "status": {"conditions": [active]}},
        ),
        clusters.local_queue("q", "q"),
    ]


def workload(number: int, kind: str, memory: int, **names: str) -> clusters.Entry:
    """The jobs arrive one second after the other."""
    annotations = {
        **{f"gangline.io/gpu-{key.replace('_', '-')}": name for key, name in names.items()},
        "gangline.io/gpu-memory": f"{memory}Mi",
        "gangline.io/class": kind,
        "gangline.io/gpu-utilisation": str(UTILISATION[kind]),
    }
    main = container(name="c", image="app", resources={"requests": {"cpu": "500m"}})
    created = timestamp((clusters.NOW - 100 + number) * 1000)
    made = objects.Workload(f"{kind}{number}", "ml", creationTimestamp=created).in_queue("q")
    return kube.WORKLOADS, made.pods(main, annotations=annotations).made


def placed(placement: Json, kinds: str, names: dict[str, str] | None = None, **measured: int) -> list[str]:
    """The kinds of work on each card, once all are admitted in the order of their arrival. `names` of all their shares."""
    memory = MEMORY | measured
    jobs = [workload(number, kind, memory[kind], **(names or {})) for number, kind in enumerate(kinds)]
    cluster = clusters.world_of(clusters.flavor("titan"), node(), *queue(), *policy(placement), *jobs)
    found: dict[str, list[str]] = defaultdict(list)
    for decision in cluster.engine.decide(clusters.NOW * 1000):
        assert isinstance(decision, Admit), decision
        (pod_set,) = decision.admission.pod_sets
        assert pod_set.topology is not None
        for domain in pod_set.topology.domains:
            for pod in domain.cards:
                for seat in pod:
                    found[seat.card].append(decision.workload.partition("/")[2][0])
    assert sum(map(len, found.values())) == len(kinds), "all are admitted"
    return ["".join(sorted(found[card])) for card in CARDS]


def test_k1_binpacking_largest_memory_first_each_on_the_card_with_the_least_free_memory() -> None:
    """L+T, L+T, QQGG, and one card stays empty."""
    assert placed({"profile": "Pack"}, "LLQQTTGG") == ["LT", "LT", "GGQQ", ""]


def test_k2_standalone_puts_the_same_kind_of_work_together() -> None:
    """In whatever order they come. With the memory that it declares, LAMMPS may not share a card with LAMMPS."""
    for order in ("LGTQLGTQ", "LLGGTTQQ"):
        cards = placed({"profile": "Standalone"}, order, L=MEASURED_LAMMPS)
        assert Counter(cards) == Counter(["LL", "GG", "TT", "QQ"]), order
    assert placed({"profile": "Standalone"}, "LL") == ["L", "L", "", ""]


def test_k3_load_balancing_largest_utilisation_first_each_on_the_card_that_is_used_least() -> None:
    """L+T, L+T, G+Q, G+Q."""
    assert placed({"profile": "Balance"}, "TTGGQQLL") == ["LT", "LT", "GQ", "GQ"]


@pytest.mark.parametrize(
    "placement", [{"profile": "Balance"}, {"scores": [{"name": "Balance"}]}, {"profile": "Spread"}]
)
def test_k4_card_pinning_keeps_two_gromacs_apart(placement: Json) -> None:
    """Each of the 30 trials again: 718.5 s with a policy, and 928.5 s on the cards that the device plugin chose at random."""
    ours = [TOGETHER if "GG" in placed(placement, "GG") else APART for _ in range(3)]
    assert set(ours) == {718.5}, "it is the same each time"
    random = sum(count * (TOGETHER if one == other else APART) for (one, other), count in TRIALS.items())
    assert random / sum(TRIALS.values()) == 928.5
    assert placed({"profile": "Pack"}, "GG")[0] == "GG", "other policies let them share a card"


def test_k4_an_anti_affinity_keeps_two_gromacs_apart_where_the_policy_would_not() -> None:
    """718.5 s in each trial, by an annotation of the pods."""
    ours = [TOGETHER if "GG" in placed({"profile": "Pack"}, "GG", {"anti_affinity": "gromacs"}) else APART]
    assert ours == [718.5]


def test_k1_by_the_scorer_cardpack() -> None:
    """L+T, L+T, QQGG: the fullest card by memory that has room, on nodes of whatever size."""
    assert placed({"scores": [{"name": "CardPack"}]}, "LLQQTTGG") == ["LT", "LT", "GGQQ", ""]


def test_k2_standalone_with_memsafe_leaves_five_percent_and_what_was_not_measured() -> None:
    """With measured memory two LAMMPS share a card and leave 800 MB; with 600 MiB more for each they may not."""
    safe = {"profile": "Standalone", "filters": [{"name": "MemSafe", "perPod": 0}]}
    for order in ("LGTQLGTQ", "LLGGTTQQ"):
        cards = placed(safe, order, L=MEASURED_LAMMPS)
        assert Counter(cards) == Counter(["LL", "GG", "TT", "QQ"]), order
    declared = {"profile": "Standalone", "filters": [{"name": "MemSafe"}]}
    assert placed(declared, "LL", L=MEASURED_LAMMPS) == ["L", "L", "", ""]


def test_g3_kubeshare_annotations_decide_who_shares_a_card() -> None:
    """Two of an exclusion share one, and are known to the next leader, who reads only what was written."""
    assert placed({"profile": "Spread"}, "GGTT", {"exclusion": "mine", "affinity": "mine"}) == ["GGTT", "", "", ""]
