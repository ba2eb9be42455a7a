"""Real nodes for tests: skipped with the reason where they can't run, and an image with Python on them."""

from __future__ import annotations

import functools
import hashlib
import tempfile
from pathlib import Path

import pytest
from tests.controlplane import require_control_plane

from gangline.debian import Packages, unpack
from gangline.devcluster.building import build
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.locks import locked
from gangline.devcluster.real import preflight, programs
from gangline.image import base
from gangline.image.builder import UserImage, build_user_image

PYTHON_IMAGE = "docker.io/library/python:test"
SHELL_IMAGE = "docker.io/library/shell:test"


@functools.cache
def refusal() -> str:
    return preflight.refused(Path(tempfile.gettempdir()))


def require_real_nodes() -> None:
    """Skips the test where this machine refuses real nodes; fails it where their programs are not compiled."""
    if why := refusal():
        pytest.skip(f"real nodes can't run here: {why}")
    require_control_plane()
    for module in (programs.NODE, programs.CONTAINERD, programs.CNI, programs.OWN):
        if not build.is_built(module, module.programs):
            pytest.fail(
                "the programs of real nodes are not compiled yet; run `gangline dev cluster build --real` (minutes, once)"
            )


def python_image() -> Path:
    """The archive of an image with nothing but Python, built once for all tests."""
    return _image("python", PYTHON_IMAGE, UserImage())


def shell_image() -> Path:
    """The archive of an image with `sh` and `sleep`, and with what these need."""
    names = ("dash", "coreutils")
    source = Packages(cache_root() / "debian")
    with tempfile.TemporaryDirectory(prefix="gangline-shell-") as folder:
        unpack(source.download([each for each in source.closure(names) if each.name in names]), Path(folder))
        programs = {"usr/bin/sh": Path(folder, "bin/dash"), "usr/bin/sleep": Path(folder, "bin/sleep")}
        return _image("shell", SHELL_IMAGE, UserImage(names, programs))


def _image(name: str, reference: str, wanted: UserImage) -> Path:
    archive = cache_root() / "test-images" / f"{name}-{_digest()}.tar"
    with locked(archive.with_suffix(".lock")):
        if not archive.exists():
            build_user_image(wanted, Packages(cache_root() / "debian"), archive, reference, lambda _: None)
    return archive


def _digest() -> str:
    return hashlib.sha256(base.LOCK.read_bytes() + Path(base.__file__).read_bytes()).hexdigest()[:12]
