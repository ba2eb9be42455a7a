"""Whether real nodes can run on this machine, tried part by part; each refusal is one sentence that names the part."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from gangline.devcluster.errors import StartError
from gangline.devcluster.real import cgroups
from gangline.devcluster.real.network import BRIDGE, MOST_NODES

_TOOLS: Final = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
#: directories in whose place a node sees its own
_HIDDEN: Final = ("/var/lib", "/var/log", "/etc/cni", "/run")
_NAMESPACES: Final = ("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc")


def check(directory: Path, count: int = 1) -> None:
    """Check that `count` real nodes can run here with their files in `directory`. Raises StartError if they can't."""
    refusal = refused(directory, count)
    if refusal:
        raise StartError(f"real nodes can't run here: {refusal}. Simulated nodes can (without --nodes)")


def refused(directory: Path, count: int = 1) -> str:
    """Why not; empty if they can run."""
    if count > MOST_NODES:
        return f"{count} are too many, there are addresses for {MOST_NODES}"
    if platform.system() != "Linux":
        return f"they need Linux, not {platform.system()}"
    if os.geteuid() != 0:
        return "they need root, for namespaces and mounts of their own"
    for tool, package in _TOOLS.items():
        if shutil.which(tool) is None:
            return f"the program {tool} is missing (package {package})"
    for path in (directory, Path(sys.prefix), Path(__file__)):
        if hidden := next((each for each in _HIDDEN if path.resolve().is_relative_to(each)), None):
            return f"{path} lies in {hidden}, which every node has for itself; set XDG_STATE_HOME and TMPDIR to other places"
    return _namespaces() or _bridges() or _cgroups() or _overlays(directory)


def _namespaces() -> str:
    trouble = _try(["unshare", *_NAMESPACES, "true"])
    return f"the kernel refuses namespaces ({trouble})" if trouble else ""


def _bridges() -> str:
    trouble = _try(["unshare", "--net", "ip", "link", "add", BRIDGE, "type", "bridge"])
    return f"the kernel refuses network bridges ({trouble})" if trouble else ""


def _cgroups() -> str:
    name = f"gangline-try-{os.getpid()}"
    try:
        cgroups.create(name, "node")
    except StartError as error:
        return str(error)
    finally:
        for each in cgroups.directories(name):
            cgroups.remove_tree(each)
    return ""


def _overlays(directory: Path) -> str:
    """containerd keeps images as overlays; a directory that is an overlay itself can't hold others."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".try-") as name:
        folder = Path(name)
        for part in ("lower", "upper", "work", "merged"):
            (folder / part).mkdir()
        layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        trouble = _try(["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", layers, f"{folder}/merged"])
    return (
        f"{directory} can't hold overlay mounts ({trouble}); set TMPDIR or XDG_STATE_HOME to a disk" if trouble else ""
    )


def _try(command: list[str]) -> str:
    """The command's complaint; empty if it succeeded."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if answer.returncode == 0 else answer.stderr.strip()[-200:] or f"status {answer.returncode}"
