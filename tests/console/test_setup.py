"""`gangline setup` as a command, on a stand-in for the API server: what is printed, applied, asked and tried."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from gangline.console.cli import main
from gangline.console.views import access, asking
from gangline.kube import resources as kube
from gangline.kube.errors import NotFound
from gangline.kube.ownership import CLUSTER_ROLES

Json = dict[str, Any]
STARTS = {"status": {"startsInSeconds": {"p50": 0, "p90": 0}, "obstacle": ""}}


class Api:
    """Keeps objects; an apply merges, as far as these objects need it. `answers`: to what-ifs, one after the other."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.writes: list[str] = []
        for n in range(8):
            offered = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti", "pods": "110"}
            meta = {"name": f"n{n}", "labels": {"cloud.google.com/gke-accelerator": "a100"}}
            self.put(
                kube.NODES, {"metadata": meta, "spec": {}, "status": {"allocatable": offered, "capacity": offered}}
            )
        for role in ("gangline-researcher-role", "kueue-workloadpriorityclass-viewer-role"):
            self.put(CLUSTER_ROLES, {"metadata": {"name": role}})

    def put(self, resource: kube.Resource, body: Json) -> None:
        self.objects[resource.plural, body["metadata"].get("namespace") or "", body["metadata"]["name"]] = body

    async def get(self, resource: kube.Resource, namespace: str | None, name: str, **_: Any) -> Json:
        try:
            return copy.deepcopy(self.objects[resource.plural, namespace or "", name])
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource.plural} {name} not found") from None

    async def list(self, resource: kube.Resource, namespace: str | None = None, **_: Any) -> Any:
        found = [copy.deepcopy(body) for (plural, _, _), body in self.objects.items() if plural == resource.plural]
        return SimpleNamespace(items=found)

    async def patch(
        self, resource: kube.Resource, namespace: str | None, name: str, body: Json, *, query: Json, **how: Any
    ) -> Json:
        assert (how["kind"], query["fieldValidation"]) == ("apply", "Strict")
        if namespace and namespace not in ("default",):
            assert ("namespaces", "", namespace) in self.objects, "the namespace comes first"
        before = self.objects.get((resource.plural, namespace or "", name), {})
        after = {**before, **copy.deepcopy(body)}
        if resource == kube.CLUSTER_QUEUES:
            after["status"] = {"conditions": [{"type": "Active", "status": "True", "reason": "Ready"}]}
        if resource == kube.NAMESPACES:
            after["metadata"] = {"name": name, "labels": {"kubernetes.io/metadata.name": name}}
        if query.get("dryRun") != "All":
            self.put(resource, after)
            self.writes.append(f"{resource.kind}/{name}")
        return after


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()

    @asynccontextmanager
    async def client(*_: Any) -> AsyncIterator[Api]:
        yield made

    async def clock(self: Any) -> tuple[int, float]:
        return 1_700_000_000_000, 0.0

    async def answer(api: Any, path: str, body: Json) -> Json:
        assert path.endswith("/whatifs") and body["spec"]["job"]["spec"]["suspend"]
        return STARTS

    monkeypatch.setattr(access, "client", client)
    monkeypatch.setattr("gangline.console.doctor.cluster.ClusterReads.server_clock", clock)
    monkeypatch.setattr(asking, "create", answer)
    return made


def call(line: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["setup", *line.split()], input=text)


def test_the_objects_are_printed_and_nothing_is_written(api: Api) -> None:
    done = call("vision --gpus 40 --group vision-researchers")
    assert done.exit_code == 0, done.output
    found = [body["kind"] for body in yaml.safe_load_all(done.stdout)]
    assert found == ["ResourceFlavor", "ClusterQueue", "Namespace", "LocalQueue", "RoleBinding", "ClusterRoleBinding"]
    assert "# a100: 8 nodes" in done.stderr and "64 nvidia.com/gpu, 768 cpu, 8Ti memory, 880 pods" in done.stderr
    assert not api.writes


def test_they_are_applied_and_a_job_would_start(api: Api) -> None:
    done = call("vision --gpus 40 --group vision-researchers --apply -y")
    assert done.exit_code == 0, done.output
    assert "+ ClusterQueue vision" in done.stdout and "✓ LocalQueue vision/gpus" in done.stdout
    assert "✓ doctor finds nothing wrong with it" in done.stdout
    assert "✓ A job of one GPU in LocalQueue gpus would start at once." in done.stdout
    assert api.writes[:2] == ["ResourceFlavor/a100", "ClusterQueue/vision"]


