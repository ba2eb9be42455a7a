"""`gangline admin to-kueue`: cards go out of admissions, and nothing else changes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.console.objects import workload

from gangline.api.read import render
from gangline.console.cli import main
from gangline.console.commands.admin import to_kueue
from gangline.console.views import access
from gangline.engine import model
from gangline.kube.client import ObjectList
from gangline.kube.errors import Conflict, Forbidden, NotFound
from gangline.kube.resources import LEASES, PODS, WORKLOADS, Json, Resource

HOST = "kubernetes.io/hostname"
SEAT = model.CardSeat("GPU-1", 500, 8192)


def placed(name: str, *domains: model.Domain, version: str = "1") -> Json:
    topology = model.TopologyAssignment((HOST,), domains) if domains else None
    count = sum(each.count for each in domains) or 1
    admission = model.Admission("cq", (model.PodSetAssignment("main", count, {"cpu": "f"}, {"cpu": 1000}, topology),))
    found = workload(name)
    found["metadata"] |= {"namespace": "ns", "name": name, "resourceVersion": version}
    found["status"] = {**found.get("status", {}), "admission": render.admission(admission)}
    return found


class Api:
    """Of Workloads, pods and one Lease. `between`: versions that others write before each patch."""

    def __init__(
        self, *workloads: Json, lease: Json | None = None, between: int = 0, pods: Sequence[Json] = ()
    ) -> None:
        self.workloads = {each["metadata"]["name"]: each for each in workloads}
        self.lease, self.between, self.patched = lease, between, list[str]()
        self.pods = {each["metadata"]["name"]: each for each in pods}
        self.bodies: dict[str, Json] = {}

    async def list(self, resource: Resource, namespace: str | None = None, *, field_selector: str = "") -> ObjectList:
        assert namespace is None
        if resource == PODS:
            assert field_selector == "status.phase=Pending"
            return ObjectList(copy.deepcopy(list(self.pods.values())), "1")
        assert resource == WORKLOADS
        return ObjectList(copy.deepcopy(list(self.workloads.values())), "1")

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if resource == LEASES and self.lease is not None:
            return self.lease
        if resource == LEASES or name not in self.workloads:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.workloads[name])

    async def patch(self, resource: Resource, namespace: str, name: str, body: Json, *, subresource: str = "") -> None:
        if resource == PODS:
            if name == "refused":
                raise Forbidden(403, "Forbidden", "no")
            self.bodies[name] = body
            return
        assert (resource, namespace, subresource) == (WORKLOADS, "ns", "status")
        known = self.workloads[name]
        if self.between:
            self.between -= 1
            known["metadata"]["resourceVersion"] += "1"
        if body["metadata"]["resourceVersion"] != known["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "changed")
        known["status"]["admission"] |= body["status"]["admission"]
        self.patched.append(name)


def carded(name: str = "w") -> Json:
    return placed(name, model.Domain(("n1",), 2, ((SEAT,), (SEAT,))), model.Domain(("n2",), 1, ((SEAT,),)))


async def test_cards_go_and_hosts_stay() -> None:
    plain, waits = placed("plain", model.Domain(("n1",), 2)), placed("none")
    del waits["status"]["admission"]
    api = Api(carded(), plain, waits)
    before = copy.deepcopy(plain)
    assert await to_kueue.prepared(api) == to_kueue.ToKueueResult(("ns/w",))  # type: ignore[arg-type]
    (row,) = api.workloads["w"]["status"]["admission"]["podSetAssignments"]
    (wanted,) = placed("w", model.Domain(("n1",), 2), model.Domain(("n2",), 1))["status"]["admission"][
        "podSetAssignments"
    ]
    assert row == wanted and api.workloads["plain"] == before
    assert await to_kueue.prepared(api) == to_kueue.ToKueueResult()  # type: ignore[arg-type]


async def test_a_dry_run_writes_nothing() -> None:
    api = Api(carded())
    assert await to_kueue.prepared(api, dry_run=True) == to_kueue.ToKueueResult(("ns/w",))  # type: ignore[arg-type]
    assert api.patched == []


async def test_what_somebody_changed_meanwhile_is_read_again_but_not_for_ever() -> None:
    assert (await to_kueue.prepared(Api(carded(), between=3))).changed == ("ns/w",)  # type: ignore[arg-type]
    outcome = await to_kueue.prepared(Api(carded(), between=99))  # type: ignore[arg-type]
    assert outcome.changed == () and "is an operator running?" in outcome.failed[0][1]


async def test_one_workload_that_cannot_be_read_costs_no_other() -> None:
    broken = carded("broken")
    broken["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]["slices"] = [{"domainCount": 1}]
    outcome = await to_kueue.prepared(Api(broken, carded()))  # type: ignore[arg-type]
    assert outcome.changed == ("ns/w",) and [name for name, _ in outcome.failed] == ["ns/broken"]


@pytest.mark.parametrize(
    ("lease", "holder"),
    [
        (None, ""),
        ({"spec": {"holderIdentity": "op_1", "renewTime": "2999-01-01T00:00:00.000000Z"}}, "op_1"),
        ({"spec": {"holderIdentity": "op_1", "renewTime": "2020-01-01T00:00:00.000000Z"}}, ""),
        ({"spec": {"holderIdentity": "", "renewTime": "2999-01-01T00:00:00.000000Z"}}, ""),
    ],
)
async def test_while_an_operator_leads_nothing_is_changed(
    lease: Json | None, holder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Api(carded(), lease=lease)
    assert await to_kueue.leader(api) == holder  # type: ignore[arg-type]


def gated(name: str, *gates: str, claims: bool = True) -> Json:
    meta: Json = {"namespace": "ns", "name": name, "uid": name, "resourceVersion": "7", "labels": {}}
    meta["annotations"] = {"kueue.x-k8s.io/workload": "w"} if claims else {}
    return {"metadata": meta, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}, "status": {}}


async def test_pods_that_wait_for_a_node_wait_no_longer() -> None:
    """Kueue opens its own gates; nobody would open these."""
    pods = (
        gated("a", "other", "gangline.io/domain"),
        gated("b", "kueue.x-k8s.io/topology"),
        gated("queued", "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"),
        gated("elsewhere", "kueue.x-k8s.io/topology", claims=False),
        gated("elastic", "kueue.x-k8s.io/elastic-job", "gangline.io/domain"),
        gated("refused", "gangline.io/domain"),
    )
    api = Api(pods=pods)
    outcome = await to_kueue.prepared(api)  # type: ignore[arg-type]
    assert outcome.pods == ("ns/a", "ns/b", "ns/elastic")
    assert [name for name, _ in outcome.failed_pods] == ["ns/refused"]
    assert api.bodies["a"] == {"metadata": {"resourceVersion": "7"}, "spec": {"schedulingGates": [{"name": "other"}]}}
    assert api.bodies["elastic"]["spec"] == {"schedulingGates": [{"name": "kueue.x-k8s.io/elastic-job"}]}
    dry = Api(pods=pods[:1])
    assert (await to_kueue.prepared(dry, dry_run=True)).pods == ("ns/a",) and not dry.bodies  # type: ignore[arg-type]


def test_the_command_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [
        to_kueue.ToKueueResult(("ns/w",), (("ns/x", "trouble"),), ("ns/p",), (("ns/q", "no"),)),
        to_kueue.ToKueueResult(),
    ]

    def run(work: Any) -> Any:
        work.close()
        return answers.pop(0)

    monkeypatch.setattr(access, "run", run)
    result = CliRunner().invoke(main, ["admin", "to-kueue"])
    assert (
        result.exit_code == 1
        and "workload/ns/w: names no cards any more" in result.output
        and "trouble" in result.output
    )
    assert "pod/ns/p: waits for no node any more" in result.output and "pod/ns/q: no" in result.output
    result = CliRunner().invoke(main, ["admin", "to-kueue"])
    assert result.exit_code == 0 and "No admission names cards." in result.output
    assert isinstance(to_kueue.command, click.Command)
