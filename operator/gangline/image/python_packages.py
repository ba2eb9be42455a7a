"""Python packages for an image: wheels that a lock file names by version and digest, installed into a directory."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gangline.image import oci
from gangline.image.base import PYTHON

#: wheels for this system are taken, the newest first; the base has glibc 2.36
_PLATFORMS: Final = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
_MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_TIMEOUT: Final = 1200.0
#: files of wheels that nothing of ours reads
UNNEEDED: Final = re.compile(
    r"(^|/)(tests?|testing_data|__pycache__|_examples|include)(/|$)|\.(pyi|pxd|pyx|c|h|hpp|a)$|/RECORD$|/direct_url\.json$|/INSTALLER$"
    r"|^bin(/|$)"
)
#: packages whose tests are imported by the package itself
_KEPT: Final = re.compile(r"(^|/)(numpy/testing|numpy/_core/tests|scipy/_lib|numpy/tests)")


class PythonPackagesError(Exception):
    """The packages cannot be installed; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One package of a lock file. `hashes`: SHA-256 in hex, of its files for any platform."""

    name: str
    version: str
    hashes: tuple[str, ...]


def read_lock(path: Path) -> list[Wheel]:
    """The packages of a requirements file with hashes, by name, whatever their environment markers say."""
    text = path.read_text().replace("\\\n", " ")
    found = re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)(.*)$", text, flags=re.MULTILINE)
    wheels = [Wheel(name, version, tuple(re.findall(r"sha256:([0-9a-f]{64})", rest))) for name, version, rest in found]
    return sorted(wheels, key=lambda wheel: wheel.name)


def install(lock: Path, into: Path) -> None:
    """Install the lock's packages into a directory, for the image's Python. Raises PythonPackagesError."""
    machine = _MACHINES.get(oci.architecture())
    if machine is None:
        raise PythonPackagesError(f"images can't be built for {oci.architecture()}")
    platforms = [word for name in _PLATFORMS for word in ("--platform", f"{name}_{machine}")]
    command = [
        *_pip(),
        *("install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-compile", "--no-deps"),
        *("--require-hashes", "--only-binary=:all:", "--implementation=cp", f"--python-version={PYTHON}"),
        *platforms,
        *("--target", str(into), "--requirement", str(lock)),
    ]
    try:
        answer = subprocess.run(
            command,
            env=os.environ | {"PIP_CONFIG_FILE": os.environ.get("PIP_CONFIG_FILE", "")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PythonPackagesError(f"pip: {error}") from error
    if answer.returncode != 0:
        raise PythonPackagesError(f"the packages of {lock.name} can't be installed:\n{answer.stderr.strip()[-2000:]}")


def compile_all(site: Path, root: Path) -> None:
    """Compile all modules with the image's own Python, unpacked in `root`: a read-only container can't keep what it compiles.

    The compiled files name no time, so that they are the same in every build. Raises PythonPackagesError.
    """
    libraries = root / f"usr/lib/{_MACHINES[oci.architecture()]}-linux-gnu"
    loader = next(iter(sorted((root / "lib").glob("*-linux-gnu/ld-linux-*"))), None) or next(
        iter(sorted(libraries.glob("ld-linux-*"))), None
    )
    if loader is None:
        raise PythonPackagesError(f"{root} has no loader")
    paths = f"{libraries}:{loader.parent}"
    python = root / f"usr/bin/python{PYTHON}"
    options = ("-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
    answer = subprocess.run(
        [str(loader), "--library-path", paths, str(python), *options, "-s", str(site), "-p", "/", str(site)],
        env={"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if not any(site.rglob("*.pyc")):  # single files that are no Python of this version may fail
        raise PythonPackagesError(f"the modules can't be compiled: {(answer.stderr + answer.stdout)[-1000:]}")


def unneeded(path: str) -> bool:
    """Whether a file of a wheel, by its path in the directory, is left out of the image."""
    return bool(UNNEEDED.search(path)) and not _KEPT.search(path)


def _pip() -> list[str]:
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip3") or shutil.which("pip")
    if found is None:
        raise PythonPackagesError("the image's packages are installed by pip, and this machine has none")
    return [found]
