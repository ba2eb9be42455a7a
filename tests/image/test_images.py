"""Gangline's image and users' images: what they hold, and that the same sources give the same image."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.realnodes import python_image

from gangline.console.commands.dev.image import command
from gangline.console.stack.own_image import LOCK
from gangline.debian import DebianError, Packages, missing_tools
from gangline.devcluster.building.build import cache_root
from gangline.image import base, builder, oci, python_packages

ROOT = Path(__file__).parents[2]
needs_debian = pytest.mark.skipif(bool(missing_tools()), reason=f"this machine has no {', '.join(missing_tools())}")


def test_the_lock_names_every_package_of_the_base() -> None:
    assert {package.name for package in base.read_lock()} == set(base.PACKAGES)


def test_a_broken_lock_is_refused_by_line(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("# fine\nlibc6 1.0\n")
    with pytest.raises(DebianError, match="line 2"):
        base.read_lock(tmp_path / "lock")


def test_the_images_lock_has_what_gangline_imports_and_no_tools() -> None:
    wheels = {wheel.name: wheel for wheel in python_packages.read_lock(ROOT / LOCK)}
    assert {"kopf", "lightgbm", "pydantic", "uvicorn", "psycopg"} <= set(wheels)
    assert not {"pytest", "ruff", "pyright", "hypothesis"} & set(wheels)
    assert all(wheel.hashes for wheel in wheels.values())


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("scipy/optimize/tests/test_x.py", True),
        ("numpy/core/include/numpy/x.h", True),
        ("numpy/testing/__init__.py", False),
        ("kopf/__init__.py", False),
        ("pydantic/main.pyi", True),
        ("bin/kopf", True),
        ("latest/best.py", False),
    ],
)
def test_what_is_left_out_of_wheels(path: str, left_out: bool) -> None:
    assert python_packages.unneeded(path) is left_out


@needs_debian
def test_a_package_that_does_not_exist_is_named() -> None:
    with pytest.raises(DebianError, match="no-such-package"):
        Packages(cache_root() / "debian").packages(["no-such-package-of-debian"])


@needs_debian
@pytest.mark.parametrize("name", ["--purge", "-o=x", "A b", "x;y", ""])
def test_a_word_that_is_no_package_is_not_given_to_apt(name: str) -> None:
    with pytest.raises(DebianError, match="no package's name"):
        Packages(cache_root() / "debian").packages([name])


@needs_debian
def test_a_users_image_has_its_files_and_no_shell(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    arguments = ["pack", "--tag", "trainer:1", "--add", f"{tmp_path / 'train.py'}:/app/train.py", "--progress"]
    outcome = CliRunner().invoke(
        command, [*arguments, "--file", str(tmp_path / "x.tar"), "--", "python3", "/app/train.py"]
    )
    assert outcome.exit_code == 0, outcome.output
    assert "docker.io/library/trainer:1" in outcome.output
    names: set[str] = set()
    with tarfile.open(tmp_path / "x.tar") as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
        config = json.load(archive.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as tar:
                names |= set(tar.getnames())
    assert {"app/train.py", "usr/bin/python3.11", "usr/lib/python3/dist-packages/gangline/progress.py"} <= names
    assert not {name for name in names if name in ("bin/sh", "usr/bin/sh", "bin/bash", "usr/bin/dpkg", "usr/bin/apt")}
    assert config["config"]["Entrypoint"] == ["python3", "/app/train.py"]
    assert config["config"]["User"] == "65532:65532"


@pytest.mark.parametrize("add", ["nothing:/x", "/etc/passwd", "/etc/passwd:relative", "/etc/passwd:/a/../../b"])
def test_a_file_that_cannot_be_added_is_refused(add: str) -> None:
    outcome = CliRunner().invoke(command, ["pack", "--tag", "x:1", "--add", add])
    assert outcome.exit_code == 2
    assert "--add" in outcome.output


@pytest.mark.parametrize("tag", ["", "x", "UPPER:1", "x:" + "a" * 200, "x y:1", "../x:1"])
def test_a_tag_that_is_none_is_refused(tag: str) -> None:
    outcome = CliRunner().invoke(command, ["build", "--tag", tag])
    assert outcome.exit_code == 2
    assert "REGISTRY/NAME:TAG" in outcome.output


@needs_debian
def test_the_base_is_the_same_in_every_build(tmp_path: Path) -> None:
    with tarfile.open(python_image()) as archive:
        manifest = json.load(archive.extractfile("manifest.json"))[0]  # type: ignore[arg-type]
    made = builder.build_user_image(
        builder.UserImage(),
        Packages(cache_root() / "debian"),
        tmp_path / "x.tar",
        "docker.io/library/x:1",
        lambda _: None,
    )
    assert made.size < 20e6
    with tarfile.open(made.archive) as archive:
        assert json.load(archive.extractfile("manifest.json"))[0]["Layers"] == manifest["Layers"]  # type: ignore[arg-type]


def test_architectures_are_named_as_images_do() -> None:
    assert oci.architecture() in ("amd64", "arm64")
