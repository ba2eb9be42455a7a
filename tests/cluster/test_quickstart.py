"""Every command that README.md and docs/quickstart.md show is run for real, and what they print is compared, numbers aside.

The pages' blocks are read, not copied. `make run` runs as it stands. What "another terminal" shows depends on the moment, so
for that a copy of the example is held: its jobs come one by one, a second apart, and run until they are asked to end; `gangline
run --example` is what runs it. A command that is in no test has a row in `NOT_RUN` that says why.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from tests.console.terminal import Terminal
from tests.controlplane import require_control_plane

from gangline.devcluster.building import build
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.local import LocalControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "docs" / "quickstart.md")
EXAMPLE = ROOT / "examples" / "quickstart"

#: pattern of commands that no test here runs -> why
NOT_RUN = {
    r"make (check|test|fuzz|fuzz-coverage|fuzz-cluster|crds|lock|sbom|reference|docs|ui|pictures)\b": (
        "concerns the checkout, not a cluster, and would start this test again, take hours or fetch packages;"
        " that there is such a target is tested"
    ),
    r"gangline up --kind": "needs Docker",
}


# --- the pages --------------------------------------------------------------------------------------------------------


@dataclass
class Shown:
    """A command of a page with the output below it."""

    command: str
    output: list[str] = field(default_factory=list)
    where: str = ""

    @property
    def is_make_run(self) -> bool:
        return self.command.startswith("make run <")


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Language, text and line of every fenced block."""
    text = page.read_text()
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield found[1], found[2], text[: found.start()].count("\n") + 1


def commands(page: Path) -> list[Shown]:
    """Of console blocks what follows `$`; of sh blocks every line, which shows no output."""
    found: list[Shown] = []
    for language, text, line in blocks(page):
        where = f"{page.name}:{line}"
        if language == "sh":
            lines = (row.partition("#")[0].strip() for row in text.splitlines())
            found += [Shown(row, where=where) for row in lines if row]
        elif text.startswith("$ "):
            for row in text.splitlines():
                if row.startswith("$ "):
                    found.append(Shown(row[2:], where=where))
                else:
                    found[-1].output.append(row)
    return found


def excerpts(page: Path) -> list[str]:
    """Lines of blocks without a command: what `make run` prints in between."""
    texts = (text for language, text, _ in blocks(page) if language == "text" and not text.startswith("$ "))
    return [row for text in texts for row in text.splitlines()]


SHOWN = [shown for page in PAGES for shown in commands(page)]


def reason(command: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), "")


# --- comparing --------------------------------------------------------------------------------------------------------


def plain(line: str) -> str:
    """The line without what differs from run to run: ages, numbers that are no part of a name, the hashes of Workloads and
    the width of columns."""
    line = re.sub(r"\b((?:job|gpujob|jobset)-[a-z0-9-]+)-[0-9a-f]{5}\b", r"\1-HASH", line)
    line = re.sub(r"(?<![\w-])(\d+(\.\d+)?[dhms])+\b", "AGE", line)
    line = re.sub(r"(?<![\w-])\d+(\.\d+)?", "N", line)
    line = re.sub(r"\b(workload|GPU|pod)s\b", r"\1", line)
    return " ".join(line.split())


def story(line: str) -> str:
    """The same for the log of `make run`: which of two jobs goes first that come in the same second is nobody's choice."""
    line = re.sub(r"\b(job|gpujob)/[a-z0-9-]+", "JOB", line).replace("–", "N")
    return plain(line)


def matches(wanted: str, line: str) -> bool:
    """`…` in the page stands for what was left out."""
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("…")), line) is not None


def differences(page: Iterable[str], real: Iterable[str]) -> list[str]:
    """Lines of the page that are not in the real output, in this order; without a `…` line nothing may be between them.

    On a busy machine `gangline why` says that it has not tried all remedies: any of the page's may be missing then.
    """
    wanted = [plain(row) for row in page if row.strip()]
    rows = [plain(row) for row in real if row.strip()]
    if any("were not tried in time" in row for row in rows):
        remedies = next(i for i, row in enumerate(rows) if row.startswith("remedies"))
        first = next((i for i, row in enumerate(wanted) if row.startswith("remedies")), len(wanted))
        wanted, rows = wanted[:first], rows[:remedies]
    at, gap = 0, False
    for row in wanted:
        if row == "…":
            gap = True
            continue
        found = next((i for i in range(at, len(rows)) if matches(row, rows[i])), None)
        if found is None or (found > at and not gap):
            return [f"the page has  {row}", f"where there is {rows[at] if at < len(rows) else 'nothing more'}"]
        at, gap = found + 1, False
    return [] if gap or at == len(rows) else [f"the page lacks {rows[at]}"]


