"""ClusterProfiles: what is read of them; and programs that fetch credentials, which may hang, never stop, or talk rubbish."""

from __future__ import annotations

import asyncio
import stat
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from tests.control.test_remote_clusters import Server, inactive, server
from tests.kube.fake_server import Answer, FakeServer

from gangline.api.read import configuration
from gangline.api.read.configuration import ConfigurationError
from gangline.api.read.configuration.access_providers import AccessProvider
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.control.checks.multikueue.clusters import kubeconfigs, profiles, remote_cluster
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.control.checks.multikueue.clusters.profiles import ClusterAccess, Profiles, access_of
from gangline.control.checks.multikueue.clusters.remote_cluster import RemoteCluster
from gangline.kube import tokens
from gangline.kube.client import ApiClient

__all__ = ["server"]

Json = dict[str, Any]
V1 = "client.authentication.k8s.io/v1"
CLOUD = AccessProvider("cloud", "/plugins/login", V1, ("get-token",), (("REGION", "eu"),))
OTHER = AccessProvider("other", "other-login", V1)
ON = MultiKueueSettings(profiles=True, access_providers=(CLOUD, OTHER))


def profile(access: Any = (), old: Any = ()) -> Json:
    return {"status": {"accessProviders": access, "credentialProviders": old}}


def entry(name: str, server: str = "https://10.0.0.1:6443", **cluster: Any) -> Json:
    return {"name": name, "cluster": {"server": server, **cluster}}


def server_of(access: ClusterAccess | None) -> str:
    return access.cluster.get("server", "") if access is not None else ""


# --- what a profile says ----------------------------------------------------------------------------------------------


def test_the_first_provider_of_the_configuration_that_the_profile_has_is_taken() -> None:
    both = profile([entry("other", "https://b"), entry("cloud", "https://a")])
    found = access_of(both, (CLOUD, OTHER))
    assert found is not None and (found.provider, server_of(found)) == (CLOUD, "https://a")
    assert access_of(both, (replace(CLOUD, name="third"),)) is None
    assert access_of(both, ()) is None


def test_the_old_field_counts_unless_the_new_one_has_the_name() -> None:
    old = [entry("cloud", "https://old"), entry("other", "https://older")]
    assert server_of(access_of(profile([], old), (CLOUD,))) == "https://old"
    assert server_of(access_of(profile([entry("cloud", "https://new")], old), (CLOUD,))) == "https://new"
    assert server_of(access_of(profile([entry("cloud", "https://new")], old), (OTHER, CLOUD))) == "https://older"


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"status": None},
        {"status": []},
        profile("x"),
        profile([None, 5, {"name": ["cloud"]}, {"cluster": {}}]),
        profile({"name": "cloud"}),
    ],
)
def test_a_profile_of_another_shape_lists_nothing(odd: Json) -> None:
    assert access_of(odd, (CLOUD,)) is None


def login_of(**cluster: Any) -> Any:
    found = access_of(profile([entry("cloud", **cluster)]), (CLOUD,))
    assert found is not None
    return kubeconfigs.login_by_plugin(orjson.dumps(found.kubeconfig("p")).decode(), "p")


