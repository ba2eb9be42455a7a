"""The inventory of cards: kept as objects come, change and go; by it shares count; and who sits on which card, for people."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from tests.api.test_inventory import ROWS, claim, given_device, gpu, in_v1beta1, slice_of
from tests.builders import clusters
from tests.builders.clusters import SECRET, key_of
from tests.control.test_parts import an_object, leader, show
from tests.objects import NodeObject, PodObject

from gangline.api.names import GPU_MEM, GPU_MILLI
from gangline.api.read.reading import ParseError
from gangline.console.commands.see import node_cards
from gangline.control.answers.pages import ListPage
from gangline.control.answers.sight import Everybody, Sight
from gangline.control.nodes.cards.card_inventory import CardInventory
from gangline.control.nodes.cards.inventory_feed import put
from gangline.engine import Engine
from gangline.engine.model import CardUse, NodeCards, Part
from gangline.kube import resources as kube
from gangline.kube.reflector import Removed, Upsert

Json = dict[str, Any]


def node(name: str = "n1", *, annotations: Json | None = None, gpus: int = 0, **labels: str) -> NodeObject:
    written = {f"nvidia.com/{key.replace('_', '.', 1)}": value for key, value in labels.items()}
    offered = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    metadata = {"name": name, "uid": name, "labels": written, "annotations": annotations or {}}
    conditions = [{"type": "Ready", "status": "True"}]
    return NodeObject({"metadata": metadata, "status": {"allocatable": offered, "conditions": conditions}})


def pod(
    name: str = "a", *, on: str = "n1", annotations: Json | None = None, phase: str = "Running", **limits: str
) -> PodObject:
    asked = {f"nvidia.com/{key}": value for key, value in limits.items()}
    metadata = {"namespace": "team", "name": name, "uid": name, "annotations": annotations or {}}
    spec = {"nodeName": on, "containers": [{"name": "c", "resources": {"limits": asked}}]}
    return PodObject({"metadata": metadata, "spec": spec, "status": {"phase": phase}})


def claiming(name: str = "a") -> PodObject:
    manifest = pod(name)
    manifest["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
    return manifest


@pytest.fixture
def workloads() -> dict[str, str]:
    """By pod."""
    return {}


@pytest.fixture
def cards(workloads: dict[str, str]) -> CardInventory:
    return CardInventory(lambda key: workloads.get(key, ""))


def refreshed(cards: CardInventory) -> list[NodeCards]:
    return cards.refresh()[0]


def published(cards: CardInventory, *devices: Json, **pool: Any) -> None:
    put(cards, kube.NODES, "n1", node())
    put(cards, kube.RESOURCE_SLICES, "s", slice_of(*devices, **pool))


# --- what is known of cards ------------------------------------------------------------------------------------------------


def test_cards_come_and_go_with_their_slices(cards: CardInventory) -> None:
    published(cards, gpu(0), gpu(1))
    (known,), different = cards.refresh()
    assert ([card.uuid for card in known.devices], different) == (["GPU-0", "GPU-1"], True)
    assert cards.refresh() == ([], False)
    put(cards, kube.RESOURCE_SLICES, "s", slice_of(gpu(0), gpu(1)))
    assert cards.refresh() == ([], False)
    put(cards, kube.RESOURCE_SLICES, "s", None)
    assert cards.refresh() == ([NodeCards("n1")], True)
    assert cards.of("n1") is None


def test_a_card_that_fails_is_told(cards: CardInventory) -> None:
    published(cards, gpu(0), gpu(1))
    refreshed(cards)
    published(cards, gpu(0), gpu(1, taints=[{"key": "xid", "effect": "NoExecute"}]))
    (known,) = refreshed(cards)
    assert [card.healthy for card in known.devices] == [True, False]


def test_of_two_generations_of_a_pool_the_newer_one_holds(cards: CardInventory) -> None:
    published(cards, gpu(0), gpu(1))
    put(cards, kube.RESOURCE_SLICES, "newer", slice_of(gpu(1), generation=2))
    (known,) = refreshed(cards)
    assert [card.uuid for card in known.devices] == ["GPU-1"]


FAILED = [{"key": "xid", "effect": "NoSchedule"}]


def one_of_two(cards: CardInventory, name: str, *devices: Json, generation: int) -> None:
    put(cards, kube.RESOURCE_SLICES, name, slice_of(*devices, generation=generation, resourceSliceCount=2))


def seen(cards: CardInventory) -> tuple[dict[str, bool], bool]:
    """Card -> whether it is well; and whether others may be there."""
    cards.refresh()
    known = cards.of("n1")
    return ({card.uuid: card.healthy for card in known.devices}, known.partial) if known is not None else ({}, False)


def complete(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node())
    one_of_two(cards, "s1", gpu(0), generation=1)
    one_of_two(cards, "s2", gpu(1), generation=1)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)


def test_a_pool_counts_as_it_was_until_all_slices_of_its_newest_generation_are_there(cards: CardInventory) -> None:
    """Its driver raises the generation slice by slice, and lists GPU-1 in none once it is done."""
    complete(cards)
    one_of_two(cards, "s2", generation=2)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)
    one_of_two(cards, "s1", gpu(0), gpu(2), generation=2)
    assert seen(cards) == ({"GPU-0": True, "GPU-2": True}, False)


def test_new_slices_may_come_before_old_ones_are_gone_and_old_ones_after_new_ones(cards: CardInventory) -> None:
    complete(cards)
    one_of_two(cards, "t2", gpu(1), generation=2)
    put(cards, kube.RESOURCE_SLICES, "s1", None)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)
    one_of_two(cards, "t1", gpu(0), generation=2)
    one_of_two(cards, "s1", gpu(0), gpu(5), generation=1)  # a watch that broke showed it late
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)
    put(cards, kube.RESOURCE_SLICES, "s2", None)
    put(cards, kube.RESOURCE_SLICES, "s1", None)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)


def test_a_driver_that_starts_again_deletes_slices_before_it_writes_them(cards: CardInventory) -> None:
    complete(cards)
    put(cards, kube.RESOURCE_SLICES, "s1", None)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)
    put(cards, kube.RESOURCE_SLICES, "s2", None)
    assert seen(cards) == ({}, False), "nothing is known of its cards"
    one_of_two(cards, "t2", gpu(1), generation=1)
    assert seen(cards) == ({"GPU-1": True}, True), "others may be there"
    one_of_two(cards, "t1", gpu(0), generation=1)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)


def test_a_card_fails_at_once_also_in_a_pool_that_is_not_complete_and_is_well_with_the_whole_pool(
    cards: CardInventory,
) -> None:
    complete(cards)
    one_of_two(cards, "s2", gpu(1, taints=FAILED), generation=2)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": False}, False)
    one_of_two(cards, "s2", gpu(1), generation=3)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False), "as the newest slice says"
    one_of_two(cards, "s1", gpu(0, taints=FAILED), generation=3)
    assert seen(cards) == ({"GPU-0": False, "GPU-1": True}, False)


def test_an_operator_that_starts_amid_a_replacement_takes_no_card_for_missing(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node())
    one_of_two(cards, "s2", gpu(1), generation=2)
    one_of_two(cards, "s1", gpu(0), generation=1)
    assert seen(cards) == ({"GPU-1": True}, True)
    one_of_two(cards, "s1", gpu(0), generation=2)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)


def test_a_pool_of_network_cards_says_nothing_of_gpus(cards: CardInventory) -> None:
    complete(cards)
    nics = slice_of(gpu(0), driver="dra.net", name="n1", generation=1, resourceSliceCount=2)
    put(cards, kube.RESOURCE_SLICES, "nics", nics)
    assert seen(cards) == ({"GPU-0": True, "GPU-1": True}, False)


def test_of_cards_that_are_only_counted_none_is_missing(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(gpus=1, gpu_count="2"))
    assert seen(cards) == ({"n1/0": True, "n1/1": False}, True)


def test_slices_of_v1beta1_count_where_there_are_none_of_v1(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node())
    put(cards, kube.OLD_RESOURCE_SLICES, "s", in_v1beta1(slice_of(gpu(0))))
    assert [card.uuid for card in refreshed(cards)[0].devices] == ["GPU-0"]
    put(cards, kube.RESOURCE_SLICES, "s", slice_of(gpu(1)))
    assert [card.uuid for card in refreshed(cards)[0].devices] == ["GPU-1"]


def test_a_node_that_comes_after_its_slices(cards: CardInventory) -> None:
    put(cards, kube.RESOURCE_SLICES, "s", slice_of(gpu(0)))
    assert refreshed(cards) == []
    put(cards, kube.NODES, "n1", node())
    assert len(refreshed(cards)[0].devices) == 1
    put(cards, kube.NODES, "n1", None)
    assert refreshed(cards) == [NodeCards("n1")]


def test_what_cannot_be_read_changes_nothing(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(annotations={"hami.io/node-nvidia-register": ROWS}))
    assert len(refreshed(cards)[0].devices) == 2
    with pytest.raises(ParseError):
        put(cards, kube.RESOURCE_SLICES, "s", {"metadata": {"name": "s"}, "spec": {"driver": 1}})
    assert cards.refresh() == ([], False)


def test_an_annotation_that_hami_would_not_write_costs_its_node_alone(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(annotations={"hami.io/node-nvidia-register": ROWS}))
    refreshed(cards)
    with pytest.raises(ParseError):
        put(cards, kube.NODES, "n1", node(annotations={"hami.io/node-nvidia-register": "rubbish"}))
    put(cards, kube.NODES, "n2", node("n2", gpus=1, gpu_count="1"))
    (known,) = refreshed(cards)
    assert known.node == "n2"
    assert cards.of("n1") is not None, "what it said before holds"


def test_sizes_are_those_of_all_cards(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node("n1", gpus=1, gpu_count="1", gpu_memory="24000"))
    put(cards, kube.NODES, "n2", node("n2", gpus=1, gpu_count="1", gpu_memory="80000"))
    cards.refresh()
    sizes = cards.sizes()
    assert (sizes.smallest, sizes.largest, sizes.units) == (24000, 80000, {"nvidia.com/gpu": Part(1000, 80000)})


# --- who sits on them ------------------------------------------------------------------------------------------------------


def test_pods_of_claims_sit_on_their_devices(cards: CardInventory, workloads: dict[str, str]) -> None:
    published(cards, gpu(0), gpu(1))
    refreshed(cards)
    put(cards, kube.PODS, "team/a", claiming())
    put(cards, kube.RESOURCE_CLAIMS, "team/c", claim(given_device("gpu-1", consumedCapacity={"memory": "8Gi"})))
    (known,) = refreshed(cards)
    assert known.uses == (CardUse("team/a", "GPU-1", Part(0, 8192)),)
    workloads["team/a"] = "team/w"
    cards.look_again({"n1", "elsewhere"})
    assert refreshed(cards)[0].uses == (CardUse("team/a", "GPU-1", Part(0, 8192), "team/w"),)
    put(cards, kube.RESOURCE_CLAIMS, "team/c", claim(given_device("gpu-0"), pods=("a", "b")))
    assert [use.uuid for use in refreshed(cards)[0].uses] == ["GPU-0"]
    put(cards, kube.RESOURCE_CLAIMS, "team/c", None)
    assert refreshed(cards)[0].uses == ()


def test_a_claim_may_be_known_before_its_pod(cards: CardInventory) -> None:
    published(cards, gpu(0))
    put(cards, kube.RESOURCE_CLAIMS, "team/c", claim(given_device("gpu-0")))
    assert refreshed(cards)[0].uses == ()
    put(cards, kube.PODS, "team/a", claiming())
    assert refreshed(cards)[0].uses == (CardUse("team/a", "GPU-0", Part(1000, 40960), exclusive=True),)


@pytest.mark.parametrize(
    "ended", [pod(phase="Succeeded", gpu="1"), pod(phase="Failed", gpu="1"), pod(on="", gpu="1"), None]
)
def test_a_pod_that_has_ended_or_is_not_bound_takes_nothing(cards: CardInventory, ended: PodObject | None) -> None:
    put(cards, kube.NODES, "n1", node(gpus=1, gpu_count="1"))
    put(cards, kube.PODS, "team/a", pod(gpu="1"))
    assert refreshed(cards)[0].uses == (CardUse("team/a", "", Part(1000, 0), exclusive=True),)
    put(cards, kube.PODS, "team/a", ended)
    assert refreshed(cards)[0].uses == ()


def test_hamis_pods_of_others_are_deducted_from_the_card_that_they_name(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(annotations={"hami.io/node-nvidia-register": ROWS}))
    given = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:;"}
    put(cards, kube.PODS, "team/a", pod(annotations=given, gpu="1", gpumem="3000", gpucores="30"))
    assert refreshed(cards)[0].uses == (CardUse("team/a", "GPU-1", Part(300, 3000)),)


def test_a_pod_that_is_made_anew_under_its_name_still_sits_there(cards: CardInventory) -> None:
    """Of a StatefulSet with one claim for all its pods: the claim may never be seen without it."""
    published(cards, gpu(0))
    put(cards, kube.RESOURCE_CLAIMS, "team/c", claim(given_device("gpu-0")))
    put(cards, kube.PODS, "team/a", claiming())
    refreshed(cards)
    put(cards, kube.PODS, "team/a", None)
    assert refreshed(cards)[0].uses == ()
    put(cards, kube.PODS, "team/a", claiming())
    assert [use.uuid for use in refreshed(cards)[0].uses] == ["GPU-0"]


def test_nothing_is_kept_of_pods_and_claims_that_are_gone(cards: CardInventory) -> None:
    published(cards, gpu(0))
    put(cards, kube.RESOURCE_CLAIMS, "team/c", claim(given_device("gpu-0")))
    put(cards, kube.PODS, "team/a", claiming())
    refreshed(cards)
    put(cards, kube.PODS, "team/a", None)
    put(cards, kube.RESOURCE_CLAIMS, "team/c", None)
    put(cards, kube.RESOURCE_SLICES, "s", None)
    put(cards, kube.NODES, "n1", None)
    refreshed(cards)
    left = {
        name: value for name, value in vars(cards).items() if isinstance(value, dict) and name != "_slices" and value
    }
    assert left == {}


def in_group(name: str, group: str, *, namespace: str = "team", card: str = "", **annotations: str) -> PodObject:
    """A pod of KAI's: one that shares the card of a group, or one that keeps it."""
    manifest = pod(name, annotations=dict(annotations), **({"gpu": "1"} if card else {}))
    manifest["metadata"] |= {"namespace": namespace, "labels": {"runai-gpu-group": group}}
    if card:
        manifest["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"] = card
    return manifest


