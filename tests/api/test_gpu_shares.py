"""What pods use of GPUs, in thousandths: the dialects of KAI, HAMi and Tencent with the numbers of their documentation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import objects
from tests.builders.objects import container

from gangline.api.names import GPU_MILLI
from gangline.api.read import parse
from gangline.api.read.counting.namespace_rules import NO_LIMITS, NO_RULES, NamespaceRules
from gangline.api.read.counting.resource_rules import ResourceRules, Transformation
from gangline.api.sharing.numbers import count, fraction
from gangline.engine import Engine
from gangline.engine.model import (
    Admit,
    ClusterQueue,
    Flavor,
    FlavorQuotas,
    LocalQueue,
    Put,
    Quota,
    ResourceGroup,
    Workload,
)
from gangline.engine.model.devices import WHOLE

Json = dict[str, Any]


def workload(name: str, *limits: Json, annotations: Json | None = None, pods: int = 1, **spec: Any) -> Json:
    """A Workload with one pod set, whose containers have these limits."""
    rows = (container(each, name=f"c{i}") for i, each in enumerate(limits))
    return objects.Workload(name).in_queue("q").pods(*rows, count=pods, annotations=annotations, **spec).made


def milli(*containers: Json, annotations: Json | None = None, by: NamespaceRules = NO_RULES, **more: Any) -> int:
    (pod_set,) = parse.workload(workload("w", *containers, annotations=annotations, **more), by).pod_sets
    return pod_set.charges.get(GPU_MILLI, 0)


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"nvidia.com/gpu": "2"}, 2000),  # whole GPUs
        ({"amd.com/gpu": "1"}, 1000),
        ({"cpu": "4", "memory": "8Gi"}, 0),
        ({"nvidia.com/gpu": "0"}, 0),
        ({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "20"}, 400),  # HAMi: per GPU
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}, 500),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50", "nvidia.com/gpucores": "30"}, 300),
        (
            {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024"},
            1000,
        ),  # of a GPU of unknown size; its power is not bounded
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "0"}, 1000),  # HAMi's default: not bounded
        ({"nvidia.com/gpu": "1", "nvidia.com/gpucores": "200"}, 1000),  # HAMi knows no such percentage
        ({"nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "20"}, 200),  # HAMi adds the GPU to the pod
        ({"nvidia.com/gpu": "0", "nvidia.com/gpucores": "20"}, 0),
        ({"amd.com/gpu": "1", "nvidia.com/gpucores": "20"}, 1200),  # not the GPU that HAMi divides
        ({"tencent.com/vcuda-core": "30", "tencent.com/vcuda-memory": "8"}, 300),
        ({"tencent.com/vcuda-core": "200"}, 2000),
        ({"nvidia.com/gpu.shared": "1"}, 1000),  # how many share it is not known
        ({"nvidia.com/mig-1g.5gb": "2"}, 2000),
    ],
)
def test_requests_count_as_thousandths(requests: Json, expected: int) -> None:
    assert milli(requests) == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"gpu-fraction": "0.5"}, 500),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}, 1000),
        ({"gpu-fraction": ".25"}, 250),
        ({"gpu-fraction": "0.3333"}, 334),  # rounded up
        ({"gpu-fraction": "1"}, 1000),
        ({"gpu-memory": "2000"}, 1000),  # MiB of a GPU of unknown size
        ({"gpu-memory": "2000", "gpu-fraction-num-devices": "3"}, 3000),
        ({"gpu-fraction": "0"}, 1000),  # not a part that KAI gives: as a whole
        ({"gpu-fraction": "1.5"}, 1000),
        ({"gpu-fraction": "half"}, 1000),
        ({"gpu-fraction": "."}, 1000),
        ({"gpu-fraction": ""}, 1000),
        ({"gpu-fraction": "0." + "1" * 40}, 1000),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, 500),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "many"}, 500),
        ({"gpu-fraction-num-devices": "2"}, 0),
        ({"other": "0.5"}, 0),
    ],
)
def test_kais_annotations_count_as_thousandths(annotations: Json, expected: int) -> None:
    assert milli({"cpu": "1"}, annotations=annotations) == expected


def test_containers_add_up_and_init_containers_come_before_them() -> None:
    hami = {"nvidia.com/gpu": "1", "nvidia.com/gpucores": "20"}
    whole = {"nvidia.com/gpu": "1"}
    assert milli(hami, whole) == 1200
    assert milli(hami, annotations={"gpu-fraction": "0.5"}) == 700
    starts: Json = {"name": "init", "resources": {"limits": whole}}
    assert milli(hami, initContainers=[starts]) == 1000
    assert milli(hami, initContainers=[{**starts, "restartPolicy": "Always"}]) == 1200


def test_a_transformation_says_what_its_input_counts_for() -> None:
    """One of ten time slices of a GPU counts as a tenth, where the configuration says that there are ten."""
    tenth = Transformation({GPU_MILLI: Fraction(100)}, retain=False)
    nothing = Transformation({}, retain=False)
    resources = ResourceRules(transformations={"nvidia.com/gpu.shared": tenth, "nvidia.com/gpu": nothing})
    by = NamespaceRules.of(NO_LIMITS, {}, resources)
    (pod_set,) = parse.workload(workload("w", {"nvidia.com/gpu.shared": "1"}), by).pod_sets
    assert (dict(pod_set.counted), dict(pod_set.charges)) == ({GPU_MILLI: 100}, {})
    assert milli({"nvidia.com/gpu": "1"}, by=by) == 0
    assert milli({"amd.com/gpu": "1"}, by=by) == 1000


def test_excluded_resources_have_no_quota_of_their_own_and_their_shares_count() -> None:
    by = NamespaceRules.of(NO_LIMITS, {}, ResourceRules(excluded=("nvidia.com/",)))
    engine = cluster(**{GPU_MILLI: 1000})
    hami = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1024", "nvidia.com/gpucores": "60"}
    assert decide(engine, workload("a", hami), workload("b", hami), by=by) == ["team/a"]
    assert engine.usage("q") == {"gpus": {GPU_MILLI: 600}}


def test_mig_slices_count_as_the_memory_that_a_transformation_gives_them() -> None:
    """Row MIG, and Kueue's own example: two of 5 GiB and one of 10 GiB are 20 GiB."""
    sizes = {"nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 10}
    rules = {name: Transformation({"gpu-memory": Fraction(size << 30)}, retain=False) for name, size in sizes.items()}
    by = NamespaceRules.of(NO_LIMITS, {}, ResourceRules(transformations=rules))
    manifest = workload("w", {"nvidia.com/mig-1g.5gb": "2", "nvidia.com/mig-2g.10gb": "1"})
    (pod_set,) = parse.workload(manifest, by).pod_sets
    assert (dict(pod_set.counted), dict(pod_set.charges)) == ({"gpu-memory": 20 << 30}, {})


@given(st.text("0123456789.", max_size=12))
def test_a_fraction_is_above_nothing_and_at_most_one(written: str) -> None:
    found = fraction(written)
    assert found is None or (0 < found <= 1 and found == Fraction(written))


@given(st.text("0123456789+-. ", max_size=12))
def test_a_count_has_digits_only(written: str) -> None:
    found = count(written)
    assert found is None or (written.isdigit() and found == int(written))


# --- quota --------------------------------------------------------------------------------------------------------------


def decide(engine: Engine, *manifests: Json, by: NamespaceRules = NO_RULES) -> list[str]:
    for manifest in manifests:
        engine.observe(Put(parse.workload(manifest, by)))
    return [decision.workload for decision in engine.decide(0) if isinstance(decision, Admit)]


def cluster(**quota: int) -> Engine:
    engine = Engine()
    resources = {name: Quota(amount) for name, amount in quota.items()}
    group = ResourceGroup(tuple(resources), (FlavorQuotas("gpus", resources),))
    for item in (Flavor("gpus"), ClusterQueue("q", groups=(group,)), LocalQueue("team", "q", "q")):
        engine.observe(Put(item))
    return engine


KAI = {"annotations": {"gpu-fraction": "0.6"}}


def test_kai_a_thousand_thousandths_admit_one_pod_of_0_6_and_not_two() -> None:
    """Row KAI of the sharing dialects: pods that request no GPU do not get around the quota."""
    engine = cluster(**{GPU_MILLI: 1000})
    assert decide(engine, workload("a", {}, **KAI), workload("b", {}, **KAI)) == ["team/a"]
    assert engine.usage("q") == {"gpus": {GPU_MILLI: 600}}
    why = engine.explain("team/b")
    assert (
        why is not None and f"insufficient unused quota for {GPU_MILLI} in flavor gpus, 200 more needed" in why.message
    )
    engine.observe(Put(parse.workload(workload("c", {}, annotations={"gpu-fraction": "0.4"}))))
    assert decide(engine) == ["team/c"]


def test_all_pods_of_a_gang_count() -> None:
    engine = cluster(**{GPU_MILLI: 1000})
    assert decide(engine, workload("a", {}, annotations={"gpu-fraction": "0.25"}, pods=5)) == []
    assert decide(engine, workload("b", {}, annotations={"gpu-fraction": "0.25"}, pods=4)) == ["team/b"]


def test_hami_both_the_requests_and_the_share_count_where_both_have_quota() -> None:
    """Row HAMi: two vGPUs of 20 % of the power each are 400 thousandths."""
    engine = cluster(**{GPU_MILLI: 1000, "nvidia.com/gpu": 10, "nvidia.com/gpucores": 1000})
    manifest = workload("a", {"nvidia.com/gpu": "2", "nvidia.com/gpucores": "20"})
    assert decide(engine, manifest) == ["team/a"]
    assert engine.usage("q") == {"gpus": {GPU_MILLI: 400, "nvidia.com/gpu": 2, "nvidia.com/gpucores": 20}}


def test_a_queue_without_quota_of_shares_decides_as_kueue() -> None:
    engine = cluster(cpu=2000)
    manifests = [workload(name, {"cpu": "1"}, **KAI) for name in ("a", "b")]
    assert decide(engine, *manifests) == ["team/a", "team/b"]
    assert engine.usage("q") == {"gpus": {"cpu": 2000}}


def test_what_was_reserved_counts_after_a_restart() -> None:
    engine = cluster(**{GPU_MILLI: 1000})
    engine.observe(Put(parse.workload(workload("a", {}, **KAI))))
    (admit,) = (decision for decision in engine.decide(0) if isinstance(decision, Admit))
    (assigned,) = admit.admission.pod_sets
    assert (dict(assigned.flavors), dict(assigned.usage)) == ({GPU_MILLI: "gpus"}, {GPU_MILLI: 600})
    again, read = cluster(**{GPU_MILLI: 1000}), parse.workload(workload("a", {}, **KAI))
    held = Workload(read.uid, "team", "a", "q", read.pod_sets, admission=admit.admission, admitted=True)
    again.observe(Put(held))
    assert decide(again, workload("b", {}, **KAI)) == []
    assert again.usage("q") == {"gpus": {GPU_MILLI: 600}}


def test_a_gpu_is_a_thousand() -> None:
    assert milli({"nvidia.com/gpu": "1"}) == WHOLE
