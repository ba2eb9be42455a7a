from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.console.objects import cluster_queue, flavor, local_queue, pending

from gangline.api import names
from gangline.console.cli import main
from gangline.console.commands.run import up
from gangline.console.run import example as examples
from gangline.console.run.screen import TABLE_EVERY, LinesScreen
from gangline.console.stack import stack
from gangline.console.stack.processes import Services
from gangline.console.stack.stack import Wishes, bring_up, parse_webhook_url
from gangline.control.answers.workloads.snapshot import snapshot
from gangline.devcluster.connection import Connection
from gangline.install import kinds
from gangline.install.manifests import objects, values

#: stands for `gangline NAME …`: writes down its arguments, and is ready
SCRIBE = """
import json, pathlib, sys, time
arguments = sys.argv[1:]
ready = pathlib.Path(arguments[-1])
ready.with_suffix(".arguments").write_text(json.dumps(arguments))
ready.touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [("https://10.0.0.5:9443", "10.0.0.5", 9443), ("https://gpu.example.com/", "gpu.example.com", 443)],
)
def test_a_webhook_url_is_host_and_port(url, host, port):
    assert parse_webhook_url(url) == (host, port)


@pytest.mark.parametrize(
    "url", ["http://h:1", "h:1", "https://", "https://h:1/path", "https://h:99999", "https://h?x=1"]
)
def test_any_other_webhook_url_is_refused(url):
    with pytest.raises(ValueError, match=r"https|[Pp]ort"):
        parse_webhook_url(url)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--local", "--context", "c"], "exclude --local"),
        (["--local", "--kind"], "--local and --kind are two clusters: choose one"),
        (["--kind", "--name", "n"], "--name and --detach are for the local control plane"),
        (["--context", "c", "--detach"], "--name and --detach are for the local control plane"),
        (["--local", "--webhook-url", "https://h:1"], "--webhook-url needs --kubeconfig"),
        (["--context", "c", "--webhook-url", "http://h:1"], "is not of the form https://HOST[:PORT]"),
        (["--kubeconfig", "/no/such/file"], "does not exist"),
    ],
)
def test_up_refuses_what_does_not_go_together(arguments, words):
    result = CliRunner().invoke(main, ["up", *arguments])
    assert result.exit_code == 2
    assert words in " ".join(result.output.split())


def test_up_on_a_kubeconfig_without_contexts_says_so(tmp_path: Path):
    config = tmp_path / "config"
    config.write_text("apiVersion: v1\nkind: Config\ncontexts: []\n")
    result = CliRunner().invoke(main, ["up", "--kubeconfig", str(config)])
    assert result.exit_code == 1
    assert "context" in result.output


@pytest.mark.parametrize("wanted", [True, False])
def test_whether_fields_are_tracked_is_told_to_both_processes(
    wanted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def none(connection: Connection) -> list[str]:
        return []

    monkeypatch.setattr(stack, "_install", none)
    monkeypatch.setattr(stack, "_dashboard", lambda *_: "")
    services = Services(tmp_path / "services", program=(sys.executable, "-c", SCRIBE))
    try:
        bring_up(Connection(tmp_path / "kc", None, "local", "127.0.0.1"), services, print, Wishes(track_fields=wanted))
        for name in ("webhooks", "operator"):
            arguments = json.loads((services.directory / f"{name}.arguments").read_text())
            assert arguments[0] == name
            assert ("--track-fields" in arguments) is wanted
    finally:
        services.stop()


@pytest.mark.parametrize("given", [True, False])
def test_both_processes_read_the_configuration_and_its_port_is_not_the_machines(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(connection: Connection) -> list[str]:
        return []

    monkeypatch.setattr(stack, "_install", none)
    monkeypatch.setattr(stack, "_dashboard", lambda *_: "")
    services = Services(tmp_path / "services", program=(sys.executable, "-c", SCRIBE))
    wishes = Wishes(configuration=tmp_path / "config.yaml" if given else None)
    try:
        bring_up(Connection(tmp_path / "kc", None, "local", "127.0.0.1"), services, print, wishes)
        for name in ("webhooks", "operator"):
            arguments = json.loads((services.directory / f"{name}.arguments").read_text())
            assert (f"--config {tmp_path}/config.yaml" in " ".join(arguments)) is given
            assert (name == "webhooks" or ("--listen" in arguments) is given) and arguments.count("--listen") <= 1
    finally:
        services.stop()


def test_a_mistake_in_the_configuration_is_said_before_anything_is_started(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("integrations: {frameworks: 7}")
    result = CliRunner().invoke(main, ["up", "--local", "--config", str(file)])
    assert result.exit_code == 1 and "integrations.frameworks" in result.output


class RoleApi:
    def __init__(self) -> None:
        self.applied: dict[str, Any] = {}

    async def patch(self, resource: Any, namespace: str | None, name: str, body: Any, **options: Any) -> None:
        assert (resource.kind, namespace, options["kind"]) == ("ClusterRole", None, "apply")
        self.applied[name] = body


async def test_the_roles_of_people_are_those_of_an_installation() -> None:
    api = RoleApi()
    await kinds.install_roles(api)  # type: ignore[arg-type]
    installed = [each for each in objects.plain(values.defaults()) if each["kind"] == "ClusterRole"]
    for name in (names.VIEWER, names.RESEARCHER, names.TEAM_LEAD, names.ADMINISTRATOR, "kueue-batch-user-role"):
        assert [each for each in installed if each["metadata"]["name"] == name] == [api.applied[name]]


def test_the_hint_is_an_example_that_has_its_nodes_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example = examples.load(examples.bundled())
    flavors = [each.obj["spec"]["nodeLabels"] for each in example.settings if each.resource.kind == "ResourceFlavor"]
    assert flavors
    for labels in flavors:
        assert any(labels.items() <= pool.labels.items() for pool in up.quickstart_pools()), labels
    monkeypatch.chdir(examples.bundled().parents[1])
    assert "kubectl apply -f examples/quickstart/ " in up.hint(Connection(tmp_path / "kc", None, "local"))
    monkeypatch.chdir(tmp_path)
    assert f"kubectl apply -f {examples.bundled()}/ " in up.hint(Connection(tmp_path / "kc", None, "local"))
    foreign = up.hint(Connection(tmp_path / "kc", "prod", "kubeconfig"))
    assert "apply" not in foreign and "gangline admin doctor --cluster" in foreign, "its nodes and webhooks aren't ours"


def test_run_names_what_is_wrong_with_an_example_before_it_starts_anything(tmp_path: Path):
    result = CliRunner().invoke(main, ["run", "--example", str(tmp_path)])
    assert result.exit_code == 1
    assert "no *.yaml files there" in result.output


def test_a_log_gets_a_line_per_change_and_now_and_then_the_queues(capsys: pytest.CaptureFixture[str]):
    seen = snapshot([pending("w")], [cluster_queue("vision", flavor("a100", 8))], [local_queue()])
    screen = LinesScreen()
    screen.show(seen, list(seen.workloads), 1.0)
    screen.show(seen, [], 2.0)
    assert capsys.readouterr().out == "   1.0s  Pending     vision      job/w (8 GPUs, priority 0): not evaluated yet\n"
    screen.show(seen, [], TABLE_EVERY)
    printed = capsys.readouterr().out
    assert "0 running, 1 waiting, 0 finished; 0/8 GPUs in use" in printed
    assert "USED/NOMINAL" in printed
    screen.show(seen, [], TABLE_EVERY + 1)
    assert capsys.readouterr().out == ""
