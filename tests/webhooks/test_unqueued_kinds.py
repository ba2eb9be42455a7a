"""The policy that warns of a queue label without effect: what it is about, and that it never refuses."""

from __future__ import annotations

import re

from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.kube.resources import VALIDATING_POLICIES, VALIDATING_POLICY_BINDINGS, Json
from gangline_webhooks import unqueued_kinds


def conditions(managed: ManagedJobs) -> dict[str, str]:
    spec = unqueued_kinds.manifests(managed)[VALIDATING_POLICIES]["spec"]
    return {row["name"]: row["expression"] for row in spec["matchConditions"]}


def said(managed: ManagedJobs) -> str:
    spec: Json = unqueued_kinds.manifests(managed)[VALIDATING_POLICIES]["spec"]
    return spec["validations"][0]["messageExpression"]


def test_it_warns_and_never_refuses_and_only_about_what_carries_the_label() -> None:
    made = unqueued_kinds.manifests(EVERY_QUEUED)
    assert made[VALIDATING_POLICY_BINDINGS]["spec"]["validationActions"] == ["Warn"]
    policy = made[VALIDATING_POLICIES]["spec"]
    assert policy["failurePolicy"] == "Ignore"
    [selector] = policy["matchConstraints"]["objectSelector"]["matchExpressions"]
    assert selector == {"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"}


def test_kinds_that_are_queued_and_kinds_with_webhooks_are_none_of_its_business() -> None:
    quiet = conditions(EVERY_QUEUED)["not-queued"]
    for kind in ("batch/Job", "gangline.io/GPUJob", "apps/Deployment", "ray.io/RayJob", "kueue.x-k8s.io/Workload"):
        assert f"'{kind}'" in quiet
    for kind in ("apps/DaemonSet", "/Pod"):
        assert f"'{kind}'" not in quiet and f"'{kind}'" in conditions(EVERY_QUEUED)["makes-pods"]


def test_pods_are_told_of_where_they_are_not_queued() -> None:
    queued = ManagedJobs(unlisted=EVERY_QUEUED.unlisted - {("", "Pod")})
    assert '"pod" is not listed in integrations.frameworks' in said(EVERY_QUEUED)
    assert "listed" not in said(queued) and "'/Pod'" in conditions(queued)["not-queued"]
    assert not re.search("'/Pod'", conditions(queued)["makes-pods"])
