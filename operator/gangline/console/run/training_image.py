"""The image of the example `pytorch-ddp`, kept in the user's cache by its sources: with PyTorch (0.9 GB), or without (17 MB)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gangline.console.run import example
from gangline.console.stack.own_image import packages
from gangline.devcluster.building.go_module import cache_root
from gangline.devcluster.locks import locked
from gangline.image import base, builder
from gangline.image.builder import UserImage

EXAMPLE: Final = "pytorch-ddp"
#: the reference that the example's manifests name
REFERENCE: Final = "gangline.local/ddp:1"
_SCRIPT: Final = "app/train.py"


def archive(say: Callable[[str], object], *, torch: bool = False) -> Path:
    """The archive of the image, built unless these very sources were built before. Raises ExampleError or DebianError."""
    files = {_SCRIPT: example.bundled(EXAMPLE) / "train.py", **builder.progress_files()}
    chosen = UserImage(("python3-torch",) if torch else (), files, (base.INTERPRETER, f"/{_SCRIPT}"))
    folder = cache_root() / "images"
    into = folder / f"ddp-{'torch' if torch else 'plain'}-{_digest(files)}.tar"
    with locked(folder / "training.lock"):
        if not into.exists():
            builder.build_user_image(chosen, packages(), into, REFERENCE, say)
    return into


def _digest(files: dict[str, Path]) -> str:
    code = (Path(builder.__file__), Path(base.__file__), base.LOCK)
    digest = hashlib.sha256(REFERENCE.encode())
    for path in (*files.values(), *code):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
