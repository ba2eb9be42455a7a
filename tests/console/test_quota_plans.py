"""Lines on QuotaPlans below tables."""

from __future__ import annotations

from gangline.console.views import quota_plans

NOW = 1_767_225_600  # 2026-01-01T00:00:00Z
QUOTA = {"flavor": "h100", "resource": "nvidia.com/gpu", "nominalQuota": "4", "borrowingLimit": "0"}


def test_the_next_change_of_each_plan_within_the_horizon() -> None:
    change = {"time": "2026-01-01T01:00:00Z", "overrides": ["night"], "quotas": [QUOTA]}
    plan = {"metadata": {"name": "p"}, "spec": {"clusterQueue": "a"}, "status": {"nextChange": change}}
    fresh = {"metadata": {"name": "q"}, "spec": {"clusterQueue": "b"}}
    (line,) = quota_plans.changes([plan, fresh], NOW, NOW + 7200)
    assert line.startswith("Quota of a ") and line.endswith(
        "(in 60m): 4 nvidia.com/gpu of h100 (borrows 0) (QuotaPlan p)"
    )
    assert quota_plans.changes([plan], NOW, NOW + 1800) == []


def test_each_clusterqueue_has_one_line() -> None:
    plan = {"name": "p", "activeOverrides": ["day"], "changesAt": None, "nextOverrides": [], "nextQuotas": []}
    rows = [("a", plan), ("a", plan), ("b", None)]
    assert quota_plans.lines(rows, NOW) == ["quota of a by QuotaPlan p: override day is active"]
    (line,) = quota_plans.lines([("a", {**plan, "changesAt": NOW + 3600, "nextQuotas": [QUOTA]})], NOW)
    assert line.endswith("(in 60m): 4 nvidia.com/gpu of h100 (borrows 0)")