def test_the_same_again_changes_nothing(api: Api) -> None:
    line = "vision --gpus 40 --group vision-researchers --apply -y"
    assert call(line).exit_code == 0
    api.writes.clear()
    for again in (line, "vision --apply -y"):
        done = call(again)
        assert done.exit_code == 0 and "Nothing changes." in done.stdout, done.output
        assert not api.writes


def test_what_exists_is_changed_only_after_it_was_said(api: Api) -> None:
    call("vision --gpus 40 --apply -y")
    api.writes.clear()
    done = call("vision --gpus 48 --apply -y")
    assert "~ ClusterQueue vision, which exists" in done.stdout
    assert "flavors[a100].resources[nvidia.com/gpu].nominalQuota: 40 → 48" in done.stdout
    assert api.writes == ["ClusterQueue/vision"]


def test_without_a_terminal_it_has_to_be_told_not_to_ask(api: Api) -> None:
    done = call("vision --apply")
    assert done.exit_code == 2 and "add -y" in done.output and not api.writes
    done = call("--apply -y")
    assert done.exit_code == 2 and "name the TEAM" in done.output


def test_a_terminal_is_asked_for_what_no_option_says(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.console.output.terminal.can_ask", lambda: True)
    done = call("", "vision\n\n24\nresearch\nvision-researchers\n\ny\n")
    assert done.exit_code == 0, done.output
    queue = api.objects["clusterqueues", "", "vision"]["spec"]
    assert queue["cohortName"] == "research"
    assert queue["resourceGroups"][0]["flavors"][0]["resources"][0] == {"name": "nvidia.com/gpu", "nominalQuota": 24}
    assert ("rolebindings", "vision", "gangline-researchers") in api.objects
    assert ("rolebindings", "vision", "gangline-terminals") not in api.objects, "an empty answer is a no"
    assert call("", "vision\n\n24\nresearch\nvision-researchers\ny\ny\n").exit_code == 0
    assert ("rolebindings", "vision", "gangline-terminals") in api.objects
    api.writes.clear()
    assert call("vision --gpus 30 --apply", "n\n").exit_code == 0 and not api.writes, "a no writes nothing"


def test_a_job_that_would_not_start_is_a_failure(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any) -> Json:
        return {"status": {"startsInSeconds": None, "obstacle": "no node of a100 is usable"}}

    monkeypatch.setattr(asking, "create", never)
    done = call("vision --gpus 40 --apply -y")
    assert done.exit_code == 1 and "would not start: no node of a100 is usable" in done.stdout


def test_without_an_operator_it_is_said_to_be_unknown(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Json:
        raise asking.NotServedError("no operator serves its answers on this cluster")

    monkeypatch.setattr(asking, "create", away)
    done = call("vision --gpus 40 --apply -y")
    assert done.exit_code == 0 and "? whether a job would start is not known: no operator" in done.stdout


def test_what_doctor_finds_about_the_teams_objects_is_said(api: Api) -> None:
    for key in [key for key in api.objects if key[0] == "clusterroles"]:
        del api.objects[key]
    api.put(kube.RESOURCE_FLAVORS, {"metadata": {"name": "lost"}, "spec": {"nodeLabels": {"pool": "none"}}})
    done = call("vision --gpus 40 --group g --apply -y")
    assert "there is no ClusterRole gangline-researcher-role" in done.stdout
    assert "lost" not in done.stdout, "it is not of this team"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vision --gpus many", "Invalid value for --gpus: 'many' is neither a number of GPUs nor FLAVOR=N"),
        ("vision --gpus ٤", "neither a number"),
        ("vision --gpus 99999999999999999999", "neither a number"),
        ("vision --gpus 8 --gpus a100=8", "give one number, or one for each flavor"),
        ("vision --gpus 65", "Invalid value for --gpus: the nodes of a100 have 64 GPUs"),
        ("Vision", "Invalid value for TEAM"),
        ("vision -n kube-system", "Invalid value for --namespace"),
        ("vision --borrow 8", "Invalid value for --borrow"),
        ("vision --terminals", "Invalid value for --terminals: say who may open terminals"),
        ("vision --flavor-label nope", "Invalid value for --flavor-label: 8 GPU nodes have no label nope"),
    ],
)
def test_odd_input_is_refused_naming_the_option(api: Api, line: str, words: str) -> None:
    done = call(line)
    assert done.exit_code == 2 and words in " ".join(done.output.split())
    assert not api.writes
