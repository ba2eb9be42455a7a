"""Pins a version of Kubernetes for local control planes: writes go.mod and go.sum to devcluster/building/gomod/1.31/.

    python scripts/kubernetes.py 1.31.14

Kubernetes' own go.mod takes its staging modules (k8s.io/api and so on) from its source tree, so a module that builds its programs
has to name them again, at the versions that go with it. Where the module proxy lacks one of these, the nearest patch release of
the same minor version takes its place: within a minor version they have the same interfaces.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gangline.devcluster.building import build
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.building.toolchain import ensure_go

GO = ensure_go(build.CONTROL_PLANE.needed_go(), cache_root())
SERVERS = "".join(f"\t{program.package}\n" for program in build.KUBERNETES_SERVERS)


def pin(version: str) -> None:
    """`version` such as 1.31.14. Raises SystemExit with a sentence where it can't be had."""
    minor = version.rpartition(".")[0]
    source = _download([f"{build.KUBERNETES}@v{version}"])
    if (path := source.get(build.KUBERNETES)) is None:
        sys.exit(f"the module proxy has no Kubernetes {version}; it has: {' '.join(_versions(build.KUBERNETES, ''))}")
    text = path.read_text()
    staging = re.findall(r"^\t(\S+) v0\.0\.0$", text, flags=re.MULTILINE)
    language = re.findall(r"^go (\d+\.\d+)", text, flags=re.MULTILINE)[0]
    replaced = "".join(f"\t{module} => {module} {chosen}\n" for module, chosen in _available(staging, version))
    directory = build.older(minor).directory
    directory.mkdir(exist_ok=True)
    (directory / "go.sum").unlink(missing_ok=True)
    (directory / "go.mod").write_text(
        f"// Kubernetes {minor}'s control plane, pinned. Written by `make kubernetes VERSION={version}`.\n"
        f"module gangline.io/devcluster/{minor}\n\n"
        f"go {'.'.join(map(str, build.CONTROL_PLANE.needed_go()))}\n\n"
        f"godebug default=go{language}\n\n"
        f"tool (\n{SERVERS})\n\n"
        f"require {build.KUBERNETES} v{version}\n\n"
        f"replace (\n{replaced})\n"
    )
    _go("mod", "tidy", directory=directory)
    print(directory)


def _available(modules: list[str], version: str) -> Iterator[tuple[str, str]]:
    """Each staging module with the version that goes with Kubernetes' `version`, or the nearest that can be had."""
    patch = int(version.rpartition(".")[2])
    wanted = f"v0.{version.removeprefix('1.')}"
    there = _download([f"{module}@{wanted}" for module in modules])
    for module in modules:
        if module in there:
            yield module, wanted
            continue
        others = _versions(module, wanted.rpartition(".")[0] + ".")
        nearest = sorted(others, key=lambda other: abs(int(other.rpartition(".")[2]) - patch))
        found = next((other for other in nearest if module in _download([f"{module}@{other}"])), wanted)
        print(f"{module}: {wanted} can't be had; {found}", file=sys.stderr)
        yield module, found  # where none can be had and a program needs it, `go mod tidy` says so


def _download(wanted: list[str]) -> dict[str, Path]:
    """Module -> its go.mod; those that can't be had are left out."""
    decoder, text, found = json.JSONDecoder(), _go("mod", "download", "-json", *wanted, check=False).strip(), {}
    while text:
        row, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        if "Error" not in row:
            found[row["Path"]] = Path(row["GoMod"])
    return found


def _versions(module: str, prefix: str) -> list[str]:
    """The releases of a module that start so, as the proxy lists them."""
    words = _go("list", "-m", "-versions", module).split()[1:]
    return [word for word in words if word.startswith(prefix) and "-" not in word]


def _go(*arguments: str, directory: Path = Path("/"), check: bool = True) -> str:
    environment = GO.environment() | {"GOFLAGS": "-mod=mod"}
    answer = subprocess.run(
        [GO.path, *arguments], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=check
    )
    return answer.stdout


if __name__ == "__main__":
    if len(sys.argv) != 2 or not re.fullmatch(r"1\.\d{1,2}\.\d{1,2}", sys.argv[1]):
        sys.exit("usage: scripts/kubernetes.py 1.31.14")
    pin(sys.argv[1])