def test_row_kai_pods_sit_on_the_card_that_is_kept_for_their_group(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node())
    put(cards, kube.RESOURCE_SLICES, "s", slice_of(gpu(0), gpu(1)))
    for name, part in (("a", "0.25"), ("b", "0.5")):
        put(cards, kube.PODS, f"team/{name}", in_group(name, "g", **{"gpu-fraction": part}))
    assert [use.uuid for use in refreshed(cards)[0].uses] == ["", ""], "its card is not known yet"
    keeper = in_group("keeper", "g", namespace="kai-resource-reservation", card="GPU-1")
    put(cards, kube.PODS, "kai-resource-reservation/keeper", keeper)
    quarter, half = Part(250, 10240), Part(500, 20480)
    assert refreshed(cards)[0].uses == (CardUse("team/a", "GPU-1", quarter), CardUse("team/b", "GPU-1", half))
    put(cards, kube.PODS, "kai-resource-reservation/keeper", None)
    assert [use.uuid for use in refreshed(cards)[0].uses] == ["", ""]


def test_a_tenants_pod_keeps_no_card_for_others(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(gpus=1, gpu_count="1"))
    put(cards, kube.PODS, "team/keeper", in_group("keeper", "g", card="GPU-1"))
    assert refreshed(cards)[0].uses == (CardUse("team/keeper", "", Part(1000, 0), exclusive=True),)