# --- running ----------------------------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    """`gangline` and kubectl on the PATH; make does not know that a make called it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), str(build.kubectl().parent), inherited["PATH"]])
    return {**inherited, "PATH": path, "NO_COLOR": "1", **more}


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=ROOT,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@contextmanager
def standing(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that stays until Ctrl-C, from the moment on at which it says how to reach its cluster."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(),
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    try:
        until(lambda: "kubectl" in log.read_text(), process, log)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(60)


def until(condition: object, process: subprocess.Popen[bytes], log: Path, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)


def kubeconfig(log: Path) -> str:
    found = re.search(r"export KUBECONFIG=(\S+)", log.read_text())
    assert found, log.read_text()
    return found[1]


def held(directory: Path) -> Path:
    """The example one job after another, each to run until it is asked to end; the urgent one does not come."""
    arrival, runtime = "gangline.io/simulated-arrival", "gangline.io/simulated-runtime"
    copy = directory / "quickstart"
    (copy / "simulated").mkdir(parents=True)
    pools = "simulated/node-pools.yaml"
    (copy / pools).write_text((EXAMPLE / pools).read_text())
    files = {path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted(EXAMPLE.glob("*.yaml"))}
    jobs = [obj for objs in files.values() for obj in objs if obj and obj["kind"] in ("Job", "GPUJob")]
    for obj in jobs:
        obj["metadata"].setdefault("annotations", {}).setdefault(arrival, "0s")
    jobs.sort(key=lambda obj: float(obj["metadata"]["annotations"][arrival].removesuffix("s")))
    for number, obj in enumerate(jobs):
        late = obj["metadata"]["name"] == "hotfix"
        obj["metadata"]["annotations"][arrival] = "280s" if late else f"{number * 2}s"
    for name, objs in files.items():
        text = yaml.safe_dump_all(objs)
        (copy / name).write_text(re.sub(rf"{re.escape(runtime)}: \w+", "example.com/held: 'true'", text))
    return copy


# --- tests ------------------------------------------------------------------------------------------------------------


def test_make_run_prints_what_the_pages_show() -> None:
    require_control_plane()
    (shown,) = [shown for shown in SHOWN if shown.is_make_run]
    outcome = shell(shown.command)
    assert outcome.returncode == 0, outcome.stdout[-3000:] + outcome.stderr[-3000:]
    real = [story(row) for row in outcome.stdout.splitlines()]
    wanted = [*shown.output, *(row for page in PAGES for row in excerpts(page))]
    missing = [row for row in wanted if row.strip() not in ("", "…") and not any(matches(story(row), r) for r in real)]
    assert not missing, outcome.stdout


def test_make_run_on_a_terminal_tells_its_story_until_q() -> None:
    require_control_plane()
    # its window says how wide it is; a worker of pytest's says 80 columns
    variables = {name: text for name, text in environment().items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = ["make", "--no-print-directory", "-C", str(ROOT), "run"]
    with Terminal(120, 30, command, {**variables, "TERM": "xterm-256color"}) as seen:
        seen.until(lambda text: "USED/NOMINAL" in text and "job/resnet-50" in text, "there is no table", 300)
        assert "export KUBECONFIG=" in seen.raw and not seen.echoes() and not seen.picture.cursor_shown
        seen.press("e")  # before the first preemption: of all that happened, the last lines are shown
        seen.until(lambda text: "Stopping" in text and "preempted for" in text, "no preemption among the events")
        seen.press("t")
        seen.until(lambda text: re.search(r"^job/resnet-50 .*█", text, re.MULTILINE), "there is no timeline")
        seen.resize(80, 24)
        seen.until(lambda text: text.count("USED/NOMINAL") == 1 and "[q] end" in text, "no picture of the new size")
        seen.press("j")
        text = seen.until(lambda text: "The cluster stays up" in text, "there is no result in sight", 200)
        assert "29 of 30 jobs finished" in text and "llama-405b never fits" in text
        # at the end the picture fills the window, and nothing is wider
        assert "jobs  [t] timeline" in text and all(len(row) <= 80 for row in text.splitlines())
        seen.press("q")
        assert seen.ended(120) == 0, seen.raw[-2000:]
        assert seen.echoes() and seen.picture.cursor_shown and seen.modes() == seen.modes_before


def test_another_terminal_shows_what_the_pages_show(tmp_path: Path) -> None:
    require_control_plane()
    log = tmp_path / "run.log"
    asked = [shown for shown in SHOWN if re.match(r"gangline (queue|why)|kubectl", shown.command)]
    assert len(asked) >= 9
    with standing(log, "gangline", "run", "--example", str(held(tmp_path))) as process:
        config = kubeconfig(log)
        # the last job that comes waits, and so does a job that never will be admitted
        until(lambda: re.search(r"Pending .*job/eval-3 .*WaitingForQuota", log.read_text()), process, log)
        time.sleep(5)  # reasons are written at most every second, queue statuses too
        wrong: list[str] = []
        for shown in asked:
            outcome = shell(shown.command, KUBECONFIG=config)
            assert outcome.returncode == 0, f"{shown.where}: {shown.command}\n{outcome.stdout}{outcome.stderr}"
            if shown.output and (found := differences(shown.output, outcome.stdout.splitlines())):
                wrong.append("\n".join([f"{shown.where}: {shown.command}", *found, outcome.stdout]))
        assert not wrong, "\n\n".join(wrong)


def test_up_brings_up_a_cluster_until_ctrl_c(tmp_path: Path) -> None:
    require_control_plane()
    log = tmp_path / "up.log"
    assert "gangline up --local" in [shown.command for shown in SHOWN]
    with standing(log, "gangline", "up", "--local"):
        outcome = shell("kubectl apply -f examples/quickstart/ && gangline queue -A", KUBECONFIG=kubeconfig(log))
        assert outcome.returncode == 0, outcome.stderr
        assert "llama-405b" in outcome.stdout
    assert "ended" in log.read_text()


def test_up_installs_gangline_on_a_cluster_of_ones_own(tmp_path: Path) -> None:
    """`~/.kube/config` of the page is that of a bare control plane here."""
    require_control_plane()
    log = tmp_path / "up.log"
    assert "gangline up --kubeconfig ~/.kube/config" in [shown.command for shown in SHOWN]
    with (
        LocalControlPlane(ControlPlaneOptions(gogc=200)) as plane,
        standing(log, "gangline", "up", "--kubeconfig", str(plane.kubeconfig)),
    ):
        assert shell("kubectl get clusterqueues,gpujobs -A", KUBECONFIG=str(plane.kubeconfig)).returncode == 0
    assert "the operator is ready" in log.read_text()


def test_doctor_says_that_this_machine_can_do_it() -> None:
    require_control_plane()
    outcome = shell("gangline admin doctor")
    assert outcome.returncode == 0, outcome.stdout
    assert outcome.stdout.endswith("This machine has everything that `make run` needs.\n")


def test_no_command_of_the_pages_is_forgotten() -> None:
    run = re.compile(r"make run( <|$)|gangline (queue|why) |kubectl |gangline up --local$|gangline up --kubeconfig ~")
    forgotten = [f"{s.where}: {s.command}" for s in SHOWN if not run.match(s.command) and not reason(s.command)]
    assert not forgotten


def test_every_make_target_of_the_pages_exists() -> None:
    targets = {found[1] for shown in SHOWN if (found := re.match(r"make ([a-z-]+)", shown.command))}
    assert {"run", "test", "check"} <= targets
    declared = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert targets <= set(declared)


def test_what_is_left_out_is_marked() -> None:
    real = ["NAME   AGE", "job-a-12345  3s", "job-b-12345  4s", "job-c-12345  5s"]
    assert not differences(["NAME AGE", "job-a-0a0a0 17s", "…"], real)
    assert not differences(["NAME AGE", "…", "job-c-0a0a0 17s"], real)
    assert differences(["NAME AGE", "job-c-0a0a0 17s"], real)
    assert differences(["NAME AGE", "job-a-0a0a0 17s"], real)
    assert differences(["NAME AGE", "job-x-0a0a0 17s", "…"], real)
