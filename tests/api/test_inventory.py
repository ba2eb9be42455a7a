"""The cards of nodes: from ResourceSlices, HAMi's annotation, and labels; and what a pod takes of them."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.read.inventory import Allocation, node_cards, node_devices, own_cards, pod_uses
from gangline.api.read.inventory.node_cards import allocations
from gangline.api.read.inventory.resource_slices import resource_slice
from gangline.api.read.reading import ParseError
from gangline.api.sharing.device_shares import CapacityPolicy
from gangline.engine.model import CardUse, Device, Node, Part, Profile, Share
from gangline.engine.model.devices import NODE, PHB

Json = dict[str, Any]


def string(value: str) -> Json:
    return {"string": value}


def gpu(index: int, *, memory: str = "40Gi", **more: Any) -> Json:
    attributes = {
        "type": string("gpu"),
        "uuid": string(f"GPU-{index}"),
        "index": {"int": index},
        "productName": string("NVIDIA A100"),
        "resource.kubernetes.io/pcieRoot": string(f"pci0000:{index // 2:02}"),
    }
    capacity = {"memory": {"value": memory}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity, **more}


def slice_of(*devices: Json, driver: str = "gpu.nvidia.com", node: str | None = "n1", **pool: Any) -> Json:
    spec = {"driver": driver, "pool": {"name": "n1", "generation": 1, **pool}, "devices": list(devices)}
    return {"metadata": {"name": "s"}, "spec": spec | ({"nodeName": node} if node else {})}


def in_v1beta1(obj: Json) -> Json:
    devices = [
        {"name": each["name"], "basic": {key: value for key, value in each.items() if key != "name"}}
        for each in obj["spec"]["devices"]
    ]
    return {**obj, "spec": {**obj["spec"], "devices": devices}}


# --- ResourceSlices -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [lambda obj: obj, in_v1beta1])
def test_a_slice_publishes_cards(written: Any) -> None:
    found = resource_slice(written(slice_of(gpu(0), gpu(1), gpu(2, allowMultipleAllocations=True))))
    assert (found.pool, found.generation) == ("gpu.nvidia.com/n1", 1)
    first, second, third = found.devices
    assert (first.node, first.uuid, first.index, first.model) == ("n1", "GPU-0", 0, "NVIDIA A100")
    assert (first.memory, first.milli, first.slots, first.healthy, first.mode) == (40960, 1000, 1, True, "Claim")
    assert first.slice == "gpu.nvidia.com/n1/gpu-0"
    assert third.slots == 0
    assert (dict(first.links), dict(second.links), dict(third.links)) == ({"GPU-1": PHB}, {"GPU-0": PHB}, {})


def test_cards_on_one_numa_node_are_nearer() -> None:
    cards = [gpu(i) for i in (0, 2)]
    for each in cards:
        each["attributes"]["gpu.nvidia.com/numaNode"] = {"int": 1}
    first, second = resource_slice(slice_of(*cards)).devices
    assert (first.numa, dict(first.links), dict(second.links)) == (1, {"GPU-2": NODE}, {"GPU-0": NODE})


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_kept_free(effect: str) -> None:
    (card,) = resource_slice(slice_of(gpu(0, taints=[{"key": "broken", "effect": effect}]))).devices
    assert not card.healthy
    (card,) = resource_slice(slice_of(gpu(0, taints=[{"key": "seen", "effect": "None"}]))).devices
    assert card.healthy


def test_compute_is_counted_where_its_driver_counts_it() -> None:
    for name, amount, expected in (("milli", "1k", 1000), ("cores", "100", 1000), ("hami.io/cores", "50", 500)):
        device = gpu(0)
        device["capacity"][name] = {"value": amount}
        (card,) = resource_slice(slice_of(device)).devices
        assert card.milli == expected


def test_a_card_that_may_be_allocated_more_than_once_says_how_it_rounds() -> None:
    policy = {"default": "2Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "90Gi"}}
    device = gpu(0, allowMultipleAllocations=True)
    device["capacity"]["memory"]["requestPolicy"] = policy
    gib = 1 << 30
    assert resource_slice(slice_of(device)).policies == {CapacityPolicy(40 * gib, 2 * gib, (), gib, gib)}
    device["capacity"]["memory"]["requestPolicy"] = {"validValues": ["16Gi", "8Gi", "nonsense"]}
    assert resource_slice(slice_of(device)).policies == {CapacityPolicy(40 * gib, values=(0, 8 * gib, 16 * gib))}
    assert resource_slice(slice_of(gpu(0))).policies == frozenset()


def test_mig_instances_are_profiles_of_their_card() -> None:
    def instance(name: str, profile: str, memory: str) -> Json:
        attributes = {
            "type": string("mig"),
            "profile": string(profile),
            "parentUUID": string("GPU-0"),
            "uuid": string(name),
        }
        return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}

    parts = [instance(f"mig-{i}", "1g.5gb", "4864Mi") for i in range(7)] + [instance("mig-7", "3g.20gb", "19968Mi")]
    found = resource_slice(slice_of(gpu(0), gpu(1), *parts))
    card, other = found.devices
    assert (card.mode, card.slots, other.mode) == ("MIG", 0, "Claim")
    assert card.profiles == (Profile("1g.5gb", 1, 4864, 7), Profile("3g.20gb", 3, 19968, 1))
    assert found.parts["gpu.nvidia.com/n1/mig-3"] == ("GPU-0", "1g.5gb")
    (alone,) = resource_slice(slice_of(*parts[:2])).devices
    assert (alone.uuid, alone.node, alone.mode, alone.memory) == ("GPU-0", "n1", "MIG", 2 * 4864)


def test_other_devices_are_no_cards() -> None:
    assert resource_slice(slice_of(gpu(0), driver="dra.net")).devices == ()
    assert resource_slice(slice_of(gpu(0), node=None)).devices == ()  # of several nodes
    (card,) = resource_slice(slice_of(gpu(0, nodeName="n7"), node=None)).devices
    assert card.node == "n7"


def test_a_device_without_uuid_has_the_name_of_its_slice() -> None:
    (card,) = resource_slice(slice_of({"name": "d", "capacity": {"memory": {"value": "nonsense"}}})).devices
    assert (card.uuid, card.memory) == ("gpu.nvidia.com/n1/d", 0)


@pytest.mark.parametrize("spec", [{}, {"driver": "gpu.nvidia.com"}, {"driver": "gpu.nvidia.com", "pool": {"name": 1}}])
def test_a_slice_that_cannot_be_read_is_an_error_with_its_field(spec: Json) -> None:
    with pytest.raises(ParseError, match=r"spec\.(driver|pool)"):
        resource_slice({"spec": spec})


# --- ResourceClaims -------------------------------------------------------------------------------------------------------


def claim(*results: Json, pods: tuple[str, ...] = ("a",)) -> Json:
    reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": list(results)}}, "reservedFor": reserved}
    return {"metadata": {"namespace": "team", "name": "c"}, "status": status}


def given_device(device: str, **more: Any) -> Json:
    return {"request": "r", "driver": "gpu.nvidia.com", "pool": "n1", "device": device, **more}


def test_a_claim_says_which_devices_its_pods_got() -> None:
    consumed = {"consumedCapacity": {"memory": "8Gi", "gpu.nvidia.com/milli": "600"}}
    found = allocations(claim(given_device("gpu-0", **consumed), given_device("gpu-1"), pods=("a", "b")))
    pods = ("team/a", "team/b")
    assert found == (
        Allocation("gpu.nvidia.com/n1/gpu-0", pods, {"memory": 8 << 30, "milli": 600}),
        Allocation("gpu.nvidia.com/n1/gpu-1", pods),
    )


def test_who_only_looks_takes_nothing() -> None:
    assert allocations(claim(given_device("gpu-0", adminAccess=True))) == ()
    assert allocations(claim(given_device("gpu-0"), pods=())) == ()
    assert allocations({"metadata": {"namespace": "team"}}) == ()


# --- HAMi -----------------------------------------------------------------------------------------------------------------

OLD_ROWS = "GPU-1,10,24576,100,NVIDIA-A10,0,true:GPU-2,10,24576,100,NVIDIA-A10,1,false:"
ROWS = "GPU-1,10,24576,100,NVIDIA-A10,0,true,0,hami-core:GPU-2,7,40960,100,NVIDIA-A100,1,true,1,mig:"
PLACES = [{"start": i, "size": 1} for i in range(7)]
AS_JSON = json.dumps(
    [
        {
            "id": "GPU-1",
            "count": 10,
            "devmem": 24576,
            "devcore": 100,
            "type": "NVIDIA-A10",
            "mode": "hami-core",
            "health": True,
        },
        {
            "id": "GPU-2",
            "index": 1,
            "count": 7,
            "devmem": 40960,
            "devcore": 100,
            "type": "NVIDIA-A100",
            "numa": 1,
            "mode": "mig",
            "health": True,
            "migProfiles": [
                {"name": "1g.5gb", "memoryMB": 4864, "sliceCount": 1, "placements": [{"start": i} for i in range(7)]}
            ],
        },
    ]
)


@pytest.mark.parametrize("written", [ROWS, AS_JSON])
def test_hamis_annotation_lists_cards(written: str) -> None:
    first, second = node_cards.hami_cards(written, "n1")
    assert first == Device(
        "n1",
        "GPU-1",
        index=0,
        model="NVIDIA-A10",
        memory=24576,
        slots=10,
        numa=0,
        mode="Software",
        resource="nvidia.com/gpu",
    )
    assert (second.index, second.numa, second.mode, second.memory) == (1, 1, "MIG", 40960)
    assert second.profiles == ((Profile("1g.5gb", 1, 4864, 7),) if written is AS_JSON else ())


def test_hamis_older_rows_have_neither_number_nor_mode() -> None:
    first, second = node_cards.hami_cards(OLD_ROWS, "n1")
    assert (first.mode, first.healthy, second.healthy, second.numa) == ("Software", True, False, 1)


@pytest.mark.parametrize(
    "written", ["a", "a,b:", "GPU-1,x,1,1,m,0,true:", "[1]", "[{}]", '[{"id":"a","count":-1}]', "[", ",1,1,1,m,0,true:"]
)
def test_what_hami_would_not_write_is_an_error(written: str) -> None:
    with pytest.raises(ParseError, match=r"hami\.io/node-nvidia-register"):
        node_cards.hami_cards(written, "n1")


@given(st.text('GPU-1,:;[]{}"0 true', max_size=60))
def test_hamis_annotations_are_read_or_refused(written: str) -> None:
    with contextlib.suppress(ParseError):
        node_cards.hami_cards(written, "n1")
    assert all(0 <= part.milli <= 1000 for _, part in node_cards.allocated(written))


def test_hamis_pods_say_what_each_container_got() -> None:
    written = "GPU-1,NVIDIA,3000,30:GPU-2,NVIDIA,3000,30:;;GPU-1,NVIDIA,1000,0:;bad,1:x,NVIDIA,many,1:"
    thirty = Part(300, 3000)
    assert node_cards.allocated(written) == (("GPU-1", thirty), ("GPU-2", thirty), ("GPU-1", Part(0, 1000)))


# --- labels ---------------------------------------------------------------------------------------------------------------


def labelled(*, allocatable: dict[str, int] | None = None, **labels: str) -> Node:
    written = {f"nvidia.com/{key.replace('_', '.', 1)}": value for key, value in labels.items()}
    return Node("n1", labels=written, allocatable=allocatable or {"nvidia.com/gpu": 2})


def test_labels_say_how_many_cards_of_which_size() -> None:
    first, second = node_cards.labelled_cards(labelled(gpu_count="2", gpu_memory="81920", gpu_product="NVIDIA-A100"))
    assert (first.uuid, second.uuid, first.named) == ("n1/0", "n1/1", False)
    assert (first.memory, first.model, first.slots, first.mode) == (81920, "NVIDIA-A100", 0, "")


def test_a_node_that_offers_fewer_cards_has_fewer() -> None:
    cards = node_cards.labelled_cards(labelled(gpu_count="2", allocatable={"nvidia.com/gpu": 1}))
    assert [card.healthy for card in cards] == [True, False]
    assert not any(card.healthy for card in node_cards.labelled_cards(labelled(gpu_count="2", allocatable={"cpu": 1})))


def test_labels_of_time_slices() -> None:
    labels = {"gpu.count": "2", "gpu.memory": "24000", "gpu.replicas": "10", "gpu.product": "NVIDIA-A10-SHARED"}
    written = {f"nvidia.com/{key}": value for key, value in labels.items()}
    written["nvidia.com/gpu.sharing-strategy"] = "time-slicing"
    renamed = node_cards.labelled_cards(Node("n1", labels=written, allocatable={"nvidia.com/gpu.shared": 20}))
    assert [(card.mode, card.slots, card.resource, card.model, card.healthy) for card in renamed] == [
        ("TimeSlice", 10, "nvidia.com/gpu.shared", "NVIDIA-A10", True)
    ] * 2
    assert Share(unit=True).of(renamed[0]) == Part(100, 2400)
    (first, second) = node_cards.labelled_cards(Node("n1", labels=written, allocatable={"nvidia.com/gpu": 11}))
    assert (first.resource, first.healthy, second.healthy) == ("nvidia.com/gpu", True, True)
    written["nvidia.com/gpu.sharing-strategy"] = "mps"
    assert node_cards.labelled_cards(Node("n1", labels=written))[0].mode == "MPS"


def test_labels_of_mig_instances() -> None:
    labels = {"gpu.count": "2", "gpu.memory": "40960"}
    for profile, count, memory, slices in (("1g.5gb", "6", "4864", "1"), ("4g.20gb", "2", "19968", "4")):
        labels |= {f"mig-{profile}.count": count, f"mig-{profile}.memory": memory, f"mig-{profile}.slices.gi": slices}
    written = {f"nvidia.com/{key}": value for key, value in labels.items()}
    cards = node_cards.labelled_cards(Node("n1", labels=written, allocatable={"nvidia.com/mig-1g.5gb": 6}))
    assert [card.healthy for card in cards] == [True, True]
    assert cards[0].profiles == (Profile("1g.5gb", 1, 4864, 7), Profile("4g.20gb", 4, 19968, 1))


@pytest.mark.parametrize("count", ["", "-1", "many", "9" * 30, "0"])
def test_labels_that_are_no_numbers_name_no_cards(count: str) -> None:
    assert node_cards.labelled_cards(labelled(gpu_count=count)) == ()


def test_a_label_names_at_most_256_cards() -> None:
    assert len(node_cards.labelled_cards(labelled(gpu_count="99999999"))) == 256


# --- together -------------------------------------------------------------------------------------------------------------


def test_slices_come_first_then_hami_then_labels() -> None:
    (published,) = resource_slice(slice_of(gpu(1))).devices
    labels = {"nvidia.com/gpu.count": "4"}
    node = Node("n1", labels=labels, annotations={"hami.io/node-nvidia-register": ROWS})
    one, two = node_devices(own_cards(node), [published])
    assert (one.uuid, one.slots, one.slice, one.memory) == ("GPU-1", 10, "gpu.nvidia.com/n1/gpu-1", 24576)
    assert two.uuid == "GPU-2"
    bare = own_cards(Node("n1", labels=labels, allocatable={"nvidia.com/gpu": 4}))
    assert [card.uuid for card in node_devices(bare, [published])] == ["GPU-1"]
    assert len(node_devices(bare, ())) == 4
    assert node_devices(own_cards(Node("n1")), ()) == ()


CARDS = (
    Device("n1", "GPU-0", memory=40960, slice="d/p/gpu-0", mode="Claim"),
    Device("n1", "GPU-1", memory=24576, slots=10, resource="nvidia.com/gpu", mode="Software"),
)


def uses(
    *shares: Share, annotations: Json | None = None, allocated: tuple[Allocation, ...] = ()
) -> tuple[CardUse, ...]:
    return pod_uses("team/a", "team/w", annotations or {}, allocated, shares, CARDS, {"d/p/mig-0": ("GPU-0", "1g.5gb")})


def test_claims_take_capacity_or_the_whole_device() -> None:
    some = Allocation("d/p/gpu-0", ("team/a",), {"memory": 8 << 30, "milli": 600})
    assert uses(allocated=(some,)) == (CardUse("team/a", "GPU-0", Part(600, 8192), "team/w"),)
    whole = Allocation("d/p/gpu-0", ("team/a",))
    assert uses(allocated=(whole,)) == (CardUse("team/a", "GPU-0", Part(1000, 40960), "team/w", True),)
    shared = Allocation("d/p/gpu-0", ("team/0", "team/a"))
    assert uses(allocated=(shared,))[0].part == Part()
    assert uses(allocated=(Allocation("d/p/unknown", ("team/a",)),)) == ()


def test_a_share_by_a_claim_counts_where_the_claim_is() -> None:
    """Annotations say the same as its claim: the pod takes it once."""
    asked = Share(milli=600, memory=8192, mode="Claim")
    given = Allocation("d/p/gpu-0", ("team/a",), {"memory": 8 << 30, "milli": 600})
    assert uses(asked, allocated=(given,)) == (CardUse("team/a", "GPU-0", Part(600, 8192), "team/w"),)


def test_hamis_annotation_is_believed_of_hamis_cards_only() -> None:
    written = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3000,30:;GPU-0,NVIDIA,9000,90:;GPU-x,NVIDIA,1,1:;"}
    asked = Share(count=3, milli=300, memory=3000, mode="Software", resource="nvidia.com/gpu")
    assert uses(asked, annotations=written) == (CardUse("team/a", "GPU-1", Part(300, 3000), "team/w"),)
    assert uses(annotations=written) == (), "it asks for none"


def test_hamis_annotation_is_believed_of_no_more_than_the_pod_asks_for() -> None:
    written = {"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,24000,100:GPU-1,NVIDIA,9,9:;"}
    asked = Share(milli=200, memory=1024, mode="Software", resource="nvidia.com/gpu")
    assert uses(asked, annotations=written) == (CardUse("team/a", "GPU-1", Part(200, 1024), "team/w"),)


def test_a_pod_that_does_not_say_its_card_takes_of_some_card() -> None:
    hami = Share(milli=200, memory=1024, mode="Software", resource="nvidia.com/gpu")
    assert uses(hami) == (CardUse("team/a", "", Part(200, 1024), "team/w"),)
    assert uses(Share(count=2, milli=500)) == (CardUse("team/a", "", Part(500, 0), "team/w"),) * 2
    assert uses(Share(unit=True, resource="amd.com/gpu")) == ()
