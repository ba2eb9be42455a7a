"""Builds the images: Gangline's own, and users' from Debian's packages and files of theirs.

Gangline's: base, Python packages of the lock file, Gangline itself; one image for operator and webhooks. The same sources and
locks give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import gangline
from gangline.debian import Package, Packages
from gangline.image import oci, python_packages
from gangline.image.base import INTERPRETER, USER, entries, read_lock, unpacked
from gangline.image.oci import Config, Layer, LayerEntry

Say = Callable[[str], object]

_SITE: Final = "opt/gangline"
_DEBIAN_SITE: Final = "usr/lib/python3/dist-packages"
_SOURCES: Final = ("gangline", "gangline_webhooks")
_LABEL: Final = "org.opencontainers.image"


@dataclass(frozen=True, slots=True)
class Sources:
    """What Gangline's own layer is made of: the packages' directories, by name, the CRDs, the examples, and the lock."""

    packages: Mapping[str, Path]
    data: Mapping[str, Path]
    lock: Path


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """A built archive. `size`: of its compressed layers, in bytes."""

    archive: Path
    reference: str
    digest: str
    size: int


def build_gangline(sources: Sources, source: Packages, into: Path, reference: str, say: Say) -> BuiltImage:
    """Build Gangline's image, with its SBOM beside it. Raises DebianError or PythonPackagesError."""
    locked = read_lock()
    with _workplace(into) as folder:
        say("unpacking the base")
        root = unpacked(locked, source, folder / "root")
        layers = [oci.write_layer(entries(root), folder / "base")]
        say("installing the Python packages")
        site = folder / "site"
        python_packages.install(sources.lock, site)
        for path in sorted(site.rglob("*"), reverse=True):
            if python_packages.unneeded(path.relative_to(site).as_posix()):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        say("compiling them")
        python_packages.compile_all(site, root)
        layers.append(oci.write_layer(oci.tree(site, _SITE, plain=True), folder / "packages"))
        own = folder / "own"
        _copy_sources(sources, own)
        python_packages.compile_all(own, root)
        layers.append(oci.write_layer(oci.tree(own, _SITE, plain=True), folder / "gangline"))
        config = Config(
            entrypoint=(INTERPRETER, "-m", "gangline.console.cli"),
            command=("--help",),
            environment={
                "PYTHONPATH": f"/{_SITE}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
                "HOME": "/tmp",
                "LANG": "C.UTF-8",
                "PATH": "/usr/local/bin:/usr/bin:/bin",
            },
            user=f"{USER}:{USER}",
            directory="/tmp",
            labels={f"{_LABEL}.title": "gangline", f"{_LABEL}.version": gangline.__version__},
        )
        made = _written(into, reference, layers, config)
    sbom = _sbom(locked, python_packages.read_lock(sources.lock), reference, made.digest)
    sbom_of(into).write_text(json.dumps(sbom, indent=1, sort_keys=True) + "\n")
    return made


@dataclass(frozen=True, slots=True)
class UserImage:
    """What a user's image is made of: Debian packages (with all that they depend on) and files, by their paths in it."""

    packages: Sequence[str] = ()
    files: Mapping[str, Path] = field(default_factory=dict[str, Path])
    entrypoint: Sequence[str] = (INTERPRETER,)
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def progress_files() -> dict[str, Path]:
    """`gangline.progress`, by which a training reports its progress, for the files of a user's image."""
    package = Path(gangline.__file__).parent
    return {f"{_DEBIAN_SITE}/gangline/{name}": package / name for name in ("__init__.py", "progress.py")}


