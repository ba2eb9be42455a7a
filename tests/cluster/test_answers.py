"""What people see: a user with a user's rights in one namespace, and no others, asks with the commands and the API."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from click.testing import CliRunner, Result
from tests.cluster import accounts, harness
from tests.cluster.conftest import System

from gangline.console.cli import main
from gangline.console.views import watch
from gangline.control.answers.api import api_service
from gangline.control.answers.api.aggregated_api import AggregatedApiOptions
from gangline.control.process.operator_process import ForecastOptions
from gangline.devcluster.components import Layout
from gangline.install import rights
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.config import load
from gangline.kube.errors import Forbidden, Invalid, NotFound

pytestmark = pytest.mark.cluster
Json = dict[str, Any]
Run = Callable[..., Awaitable[Result]]
ROOT = "/apis/answers.gangline.io/v1alpha1"
HERE = AggregatedApiOptions(("127.0.0.1", 0), "127.0.0.1")
SECRET = "secret-team"
#: what a user of a namespace may do there, beside asking: Kueue's role for users grants these, too
USER = [
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "localqueues"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "delete"]},
]


@dataclass(frozen=True)
class Person:
    """A user with a kubeconfig of her own."""

    kubeconfig: Path

    async def run(self, *arguments: str) -> Result:
        command = [*arguments, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, main, command)  # a command runs an event loop of its own


@pytest.fixture
async def people(system: System, api: harness.Api, tmp_path: Path) -> AsyncIterator[dict[str, Person]]:
    """`alice` is a user of namespace `default`; `nobody` has no rights; the other team's namespace exists."""
    namespace: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SECRET}}
    await api.client.patch(kube.NAMESPACES, None, SECRET, namespace, kind="apply", field_manager="test", force=True)
    group = "rbac.authorization.k8s.io"
    role = {
        "kind": "Role",
        "metadata": {"name": "user", "namespace": "default"},
        "rules": [*rights.people_rules(), *USER],
    }
    subject = {"kind": "ServiceAccount", "name": "alice", "namespace": "default"}
    binding: Json = {
        "kind": "RoleBinding",
        "metadata": {"name": "user", "namespace": "default"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "user"},
        "subjects": [subject],
    }
    made = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": n}} for n in ("alice", "nobody")]
    for body in (*made, {"apiVersion": f"{group}/v1", **role}, {"apiVersion": f"{group}/v1", **binding}):
        resource, name = accounts.RESOURCES[body["kind"]], body["metadata"]["name"]
        await api.client.patch(resource, "default", name, body, kind="apply", field_manager="test", force=True)
    yield {name: await login(api, system, name, tmp_path) for name in ("alice", "nobody")}
    system.kill_operators()
    await api.wipe(SECRET)


