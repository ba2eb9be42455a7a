"""The command itself: its help, its table of subcommands, and completion by a shell."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from tests.console.objects import condition, local_queue, pending, workload
from tests.console.standin import ANSWERS, KUEUE, StandIn, listed, serving, status

from gangline.console import cli
from gangline.console.commands import completion
from gangline.console.output.formats import Output
from gangline.console.views import completing
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.snapshot import workload_view

ROOT = Path(__file__).parents[2]
CTX = click.Context(cli.main)
GROUPS = {"": cli.main, **{name: each for name in ("admin", "dev") if (each := cli.main.get_command(CTX, name))}}


@pytest.mark.parametrize(
    "line", [f"{group} {name}".strip() for group, found in GROUPS.items() for name in found.entries]
)
def test_every_command_of_the_table_exists(line: str) -> None:
    group, _, name = line.rpartition(" ")
    command = GROUPS[group].get_command(CTX, name)
    assert isinstance(command, click.Command) and command.help


def test_the_tables_of_the_page_have_every_command() -> None:
    rows = [row.split("|")[1] for row in (ROOT / "docs" / "cli.md").read_text().splitlines() if row.startswith("| [`")]
    named = {word for row in rows for shown in re.findall("`([^`]+)`", row) for word in shown.split(" ")}
    commands = {name for group in GROUPS.values() for name in group.entries}
    assert commands - named - {"completion", "admin", "dev"} == set()


#: pages that people follow
FOLLOWED = (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("**/*.md")))
#: names of commands that have gone, as a page tells them; `…` stands for any command
NO_COMMANDS = ("install", "…", "admin …")


def written(page: Path) -> Iterator[str]:
    """What stands behind `gangline` on a page, in blocks and in the text, up to a pipe, a comment or the end."""
    blocks, text = [], []
    fenced = False
    for line in re.sub(r"\\\n\s*", " ", page.read_text()).splitlines():
        fenced ^= line.lstrip().startswith("```")
        (blocks if fenced or line.startswith("    ") else text).append(line)
    found = [
        match[1] for line in blocks if (match := re.search(r"(?:^ *|[|;&$] |bin/)(?:kubectl )?gangline (.*)", line))
    ]
    found += re.findall(r"`(?:\.venv/bin/)?(?:kubectl )?gangline ([^`]+)`", " ".join(text))
    for each in found:
        yield re.split(r" \| | >>? |&&|;|\s#\s| 2>| < ", each)[0]


def fault(words: list[str]) -> str:
    """What is wrong with a command line; "" if its command and its options exist."""
    command, path = cli.main, ""
    known = {"-h", "--help", "--version"}
    while words and isinstance(command, click.Group) and re.fullmatch("[a-z][a-z|-]*", words[0]):
        below = command.get_command(click.Context(command), words[0].partition("|")[0])
        if below is None:
            return f"{path} has no command {words[0]}"
        command, path = below, f"{path} {words.pop(0)}"
        known |= {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    if path == " submit":  # what is not its own belongs to the job
        return ""
    own = words[: words.index("--")] if "--" in words else words
    options = [option for word in own for option in re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", word)]
    return next((f"{path} has no option {option}" for option in options if option not in known), "")


def test_every_command_on_a_page_exists_with_its_options() -> None:
    found = [(page, line) for page in FOLLOWED for line in written(page)]
    assert len(found) > 200
    faults = [
        f"{page.name}: gangline {line}: {why}"
        for page, line in found
        if line not in NO_COMMANDS and (why := fault(line.split()))
    ]
    assert faults == []


@pytest.mark.parametrize("group", GROUPS)
def test_help_lists_every_command_under_what_it_is_for(group: str) -> None:
    output = CliRunner().invoke(cli.main, [*group.split(), "--help"]).output
    for heading, entries in GROUPS[group].sections.items():
        assert f"{heading}:" in output
        for name, entry in entries.items():
            assert f"  {name} " in output and entry.about.split()[0] in output
    assert max(map(len, output.splitlines())) <= 80
    assert {len(entry.about) <= 70 for entry in GROUPS[group].entries.values()} == {True}


def test_the_top_of_the_help_is_read_at_a_glance() -> None:
    assert len(cli.main.entries) <= 34
    assert max(len(entries) for entries in cli.main.sections.values()) <= 8
    assert not set(cli.main.entries) & set(cli.FORMER)


# --- former spellings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cli.FORMER)
def test_a_former_spelling_does_what_the_new_one_does_and_names_it_on_stderr(name: str) -> None:
    former, now = (CliRunner().invoke(cli.main, [*line, name, "--help"]) for line in ([], [cli.FORMER[name]]))
    assert former.exit_code == now.exit_code == 0
    assert former.stdout == now.stdout and f"gangline {cli.FORMER[name]} {name} " in now.stdout.replace(
        "main ", "gangline "
    )
    [line] = former.stderr.splitlines()
    assert f"is now `main {cli.FORMER[name]} {name}`" in line and not now.stderr


def test_what_a_former_spelling_prints_is_parsed_as_before() -> None:
    former, now = (CliRunner().invoke(cli.main, line.split()) for line in ("crds", "admin crds"))
    assert former.exit_code == now.exit_code == 0 and former.stdout == now.stdout and former.stdout.startswith("#")
    subcommand = CliRunner().invoke(cli.main, ["forecast", "show", "--help"])
    assert "admin forecast show [OPTIONS]" in subcommand.stdout and len(subcommand.stderr.splitlines()) == 1


def test_a_former_spelling_is_in_no_help_and_no_completion_of_names() -> None:
    output = CliRunner().invoke(cli.main, ["--help"]).output
    assert [name for name in cli.FORMER if f"\n  {name} " in output] == []
    assert not set(cli.FORMER) & {*completed(), *cli.main.list_commands(CTX)}
    assert "--check" in completed("crds", incomplete="--"), "its options are completed, in silence"


def test_no_text_of_ours_uses_a_former_spelling() -> None:
    former = re.compile(rf"(?<!from )(?<!operator/)\bgangline ({'|'.join(cli.FORMER)})(?![\w.-]|/)")
    allowed = {("docs/cli.md", "gangline install")}  # the sentence about former spellings
    folders = ("docs", "examples", "operator", "webhooks", "charts", "config", "scripts", "bench", ".github")
    files = [*ROOT.glob("*.md"), ROOT / "Makefile", *(path for name in folders for path in (ROOT / name).rglob("*.*"))]
    found = {
        (str(path.relative_to(ROOT)), match[0])
        for path in files
        if path.suffix in ("", ".md", ".py", ".yaml", ".yml", ".sh", ".txt", ".json")
        for match in former.finditer(path.read_text())
    }
    assert found - allowed == set()


# --- imports --------------------------------------------------------------------------------------------------------------


def test_help_imports_no_command_and_nothing_that_is_slow() -> None:
    script = (
        "import json, sys\nfrom gangline.console.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stderr)
    assert "Usage: " in done.stdout
    ours = [
        name
        for name in loaded
        if name.startswith("gangline") and name not in ("gangline", "gangline.console", "gangline.console.cli")
    ]
    assert ours == ["gangline.console.examples"]
    assert not {"aiohttp", "rich", "pydantic", "yaml", "orjson"} & set(loaded)


#: what a command that only asks may load: modules of Gangline, and all
OURS, ALL = 75, 420
#: modules of which it may load none: the engine and all that feeds it, models, and what draws
HEAVY = re.compile(
    r"gangline\.(engine\.(?!model)|control\.(feed|forecasting|decisions|controller|kinds|checks|writes)\b|jobs\b|forecast\b|install\b"
    r"|devcluster\b|api\.(schema|admission|jobkinds)\b)|pydantic|sqlalchemy|rich|numpy|kopf|fastapi|lightgbm|aiohttp\.web"
)
SAYS_MODULES = """
import json, sys
sys.argv[0] = "gangline"
from gangline.console.cli import main
try:
    main(prog_name="gangline")
