"""Debian packages without installing them: resolved, downloaded and unpacked into a directory, by apt and dpkg-deb.

apt works on lists and a cache of its own in the user's cache, so neither the machine's package state nor root is needed. The
sources and their keys are the machine's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

#: lists older than this are fetched again; seconds
LISTS_LAST: Final = 24 * 3600.0
TIMEOUT: Final = 600.0
_TOOLS: Final = ("apt-get", "apt-cache", "dpkg-deb")
_NAME: Final = re.compile(r"^[a-z0-9][a-z0-9+.:-]{1,100}$")


class DebianError(Exception):
    """Packages cannot be resolved, downloaded or unpacked here; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Package:
    """One package file. `sha256`: its digest in hex, from the signed lists."""

    name: str
    version: str
    architecture: str
    sha256: str


def missing_tools() -> list[str]:
    """The programs that this module needs and this machine lacks."""
    return [tool for tool in _TOOLS if shutil.which(tool) is None]


class Packages:
    """Packages of the machine's Debian sources, kept in a cache directory. Raises DebianError, from every method."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._ready = False

    def closure(self, names: Sequence[str]) -> list[Package]:
        """The packages and all that they depend on (not what they only recommend), by name."""
        self._prepare()
        answer = self._run(
            "apt-get", "install", "--print-uris", "--yes", "-qq", "--no-install-recommends", *_valid(names)
        )
        files = re.findall(r"^'[^']*' ([^_\s]+)_([^_\s]+)_\w+\.deb ", answer, flags=re.MULTILINE)
        return self.packages([f"{name}={unquote(version)}" for name, version in files])

    def packages(self, wanted: Sequence[str]) -> list[Package]:
        """The facts of packages, each written `name=version`, or `name` for the newest one; by name."""
        self._prepare()
        answer = self._run("apt-cache", "show", "--no-all-versions", *_valid(wanted), fails=True) if wanted else ""
        made: dict[str, Package] = {}
        for block in answer.split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, flags=re.MULTILINE))
            if "Package" in fields and "SHA256" in fields:
                made[fields["Package"]] = Package(
                    fields["Package"], fields["Version"], fields["Architecture"], fields["SHA256"]
                )
        lacking = [each for each in wanted if each.partition("=")[0] not in made]
        if lacking:
            raise DebianError(f"Debian's package lists have no {', '.join(lacking)}")
        return [made[name] for name in sorted(made)]

    def download(self, packages: Iterable[Package]) -> list[Path]:
        """The files of these packages, each checked against its digest."""
        pool = self._cache / "pool"
        pool.mkdir(parents=True, exist_ok=True)
        chosen = list(packages)
        todo = [package for package in chosen if not _is_whole(_file(pool, package), package.sha256)]
        if todo:
            self._prepare()
            with tempfile.TemporaryDirectory(dir=self._cache, prefix=".download-") as folder:
                self._run("apt-get", "download", "-qq", *(f"{p.name}={p.version}" for p in todo), cwd=Path(folder))
                for package in todo:
                    self._keep(Path(folder), package, _file(pool, package))
        return [_file(pool, package) for package in chosen]

    def _keep(self, folder: Path, package: Package, into: Path) -> None:
        found = next(iter(folder.glob(f"{package.name}_*.deb")), None)
        if found is None:
            raise DebianError(f"{package.name} {package.version} could not be downloaded")
        if not _is_whole(found, package.sha256):
            raise DebianError(f"{package.name} {package.version} has not the digest {package.sha256}")
        found.replace(into)

    def tree(self, names: Sequence[str]) -> Path:
        """A directory with these packages unpacked (without those that they depend on), made once and kept."""
        key = hashlib.sha256(" ".join(sorted(names)).encode()).hexdigest()[:12]
        into = self._cache / "trees" / f"{names[0]}-{key}"
        if not into.is_dir():
            into.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=into.parent, prefix=".unpacked-") as folder:
                root = Path(folder) / "root"
                unpack(self.download(self.packages(list(names))), root)
                if not into.is_dir():
                    root.rename(into)
        return into

    def _prepare(self) -> None:
        """Lists of our own, newer than a day."""
        if self._ready:
            return
        lacking = missing_tools()
        if lacking:
            raise DebianError(f"Debian's packages can't be had here: this machine has no {', '.join(lacking)}")
        with _alone(self._cache):
            for folder in ("lists/partial", "archives/partial"):
                (self._cache / folder).mkdir(parents=True, exist_ok=True)
            (self._cache / "status").touch()
            stamp = self._cache / "lists.stamp"
            if not stamp.exists() or time.time() - stamp.stat().st_mtime > LISTS_LAST:
                self._run("apt-get", "update", "-qq")
                stamp.touch()
        self._ready = True

    def _run(self, tool: str, *arguments: str, cwd: Path | None = None, fails: bool = False) -> str:
        """What the tool prints; `fails`: its exit status doesn't count."""
        own = {
            "Dir::State": self._cache,
            "Dir::State::Lists": self._cache / "lists",
            "Dir::State::status": self._cache / "status",
            "Dir::Cache": self._cache,
            "Dir::Cache::archives": self._cache / "archives",
            "APT::Sandbox::User": "root",  # as whom this runs anyway; the cache is not readable by _apt
            "APT::Get::List-Cleanup": "false",
            "Debug::NoLocking": "true",
        }
        options = [word for name, value in own.items() for word in ("-o", f"{name}={value}")]
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        try:
            answer = subprocess.run(
                [tool, *options, *arguments],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DebianError(f"{tool} {arguments[0]}: {error}") from error
        if answer.returncode != 0 and not fails:
            raise DebianError(f"{tool} {arguments[0]} failed:\n{answer.stderr.strip()[-2000:]}")
        return answer.stdout


def unpack(files: Iterable[Path], root: Path) -> None:
    """Unpack package files into one directory. Raises DebianError."""
    root.mkdir(parents=True, exist_ok=True)
    for file in files:
        answer = subprocess.run(
            ["dpkg-deb", "--extract", str(file), str(root)], capture_output=True, text=True, check=False
        )
        if answer.returncode != 0:
            raise DebianError(f"{file.name} can't be unpacked: {answer.stderr.strip()[-500:]}")


def _file(pool: Path, package: Package) -> Path:
    return pool / f"{package.name}_{package.sha256[:16]}.deb"


def _is_whole(file: Path, sha256: str) -> bool:
    if not file.is_file():
        return False
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == sha256


def _valid(names: Sequence[str]) -> list[str]:
    """The names; a word that apt would take for something else is refused."""
    for name in names:
        if not _NAME.fullmatch(name.partition("=")[0]):
            raise DebianError(f"{name!r} is no package's name")
    return list(names)


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """One process at a time fetches the lists."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
