"""Shares of cards in all dialects: what a pod asks of cards, and what it counts for.

Rows of the list of sharing conventions (`docs/placement.md`) are named in the tests, with their numbers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.objects import Workload, container

from gangline.api import admission, quantity
from gangline.api.admission.of_jobs import gpu_shares as on_apply
from gangline.api.names import GPU_MEM, GPU_MILLI
from gangline.api.read import parse
from gangline.api.read.counting import device_claims
from gangline.api.read.counting.gpu_shares import MOST_SHARES
from gangline.api.read.counting.namespace_rules import NO_LIMITS, NO_RULES, NamespaceRules
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules, Transformation
from gangline.api.sharing import numbers, traits, vendor_shares
from gangline.api.sharing.asking import CardSizes, sizes_of
from gangline.api.sharing.device_shares import CapacityPolicy
from gangline.engine.model import Device, Part, PodSet, Profile, Share

Json = dict[str, Any]
MIB = 1 << 20


def known(*devices: Device) -> NamespaceRules:
    return NamespaceRules.of(NO_LIMITS, {}, EVERYTHING, cards=sizes_of(devices))


def card(memory: int = 0, **more: Any) -> Device:
    return Device("n1", f"GPU-{memory}", memory=memory, resource="nvidia.com/gpu", **more)


def workload(*limits: Json, annotations: Json | None = None, **spec: Any) -> Json:
    """A Workload of one pod, whose containers have these limits."""
    rows = (container(each, name=f"c{i}") for i, each in enumerate(limits))
    return Workload().in_queue("q").pods(*rows, annotations=annotations, **spec).made


def read(*containers: Json, by: NamespaceRules = NO_RULES, annotations: Json | None = None, **more: Any) -> PodSet:
    (pod_set,) = parse.workload(workload(*containers, annotations=annotations, **more), by).pod_sets
    return pod_set


def counted(*containers: Json, **more: Any) -> tuple[int, int]:
    """Thousandths of cards, and MiB of their memory."""
    charges = read(*containers, **more).charges
    return charges.get(GPU_MILLI, 0), charges.get(GPU_MEM, 0) // MIB


# --- one row of the list after the other ----------------------------------------------------------------------------------


def test_row_whole_each_gpu_is_a_thousand_and_its_memory() -> None:
    by = known(card(24_000), card(80_000))
    assert counted({"nvidia.com/gpu": "2"}, by=by) == (2000, 160_000)
    assert read({"nvidia.com/gpu": "2"}).shares == (Share(count=2, unit=True, resource="nvidia.com/gpu"),)


def test_row_hami_two_gpus_with_1024_mib_and_20_percent_each_are_2048_mib_and_400_thousandths() -> None:
    asked = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "20"}
    assert counted(asked) == (400, 2048)
    (share,) = read(asked).shares
    assert share == Share(count=2, milli=200, memory=1024, mode="Software", resource="nvidia.com/gpu")
    assert share.of(card(24_000)) == Part(200, 1024)


def test_row_hami_what_is_not_bounded_is_the_whole_of_memory_and_no_compute() -> None:
    (share,) = read({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "30"}).shares
    assert share.of(card(24_000)) == Part(300, 24_000)
    (share,) = read({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}).shares
    assert share.of(card(24_000)) == Part(0, 12_000)
    (share,) = read({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "100"}).shares
    assert share.alone_on(card(24_000))


def test_row_hami_cards_and_models_are_chosen_by_annotations() -> None:
    chosen = {
        "nvidia.com/use-gpuuuid": "GPU-1, GPU-2",
        "nvidia.com/nouse-gpuuuid": "GPU-3",
        "nvidia.com/use-gputype": "A100",
        "nvidia.com/nouse-gputype": "1080,2080",
    }
    (share,) = read({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}, annotations=chosen).shares
    assert (share.cards, share.not_cards) == ({"GPU-1", "GPU-2"}, {"GPU-3"})
    assert (share.models, share.not_models) == (("A100",), ("1080", "2080"))


def test_row_kai_half_of_two_devices_is_a_thousand() -> None:
    halves = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}
    assert counted({}, annotations=halves, by=known(card(40_000))) == (1000, 40_000)
    assert read({}, annotations=halves).shares == (Share(count=2, milli=500, memory_milli=500),)


def test_row_kai_memory_counts_as_its_part_of_the_smallest_card() -> None:
    asked = {"gpu-memory": "6000"}
    assert counted({}, annotations=asked) == (1000, 6000)
    assert counted({}, annotations=asked, by=known(card(24_000))) == (250, 6000)
    assert counted({}, annotations=asked, by=known(card(24_000), card(80_000))) == (250, 6000)
    (share,) = read({}, annotations=asked).shares
    assert share.of(card(80_000)) == Part(75, 6000)


def test_row_time_slices_one_of_ten_is_100_thousandths() -> None:
    """Seen wrong before: it counted as a whole GPU."""
    sliced = Device("n1", "GPU-1", memory=80_000, slots=10, mode="TimeSlice", resource="nvidia.com/gpu.shared")
    assert counted({"nvidia.com/gpu.shared": "1"}, by=known(sliced)) == (100, 8_000)
    assert counted({"nvidia.com/gpu.shared": "1"}) == (1000, numbers.MOST_MEMORY)
    coarse = Device("n2", "GPU-2", memory=80_000, slots=4, mode="MPS", resource="nvidia.com/gpu.shared")
    assert counted({"nvidia.com/gpu.shared": "1"}, by=known(sliced, coarse)) == (250, 20_000)


def test_row_time_slices_two_are_on_two_cards() -> None:
    (share,) = read({"nvidia.com/gpu.shared": "2"}).shares
    assert (share.count, share.apart) == (2, True)


def test_row_time_slices_that_keep_the_name_of_whole_gpus() -> None:
    sliced = Device("n1", "GPU-1", memory=80_000, slots=10, mode="TimeSlice", resource="nvidia.com/gpu")
    assert counted({"nvidia.com/gpu": "1"}, by=known(sliced)) == (100, 8_000)
    assert counted({"nvidia.com/gpu": "1"}, by=known(sliced, card(24_000))) == (1000, 24_000)


def test_row_mig_two_of_5_gib_and_one_of_10_gib_are_20_gib() -> None:
    asked = {"nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-2g.10gb": "1"}
    assert counted(asked) == (3000, 20 << 10)
    profiles = (Profile("1g.5gb", 1, 4864, 7), Profile("2g.10gb", 2, 9856, 3))
    by = known(Device("n1", "GPU-1", memory=40_960, mode="MIG", profiles=profiles))
    assert counted(asked, by=by) == (143 * 2 + 334, 4864 * 2 + 9856)


def test_row_mig_instances_may_be_on_one_card() -> None:
    (share,) = read({"nvidia.com/mig-1g.5gb": "2"}).shares
    assert (share.count, share.apart, share.profile, share.mode) == (2, False, "1g.5gb", "MIG")


def test_row_tencent_percent_and_units_of_256_mib() -> None:
    assert counted({"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "8"}) == (300, 2048)
    by = known(card(24_000))
    assert counted({"tencent.com/vcuda-core": "200"}, by=by) == (2000, 48_000)
    (share,) = read({"tencent.com/vcuda-core": "200"}).shares
    assert share.count == 2 and share.alone_on(card(24_000))


# --- claims of devices -----------------------------------------------------------------------------------------------------

GIB = 1 << 30
STEPS = CapacityPolicy(most=80 * GIB, default=2 * GIB, least=GIB, step=GIB)


def template(**exactly: Any) -> Json:
    asked = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", **exactly}}
    return {"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests": [asked]}}}}


def claiming(*policies: CapacityPolicy, memory: int = 80 << 10, **exactly: Any) -> PodSet:
    cards = sizes_of([Device("n1", "GPU-1", memory=memory)], policies)
    by = NamespaceRules.of(NO_LIMITS, {}, EVERYTHING, {"t": device_claims.claim(template(**exactly))}, cards)
    return read({}, by=by, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])


def test_row_dra_capacity_of_3_5_gi_in_steps_of_1_gi_counts_as_4_gi() -> None:
    found = claiming(STEPS, capacity={"requests": {"gpu.example.com/memory": "3.5Gi", "milli": "400"}})
    assert dict(found.charges) == {GPU_MILLI: 400, GPU_MEM: 4 * GIB}
    assert found.shares == (Share(milli=400, memory=3584, mode="Claim"),)


def test_row_dra_no_card_of_80_gi_has_90_gi() -> None:
    (share,) = claiming(STEPS, capacity={"requests": {"memory": "90Gi"}}).shares
    assert share.of(Device("n1", "GPU-1", memory=80 << 10)) is None
    assert STEPS.consumed(90 * GIB) is None


def test_row_dra_where_cards_round_differently_the_most_counts() -> None:
    coarse = CapacityPolicy(most=80 * GIB, values=(8 * GIB, 16 * GIB))
    found = claiming(STEPS, coarse, capacity={"requests": {"memory": "3.5Gi"}}, count=2)
    assert found.charges[GPU_MEM] == 16 * GIB
    assert claiming(STEPS, capacity={"requests": {"cores": "50"}}).charges == {GPU_MILLI: 500, GPU_MEM: 2 * GIB}


def test_row_dra_a_device_without_capacity_is_a_whole_card() -> None:
    found = claiming(STEPS, count=2)
    assert dict(found.charges) == {GPU_MILLI: 2000, GPU_MEM: 160 * GIB}
    assert found.shares == (Share(count=2, exclusive=True, memory_milli=1000, mode="Claim"),)


def test_row_dra_memory_alone_takes_its_part_of_compute() -> None:
    found = claiming(STEPS, capacity={"requests": {"memory": "20Gi"}})
    assert found.charges == {GPU_MILLI: 250, GPU_MEM: 20 * GIB}


def test_claims_of_other_devices_ask_for_no_card() -> None:
    assert claiming(deviceClassName="nic.example.com").shares == ()
    assert claiming(count=0).shares == ()


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        (CapacityPolicy(100), 60, 60),
        (CapacityPolicy(100), 101, None),
        (CapacityPolicy(100, least=10, step=10), 5, 10),
        (CapacityPolicy(100, least=10, step=20), 31, 50),
        (CapacityPolicy(100, step=20), 31, 31),  # from where the steps start is not said
        (CapacityPolicy(100, values=(10, 50)), 11, 50),
        (CapacityPolicy(100, values=(10, 50)), 51, None),
    ],
)
def test_how_cards_round(policy: CapacityPolicy, asked: int, consumed: int | None) -> None:
    assert policy.consumed(asked) == consumed


# --- Gangline's own words -------------------------------------------------------------------------------------------------

OWN = "gangline.io/gpu-"


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"share": "500m", "memory": "8Gi"}, (500, 8192)),
        ({"share": "0.5"}, (500, 12_000)),
        ({"share": "0.3333"}, (334, 8_016)),  # rounded up
        ({"share": "1"}, (1000, 24_000)),
        ({"memory": "6000Mi"}, (250, 6000)),
        ({"memory": "6000Mi", "count": "2"}, (500, 12_000)),
        ({"share": "250m", "memory": "1Gi", "count": "4"}, (1000, 4096)),
    ],
)
def test_own_annotations(annotations: Json, expected: tuple[int, int]) -> None:
    written = {f"{OWN}{key}": value for key, value in annotations.items()}
    assert counted({"cpu": "1"}, annotations=written, by=known(card(24_000))) == expected
    assert parse.workload(workload({"cpu": "1"}, annotations=written)).violation == ""


def test_a_pod_with_whole_gpus_may_say_how_much_memory_it_needs_of_each() -> None:
    (share,) = read({"nvidia.com/gpu": "2"}, annotations={f"{OWN}memory": "30000Mi"}).shares
    assert share.of(card(24_000)) is None
    assert share.of(card(80_000)) == Part(1000, 80_000)


@pytest.mark.parametrize(
    ("annotations", "requests", "key"),
    [
        ({"share": "half"}, {}, "share"),
        ({"share": "1.5"}, {}, "share"),
        ({"share": "0"}, {}, "share"),
        ({"share": "0." + "1" * 40}, {}, "share"),
        ({"share": 1}, {}, "share"),
        ({"memory": "much"}, {}, "memory"),
        ({"memory": "-1Gi"}, {}, "memory"),
        ({"memory": "9" * 30}, {}, "memory"),
        ({"share": "0.5", "count": "0"}, {}, "count"),
        ({"share": "0.5", "count": "10000"}, {}, "count"),
        ({"count": "2"}, {}, "count"),
        ({"share": "0.5"}, {"nvidia.com/gpu": "1"}, "share"),
        ({"share": "0.5"}, {"nvidia.com/gpu.shared": "1"}, "share"),
        ({"memory": "8Gi"}, {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}, "memory"),
        ({"memory": "8Gi", "count": "2"}, {"nvidia.com/gpu": "1"}, "count"),
    ],
)
def test_what_contradicts_itself_is_refused_on_apply_and_not_admitted(
    annotations: Json, requests: Json, key: str
) -> None:
    written = {f"{OWN}{name}": value for name, value in annotations.items()}
    manifest = workload(requests, annotations=written)
    template = manifest["spec"]["podSets"][0]["template"]
    (error,) = on_apply.check("spec.template", template)
    assert error.path == f"spec.template.metadata.annotations[{OWN}{key}]"
    found = parse.workload(manifest)
    assert found.violation == f"spec.podSets[0].template.metadata.annotations[{OWN}{key}]: {error.message}"


@pytest.mark.parametrize(
    ("kind", "spec", "path"),
    [
        ("batch/v1 Job", lambda template: {"suspend": True, "template": template}, "spec.template"),
        (
            "jobset.x-k8s.io/v1alpha2 JobSet",
            lambda template: {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template}}}]},
            "spec.replicatedJobs[0].template.spec.template",
        ),
        (
            "kubeflow.org/v1 PyTorchJob",
            lambda template: {"pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": template}}},
            "spec.pytorchReplicaSpecs[Master].template",
        ),
        ("gangline.io/v1alpha1 GPUJob", lambda template: {"workers": 1, "template": template}, "spec.template"),
        (
            "ray.io/v1 RayCluster",
            lambda template: {"suspend": True, "headGroupSpec": {"rayStartParams": {}, "template": template}},
            "spec.headGroupSpec.template",
        ),
    ],
)
def test_jobs_of_every_kind_are_refused_with_the_field(kind: str, spec: Any, path: str) -> None:
    api_version, name = kind.split()
    template = workload({}, annotations={f"{OWN}share": "half"})["spec"]["podSets"][0]["template"]
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    job = {"apiVersion": api_version, "kind": name, "metadata": {"namespace": "team", "name": "j", "labels": labels}}
    errors = admission.validate({**job, "spec": spec(template)}, None, admission.AdmissionFacts())
    found = [error.path for error in errors if "gpu-share" in error.path]
    assert found == [f"{path}.metadata.annotations[gangline.io/gpu-share]"], errors


def test_beside_kais_annotations_a_share_of_our_own_is_refused() -> None:
    written = {"gpu-fraction": "0.5", f"{OWN}share": "0.5"}
    assert "the pod asks for cards in other words" in parse.workload(workload({}, annotations=written)).violation
    assert counted({}, annotations=written)[0] == 500


def test_what_is_refused_counts_as_whole_cards_meanwhile() -> None:
    (share,) = read({}, annotations={f"{OWN}share": "half"}).shares
    assert share.alone_on(card(24_000))


# --- warnings for authors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "requests", "warning"),
    [
        (
            {"gpu-fraction": "half"},
            {},
            "annotation gpu-fraction: 'half' is nothing that KAI reads: it counts as a whole GPU",
        ),
        ({"gpu-memory": "2Gi"}, {}, "annotation gpu-memory: '2Gi' is nothing that KAI reads: it counts as a whole GPU"),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "two"},
            {},
            "annotation gpu-fraction-num-devices: 'two' is nothing that KAI reads: it counts as one GPU",
        ),
        ({"gpu-fraction": "0.5", "gpu-memory": "9"}, {}, "annotation gpu-memory is not looked at beside gpu-fraction"),
        (
            {"gpu-fraction": "0.5"},
            {"nvidia.com/gpu": "1"},
            "annotation gpu-fraction: the pod requests GPUs besides, and both count",
        ),
        (
            {},
            {"nvidia.com/gpu.shared": "2"},
            "nvidia.com/gpu.shared: two slices of a card give no more than one: each counts, on a card of its own",
        ),
        (
            {},
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9", "nvidia.com/gpumem-percentage": "9"},
            "nvidia.com/gpumem-percentage is not looked at beside nvidia.com/gpumem",
        ),
        (
            {},
            {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "200"},
            "nvidia.com/gpucores: more than 100 percent bound nothing: all of the card counts",
        ),
        (
            {},
            {"tencent.com/vcuda-core": "150"},
            "tencent.com/vcuda-core: more than 100 is a multiple of 100: it counts as 2 whole cards",
        ),
        ({"gpu-fraction": "0.5"}, {"cpu": "1"}, ""),
        ({"gpu-fraction-num-devices": "two"}, {}, ""),
        ({}, {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "20"}, ""),
    ],
)
def test_row_traps_authors_are_told_of_what_does_not_mean_what_it_seems_to(
    annotations: Json, requests: Json, warning: str
) -> None:
    template = workload(requests, annotations=annotations)["spec"]["podSets"][0]["template"]
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"namespace": "team", "name": "j", "labels": {"kueue.x-k8s.io/queue-name": "q"}},
        "spec": {"template": template},
    }
    assert admission.warnings(job) == ([warning] if warning else [])
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    assert on_apply.doubts(pod) == ([warning] if warning else [])
    del job["metadata"]["labels"]
    assert admission.warnings(job) == [], "it is none of ours"


# --- pods with several containers -----------------------------------------------------------------------------------------


def test_every_container_has_its_share() -> None:
    half = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem": "100"}
    assert [share.milli for share in read(half, half).shares] == [500, 500]
    assert counted(half, half) == (1000, 200)


def test_an_init_container_counts_where_it_asks_for_more() -> None:
    half = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "50", "nvidia.com/gpumem": "100"}
    whole = {"name": "init", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    by = known(card(24_000))
    assert counted(half, initContainers=[whole], by=by) == (1000, 24_000)
    assert read(half, initContainers=[whole], by=by).shares == (Share(unit=True, resource="nvidia.com/gpu"),)
    stays = {**whole, "restartPolicy": "Always"}
    assert counted(half, initContainers=[stays, whole], by=by) == (2000, 48_000)
    assert counted(half, half, half, initContainers=[whole], by=by) == (1500, 24_000)


def test_a_pod_that_asks_in_too_many_places_is_not_admitted() -> None:
    found = parse.workload(workload(*[{"nvidia.com/gpu": "1"}] * (MOST_SHARES + 1)))
    assert found.violation == f"spec.podSets[0].template.spec: asks for cards in more than {MOST_SHARES} places"
    assert len(found.pod_sets[0].shares) == MOST_SHARES
    assert found.pod_sets[0].charges[GPU_MILLI] == 1000 * (MOST_SHARES + 1)


def test_a_transformation_says_what_its_input_counts_for_and_the_cards_are_asked_all_the_same() -> None:
    rule = Transformation({GPU_MILLI: Fraction(100)}, retain=False)
    by = NamespaceRules.of(NO_LIMITS, {}, ResourceRules(transformations={"nvidia.com/gpu.shared": rule}))
    found = read({"nvidia.com/gpu.shared": "1"}, by=by)
    assert (dict(found.counted), dict(found.charges)) == ({GPU_MILLI: 100}, {})
    assert [share.resource for share in found.shares] == ["nvidia.com/gpu.shared"]


def test_nothing_is_asked_of_cards_by_a_pod_without() -> None:
    found = read({"cpu": "1"})
    assert (found.shares, dict(found.charges)) == ((), {})


def test_nothing_is_known_of_cards() -> None:
    assert sizes_of(()) == CardSizes()
    assert sizes_of([card(0)]) == CardSizes(0, 0, {"nvidia.com/gpu": Part(1000, 0)})


# --- texts ----------------------------------------------------------------------------------------------------------------


@given(st.text("0123456789.mkGi-e", max_size=12))
def test_a_part_is_above_nothing_and_at_most_one(written: str) -> None:
    found = numbers.part(written)
    assert found is None or (0 < found <= 1 and found == quantity.exact(written))


@given(st.text("0123456789.mkGi-e", max_size=12))
def test_memory_is_rounded_up_to_mib(written: str) -> None:
    found = numbers.memory(written)
    assert found is None or (found - 1) * MIB < quantity.exact(written) <= found * MIB


@pytest.mark.parametrize(
    ("profile", "expected"), [("1g.5gb", 5120), ("1g.10gb+me", 10240), ("x", 0), ("1g.5gb.me", 5120)]
)
def test_the_name_of_a_profile_has_its_memory(profile: str, expected: int) -> None:
    assert vendor_shares.nominal_memory(profile) == expected


NAMES = ("affinity", "anti-affinity", "exclusion")


@pytest.mark.parametrize(
    ("requests", "annotations"),
    [
        ({}, {f"{OWN}share": "0.5"}),
        ({}, {"gpu-fraction": "0.5"}),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"}, {}),
        ({"nvidia.com/gpu.shared": "1"}, {}),
        ({"nvidia.com/mig-1g.5gb": "2"}, {}),
        ({"tencent.com/vcuda-core": "30"}, {}),
    ],
)
def test_shares_have_names_in_whatever_words_and_those_of_two_namespaces_differ(
    requests: Json, annotations: Json
) -> None:
    written = annotations | {f"{OWN}{key}": "a.B_1" for key in NAMES}
    seen: set[tuple[str, ...]] = set()
    for namespace in ("ml", "ops", "ml"):
        manifest = workload(requests, annotations=written)
        manifest["metadata"] = {**manifest["metadata"], "namespace": namespace}
        (share,) = parse.workload(manifest).pod_sets[0].shares
        assert (share.affinity, share.anti_affinity, share.exclusion) == (f"{namespace}/a.B_1",) * 3
        seen.add(share.names)
    assert len(seen) == 2


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("value", ["", "a/b", "a b", "-a", "é", "a" * 64, 5, None, ["a"], "a#b", "a\n"])
def test_a_name_that_is_none_is_refused_and_not_admitted(key: str, value: object) -> None:
    written = {f"{OWN}share": "0.5", f"{OWN}{key}": value}
    manifest = workload({}, annotations=written)
    (error,) = on_apply.check("spec.template", manifest["spec"]["podSets"][0]["template"])
    assert error.path == f"spec.template.metadata.annotations[{OWN}{key}]"
    assert f"metadata.annotations[{OWN}{key}]: must be a name" in parse.workload(manifest).violation


def test_a_name_without_a_share_says_nothing_and_its_author_is_told() -> None:
    named = {"metadata": {"annotations": {f"{OWN}exclusion": "a"}}, "spec": {"containers": [{"name": "c"}]}}
    (said,) = on_apply.doubts({"spec": {"template": named}})
    assert f"annotation {OWN}exclusion says nothing: the pod asks for no GPU" in said
    claims = {**named, "spec": {**named["spec"], "resourceClaims": [{"name": "gpu"}]}}
    assert on_apply.doubts({"spec": {"template": claims}}) == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("ib0=50000", (("ib0", 50_000),)),
        (" ib1=2 , ib0=1", (("ib0", 1), ("ib1", 2))),
        ("ib0", None),
        ("ib0=", None),
        ("ib0=0", None),
        ("ib0=-1", None),
        ("ib0=1.5", None),
        ("ib0=1G", None),
        ("ib0=100000001", None),
        ("ib0=1,ib0=2", None),
        ("ib0=1,", None),
        ("", None),
        ("a b=1", None),
        ("x" * 16 + "=1", None),
        (",".join(f"ib{number}=1" for number in range(17)), None),
        ("9" * 5000, None),
    ],
)
def test_interfaces_of_pods_and_nodes_are_read_alike_and_refused_where_they_are_none(
    written: str, expected: tuple[tuple[str, int], ...] | None
) -> None:
    on_objects = {"gangline.io/network-mbps": written}
    assert traits.interfaces(written) == expected
    assert [fault.key for fault in traits.trait_faults(on_objects)] == ([] if expected else list(on_objects))
    manifest = workload({"cpu": "1"}, annotations=on_objects)
    assert parse.workload(manifest).pod_sets[0].traits.interfaces == (expected or ())
    body = {"metadata": {"name": "n", "annotations": on_objects}, "spec": {}, "status": {}}
    assert parse.node(body).interfaces == dict(expected or ())
    pod = {
        "metadata": {"name": "p", "namespace": "a", "annotations": on_objects},
        "spec": {"nodeName": "n", "containers": []},
    }
    foreign = parse.foreign_pod(pod)
    assert foreign is not None
    assert {name: size for name, size in foreign.requests.items() if " " in name} == {
        f"interface {name}": mbps for name, mbps in expected or ()
    }
