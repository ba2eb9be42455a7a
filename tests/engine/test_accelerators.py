"""What counts as a GPU."""

from __future__ import annotations

import pytest

from gangline.engine.model import accelerators, is_accelerator


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "amd.com/gpu",
        "gpu.intel.com/xe",
        "gpu.intel.com/i915",
        "google.com/tpu",
        "habana.ai/gaudi",
        "aws.amazon.com/neuroncore",
        "huawei.com/Ascend910",
        "furiosa.ai/rngd",
        "rebellions.ai/ATOM",
        "cambricon.com/mlu",
    ],
)
def test_an_accelerator_of_any_vendor_counts(resource: str) -> None:
    assert is_accelerator(resource)


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "memory",
        "pods",
        "ephemeral-storage",
        "hugepages-2Mi",
        "rdma/hca_shared_devices",
        "example.com/license",
        "example.com/input",
        "nvidia.com/gpumem",
        "nvidia.com/gpucores",
        "volcano.sh/vgpu-memory",
        "koordinator.sh/gpu-core",
    ],
)
def test_what_a_pod_needs_beside_it_does_not(resource: str) -> None:
    assert not is_accelerator(resource)


def test_amounts_of_all_kinds_are_one_number() -> None:
    assert accelerators({"cpu": 4000, "nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 2, "rdma/hca": 1}) == 10
