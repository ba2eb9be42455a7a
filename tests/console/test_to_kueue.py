"""`gangline to-kueue`: cards go out of admissions, and nothing else changes."""

from __future__ import annotations

import copy
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.console.objects import workload

from gangline.api.read import render
from gangline.console.cli import main
from gangline.console.commands.administer import to_kueue
from gangline.console.views import access
from gangline.engine import model
from gangline.kube.client import Listing
from gangline.kube.errors import Conflict, NotFound
from gangline.kube.resources import LEASES, WORKLOADS, Json, Resource

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
    """Of Workloads and one Lease. `between`: versions that others write before each patch."""

    def __init__(self, *workloads: Json, lease: Json | None = None, between: int = 0) -> None:
        self.workloads = {each["metadata"]["name"]: each for each in workloads}
        self.lease, self.between, self.patched = lease, between, list[str]()

    async def list(self, resource: Resource, namespace: str | None = None) -> Listing:
        assert resource == WORKLOADS and namespace is None
        return Listing(copy.deepcopy(list(self.workloads.values())), "1")

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        if resource == LEASES and self.lease is not None:
            return self.lease
        if resource == LEASES or name not in self.workloads:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.workloads[name])

    async def patch(self, resource: Resource, namespace: str, name: str, body: Json, *, subresource: str) -> None:
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
    assert await to_kueue.prepared(api) == to_kueue.Outcome(("ns/w",))  # type: ignore[arg-type]
    (row,) = api.workloads["w"]["status"]["admission"]["podSetAssignments"]
    (wanted,) = placed("w", model.Domain(("n1",), 2), model.Domain(("n2",), 1))["status"]["admission"][
        "podSetAssignments"
    ]
    assert row == wanted and api.workloads["plain"] == before
    assert await to_kueue.prepared(api) == to_kueue.Outcome()  # type: ignore[arg-type]


async def test_a_dry_run_writes_nothing() -> None:
    api = Api(carded())
    assert await to_kueue.prepared(api, dry_run=True) == to_kueue.Outcome(("ns/w",))  # type: ignore[arg-type]
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
    assert await to_kueue._leader(api) == holder  # type: ignore[arg-type]


def test_the_command_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Any] = [to_kueue.Outcome(("ns/w",), (("ns/x", "trouble"),)), to_kueue.Outcome()]

    def run(work: Any) -> Any:
        work.close()
        return answers.pop(0)

    monkeypatch.setattr(access, "run", run)
    told = CliRunner().invoke(main, ["to-kueue"])
    assert told.exit_code == 1 and "workload/ns/w: names no cards any more" in told.output and "trouble" in told.output
    told = CliRunner().invoke(main, ["to-kueue"])
    assert told.exit_code == 0 and "No admission names cards." in told.output
    assert isinstance(to_kueue.command, click.Command)
