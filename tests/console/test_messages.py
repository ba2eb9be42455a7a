"""What commands say, and with which exit code they end, where the cluster or the command line is not as it should be."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.console.objects import NOW, cluster_queue, local_queue, pending
from tests.console.standin import ANSWERS, KUEUE, StandIn, kubeconfig, listed, serving, status
from tests.console.texts import happened

from gangline.console import cli
from gangline.console.commands.see import events
from gangline.console.output import exit_codes, terminal
from gangline.console.views import access
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import workload_view
from gangline.install import removal
from gangline.kube.resources import NAMESPACES, ObjectKey

ROOT = Path(__file__).parents[2]
OF_ML = f"{ANSWERS}/namespaces/ml"


def gangline(line: str, config: Path | None = None) -> Result:
    return CliRunner().invoke(cli.main, line.split(), env={"KUBECONFIG": str(config)} if config else None)


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a server that knows nothing."""
    with serving({}) as server:
        yield server.kubeconfig(tmp_path)


# --- the server -----------------------------------------------------------------------------------------------------------


def test_a_server_that_accepts_connections_and_is_silent_is_named_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(access, "SILENCE", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for line in ("queue", "why x", "cancel x", "limits"):
            done = gangline(line, kubeconfig(tmp_path, address))
            assert done.exit_code == exit_codes.FAILURE
            assert done.stderr == f"Error: the API server does not answer: nothing came from {address} for 0.4 s\n"


def test_an_answer_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The server answers something else meanwhile, so it is there."""
    monkeypatch.setattr(access, "SILENCE", 1.0)
    asked_version = threading.Event()

    def slow(path: str) -> None:
        if path == "/version":
            asked_version.set()
        else:
            assert asked_version.wait(20)

    with serving({f"{OF_ML}/queuedjobs": listed("QueuedJob", [])}) as server:
        server.before = slow
        done = gangline("queue", server.kubeconfig(tmp_path))
    assert done.exit_code == exit_codes.SUCCESS and "GET /version" in server.asked


@pytest.mark.parametrize("body", [b"", b"<html>not here</html>"])
def test_a_404_that_is_no_answer_of_an_api_server_is_told_with_its_address(body: bytes, tmp_path: Path) -> None:
    with serving({}) as server:
        server.otherwise = 404, body
        done = gangline("why resnet", server.kubeconfig(tmp_path))
    assert done.exit_code == exit_codes.FAILURE
    said = rf"GET http://{server.address}{KUEUE}/\w+ was answered with 404 Not Found{': ' * bool(body)}{body.decode()}"
    assert re.search(f"^Error: {said}$", done.stderr, re.MULTILINE) and "installed" not in done.stderr, done.stderr


def test_a_cluster_without_gangline_gets_the_advice_that_helps(nobody: Path) -> None:
    done = gangline("queue", nobody)
    assert "Is Gangline installed on this cluster? `gangline admin doctor --cluster`" in done.stderr
    assert done.exit_code == exit_codes.FAILURE


def test_whether_there_is_a_cluster_is_asked_only_where_none_was_reached(tmp_path: Path) -> None:
    question = "Is there a cluster?"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    refused = gangline("queue", kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))
    assert question in refused.stderr and str(port) in refused.stderr
    nowhere = CliRunner().invoke(cli.main, ["queue"], env={"KUBECONFIG": "", "HOME": str(tmp_path / "empty")})
    assert question in nowhere.stderr
    for text, word in (("a: [", "not YAML"), ("3", "not a kubeconfig"), ("a: b", "current-context")):
        (tmp_path / "broken").write_text(text)
        broken = gangline("queue", tmp_path / "broken")
        assert word in broken.stderr and question not in broken.stderr and broken.exit_code == exit_codes.FAILURE


# --- exit codes -----------------------------------------------------------------------------------------------------------


def test_the_page_has_the_table_of_exit_codes() -> None:
    known = {value for name, value in vars(exit_codes).items() if name.isupper()}
    page = (ROOT / "docs/cli.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} == known == {0, 1, 2, 130}


def interrupted(tmp_path: Path, server: StandIn, line: str, until: str) -> tuple[int, str]:
    """The exit code of a command to which Ctrl-C comes once its output has a word, and all of its output."""
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig(tmp_path))}
    command = [sys.executable, "-m", "gangline.console.cli", *line.split()]
    output = ""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env) as process:
        assert process.stdout is not None
        for row in process.stdout:
            output += row
            if until in row:
                process.send_signal(signal.SIGINT)
                break
        output += process.stdout.read()
    return process.returncode, output


@pytest.fixture
def operator() -> Iterator[StandIn]:
    """An operator with one job that waits."""
    item = briefs.as_json(workload_view(pending("resnet", namespace="ml"), {})) | {"fallenBack": None}
    job = f"{OF_ML}/queuedjobs/resnet"
    answers: dict[str, Any] = {
        f"{OF_ML}/queuedjobs": listed("QueuedJob", [item]),
        job: item,
        f"{job}/why": {"job": item, "lines": [{"label": "state", "text": "waits"}]},
        f"{job}/remedies": {"startsInSeconds": {"p50": 60, "p90": 90}, "because": "", "remedies": []},
    }
    with serving(answers) as server:
        yield server


@pytest.mark.parametrize("line", ["queue -w", "queue -w -o json", "eta -w"])
def test_ctrl_c_ends_what_is_watched_with_130_and_no_word(line: str, operator: StandIn, tmp_path: Path) -> None:
    code, output = interrupted(tmp_path, operator, line, "resnet")
    assert code == exit_codes.INTERRUPTED
    assert "Aborted" not in output and "Traceback" not in output


def test_why_answers_at_once_and_remedies_follow(operator: StandIn, tmp_path: Path) -> None:
    """Ctrl-C while they are awaited leaves what was printed."""
    wait = threading.Event()

    def before(path: str) -> None:
        if path.endswith("remedies"):
            wait.wait(20)

    operator.before = before
    code, output = interrupted(tmp_path, operator, "why resnet", "waits")
    wait.set()
    assert code == exit_codes.INTERRUPTED and "Aborted" not in output
    assert output.splitlines() == ["job/resnet in namespace ml, workload job-resnet-1a2b3", "  state     waits"]
    done = gangline("why resnet", operator.kubeconfig(tmp_path))
    assert done.stdout.splitlines() == [*output.splitlines(), "  starts    in 60s – 90s"]
    both = json.loads(gangline("why resnet -o json", operator.kubeconfig(tmp_path)).stdout)
    assert both["explanation"] == [["state", "waits"], ["starts", "in 60s – 90s"]]


# --- typing errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("queeu", "'queue'"),
        ("histroy", "'history'"),
        ("admin doctr", "'doctor'"),
        ("doctr", "'admin doctor'"),
        ("admin forecast evl", "'eval'"),
        ("limits sett", "'set'"),
        ("queue --wach", "'--watch'"),
    ],
)
def test_a_mistyped_command_or_option_is_answered_with_the_one_that_is_meant(line: str, meant: str) -> None:
    done = gangline(line)
    assert done.exit_code == exit_codes.USAGE and meant in done.stderr, done.stderr


@pytest.mark.parametrize("line", ["why resnt", "eta resnt", "eta resnt --history", "preempt --dry-run job/resnt"])
def test_a_mistyped_job_is_answered_with_the_one_that_is_meant(line: str, operator: StandIn, tmp_path: Path) -> None:
    no_job = status(404, "NotFound", "no job resnt in namespace ml", group="answers.gangline.io")
    paths = [f"{OF_ML}/queuedjobs/resnt{rest}" for rest in ("", "/why", "/promises", "/victims")]
    operator.answers |= dict.fromkeys(paths, no_job)
    done = gangline(line, operator.kubeconfig(tmp_path))
    assert done.exit_code == exit_codes.FAILURE
    assert done.stderr == "Error: no job resnt in namespace ml. Did you mean 'resnet'?\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("cancel resnt", "no job 'resnt' in namespace ml that you may read. Did you mean 'resnet'?"),
        ("move resnet gpsu", "namespace ml has no LocalQueue 'gpsu' (there is: gpus). Did you mean 'gpus'?"),
        ("hold lq/gpsu", "namespace ml has no LocalQueue 'gpsu' (there is: gpus). Did you mean 'gpus'?"),
        (
            "limits set visoin --flavor a --nominal 1",
            "there is no ClusterQueue 'visoin' (there is: vision). Did you mean 'vision'?",
        ),
        ("hold cq/elephant", "there is no ClusterQueue 'elephant' (there is: vision)"),
    ],
)
def test_a_mistyped_name_in_the_cluster_is_answered_with_the_one_that_is_meant(
    line: str, said: str, tmp_path: Path
) -> None:
    answers = {
        f"{KUEUE}/namespaces/ml/workloads": listed("Workload", [pending("resnet", namespace="ml")]),
        f"{KUEUE}/namespaces/ml/localqueues": listed("LocalQueue", [local_queue("gpus")]),
        f"{KUEUE}/clusterqueues": listed("ClusterQueue", [cluster_queue("vision")]),
    }
    with serving(answers) as server:
        done = gangline(line, server.kubeconfig(tmp_path))
    assert done.exit_code == exit_codes.FAILURE and done.stderr == f"Error: {said}\n"


# --- consent --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["", " --all"])
def test_an_installation_is_not_removed_where_nobody_can_be_asked(
    arguments: str, monkeypatch: pytest.MonkeyPatch, nobody: Path
) -> None:
    """Not with a closed standard input, nor with one that says yes to everything."""
    taken: list[Any] = []

    async def look(*_: Any) -> removal.Remains:
        return removal.Remains("gangline-system", (ObjectKey(NAMESPACES, "", "x"),), frozenset(), {"Workload": 3})

    async def take_off(*given: Any, **_: Any) -> None:
        taken.append(given)

    monkeypatch.setattr(removal, "look", look)
    monkeypatch.setattr(removal, "take_off", take_off)
    monkeypatch.setattr(removal.Remains, "nothing_to_do", lambda *_, **__: False)
    for typed in ("", "y\n" * 3):
        line = f"admin uninstall{arguments}".split()
        done = CliRunner().invoke(cli.main, line, input=typed, env={"KUBECONFIG": str(nobody)})
        assert done.exit_code == exit_codes.USAGE and "There is no terminal to ask: -y says yes" in done.stderr
        assert not taken
    assert gangline(f"admin uninstall{arguments} --dry-run", nobody).exit_code == exit_codes.SUCCESS and not taken
    assert gangline(f"admin uninstall{arguments} -y", nobody).exit_code == exit_codes.SUCCESS and taken
    monkeypatch.setattr(terminal, "can_ask", lambda: True)
    line = ["admin", "uninstall", *arguments.split()]
    no = CliRunner().invoke(cli.main, line, input="n\n", env={"KUBECONFIG": str(nobody)})
    assert no.exit_code == exit_codes.FAILURE and "nothing is changed" in no.stderr and len(taken) == 1


# --- columns --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["queue", "eta"])
def test_queue_is_the_local_queue_for_who_is_in_a_namespace(line: str, operator: StandIn, tmp_path: Path) -> None:
    (item,) = operator.answers[f"{OF_ML}/queuedjobs"]["items"]
    item |= {"queue": "mine", "clusterQueue": "all-of-the-lab", "because": ""}
    operator.answers[f"{ANSWERS}/queuedjobs"] = listed("QueuedJob", [item])
    config = operator.kubeconfig(tmp_path)
    assert "mine" in gangline(line, config).stdout and "all-of-the-lab" not in gangline(line, config).stdout
    assert "all-of-the-lab" in gangline(f"{line} -A", config).stdout
    if line == "queue":
        event, *_ = happened()
        own, of_all = (listing.rows([event], NOW).cells[0] for listing in (events.OWN_LISTING, events.LISTING))
        assert "main" in own and "language-models" in of_all and "language-models" not in own
        header, row = gangline("queue -o wide", config).stdout.splitlines()
        assert "CLUSTERQUEUE" in header and "mine" in row and "all-of-the-lab" in row
