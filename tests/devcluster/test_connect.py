"""Which cluster is chosen, and the commands that kind gets."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from gangline.devcluster import connect as connecting
from gangline.devcluster import connect as kind
from gangline.devcluster.connect import ClusterChoice, KindCluster, connect, docker_works
from gangline.devcluster.errors import DevClusterError


class FakeRunner:
    """Answers commands by their first words; everything else succeeds silently."""

    def __init__(self, **answers: str | DevClusterError) -> None:
        self.ran: list[list[str]] = []
        self._answers = {key.replace("_", " "): answer for key, answer in answers.items()}

    def __call__(self, command: Sequence[str], timeout: float) -> str:
        self.ran.append(list(command))
        for start, answer in self._answers.items():
            if " ".join(command).startswith(start):
                if isinstance(answer, DevClusterError):
                    raise answer
                return answer
        return ""


@pytest.fixture(autouse=True)
def private_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    contexts = [{"name": name, "context": {"cluster": name, "user": name}} for name in ("prod", "lab")]
    path.write_text(yaml.safe_dump({"current-context": "prod", "contexts": contexts}))
    return path


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in names else None)


# -- the user's own cluster --------------------------------------------------------------------------------------------


def test_a_kubeconfig_wins_over_everything(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
    installed(monkeypatch, "docker", "kind")
    runner = FakeRunner()
    with connect(ClusterChoice(kubeconfig=kubeconfig), runner=runner) as connection:
        assert (connection.kubeconfig, connection.context, connection.source) == (kubeconfig, "prod", "kubeconfig")
        assert connection.kubectl_hint == f"export KUBECONFIG={kubeconfig}; kubectl config use-context prod"
    with connect(ClusterChoice(kubeconfig=kubeconfig, context="lab"), runner=runner) as connection:
        assert connection.context == "lab"
    assert runner.ran == []


def test_the_current_context_is_used_when_asked_for(monkeypatch: pytest.MonkeyPatch, kubeconfig: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with connect(ClusterChoice(source="kubeconfig")) as connection:
        assert (connection.kubeconfig, connection.context) == (kubeconfig, "prod")


def test_an_unknown_context_is_named_with_the_known_ones(kubeconfig: Path) -> None:
    with (
        pytest.raises(DevClusterError, match="no context 'prd'; it has: prod, lab"),
        connect(ClusterChoice(kubeconfig=kubeconfig, context="prd")),
    ):
        pass


def test_a_missing_kubeconfig_is_an_error_not_another_cluster(tmp_path: Path) -> None:
    with pytest.raises(DevClusterError, match="no kubeconfig at"), connect(ClusterChoice(kubeconfig=tmp_path / "none")):
        pass


def test_contradictory_wishes_are_refused(kubeconfig: Path) -> None:
    with (
        pytest.raises(DevClusterError, match="exclude each other"),
        connect(ClusterChoice(source="local", kubeconfig=kubeconfig)),
    ):
        pass


# -- kind --------------------------------------------------------------------------------------------------------------


def test_docker_works_only_with_kind_and_a_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "docker")
    assert not docker_works(FakeRunner())
    installed(monkeypatch, "docker", "kind")
    assert docker_works(FakeRunner())
    assert not docker_works(FakeRunner(docker_info=DevClusterError("Cannot connect to the Docker daemon")))


def test_kind_is_created_once_and_leaves_the_users_kubeconfig_alone() -> None:
    runner = FakeRunner(kind_get_clusters="other\n")
    cluster = KindCluster("mine", runner)
    assert cluster.ensure() == cluster.kubeconfig
    create = runner.ran[-1]
    assert create[:4] == ["kind", "create", "cluster", "--name"]
    assert create[create.index("--kubeconfig") + 1] == str(cluster.kubeconfig)
    assert create[create.index("--config") + 1] == str(kind.CONFIG)

    runner = FakeRunner(kind_get_clusters="other\nmine\n")
    KindCluster("mine", runner).ensure()
    assert [command[:3] for command in runner.ran] == [["kind", "get", "clusters"], ["kind", "export", "kubeconfig"]]


def test_kind_is_deleted_with_its_kubeconfig() -> None:
    runner = FakeRunner()
    cluster = KindCluster("mine", runner)
    cluster.kubeconfig.parent.mkdir(parents=True)
    cluster.kubeconfig.touch()
    cluster.delete()
    assert runner.ran == [["kind", "delete", "cluster", "--name", "mine", "--kubeconfig", str(cluster.kubeconfig)]]
    assert not cluster.kubeconfig.exists()


@pytest.mark.parametrize(
    ("gateways", "expected"), [("172.18.0.1 ", "172.18.0.1"), ("fc00::1 172.19.0.1 ", "172.19.0.1")]
)
def test_the_host_is_found_through_kinds_network(gateways: str, expected: str) -> None:
    assert KindCluster("mine", FakeRunner(docker_network_inspect=gateways)).host_address() == expected


def test_a_network_without_a_gateway_is_an_error() -> None:
    with pytest.raises(DevClusterError, match="no IPv4 gateway"):
        KindCluster("mine", FakeRunner(docker_network_inspect="fc00::1 ")).host_address()


def test_the_kind_config_is_kinds() -> None:
    content = yaml.safe_load(kind.CONFIG.read_text())
    assert (content["kind"], content["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert content["nodes"][0]["role"] == "control-plane"


def test_kind_is_chosen_where_docker_works(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "docker", "kind")
    events: list[str] = []

    class FakeKwok:
        def stop(self, name: str, *, patience: float) -> None:
            events.append(f"stop {name}")

        def close(self) -> None:
            events.append("close")

    def start_kwok(kubeconfig: Path, directory: Path) -> FakeKwok:
        events.append(f"start for {kubeconfig.name}")
        return FakeKwok()

    monkeypatch.setattr(connecting, "start_kwok", start_kwok)
    runner = FakeRunner(docker_network_inspect="172.18.0.1 ")
    with connect(ClusterChoice(), runner=runner) as connection:
        assert (connection.source, connection.context) == ("kind", "kind-gangline")
        assert connection.host_address == "172.18.0.1"
        assert events == ["start for kind-gangline.kubeconfig"]
    assert events[1:] == ["stop kwok", "close"]


def test_failing_commands_say_what_they_said() -> None:
    with pytest.raises(DevClusterError, match=r"(?s)`sh -c echo no >&2; exit 1` failed:.*no"):
        kind.run(["sh", "-c", "echo no >&2; exit 1"], 5)
    with pytest.raises(DevClusterError, match="surely-not-there is not installed"):
        kind.run(["surely-not-there"], 5)
    with pytest.raises(DevClusterError, match=r"took longer than 0.1 s"):
        kind.run(["sleep", "5"], 0.1)


# -- local -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tools", "source"), [((), None), (("docker", "kind"), "local")])
def test_local_is_the_default_and_can_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tools: tuple[str, ...], source
) -> None:
    installed(monkeypatch, *tools)
    life: list[str] = []

    class FakePlane:
        real = None
        enter = staticmethod(list)

        kubeconfig = tmp_path / "kubeconfig"

        def __init__(self, options: object) -> None:
            life.append("made")

        def __enter__(self):
            life.append("up")
            return self

        def __exit__(self, *_: object) -> None:
            life.append("down")

    monkeypatch.setattr(connecting, "LocalControlPlane", FakePlane)
    with connect(ClusterChoice(source=source), runner=FakeRunner()) as connection:
        assert (connection.source, connection.host_address) == ("local", "127.0.0.1")
        assert connection.kubectl_hint == f"export KUBECONFIG={tmp_path / 'kubeconfig'}"
        assert life == ["made", "up"]
    assert life == ["made", "up", "down"]