def test_pods_without_cards_are_not_kept(cards: CardInventory) -> None:
    put(cards, kube.NODES, "n1", node(gpus=1, gpu_count="1"))
    refreshed(cards)
    put(cards, kube.PODS, "team/a", pod())
    assert refreshed(cards) == []


# --- what follows from it --------------------------------------------------------------------------------------------------


def shares_queue() -> list[Json]:
    quotas = [{"name": name, "nominalQuota": size} for name, size in ((GPU_MILLI, "1000"), (GPU_MEM, "24Gi"))]
    groups = [{"coveredResources": [GPU_MILLI, GPU_MEM], "flavors": [{"name": "f", "resources": quotas}]}]
    return [
        an_object(kube.CLUSTER_QUEUES, "shares", spec={"namespaceSelector": {}, "resourceGroups": groups}),
        an_object(kube.LOCAL_QUEUES, "shares", spec={"clusterQueue": "shares"}),
    ]


async def test_a_waiting_workload_counts_anew_when_cards_become_known() -> None:
    """KAI's 6 GiB of a card of unknown size are a whole card, and a quarter of 24 GiB once that is known."""
    controller = leader(Engine())
    for each in shares_queue():
        show(controller, each)
    pod_set = {
        "name": "main",
        "count": 2,
        "template": {
            "metadata": {"annotations": {"gpu-memory": "6144"}},
            "spec": {"containers": [{"name": "c"}]},
        },
    }
    workload = an_object(kube.WORKLOADS, "w", spec={"queueName": "shares", "podSets": [pod_set]})
    workload["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    show(controller, workload)
    controller.act()
    assert controller.engine.queue_status("shares").reserving == 0, "two whole cards are more than the quota"
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.memory": "24576"}
    machine = an_object(kube.NODES, "n1", status={"allocatable": {"nvidia.com/gpu": "1"}})
    machine["metadata"]["labels"] = labels
    show(controller, machine)
    assert controller.cards.of("n1") is not None
    value = controller.mirror.workload_value("ns/w")
    assert value is not None and dict(value.pod_sets[0].charges) == {GPU_MILLI: 250, GPU_MEM: 6 << 30}
    controller.act()
    assert controller.engine.queue_status("shares").reserving == 1


async def test_a_slice_that_cannot_be_read_is_complained_of_alone() -> None:
    controller = leader(Engine())
    broken = an_object(kube.RESOURCE_SLICES, "broken", spec={"driver": 7})
    sound = an_object(kube.RESOURCE_SLICES, "sound", spec=slice_of(gpu(0))["spec"])
    show(controller, an_object(kube.NODES, "n1"))
    for each in (broken, sound):
        controller.sink(kube.RESOURCE_SLICES)(Upsert(each))
    controller.absorb()
    known = controller.cards.of("n1")
    assert known is not None and [card.uuid for card in known.devices] == ["GPU-0"]
    assert (kube.RESOURCE_SLICES, "broken") in controller.quarantine
    controller.sink(kube.RESOURCE_SLICES)(Removed("sound", "uid-sound"))
    controller.absorb()
    assert controller.cards.of("n1") is None


async def test_selectors_that_could_not_be_evaluated_are_evaluated_later(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = leader(Engine())
    rules, times = controller.mirror.rules, iter([1_000, 2_000, 6_000, 7_000])
    now = [0]
    [part] = [each for each in controller.parts if each.name == "inventory"]
    monkeypatch.setattr(part, "_now", lambda: now[0])
    again: list[int] = []
    monkeypatch.setattr(rules, "try_again", lambda: again.append(now[0]))
    monkeypatch.setattr(type(rules), "postponed", True)
    for now[0] in times:
        part.settle()
        assert part.due == (6_000 if now[0] < 6_000 else 11_000)
    assert again == [6_000]
    monkeypatch.setattr(type(rules), "postponed", False)
    part.settle()
    assert part.due is None


# --- for people ------------------------------------------------------------------------------------------------------------


class Reader:
    """May list the Workloads of one namespace."""

    async def sight(self, namespaces: Collection[str], queues: Collection[str]) -> Sight:
        return Sight(namespaces=frozenset({"ml"}), queues=frozenset(queues))


def crowded() -> Any:
    """A card that a gang and a pod of another team share, and one that is free; and a node of which nothing is known."""
    resource, flavor = clusters.flavor("h100")
    here = clusters.world_of(
        (resource, flavor),
        *clusters.queue("a", 16),
        *clusters.submitted("gang", 1, "1h", ago=100, started=60),
        (kube.NODES, node("n1", gpus=8, annotations={"hami.io/node-nvidia-register": ROWS})),
        (kube.NODES, node("n2", gpus=8)),
    )
    workload = key_of(here, "gang").partition("/")[2]
    ours = pod(
        "gang-0", annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,4096,30:;"}, gpu="1", gpucores="30"
    )
    ours["metadata"] |= {"namespace": "ml", "labels": {"kueue.x-k8s.io/podset": "worker"}}
    ours["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = workload
    theirs = pod(
        "llm", annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,8192,50:;"}, gpu="1", gpucores="50"
    )
    theirs["metadata"]["namespace"] = SECRET
    for each in (ours, theirs, pod("some", gpu="1", gpucores="20", gpumem="1024")):
        here.pods.upsert(each)
        put(here.cards, kube.PODS, f"{each['metadata']['namespace']}/{each['metadata']['name']}", each)
    here.cards.refresh()
    return here


async def nodes(asker: Any) -> list[Json]:
    return (await crowded().answers().nodes(asker, "", ListPage())).items


async def test_nodes_show_their_cards_and_who_sits_on_them() -> None:
    first, second = await nodes(Everybody())
    assert "cards" not in second, "nothing is known of them"
    one, two = first["cards"]
    assert (one["uuid"], one["index"], one["model"], one["healthy"]) == ("GPU-1", 0, "NVIDIA-A10", True)
    assert (one["milli"], one["freeMilli"], one["memory"], one["freeMemory"]) == (1000, 200, "24Gi", "12Gi")
    assert (two["freeMilli"], two["freeMemory"], two["occupants"]) == (1000, "40Gi", [])
    gang, other = one["occupants"]
    assert (gang["job"], gang["namespace"], gang["pods"], gang["milli"], gang["memory"]) == (
        "gang",
        "ml",
        1,
        300,
        "4Gi",
    )
    assert (other["job"], other["namespace"], other["outside"]) == ("pod/llm", SECRET, True)
    (some,) = first["onSomeCard"]
    assert (some["job"], some["milli"], some["memory"]) == ("pod/some", 200, "1Gi")


async def test_another_teams_pods_on_a_card_have_no_name() -> None:
    found = await nodes(Reader())
    assert SECRET not in str(found) and "llm" not in str(found)
    _, other = found[0]["cards"][0]["occupants"]
    assert other["hidden"] and other["job"].startswith("hidden-") and other["milli"] == 500


async def test_cards_are_a_table_of_their_own() -> None:
    shown = node_cards.listing(3).rows(node_cards.of(await nodes(Everybody())), clusters.NOW)
    one, two, some = (dict(zip(shown.header, row, strict=True)) for row in shown.cells)
    assert (one["NODE"], one["CARD"], one["UUID"], one["MODEL"]) == ("n1", "0", "GPU-1", "NVIDIA-A10")
    assert (one["STATE"], one["USED"], one["FREE"], one["MEMORY"], one["PODS"]) == (
        *("Ready", "800m/1000m", "200m", "12Gi/24Gi"),
        "2",
    )
    assert one["WHO"] == f"ml/gang (300m, 4Gi), {SECRET}/pod/llm (outside queues, 500m, 8Gi)"
    assert (two["CARD"], two["FREE"], two["WHO"]) == ("1", "1000m", "")
    assert (some["CARD"], some["WHO"]) == (node_cards.SOME, "team/pod/some (outside queues, 200m, 1Gi)")


async def test_a_card_that_has_failed_is_red_and_names_are_cut() -> None:
    found = await nodes(Everybody())
    found[0]["cards"][0]["healthy"] = False
    shown = node_cards.listing(1).rows(node_cards.of(found), clusters.NOW)
    assert (shown.styles[0], shown.cells[0][4]) == ("red", "Failed")
    assert shown.cells[0][9] == "ml/gang (300m, 4Gi) and 1 more"


# --- row G2: memory of one card, not of a node ------------------------------------------------------------------------------


def two_cards(*taken: int) -> Any:
    """A node with two cards of 24 GiB by HAMi, of each of which so many MiB are taken; a gang of one pod waits for 8 GiB."""
    register = "".join(f"GPU-{i},10,24576,100,NVIDIA-A10,0,true,{i},hami-core:" for i in (1, 2))
    resource, flavor = clusters.flavor("h100")
    here = clusters.world_of(
        (resource, flavor),
        *clusters.queue("a", 16),
        *clusters.submitted("gang", 1, "1h", ago=100, started=60),
        (kube.NODES, node("n1", gpus=20, annotations={"hami.io/node-nvidia-register": register})),
    )
    workload = here.mirror.objects[kube.WORKLOADS][key_of(here, "gang")]
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "10"}
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}
    workload["spec"]["podSets"] = [{"name": "worker", "count": 1, "template": template}]
    here.mirror.count_anew(key_of(here, "gang"))
    waiting = pod("gang-0", on="")
    waiting["metadata"] |= {"namespace": "ml", "labels": {"kueue.x-k8s.io/podset": "worker"}}
    waiting["metadata"]["annotations"]["kueue.x-k8s.io/workload"] = key_of(here, "gang").partition("/")[2]
    message = "0/1 nodes are available: 1 CardInsufficientMemory."
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waiting["status"] = {"phase": "Pending", "conditions": [row]}
    here.pods.upsert(waiting)
    for i, memory in enumerate(taken, 1):
        given = {"hami.io/vgpu-devices-allocated": f"GPU-{i},NVIDIA,{memory},10:;"}
        other = pod(f"other-{i}", annotations=given, gpu="1", gpumem=str(memory), gpucores="10")
        put(here.cards, kube.PODS, f"team/other-{i}", other)
    here.cards.refresh()
    here.engine.decide(clusters.NOW * 1000)
    return here


async def cards_said(here: Any) -> list[str]:
    return [line.text for line in (await here.answers().why(Everybody(), "ml", "", "gang"))[1] if line.label == "cards"]


async def test_row_g2_a_pod_of_8_gib_is_told_that_6_and_5_gib_are_not_11() -> None:
    said = await cards_said(two_cards(18 << 10, 19 << 10))
    assert said == [
        "h100: a pod asks for 100m and 8Gi of a card; 0 of 2 cards have that free: at most 900m, at most 6Gi"
    ]


async def test_row_g2_a_card_with_room_is_counted() -> None:
    said = await cards_said(two_cards(18 << 10))
    assert said == ["h100: a pod asks for 100m and 8Gi of a card; 1 of 2 cards have that free"]
