"""Claims of pods that wait for their place: each is for the cards of its seat, and is there before its gate is taken off."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import HOST, Json, T, a_pod, a_workload
from tests.control.test_gate_removal import GatedGang

from gangline.api import names
from gangline.control.nodes.gates.pod_gates import claim_of
from gangline.kube import resources as kube
from gangline.kube.errors import AlreadyExists, Forbidden

ASKED = {
    "gangline.io/gpu-share": "500m",
    "gangline.io/gpu-memory": "8192Mi",
    "gangline.io/gpu-device-class": "gpu.example.com",
}
ROWS = [{"name": "gangline-gpu", "resourceClaimTemplateName": "written-by-gangline"}]


class Claims(GatedGang):
    """A gang of two with a card each, both on one host."""

    def __init__(self, *cards: str) -> None:
        super().__init__()
        self.versions = 1
        self.seat(*cards or ("GPU-a", "GPU-b"))

    def seat(self, *cards: str, host: str = "n1") -> None:
        self.versions += 1
        workload = a_workload(*[host] * len(cards), owner="train", version=self.versions)
        [pod_set], [row] = (
            workload["spec"]["podSets"],
            workload["status"]["admission"]["podSetAssignments"],
        )
        pod_set["template"]["metadata"] = {"annotations": ASKED}
        slices = [
            {
                "domainCount": 1,
                "podCounts": {"universal": 1},
                "valuesPerLevel": [{"universal": host}, {"universal": f"{card}:500:8192:"}],
            }
            for card in cards
        ]
        row["topologyAssignment"] = {"levels": [HOST, f"{names.CARD_LEVEL}1"], "slices": slices}
        self.mirror.upsert(kube.WORKLOADS, workload)

    def comes(self, name: str) -> None:
        pod = a_pod(name, "", phase="Pending", ready=False)
        pod["metadata"]["labels"][names.TAS_LABEL] = "true"
        pod["spec"]["schedulingGates"] = [{"name": self.gates.gate}]
        pod["spec"]["resourceClaims"] = ROWS
        self.at[name] = pod
        self.pods.upsert(pod)

    def asked(self) -> list[Json]:
        """What is sent of claims since the last time; it is carried out."""
        sent, self.writes.sent = self.writes.sent, []
        for name, body, done, _ in sent:
            if "spec" in body:
                self.stored(body)
                done(body)
            else:
                self.mirror.remove(kube.RESOURCE_CLAIMS, f"ns/{name}")
                done(None)
        return [body for _, body, _, _ in sent]

    def stored(self, claim: Json, **meta: Any) -> None:
        stored = {"uid": claim["metadata"]["name"], "resourceVersion": "1", **meta}
        self.mirror.upsert(kube.RESOURCE_CLAIMS, {**claim, "metadata": {**claim["metadata"], **stored}})

    def cards_written(self) -> dict[str, str]:
        bodies = {write.key.name: write.body for write in self.writer.writes}
        return {name: body["metadata"]["annotations"][names.CARDS] for name, body in bodies.items()}  # type: ignore[index, call-overload, union-attr]

    def claim(self, pod: str, cards: str) -> Json:
        found = claim_of(self.at[pod], ASKED, cards)
        assert found is not None
        return found


def test_a_pod_starts_once_it_has_the_claim_of_its_card() -> None:
    world = Claims()
    world.comes("p0")
    assert world.look() == []
    (claim,) = world.asked()
    meta, (request,) = claim["metadata"], claim["spec"]["devices"]["requests"]
    assert meta["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": "uid-p0", "controller": True}
    ]
    assert meta["annotations"]["resource.kubernetes.io/pod-claim-name"] == "gangline-gpu"
    assert 'uuid == "GPU-a"' in request["exactly"]["selectors"][0]["cel"]["expression"]
    assert world.woken
    assert world.look() == ["p0"] and world.asked() == []
    assert world.cards_written() == {"p0": "GPU-a"}


def test_pods_of_one_host_have_claims_for_different_cards() -> None:
    world = Claims()
    for name in ("p0", "p1"):
        world.comes(name)
    world.look()
    assert [claim["metadata"]["annotations"][names.CARDS] for claim in world.asked()] == ["GPU-a", "GPU-b"]
    assert world.look() == ["p0", "p1"]
    assert world.cards_written() == {"p0": "GPU-a", "p1": "GPU-b"}


def test_after_a_crash_a_pod_keeps_the_card_of_its_claim() -> None:
    """By its turn it would get the other one."""
    world = Claims()
    for name in ("p0", "p1"):
        world.comes(name)
    world.stored(world.claim("p1", "GPU-a"))
    assert world.look() == ["p1"]
    assert world.cards_written() == {"p1": "GPU-a"}
    assert [claim["metadata"]["annotations"][names.CARDS] for claim in world.asked()] == ["GPU-b"]
    assert world.look() == ["p0"]


def test_a_claim_for_a_card_that_is_no_longer_its_own_goes_first() -> None:
    world = Claims("GPU-a")
    world.comes("p0")
    world.look()
    (first,) = world.asked()
    world.seat("GPU-c", host="n2")
    assert world.look() == []
    assert world.asked() == [{"uid": first["metadata"]["name"]}]
    assert world.look() == []
    (second,) = world.asked()
    assert second["metadata"]["annotations"][names.CARDS] == "GPU-c"
    assert second["metadata"]["name"] != first["metadata"]["name"]
    assert world.look() == ["p0"]


def test_a_pod_waits_while_an_older_claim_is_still_there() -> None:
    world = Claims("GPU-a")
    world.comes("p0")
    world.stored(world.claim("p0", "GPU-x"), deletionTimestamp="2026-01-01T00:00:00Z")
    assert world.look() == [] and world.asked() == []
    assert world.woken and world.look() == []
    assert world.gates.due == T + 60_000, "somebody holds it: it is looked at again"


def test_a_pod_without_a_card_of_its_own_gets_a_claim_all_the_same() -> None:
    world = Claims()
    world.mirror.upsert(kube.WORKLOADS, {**a_workload("n1", owner="train", version=9)})
    workload = world.mirror.get(kube.WORKLOADS, "ns/w")
    assert workload is not None
    workload["spec"]["podSets"][0]["template"]["metadata"] = {"annotations": ASKED}
    world.comes("p0")
    world.look()
    (claim,) = world.asked()
    assert "selectors" not in claim["spec"]["devices"]["requests"][0]["exactly"]
    assert world.look() == ["p0"]


def test_what_somebody_writes_onto_a_pod_claims_no_more_than_was_admitted() -> None:
    world = Claims()
    world.comes("p0")
    world.at["p0"]["metadata"]["annotations"].update({"gangline.io/gpu-share": "1", "gangline.io/gpu-memory": "80Gi"})
    world.look()
    (claim,) = world.asked()
    (request,) = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"milli": "500", "memory": "8192Mi"}


@pytest.mark.parametrize("rows", [[], [{"name": "gangline-gpu", "resourceClaimTemplateName": "mine"}]])
def test_other_pods_get_no_claims(rows: list[Json]) -> None:
    world = Claims()
    world.comes("p0")
    world.at["p0"]["spec"]["resourceClaims"] = rows
    world.pods.upsert(world.at["p0"])
    assert world.look() == ["p0"] and world.asked() == []


def test_a_refused_claim_is_told_and_tried_again() -> None:
    world = Claims()
    world.comes("p0")
    world.look()
    ((_, _, _, failed),) = world.writes.sent
    world.writes.sent = []
    failed(Forbidden(403, "Forbidden", "exceeded quota: claims"))
    assert world.look() == [] and world.writes.sent == []
    assert world.recorder.said[0][0] == "ClaimRefused" and "exceeded quota" in world.recorder.said[0][1]
    assert world.look(T + 60_000) == []
    assert len(world.asked()) == 1


def test_a_claim_whose_answer_was_lost_is_found() -> None:
    world = Claims()
    world.comes("p0")
    world.look()
    ((_, body, _, failed),) = world.writes.sent
    world.writes.sent = []
    failed(AlreadyExists(409, "AlreadyExists", "it exists"))
    world.stored(body)
    assert world.look() == ["p0"] and world.writes.sent == []
    assert world.recorder.said == []
