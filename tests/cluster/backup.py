"""A control plane whose store is copied, and restored from the copy, as an administrator does with etcd's snapshots."""

from __future__ import annotations

import shutil
from pathlib import Path

from gangline.devcluster.components import COMPONENTS
from gangline.devcluster.local import LocalControlPlane


def take(plane: LocalControlPlane, to: Path) -> None:
    """Copy the store as a power cut would leave it; it stands still meanwhile."""
    plane.pause("etcd")
    try:
        shutil.copytree(_store(plane), to)
    finally:
        plane.resume("etcd")


def restore(plane: LocalControlPlane, copy: Path) -> None:
    """Put the copy in the place of the store, and start the whole control plane again, as Kubernetes demands after that."""
    for component in reversed(COMPONENTS):
        plane.kill(component)
    shutil.rmtree(_store(plane))
    shutil.copytree(copy, _store(plane))
    for component in COMPONENTS:
        plane.start_component(component)


def _store(plane: LocalControlPlane) -> Path:
    return plane.directory / "etcd"