def test_a_profile_names_no_program_and_adds_nothing_to_one() -> None:
    added = [
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-args", "extension": ["--evil"]},
        {"name": "clusterprofiles.multicluster.x-k8s.io/exec/additional-envs", "extension": {"LD_PRELOAD": "evil.so"}},
    ]
    odd = entry("cloud", extensions=added, exec={"command": "sh"}, user={"exec": {"command": "sh"}})
    found = access_of(profile([odd]), (CLOUD,))
    assert found is not None
    written = found.kubeconfig("p")
    [user] = written["users"]
    assert user["user"] == {"exec": CLOUD.plugin}
    assert CLOUD.plugin["interactiveMode"] == "Never"
    assert set(written["clusters"][0]["cluster"]) == {"server", "extensions"}
    assert login_of().server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("cluster", "reason", "words"),
    [
        ({"server": "http://10.0.0.1"}, "BadRestConfig", "untrusted server endpoint"),
        ({"server": "https://under_score"}, "BadRestConfig", "untrusted server endpoint"),
        ({"server": ""}, "BadRestConfig", "server URL is required"),
        ({"insecure-skip-tls-verify": True}, "BadRestConfig", "insecure TLS verification is not allowed"),
        ({"certificate-authority": "/etc/passwd"}, "BadRestConfig", "file paths are not allowed"),
        ({"certificate-authority-data": "%"}, "BadClusterProfile", "certificate-authority-data"),
        ({"certificate-authority-data": "YQ=="}, "BadClusterProfile", "certificate-authority"),
        ({"certificate-authority-data": 5}, "BadClusterProfile", "a string is wanted"),
        ({"tls-server-name": ["a"]}, "BadClusterProfile", "a string is wanted"),
        ({"tls-server-name": "x" * 70_000}, "BadClusterProfile", "longer than"),
    ],
)
def test_what_a_profile_may_not_say(cluster: Json, reason: str, words: str) -> None:
    with pytest.raises(KubeconfigError, match=words) as caught:
        login_of(**cluster)
    assert caught.value.reason == reason and len(str(caught.value)) < 1000


# --- the profiles that there are --------------------------------------------------------------------------------------

HERE = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/kueue-system/clusterprofiles"
IN_TEAM = HERE.replace("kueue-system", "team")


async def refused(found: Profiles, name: str = "p") -> str:
    with pytest.raises(KubeconfigError) as caught:
        await found.kubeconfig(name)
    assert caught.value.reason == "BadClusterProfile"
    return str(caught.value)