finally:
    print("\\n" + json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(server: StandIn, folder: Path, *arguments: str, **environment: str) -> tuple[str, list[str]]:
    """What a command of its own process prints, and the modules that it has loaded in the end."""
    config = {"KUBECONFIG": str(server.kubeconfig(folder)), "HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", SAYS_MODULES, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **config, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(done.stderr.splitlines()[-1])


POD = {
    "name": "resnet-0",
    "podSet": "main",
    "rank": 0,
    "node": "gpu-1",
    "state": "Ready",
    "created": 1.0,
    "obstacle": "",
    "gpuUse": 0.5,
    "gpuMemoryBytes": 2.0**30,
    "idleSince": None,
    "measuredAt": 1.0,
}


@pytest.fixture
def operator() -> Iterator[StandIn]:
    """The answers of an operator about one job that waits, a run, and a queue."""
    item = briefs.as_json(workload_view(pending("resnet", namespace="ml"), {})) | {"fallenBack": None}
    of_ml, job = f"{ANSWERS}/namespaces/ml", f"{ANSWERS}/namespaces/ml/queuedjobs/resnet"
    explained = {"job": item, "lines": [{"label": "state", "text": "waits"}]}
    answers: dict[str, Any] = {
        f"{of_ml}/queuedjobs": listed("QueuedJob", [item]),
        f"{of_ml}/pastruns": listed("PastRun", []),
        f"{of_ml}/queueshares": listed("QueueShare", []),
        f"{of_ml}/flavornodes": listed("FlavorNode", []),
        f"{of_ml}/plannedruns": listed("PlannedRun", []),
        job: item,
        f"{job}/why": explained,
        f"{job}/remedies": {"startsInSeconds": {"p50": 60, "p90": 90}, "because": "", "remedies": []},
        f"{job}/pods": {"job": item, "pods": [POD]},
        f"{KUEUE}/namespaces/ml/localqueues": listed("LocalQueue", [local_queue()]),
        "/apis/gangline.io/v1alpha1/namespaces/ml/gpujobs": {
            "metadata": {"name": "resnet-x", "uid": "u1", "labels": {"kueue.x-k8s.io/queue-name": "gpus"}}
        },
        f"{KUEUE}/namespaces/ml/workloads": listed("Workload", [pending("resnet", namespace="ml")]),
    }
    with serving(answers) as server:
        yield server


@pytest.mark.parametrize(
    "line",
    [
        "queue --help",
        "why --help",
        "events --help",
        "whatif --help",
        "cancel --help",
        "queue",
        "queue -o json",
        "eta",
        "eta resnet",
        "history",
        "share",
        "nodes",
        "why resnet",
        "usage resnet",
        "submit --help",
        "submit --gpus 1 --image x:1 -- true",
        "exec --help",
    ],
)
def test_commands_that_ask_load_few_modules_and_no_operator(line: str, operator: StandIn, tmp_path: Path) -> None:
    output, modules = loaded(operator, tmp_path, *line.split())
    assert "resnet" in output or line in ("history", "share", "nodes") or "--help" in line
    assert "usage" not in line or ("50 %" in output and "1.0 GiB" in output)
    ours = [name for name in modules if name.split(".")[0].startswith("gangline")]
    assert [name for name in modules if HEAVY.match(name)] == []
    assert len(ours) <= OURS and len(modules) <= ALL, (len(ours), len(modules))
    assert ("aiohttp" in modules) == ("--help" not in line)


def test_a_shell_that_completes_a_name_loads_even_fewer(operator: StandIn, tmp_path: Path) -> None:
    asks = {"_GANGLINE_COMPLETE": "bash_complete", "COMP_WORDS": "gangline why re", "COMP_CWORD": "2"}
    output, modules = loaded(operator, tmp_path, **asks)
    assert output.strip() == "plain,resnet"
    assert [name for name in modules if HEAVY.match(name) or name.startswith("aiohttp")] == []
    assert len(modules) <= 320, len(modules)


# --- completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_the_script_of_a_shell_is_one_that_it_understands(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.main, ["completion", shell])
    assert done.exit_code == 0 and f"_GANGLINE_COMPLETE={shell}_complete" in done.output.replace("env ", "")
    if (found := shutil.which(shell)) is not None:
        path = tmp_path / "script"
        path.write_text(done.output)
        subprocess.run([found, "-n", str(path)], check=True)


def completed(*words: str, incomplete: str = "") -> list[str]:
    found = ShellComplete(cli.main, {}, "gangline", completion.VARIABLE)
    return [item.value for item in found.get_completions(list(words), incomplete)]


def test_commands_and_formats_are_completed() -> None:
    assert sorted(completed(incomplete="wh")) == ["whatif", "why"]
    assert "wide" in completed("queue", "-o") and "custom-columns=" in completed("queue", "-o", incomplete="cu")
    assert completed("completion", incomplete="z") == ["zsh"]
    assert completed("admin", incomplete="up") == ["upgrade"] and completed("admin", "swap", incomplete="l") == ["list"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandIn]:
    """A cluster with two jobs that wait, one that has ended, a LocalQueue and a node; no right to list ClusterQueues."""
    done = workload("resolved", condition("Finished", True, "Succeeded"))
    node = {"metadata": {"name": "gpu-1"}, "spec": {"unschedulable": True}}
    of_team = f"{KUEUE}/namespaces/team-vision"
    answers: dict[str, Any] = {
        f"{of_team}/workloads": listed("Workload", [pending("resnet"), pending("bert", kind="GPUJob"), done]),
        f"{of_team}/localqueues": listed("LocalQueue", [local_queue()]),
        "/api/v1/nodes": listed("Node", [node], "v1"),
        f"{KUEUE}/clusterqueues": status(403, "Forbidden", "you may not list clusterqueues"),
    }
    with serving(answers) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, "team-vision")))
        yield server


