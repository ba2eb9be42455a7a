"""The cgroups of one cluster's real nodes: one directory in every hierarchy of the kernel (version 1, 2, or both).

They are the only thing that outlives the nodes' processes, so they bear the cluster's own name and are removed by it.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from gangline.devcluster.errors import StartError

_MOUNTS: Final = Path("/proc/self/mountinfo")
_GONE_WITHIN: Final = 10.0


def name_of(directory: Path) -> str:
    """The name, from the cluster's directory: two clusters never share one."""
    return f"gangline-{hashlib.sha256(str(directory).encode()).hexdigest()[:10]}"


def hierarchies() -> list[Path]:
    """Where the kernel's cgroup hierarchies are mounted."""
    found: list[Path] = []
    for line in _MOUNTS.read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split()[4]))
    return found


def version_1() -> bool:
    """Whether resources are limited by hierarchies of version 1."""
    return not (Path("/sys/fs/cgroup") / "cgroup.controllers").exists()


def create(name: str, node: str) -> str:
    """Create the cgroups of a node. Returns their path below each hierarchy, for kubelet. Raises StartError."""
    path = f"/{name}/{node}"
    try:
        for root in hierarchies():
            for part in (root / name, root / name / node):
                part.mkdir(exist_ok=True)
                _inherit(part)
    except OSError as error:
        raise StartError(f"cgroups can't be created here: {error}") from error
    return path


def directories(name: str) -> list[Path]:
    """The cluster's directories that exist, one in each hierarchy."""
    return [root / name for root in hierarchies() if (root / name).is_dir()]


def remove(name: str) -> None:
    """Remove the cluster's cgroups once their last process is gone. Raises StartError."""
    deadline = time.monotonic() + _GONE_WITHIN
    while left := directories(name):
        for directory in left:
            remove_tree(directory)
        if not directories(name):
            return
        if time.monotonic() > deadline:
            raise StartError(f"the cgroup {left[0]} is still in use")
        time.sleep(0.05)


def remove_tree(directory: Path) -> None:
    """Remove a cgroup with those below it, as far as they are empty."""
    for path, _, _ in os.walk(directory, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()


def _inherit(directory: Path) -> None:
    """Give a new cgroup what it doesn't get by itself: CPUs and memory (version 1), controllers (version 2)."""
    for file in ("cpuset.cpus", "cpuset.mems"):
        if version_1() and (directory / file).exists() and not (directory / file).read_text().strip():
            (directory / file).write_text((directory.parent / file).read_text())
    available = directory / "cgroup.controllers"
    if available.exists() and not version_1():
        wanted = " ".join(f"+{name}" for name in available.read_text().split())
        with suppress(OSError):  # a controller that this kernel can't delegate
            (directory / "cgroup.subtree_control").write_text(wanted)
