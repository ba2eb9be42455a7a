"""The needs of an example on a cluster with real nodes: images that are built here, and directories that all nodes share."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from gangline.console.run import example
from gangline.console.run.example import Example
from gangline.console.stack.own_image import packages
from gangline.debian import DebianError
from gangline.devcluster.building.build import cache_root
from gangline.devcluster.connection import Connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import locked
from gangline.devcluster.progress import narrate
from gangline.image import base, builder
from gangline.image.builder import UserImage
from gangline.kube.resources import PERSISTENT_VOLUMES

# --- training image ---------------------------------------------------------------------------------------------------
#
# The image of the example `pytorch-ddp`, kept in the user's cache by its sources: with PyTorch (0.9 GB), or without (17 MB).


EXAMPLE: Final = "pytorch-ddp"
#: the reference that the example's manifests name
REFERENCE: Final = "gangline.local/ddp:1"
_SCRIPT: Final = "app/train.py"


def archive(say: Callable[[str], object], *, torch: bool = False) -> Path:
    """The archive of the image, built unless these very sources were built before. Raises ExampleError or DebianError."""
    files = {_SCRIPT: example.bundled(EXAMPLE) / "train.py", **builder.progress_files()}
    chosen = UserImage(("python3-torch",) if torch else (), files, (builder.INTERPRETER, f"/{_SCRIPT}"))
    folder = cache_root() / "images"
    into = folder / f"ddp-{'torch' if torch else 'plain'}-{_digest(files)}.tar"
    with locked(folder / "training.lock"):
        if not into.exists():
            builder.build_user_image(chosen, packages(), into, REFERENCE, say)
    return into


def _digest(files: dict[str, Path]) -> str:
    code = (Path(base.__file__), Path(builder.__file__), base.LOCK)
    digest = hashlib.sha256(REFERENCE.encode())
    for path in (*files.values(), *code):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


#: how an image is made that no registry has, by the reference that manifests name
_IMAGES: Final[Mapping[str, Callable[[Callable[[str], object]], Path]]] = {REFERENCE: archive}


@contextmanager
def provided(example: Example, connection: Connection) -> Iterator[None]:
    """Provide the example's images on the nodes and, inside the block, the directories of its volumes. Raises DevClusterError."""
    made: list[Path] = []
    try:
        for path in _directories(example):
            if not path.exists():
                path.mkdir()
                path.chmod(0o1777)  # pods don't run as root
                made.append(path)
        if connection.load_image is not None:
            for reference in sorted(_IMAGES.keys() & set(_images(example))):
                with narrate(f"Building {reference} and loading it onto the nodes"):
                    connection.load_image(_built(reference))
        yield
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)


def needs_real_nodes(example: Example) -> bool:
    """Whether the example's containers really compute, which simulated nodes only pretend."""
    return bool(_IMAGES.keys() & set(_images(example)))


def _built(reference: str) -> Path:
    try:
        return _IMAGES[reference](lambda _: None)
    except DebianError as error:
        raise DevClusterError(f"{reference} can't be built: {error}") from error


def _directories(example: Example) -> list[Path]:
    """Directories of the machine that volumes of the example expect to find."""
    volumes = [m.obj.get("spec") or {} for m in example.manifests if m.resource.plural == PERSISTENT_VOLUMES.plural]
    paths = [volume["hostPath"] for volume in volumes if "hostPath" in volume]
    return [Path(each["path"]) for each in paths if each.get("type") == "Directory"]


def _images(example: Example) -> Iterator[str]:
    """The images that the example's jobs name."""
    for job in example.jobs:
        yield from _found(job.obj)


def _found(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("image"), str):
            yield node["image"]
        for inner in node.values():
            yield from _found(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _found(inner)
