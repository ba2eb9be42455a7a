"""What the hotswap benchmark makes of its trials, and of the recipe."""

from __future__ import annotations

import random

import pytest
from bench.hotswap_field import Field, Trial, Watched

from bench import hotswap


def field(name: str = "spare", **changes: bool) -> Field:
    return Field(Watched(client=None), name, slices=5, **changes)  # type: ignore[arg-type]


def test_a_summary_counts_what_every_trial_took() -> None:
    trials = [Trial(float(n), n + 0.5, low_disturbed=n > 18) for n in range(1, 21)]
    random.Random(1).shuffle(trials)
    found = hotswap.summary(trials)
    assert (found["p50_seconds"], found["p95_seconds"], found["max_seconds"]) == (10.0, 19.0, 20.0)
    assert (found["running_p50_seconds"], found["low_disturbed"], found["trials"]) == (10.5, 2, 20)
    assert hotswap.summary([]) == {"trials": 0}


def test_the_result_is_one_json_object_and_the_table_goes_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {name: hotswap.summary([Trial(2.0, 3.0, low_disturbed=False)]) for name in ("spare", "preempt")}
    hotswap.show({**rows, "kubernetes_default": hotswap.summary([]), "goals": {}})
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert out.count("\n") == 1
    assert "kubernetes" in err


def test_a_field_is_the_recipe_under_another_name() -> None:
    found = {(m["kind"], m["metadata"]["name"]): m for m in field()._manifests()}
    quota = found["ClusterQueue", "spare"]["spec"]["resourceGroups"][0]["flavors"][0]
    assert (quota["name"], quota["resources"][0]["nominalQuota"]) == ("spare", 80)
    high = found["JobSet", "spare-high"]
    assert high["metadata"]["annotations"]["kueue.x-k8s.io/queue-name"] == "spare"
    pods = high["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pods["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"] == "spare"
    assert ("JobSet", "spare-low") in found
    off = {m["kind"]: m for m in field("off", recovery=False, low=False)._manifests()}
    assert off["QueuePolicy"]["spec"]["recovery"]["enabled"] is False
    assert off["JobSet"]["metadata"]["name"] == "off-high"