def build_user_image(wanted: UserImage, source: Packages, into: Path, reference: str, say: Say) -> BuiltImage:
    """Build a user's image on the base. Raises DebianError."""
    locked = read_lock()
    chosen = {package.name: package for package in locked}
    if wanted.packages:
        say(f"resolving {', '.join(wanted.packages)}")
        chosen = {package.name: package for package in source.closure(wanted.packages)} | chosen
    with _workplace(into) as folder:
        say(f"unpacking {len(chosen)} packages")
        root = unpacked([chosen[name] for name in sorted(chosen)], source, folder / "root")
        packages = entries(root)
        layers = [oci.write_layer([*packages, *alternatives(root)], folder / "packages")]
        added = [entry for path, file in wanted.files.items() for entry in _added(path, file)]
        if added:
            layers.append(oci.write_layer(added, folder / "files"))
        environment = {"LANG": "C.UTF-8", "HOME": "/tmp", "PATH": "/usr/local/bin:/usr/bin:/bin", **wanted.environment}
        config = Config(tuple(wanted.entrypoint), environment=environment, user=f"{USER}:{USER}", directory="/tmp")
        return _written(into, reference, layers, config)


def alternatives(root: Path) -> list[LayerEntry]:
    """Links that Debian's packages make when they are installed, and that their libraries need: those of BLAS and LAPACK."""
    made: list[LayerEntry] = []
    for folder in sorted((root / "usr/lib").glob("*-linux-gnu")):
        for name in ("libblas.so.3", "liblapack.so.3"):
            found = next(
                (
                    each
                    for each in ("openblas-pthread", "openblas-openmp", "blas", "lapack")
                    if (folder / each / name).exists()
                ),
                None,
            )
            if found and not (folder / name).exists():
                made.append(LayerEntry(f"usr/lib/{folder.name}/{name}", "link", 0o777, target=f"{found}/{name}"))
    return made


def sbom_of(archive: Path) -> Path:
    """The path of the SBOM of an archive."""
    return archive.with_name(f"{archive.name.removesuffix('.tar')}.cdx.json")


def _copy_sources(sources: Sources, into: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    for name, folder in sources.packages.items():
        shutil.copytree(folder, into / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "_data"))
    for name, folder in sources.data.items():
        shutil.copytree(folder, into / "gangline/_data" / name, ignore=ignored)


def _added(path: str, file: Path) -> Iterator[LayerEntry]:
    if file.is_dir():
        yield from oci.tree(file, path, plain=True, keep=lambda each: "__pycache__" not in each)
    else:
        yield LayerEntry(path.lstrip("/"), mode=0o755 if file.stat().st_mode & 0o100 else 0o644, content=file)


@contextmanager
def _workplace(into: Path) -> Iterator[Path]:
    into.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into.parent, prefix=".image-") as name:
        yield Path(name)


def _written(into: Path, reference: str, layers: Sequence[Layer], config: Config) -> BuiltImage:
    digest = oci.write_archive(into, reference, layers, config)
    return BuiltImage(into, reference, digest, sum(layer.size for layer in layers))


def _sbom(
    debian: Sequence[Package], wheels: Sequence[python_packages.Wheel], reference: str, digest: str
) -> dict[str, Any]:
    """A CycloneDX bill of materials."""
    components: list[dict[str, Any]] = [
        {
            "type": "library",
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:deb/debian/{package.name}@{package.version}?arch={package.architecture}",
            "hashes": [{"alg": "SHA-256", "content": package.sha256}],
        }
        for package in debian
    ]
    components += [
        {
            "type": "library",
            "name": wheel.name,
            "version": wheel.version,
            "purl": f"pkg:pypi/{wheel.name.lower()}@{wheel.version}",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"pkg:pypi/{wheel.name.lower()}@{wheel.version}",
                    "hashes": [{"alg": "SHA-256", "content": each} for each in wheel.hashes],
                }
            ],
        }
        for wheel in wheels
    ]
    image = {"type": "container", "name": reference, "version": digest}
    serial = hashlib.sha256(digest.encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial[:8]}-{serial[8:12]}-{serial[12:16]}-{serial[16:20]}-{serial[20:32]}",
        "version": 1,
        "metadata": {"component": image},
        "components": components,
    }
