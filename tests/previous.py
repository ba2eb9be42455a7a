"""The previous commit of this repository as an installation: its sources, and its image."""

from __future__ import annotations

import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

from gangline.console.stack.own_image import LOCK, packages
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.locks import locked
from gangline.image.builder import Sources, build_gangline

_ROOT: Final = Path(__file__).parents[1]
_NEEDED: Final = ("operator", "webhooks", "crds", "examples", LOCK)


@dataclass(frozen=True)
class Previous:
    """`python_path`: where Python finds the commit's packages. `archive`: of the image named `reference`."""

    python_path: str
    archive: Path
    reference: str


def previous() -> Previous:
    """The first parent of HEAD, built once per commit; skips the test where the checkout has no history."""
    found = _git("rev-parse", "--verify", "--quiet", "HEAD^")
    if found.returncode != 0:
        pytest.skip("this checkout has no previous commit")
    commit = found.stdout.decode().strip()[:12]
    folder = cache_root() / "test-images" / f"previous-{commit}"
    archive, reference = folder / "gangline.tar", f"docker.io/gangline/gangline:{commit}"
    with locked(folder.with_suffix(".lock")):
        if not archive.exists():
            _unpack(commit, folder)
            build_gangline(_sources(folder), packages(), archive, reference, lambda _: None)
    return Previous(f"{folder / 'operator'}:{folder / 'webhooks'}", archive, reference)


def _unpack(commit: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    exported = _git("archive", commit, "--", *_NEEDED)
    assert exported.returncode == 0, exported.stderr.decode()
    with tarfile.open(fileobj=BytesIO(exported.stdout)) as tar:
        tar.extractall(folder)  # of our own repository


def _sources(folder: Path) -> Sources:
    names = {"gangline": folder / "operator/gangline", "gangline_webhooks": folder / "webhooks/gangline_webhooks"}
    return Sources(names, {name: folder / name for name in ("crds", "examples")}, folder / LOCK)


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(_ROOT), *arguments], capture_output=True, check=False)
