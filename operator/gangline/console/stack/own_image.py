"""Gangline's own image, built from the checkout that runs and kept in the user's cache by its sources."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import gangline
import gangline_webhooks
from gangline.debian import Packages
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.locks import locked
from gangline.image import base
from gangline.image.builder import Sources, build_gangline
from gangline.ui import front_end

#: the reference that the manifests name
REFERENCE: Final = f"docker.io/gangline/gangline:{gangline.__version__}"
LOCK: Final = "requirements-image.lock"
#: archives of earlier sources that are kept
_KEPT: Final = 3


class NoCheckoutError(Exception):
    """Gangline does not run from a checkout, which its image is built from."""


def sources() -> Sources:
    """The sources from which the image is made. Raises NoCheckoutError."""
    package, webhooks = Path(gangline.__file__).parent, Path(gangline_webhooks.__file__).parent
    root = package.parents[1]
    if not (root / LOCK).is_file():
        raise NoCheckoutError(
            f"{LOCK} is missing: Gangline's image is built from its checkout, `make venv` there first"
        )
    return Sources(
        {"gangline": package, "gangline_webhooks": webhooks},
        {"crds": root / "crds", "examples": root / "examples", **_pages()},
        root / LOCK,
    )


def _pages() -> dict[str, Path]:
    """The dashboard's pages, if they were built: an image without them has no dashboard."""
    try:
        return {"ui": front_end.built()}
    except front_end.NotBuiltError:
        return {}


def packages() -> Packages:
    """Debian's packages in the user's cache."""
    return Packages(cache_root() / "debian")


def archive(say: Callable[[str], object]) -> Path:
    """The archive of the image named REFERENCE, built unless these very sources were built before.

    Raises NoCheckoutError, DebianError or PythonPackagesError.
    """
    chosen = sources()
    folder = cache_root() / "images"
    into = folder / f"gangline-{_digest(chosen)}.tar"
    with locked(folder / "images.lock"):
        if into.exists():
            into.touch()
        else:
            build_gangline(chosen, packages(), into, REFERENCE, say)
        for old in sorted(folder.glob("gangline-*.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            old.unlink()
            old.with_name(f"{old.stem}.cdx.json").unlink(missing_ok=True)
    return into


def _digest(chosen: Sources) -> str:
    """A digest of all files that the image depends on, the code that builds it included, since it is part of the package."""
    digest = hashlib.sha256(REFERENCE.encode())
    for path in (chosen.lock, base.LOCK, *_files(chosen)):
        digest.update(str(path.relative_to(chosen.lock.parent)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _files(chosen: Sources) -> Iterator[Path]:
    for folder in (*chosen.packages.values(), *chosen.data.values()):
        yield from sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