async def soon(wanted: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not wanted():
            await asyncio.sleep(0.01)


@pytest.fixture
async def inventory() -> AsyncIterator[tuple[FakeServer, Callable[..., Profiles], list[str]]]:
    changed: list[str] = []
    made: list[Profiles] = []
    async with FakeServer() as server, ApiClient(server.login()) as client:

        def make(settings: MultiKueueSettings = ON) -> Profiles:
            made.append(Profiles(client, settings, changed.append))
            return made[-1]

        yield server, make, changed
        for each in made:
            await each.close()


async def test_profiles_come_and_go_and_change(inventory: Any) -> None:
    server, make, changed = inventory
    found = make()
    assert server.requests == {}, "nothing is watched until a cluster names one"
    missing = 'ClusterProfile.multicluster.x-k8s.io "p" not found'
    assert await refused(found) == missing
    server.put(IN_TEAM, "p", **profile([entry("cloud")]))
    server.put(HERE, "p", **profile([entry("unknown")]))
    await soon(lambda: changed == ["p"])
    assert await refused(found) == 'no matching cluster accessor found for cluster profile "p"'
    server.put(HERE, "p", **profile([entry("cloud", **{"tls-server-name": "x" * 70_000})]))
    await soon(lambda: changed == ["p", "p"])
    assert await refused(found) == "cluster of cloud: it is longer than 65536 characters"
    server.put(HERE, "p", status=None)
    server.put(HERE, "p", **profile([entry("cloud")]))
    await soon(lambda: len(changed) == 4)
    [cluster] = (await found.kubeconfig("p"))["clusters"]
    assert cluster["cluster"]["server"] == "https://10.0.0.1:6443"
    server.delete(HERE, "p")
    await soon(lambda: len(changed) == 5)
    assert await refused(found) == missing
    assert server.requests["list clusterprofiles"] == 1


async def test_without_providers_a_profile_leads_nowhere(inventory: Any) -> None:
    server, make, _ = inventory
    server.put(HERE, "p", **profile([entry("cloud")]))
    assert await refused(make(replace(ON, access_providers=None))) == "no access provider configured"
    assert "no matching cluster accessor" in await refused(make(replace(ON, access_providers=())))


async def test_a_kind_that_is_not_installed_and_a_right_that_is_missing_are_said(
    inventory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, make, changed = inventory
    monkeypatch.setattr(profiles, "ABSENT_RETRY", 0.5)
    server.script.append(Answer(404, "NotFound", verb="list", plural="clusterprofiles"))
    found = make()
    assert "not found (the kind is not installed)" in await refused(found)
    server.put(HERE, "p", **profile([entry("cloud")]))
    await soon(lambda: changed)
    assert (await found.kubeconfig("p"))["current-context"] == "p"
    monkeypatch.setattr(profiles, "ABSENT_RETRY", 60.0)
    server.script.append(Answer(403, "Forbidden", verb="list", plural="clusterprofiles"))
    assert "gangline admin rbac --config FILE" in await refused(make())


async def test_a_list_that_does_not_come_is_not_waited_for(inventory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, make, _ = inventory
    monkeypatch.setattr(profiles, "LISTED", 0.1)
    server.script.append(Answer(200, plural="clusterprofiles", delay=5))
    assert "could not be listed within" in await refused(make())


async def test_how_many_are_kept_is_bounded(inventory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server, make, changed = inventory
    monkeypatch.setattr(profiles, "MOST", 2)
    for name in ("a", "b", "c"):
        server.put(HERE, name, **profile([entry("cloud")]))
    found = make()
    await refused(found, "none")
    assert sorted(changed) == ["a", "b"]


# --- programs ---------------------------------------------------------------------------------------------------------


@pytest.fixture
async def connect(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[str], RemoteCluster]]:
    """Connects to the cluster of a profile with a program that does this."""
    made: list[RemoteCluster] = []
    monkeypatch.setattr(remote_cluster, "PROBE", 0.3)
    monkeypatch.setattr(remote_cluster, "FIRST_PAUSE", 0.05)
    monkeypatch.setattr(kubeconfigs, "_is_trusted", lambda server: True)  # the server of the tests has no TLS

    def connected(body: str) -> RemoteCluster:
        path = tmp_path / "plugin"
        count = f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{count}{body}")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        access = ClusterAccess({"server": server.login().server}, AccessProvider("cloud", str(path), V1))
        text = orjson.dumps(access.kubeconfig("p")).decode()

        async def read() -> Any:
            return text, partial(kubeconfigs.login_by_plugin, text, "p")

        made.append(
            RemoteCluster(
                "worker",
                "here",
                read,
                kinds=[],
                changed=lambda key: None,
                moved=lambda: None,
                may_write=lambda: True,
                now=lambda: 1000,
            )
        )
        return made[-1]

    yield connected
    for each in made:
        await each.close()


RUBBISH = {
    "sys.exit(1)": "exit status 1",
    "print('rubbish')": "not JSON",
    "print('[' * 100000)": "not JSON",
    'print(\'{"status": {"token": 5}}\')': "can't be sent in a header",
    "print(json.dumps({'status': {'token': 'a\\r\\nX-Evil: 1'}}))": "can't be sent in a header",
    "print('{}')": "no status.token",
    "while True: sys.stdout.write('x' * 65536)": "longer than",
    "time.sleep(60)": "no answer within 2 s",
    "sys.stdout.close(); os.close(1); time.sleep(60)": "no answer within 2 s",
}


@pytest.mark.parametrize(("body", "words"), RUBBISH.items())
async def test_a_program_that_misbehaves_makes_its_cluster_inactive(
    connect: Callable[[str], RemoteCluster], body: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "EXEC_TIMEOUT", 2.0)
    cluster = connect(body)
    await soon(lambda: inactive(cluster))
    assert cluster.state is not None and cluster.state.reason == "ClientConnectionFailed"
    assert words in cluster.state.message and len(cluster.state.message) < 1000


async def test_a_program_that_is_not_there_is_named(connect: Callable[[str], RemoteCluster], tmp_path: Path) -> None:
    cluster = connect("")
    (tmp_path / "plugin").unlink()
    await soon(lambda: inactive(cluster))
    assert cluster.state is not None and "No such file or directory" in cluster.state.message


def answer(token: str, seconds: float) -> str:
    expiry = datetime.fromtimestamp(time.time() + seconds, UTC).isoformat().replace("+00:00", "Z")
    return f"print(json.dumps({{'status': {{'token': {token}, 'expirationTimestamp': {expiry!r}}}}}))"


async def test_credentials_are_fetched_again_before_they_expire_and_after_a_refusal(
    connect: Callable[[str], RemoteCluster], server: Server, tmp_path: Path
) -> None:
    accepted = tmp_path / "accepted"
    accepted.write_text("one")
    shown: list[str] = []

    def behave(request: web.Request) -> Any:
        shown.append(request.headers.get("Authorization", ""))
        fits = shown[-1] == f"Bearer {accepted.read_text()}"
        body = {"kind": "Status", "code": 401, "reason": "Unauthorized", "message": "who are you?"}
        return Server.empty(request) if fits else web.json_response(body, status=401)

    server.behave = behave
    cluster = connect(answer(f"open({str(accepted)!r}).read()", 3600))
    await soon(lambda: cluster.connected)
    assert (tmp_path / "count").read_text() == "x", "one run serves all requests"
    accepted.write_text("two")
    await soon(lambda: shown[-1] == "Bearer two")
    assert cluster.connected and (tmp_path / "count").read_text() == "xx"


async def test_a_slow_program_is_waited_for(connect: Callable[[str], RemoteCluster]) -> None:
    """Longer than a cluster may take to answer."""
    cluster = connect(f"time.sleep(1)\n{answer(repr('t'), 3600)}")
    await soon(lambda: cluster.connected)


# --- the configuration ------------------------------------------------------------------------------------------------


def load(section: Json | None, *, on: bool = True) -> configuration.Configuration:
    given = {"clusterProfile": section} if section is not None else {}
    return configuration.load({"featureGates": {"MultiKueueClusterProfile": on}, "multiKueue": given})


def row(**execution: Any) -> Json:
    usual = {"command": "login", "apiVersion": V1, "interactiveMode": "Never"}
    return {"name": "cloud", "execConfig": {**usual, **execution}}


def test_providers_are_read() -> None:
    given = row(args=["a"], env=[{"name": "A", "value": "b"}], installHint="install it", provideClusterInfo=True)
    wanted = AccessProvider("cloud", "login", V1, ("a",), (("A", "b"),), "install it", True)
    for field in ("accessProviders", "credentialsProviders"):
        found = load({field: [given]})
        assert found.multikueue.profiles and found.multikueue.access_providers == (wanted,)
        assert (found.ignored, found.warnings) == ((), ())
    assert load(None).multikueue.access_providers is None
    assert load({}).multikueue.access_providers == ()
    assert not configuration.load(None).multikueue.profiles


def test_providers_without_the_gate_are_told() -> None:
    message = "multiKueue.clusterProfile has no effect while the gate MultiKueueClusterProfile is off"
    assert load({"accessProviders": [row()]}, on=False).warnings == (message,)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"accessProviders": [{**row(), "name": ""}]}, r"accessProviders\[0\].name: must be specified"),
        ({"accessProviders": [row(), {"name": "b"}]}, r"accessProviders\[1\].execConfig.command: must be specified"),
        ({"credentialsProviders": [row(command="")]}, r"credentialsProviders\[0\].execConfig.command: must be"),
        ({"accessProviders": [row(apiVersion="")]}, r"execConfig.apiVersion: must be specified"),
        ({"accessProviders": [row(apiVersion="x/v9")]}, r"execConfig.apiVersion: client.* is wanted"),
        ({"accessProviders": [row(interactiveMode=None)]}, r"execConfig.interactiveMode: must be specified"),
        ({"accessProviders": [row(interactiveMode="Sometimes")]}, r"execConfig.interactiveMode: Never or"),
        ({"accessProviders": [row(env=[{"value": "b"}])]}, r"execConfig.env\[0\].name: must be specified"),
        ({"accessProviders": [row(env=[None])]}, r"execConfig.env\[0\].name: must be specified"),
        ({"accessProviders": [row(shell=True)]}, r"execConfig.shell: there is no such field"),
        ({"accessProviders": [row(args="a b")]}, r"execConfig.args: a list is wanted"),
        ({"accessProviders": [row()] * 65}, "at most 64"),
        (
            {"accessProviders": [row()], "credentialsProviders": [row()]},
            "must not be specified when accessProviders is",
        ),
    ],
)
def test_what_kueue_refuses_is_refused(section: Json, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        load(section)