async def login(api: harness.Api, system: System, account: str, directory: Path) -> Person:
    tokens = kube.Resource("", "v1", f"serviceaccounts/{account}/token")
    answer = await api.client.create(tokens, "default", {"spec": {"expirationSeconds": 3600}})
    config = yaml.safe_load(system.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    path = directory / f"{account}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return Person(path)


def job(name: str, gpus: int, expected: str, namespace: str = "default", queue: str = "mine") -> Json:
    made = harness.job(name, queue, gpus=gpus, runtime="600s", namespace=namespace)
    made["metadata"]["annotations"] = {"gangline.io/expected-runtime": expected}
    return made


async def busy(api: harness.Api) -> None:
    """Of 8 GPUs the other team's job has 6 and ours 2; the other team waits before us, with a name that nobody is to learn."""
    theirs = harness.local_queue(f"{SECRET}-queue", "shared", SECRET)
    await api.apply(harness.flavor(), harness.cluster_queue("shared", 8), harness.local_queue("mine", "shared"), theirs)
    away = {"namespace": SECRET, "queue": f"{SECRET}-queue"}
    # no tie, however late anything is written: the other team's 6 GPUs are free long before our 2, and its next job, which is
    # before ours, needs all of them and more
    await api.create(job(f"{SECRET}-runs", 6, "20m", **away), job("runs", 2, "5h"))

    async def both_run() -> bool:
        found = [await api.workload_of("runs"), await api.workload_of(f"{SECRET}-runs", SECRET)]
        return all(each is not None and harness.condition(each, "Admitted") for each in found)

    await api.until(both_run, "both teams run")
    await api.create(job(f"{SECRET}-waits", 4, "10m", **away))

    async def theirs_is_queued() -> bool:
        return await api.workload_of(f"{SECRET}-waits", SECRET) is not None

    # of a later second than its Workload, not its job: the age of Workloads decides who is first
    await api.until(theirs_is_queued, "the other team's second job is queued")
    await asyncio.sleep(1.1)
    await api.create(job("waits", 4, "10m"))

    async def waits() -> bool:
        found = await api.workload_of("waits")
        return found is not None and bool(harness.condition_row(found, "QuotaReserved").get("message"))

    await api.until(waits, "our job says why it waits")


async def test_a_user_is_told_the_truth_and_nothing_of_others(
    system: System, api: harness.Api, people: dict[str, Person], tmp_path: Path
) -> None:
    forecasts = ForecastOptions(str(tmp_path / "history.db"), tmp_path / "model.gz", use_model=False)
    operator = system.operator("answers", visibility=HERE, forecasts=forecasts).wait_ready()
    await busy(api)
    alice = people["alice"]
    results: list[Result] = []

    async def ask(*arguments: str) -> str:
        """What a command says, which must be without trouble, and of no other team."""
        result = await alice.run(*arguments)
        results.append(result)
        assert result.exit_code == 0, result.output
        return result.stdout

    async def served() -> bool:  # a moment after its registration
        return (await alice.run("eta", "waits")).exit_code == 0

    await api.until(served, "the answers are served")
    rows = [line.split() for line in (await ask("queue")).splitlines()[1:]]
    assert [(row[1], row[4], row[6]) for row in rows] == [("runs", "2", "Running"), ("waits", "4", "Pending")]
    assert rows[1][7] == "2", "the other team's job is before it"
    times = (await ask("queue", "-t")).splitlines()
    assert "STARTS IN" in times[0] and "10m – " in times[2] and "–" in times[2].partition("10m – ")[2]
    whole = (await ask("queue", "-q", "shared", "-t")).splitlines()
    assert sum("hidden-" in line for line in whole) == 2 and len(whole) == 5
    why = await ask("why", "job/waits")
    assert "2nd of 2 waiting in ClusterQueue shared" in why
    assert "(4 GPUs)" in next(line for line in why.splitlines() if line.strip().startswith("ahead"))
    assert "gpu: shared uses 8 of its 8 GPUs" in why
    assert "job/runs (2," in why and "hidden-" in why
    assert "insufficient unused quota" in await ask("why", "waits", "--history")
    (first,) = json.loads(await ask("eta", "waits", "-o", "json"))
    assert first["expectedStart"]["p50"].endswith("Z") and "hidden-" in first["because"]
    assert first["forecast"]["source"] == "Hint"
    assert "waits" in await ask("eta")
    plan = json.loads(await ask("plan", "-o", "json"))
    assert sorted(run["job"] for run in plan if not run["job"].startswith("hidden-")) == ["runs", "waits"]
    assert len(plan) == 4
    manifest = tmp_path / "job.yaml"
    manifest.write_text(yaml.safe_dump(job("asked", 8, "1h")))
    answer = json.loads(await ask("whatif", "-f", str(manifest), "-o", "json"))
    assert answer["startsInSeconds"]["p50"] > 0 and answer["because"].startswith("after ")
    assert any("GPUs instead of 8" in offer["change"] for offer in answer["suggestions"])
    assert "no forecast could be checked yet" in await ask("eta", "--accuracy")
    happened = json.loads(await ask("events", "-o", "json"))
    assert {(each["jobName"], each["event"]) for each in happened} >= {("runs", "Starting"), ("waits", "Submitted")}
    shared = json.loads(await ask("events", "-q", "shared", "-o", "json"))
    assert {each["gpus"] for each in shared if each["hidden"]} == {6, 4}
    await events_are_sent_while_they_happen(api, alice)
    everywhere = await alice.run("queue", "-A")
    assert "you may not ask about all namespaces" in everywhere.stderr and "waits" in everywhere.stdout
    for result in (*results, everywhere):
        assert SECRET not in result.output
    await an_administrator_sees_all_of_it(system)
    await the_api_server_guards_it(system, api, people)

    operator.kill()
    await where_nobody_answers(api, alice)
    system.operator("answers-again", visibility=HERE, forecasts=forecasts).wait_ready()
    await api.until(served, "the next leader serves them")
    assert system.running[-1].stop() == 0
    with pytest.raises(NotFound):
        await api.client.get(api_service.API_SERVICES, None, "v1alpha1.answers.gangline.io")
    gone = await alice.run("queue")
    assert gone.exit_code == 0 and "no operator serves its answers on this cluster" in gone.stderr


async def events_are_sent_while_they_happen(api: harness.Api, alice: Person) -> None:
    """Through the API server, with the user's own rights: the stream goes on after the list, and tells of others the size."""
    path, query = f"{ROOT}/namespaces/default/jobevents", {"clusterQueue": "shared"}
    async with ApiClient(load(alice.kubeconfig)) as client:
        listed = json.loads(await client.raw(f"{path}?clusterQueue=shared"))
        stream = watch.events(client, "default", listed["metadata"]["resourceVersion"], query)
        await api.create(job("told", 1, "10m"), job(f"{SECRET}-told", 3, "10m", SECRET, f"{SECRET}-queue"))
        received: list[Json] = []
        async with asyncio.timeout(60):
            async for event in stream:
                received.append(event)
                if {each["gpus"] for each in received if each["event"] == "Submitted"} == {1, 3}:
                    break
    assert SECRET not in json.dumps(received)
    assert {each["jobName"] for each in received if not each["hidden"]} == {"told"}
    for name, namespace in (("told", "default"), (f"{SECRET}-told", SECRET)):
        await api.client.delete(kube.JOBS, namespace, name, propagation="Background")

    async def gone() -> bool:
        return not [await api.workload_of("told"), await api.workload_of(f"{SECRET}-told", SECRET)].count(None) < 2

    await api.until(gone, "the two are gone again")


async def an_administrator_sees_all_of_it(system: System) -> None:
    result = await Person(system.kubeconfig).run("queue", "-A")
    assert f"{SECRET}-waits" in result.stdout and "hidden-" not in result.stdout
    result = await Person(system.kubeconfig).run("plan")
    assert f"{SECRET}-runs" in result.stdout


async def the_api_server_guards_it(system: System, api: harness.Api, people: dict[str, Person]) -> None:
    async with ApiClient(load(people["nobody"].kubeconfig)) as client:
        with pytest.raises(Forbidden):
            await client.raw(f"{ROOT}/namespaces/default/queuedjobs")
    refused = await people["nobody"].run("queue")
    assert refused.exit_code == 1 and "waits" not in refused.output
    async with ApiClient(load(people["alice"].kubeconfig)) as client:
        listed = json.loads(await client.raw(f"{ROOT}/namespaces/default/queuedjobs?limit=1"))
        assert (listed["kind"], len(listed["items"])) == ("QueuedJobList", 1)
        assert listed["metadata"] == {"continue": "1", "remainingItemCount": 1}
        for path in (f"namespaces/{SECRET}/queuedjobs", "queuedjobs", f"namespaces/{SECRET}/queuedjobs/x/why"):
            with pytest.raises(Forbidden):
                await client.raw(f"{ROOT}/{path}")
        with pytest.raises(Invalid, match="limit must be a whole number"):
            await client.raw(f"{ROOT}/namespaces/default/queuedjobs?limit=many")
        with pytest.raises(NotFound, match="no LocalQueue of namespace default leads to a ClusterQueue 'theirs'"):
            await client.raw(f"{ROOT}/namespaces/default/queuedjobs?clusterQueue=theirs")
    kinds = json.loads(await api.client.raw(ROOT))["resources"]
    assert {"queuedjobs", "queuedjobs/why", "plannedruns", "whatifs"} <= {kind["name"] for kind in kinds}
    schema = json.loads(await api.client.raw("/openapi/v3"))["paths"]
    assert "apis/answers.gangline.io/v1alpha1" in schema
    registered = await api.client.get(api_service.API_SERVICES, None, "v1alpha1.answers.gangline.io")
    port = registered["spec"]["service"]["port"]
    assert await asked_directly(system, port, "bob") == 403
    assert await asked_directly(system, port, "system:serviceaccount:default:alice") == 200


async def asked_directly(system: System, port: int, user: str) -> int:
    """The answer's status, past the API server, as the aggregator, which may name any user."""
    pki = Layout(system.kubeconfig.parent)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(pki.certificate("front-proxy"), pki.key("front-proxy"))
    headers = {"X-Remote-User": user, "X-Remote-Group": "system:authenticated"}
    url = f"https://127.0.0.1:{port}{ROOT}/namespaces/default/queuedjobs"
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers, ssl=context) as answer:
        return answer.status


async def where_nobody_answers(api: harness.Api, alice: Person) -> None:
    """The operator is dead and its registration stays: a sentence, what she may read herself, and nothing that is false."""
    queue = await alice.run("queue")
    assert queue.exit_code == 0, queue.output
    assert "the operator does not answer" in queue.stderr and "without positions" in queue.stderr
    rows = {line.split()[1]: line for line in queue.stdout.splitlines()[1:]}
    assert set(rows) == {"runs", "waits"} and "Pending       " in rows["waits"], "no position"
    why = await alice.run("why", "waits")
    assert why.exit_code == 0 and "Pending for" in why.stdout and "4 more GPUs" in why.stdout
    for word in ("waiting in", "ahead", "held by", "frees as much"):
        assert word not in why.stdout
    history = await alice.run("why", "waits", "--history")
    assert history.exit_code == 0 and "from the Workload's conditions" in history.stderr
    for command in (("eta",), ("plan",), ("queue", "-t")):
        refused = await alice.run(*command)
        assert refused.exit_code == 1 and "the operator does not answer" in refused.output
        assert "you may not list" in refused.output and "Traceback" not in refused.output
