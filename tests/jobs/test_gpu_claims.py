"""GPUJobs whose pods get parts of GPUs by claims: the templates of the gang, and what its pods name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.jobs.gangs import KIND, FakeNamespace, admitted, gpu_job, role
from tests.jobs.test_gpu_shares import CLAIMED, HALF

from gangline.api import names
from gangline.jobs.base import PodSetInfo
from gangline.kube import resources as kube

Json = dict[str, Any]
FIELDS = {"share": CLAIMED}


def running(*roles: Json, **spec: Any) -> FakeNamespace:
    return FakeNamespace(gpu_job(*roles, suspend=False, **spec))


def placed(infos: Sequence[PodSetInfo]) -> list[PodSetInfo]:
    return [replace(info, scheduling_gates=[{"name": names.TOPOLOGY_GATE}]) for info in infos]


def claimed(place: FakeNamespace, child: str) -> tuple[list[Json], list[Json]]:
    spec = place.jobs[child]["spec"]["template"]["spec"]
    return spec.get("resourceClaims", []), spec["containers"][0].get("resources", {}).get("claims", [])


def test_pods_name_a_template_of_the_gang_that_asks_for_their_share() -> None:
    place = running(role("w", 2, 1, **FIELDS), role("ps", 1))
    place.settle(admitted(place.job))
    ((name, made),) = place.templates.items()
    (row,) = made["spec"]["spec"]["devices"]["requests"]
    assert row["exactly"]["deviceClassName"] == "gpu.example.com" and "selectors" not in row["exactly"]
    assert row["exactly"]["capacity"]["requests"] == {"milli": "500", "memory": "8192Mi"}
    assert made["metadata"]["ownerReferences"][0]["uid"] == "gpujob-uid"
    assert claimed(place, "llama-w") == (
        [{"name": "gangline-gpu", "resourceClaimTemplateName": name}],
        [{"name": "gangline-gpu"}],
    )
    assert claimed(place, "llama-ps") == ([], [])


def test_claims_of_the_users_own_stay() -> None:
    fields = role("w", 1, 1, **FIELDS)
    fields["template"]["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimTemplateName": "nics"}]
    fields["template"]["spec"]["containers"][0]["resources"] = {"claims": [{"name": "nic"}]}
    place = running(fields)
    place.settle(admitted(place.job))
    rows, named = claimed(place, "llama-w")
    assert [row["name"] for row in rows] == ["nic", "gangline-gpu"] == [row["name"] for row in named]


def test_pods_that_wait_for_their_place_name_none() -> None:
    place = running(role("w", 2, 1, **FIELDS))
    place.settle(placed(admitted(place.job)))
    assert place.templates == {}
    rows, _ = claimed(place, "llama-w")
    assert rows == [{"name": "gangline-gpu", "resourceClaimTemplateName": "written-by-gangline"}]


def test_a_template_that_somebody_deleted_is_made_again() -> None:
    place = running(role("w", 1, 1, **FIELDS))
    infos = admitted(place.job)
    place.settle(infos)
    before = set(place.templates)
    place.templates.clear()
    place.settle(infos)
    assert set(place.templates) == before


def test_templates_go_once_the_gang_is_stopped() -> None:
    place = running(role("w", 1, 1, **FIELDS))
    place.settle(admitted(place.job))
    place.job["spec"]["suspend"] = True
    place.sync(None)
    assert place.templates, "its Jobs are only being deleted"
    place.collect()
    place.settle(None)
    assert place.templates == {} and place.jobs == {}


def test_another_share_is_another_template() -> None:
    made: set[str] = set()
    for change in ({}, {"percent": 40}, {"memory": "4Gi"}, {"compute": "cores"}, {"deviceClass": "other-gpu.com"}):
        place = running(role("w", 1, 1, share={**CLAIMED, **change}))
        place.settle(admitted(place.job))
        made |= set(place.templates)
    assert len(made) == 5


def test_it_needs_an_api_server_with_claims() -> None:
    needed = KIND.needed_kinds(gpu_job(role("a", 1, 1, share=HALF), role("b", 1, 1, **FIELDS)))
    assert needed == dict.fromkeys((kube.RESOURCE_CLAIM_TEMPLATES, kube.RESOURCE_CLAIMS), "spec.roles[1].share.by")
    assert set(KIND.needed_kinds(gpu_job(workers=1, gpusPerWorker=1, **FIELDS)).values()) == {"spec.share.by"}
    assert KIND.needed_kinds(gpu_job(role("a", 1, 1, share=HALF))) == {}