def named(names: Any, incomplete: str) -> list[str]:
    return [item.value for item in names(click.Context(cli.main), click.Argument(["job"]), incomplete)]


@pytest.mark.usefixtures("cluster")
def test_names_of_jobs_come_from_the_cluster() -> None:
    assert named(completing.jobs, "") == ["bert", "resnet"]
    assert named(completing.jobs, "re") == ["resnet"], "one that has ended is not offered"
    assert named(completing.jobs, "gpu") == ["gpujob/bert"]
    assert named(completing.local_queues, "g") == ["gpus"]
    assert named(completing.held, "loc") == ["localqueue/gpus"]
    assert named(completing.cordoned, "") == ["gpu-1"]
    assert named(completing.cordoned, "l") == ["localqueue/gpus"], "without a right to ClusterQueues"
    assert named(completing.cluster_queues, "") == []


def test_names_come_in_pages_and_over_a_proxy_too(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = f"{KUEUE}/namespaces/team-vision/localqueues"
    first, last = listed("LocalQueue", [local_queue("a")]), listed("LocalQueue", [local_queue("b")])
    first["metadata"]["continue"] = "next"
    pages = iter((first, last))
    cluster.before = lambda _: cluster.answers.update({path: next(pages)})
    assert named(completing.local_queues, "") == ["a", "b"]
    cluster.before = lambda _: None
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    config["clusters"][0]["cluster"] = {"server": "http://unreachable.test:1", "proxy-url": f"http://{cluster.address}"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    cluster.answers = {f"http://unreachable.test:1{path}": last}
    assert named(completing.local_queues, "") == ["b"]


def all_commands(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        assert found is not None
        yield " ".join((*words, name)), found
        if isinstance(found, click.Group):
            yield from all_commands(found, (*words, name))


def _names_an_object(param: click.Parameter) -> bool:
    words = {"JOB", "QUEUE", "LOCALQUEUE", "CLUSTERQUEUE", "NODE"}
    of = set((param.metavar or "").strip("[]…").split("|"))
    return param.name == "cluster_queue" or (isinstance(param, click.Argument) and bool(words & of))


def test_whatever_takes_a_job_or_a_queue_completes_its_name() -> None:
    lacking = [
        f"{line}: {param.name}"
        for line, command in all_commands(cli.main)
        for param in command.params
        if _names_an_object(param) and param._custom_shell_complete is None
    ]
    assert lacking == []


def test_o_is_a_format_in_every_command() -> None:
    """Where it once was a file, it says so."""
    for once in ("dev image build", "dev image pack --tag x:1", f"admin tune {Path(__file__).parent}"):
        done = CliRunner().invoke(cli.main, [*once.split(), "-o", "json"])
        assert done.exit_code == 2 and "json is a format" in done.stderr and "--file" in done.stderr, done.stderr
        both = CliRunner().invoke(cli.main, [*once.split(), "-o", "x", "-f", "y"])
        assert both.exit_code == 2 and "give one of them" in both.stderr
    odd = [
        line
        for line, command in all_commands(cli.main)
        for param in command.params
        if "-o" in param.opts and not isinstance(param.type, Output) and not getattr(param, "hidden", False)
    ]
    assert odd == []


def test_without_a_cluster_nothing_is_offered_and_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert completed("why", incomplete="re") == []
    assert capfd.readouterr() == ("", "")
