"""Go modules whose programs are compiled here: what each go.mod pins, how it is built, and where the result is kept."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gangline.devcluster.building.toolchain import Version
from gangline.devcluster.errors import BuildError

#: from the versions that go.mod pins: the values of Go variables, set by the linker
LinkedValues = Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class GoProgram:
    """One program: its main package, and how it prints its version."""

    name: str
    package: str
    module: str  # the module whose version in go.mod it must report; "": it reports none
    ask_version: tuple[str, ...] = ("--version",)
    tags: tuple[str, ...] = ()  # Go build tags


@dataclass(frozen=True, slots=True)
class GoModule:
    """A directory with go.mod and go.sum (and perhaps main packages of our own), and the programs compiled from it.

    `shown`: the pinned modules whose versions name its directory in the cache, each with a short name. `environment`: more
    variables for `go build`. `static`: C libraries are linked into the programs.
    """

    directory: Path
    programs: tuple[GoProgram, ...]
    shown: tuple[tuple[str, str], ...]
    linked: LinkedValues = lambda _: {}
    cgo: bool = False
    static: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def pinned_versions(self) -> dict[str, str]:
        """Module path -> version pinned by go.mod (`v1.36.3`)."""
        text = (self.directory / "go.mod").read_text()
        return dict(re.findall(r"^(?:require)?\s+(\S+) (v\S+)", text, flags=re.MULTILINE))

    def needed_go(self) -> Version:
        """The Go version that go.mod asks for."""
        text = (self.directory / "go.mod").read_text()
        match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", text, flags=re.MULTILINE)
        if match is None:
            raise BuildError(f"{self.directory / 'go.mod'} names no Go version")
        return tuple(int(part or 0) for part in match.groups())

    def build_flags(self) -> list[str]:
        """The flags of `go build` that all programs share."""
        values = self.linked(self.pinned_versions())
        linker = " ".join(["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())])
        if self.static:
            linker += " -extldflags -static"
        return ["-v", "-trimpath", "-buildvcs=false", "-ldflags", linker]

    def go_environment(self, of_toolchain: Mapping[str, str]) -> dict[str, str]:
        """The environment of `go build`, from the toolchain's own."""
        return {**of_toolchain, **self.environment, **({"CGO_ENABLED": "1"} if self.cgo else {})}

    def binaries_directory(self) -> Path:
        """The directory of the module's programs: ~/.cache/gangline/<versions and digest>/bin. Another pin or flag, another
        directory.
        """
        return cache_root() / self._cache_key() / "bin"

    def _cache_key(self) -> str:
        pinned = self.pinned_versions()
        versions = "_".join(f"{short}-{pinned[module]}" for short, module in self.shown)
        digest = hashlib.sha256(f"{platform.system()}/{platform.machine()}/{self.build_flags()}".encode())
        tags = [program.tags for program in self.programs if program.tags]
        if self.cgo or self.environment or tags:
            digest.update(repr((self.cgo, dict(self.environment), tags)).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((self.directory / name).read_bytes())
        for source in sorted(self.directory.rglob("*.go")):
            digest.update(source.read_bytes())
        return f"{versions}_{digest.hexdigest()[:12]}"


def cache_root() -> Path:
    """$XDG_CACHE_HOME/gangline, by default ~/.cache/gangline."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "gangline"
