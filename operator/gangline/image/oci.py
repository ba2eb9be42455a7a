"""OCI image archives: written file by file, always the same bytes for the same input.

The archive is an OCI image layout in a tar file (OCI image specification 1.1), with the `manifest.json` of `docker save` beside
it, so that containerd, Docker, Podman and kind load it. Modification times are 0, owners are numbers, names are sorted.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Literal

_LEVEL: Final = 6  # of gzip: level 9 takes three times as long for 2 % less
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
#: machine names of Python -> architectures of Go, as images name them
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}

Kind = Literal["file", "directory", "link"]


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One file, directory or symbolic link. `content`: the bytes, or the file that has them; of a link: its target."""

    path: str  # relative, such as usr/bin/python3
    kind: Kind = "file"
    mode: int = 0o644
    content: bytes | Path = b""
    target: str = ""
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True, slots=True)
class Layer:
    """A written layer. `diff_id`: the digest of its uncompressed tar."""

    file: Path
    digest: str
    diff_id: str

    @property
    def size(self) -> int:
        return self.file.stat().st_size


@dataclass(frozen=True, slots=True)
class Config:
    """How containers of an image run. `user`: numbers, since clusters can't tell a name's number (runAsNonRoot)."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str = ""
    directory: str = "/"
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


def architecture() -> str:
    """The architecture of this machine, as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def tree(
    directory: Path, prefix: str = "", *, keep: Callable[[str], bool] = lambda _: True, plain: bool = False
) -> Iterable[LayerEntry]:
    """The entries of a directory, by their paths in the image (`prefix` first), where `keep(path)` says so.

    `plain`: files that everybody may read, whatever the umask was when they were written.
    """
    for here, folders, files in os.walk(directory):
        folders.sort()
        base = Path(here)
        for name in sorted([*folders, *files]):
            file = base / name
            path = str(PurePosixPath(prefix) / file.relative_to(directory).as_posix())
            if keep(path):
                yield _entry(file, path, plain)


def _entry(file: Path, path: str, plain: bool) -> LayerEntry:
    status = file.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return LayerEntry(path, "link", 0o777, target=str(file.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return LayerEntry(path, "directory", 0o755 if plain else mode)
    return LayerEntry(path, "file", (0o755 if mode & 0o100 else 0o644) if plain else mode, file)


def write_layer(entries: Iterable[LayerEntry], into: Path) -> Layer:
    """Write a compressed layer to the file `into`. Of entries with the same path the last one counts."""
    chosen = {str(PurePosixPath(entry.path)).lstrip("/"): entry for entry in entries}
    for path in list(chosen):  # an engine that unpacks a layer must know the mode of every directory
        for parent in PurePosixPath(path).parents:
            if str(parent) != "." and str(parent) not in chosen:
                chosen[str(parent)] = LayerEntry(str(parent), "directory", 0o755)
    into.parent.mkdir(parents=True, exist_ok=True)
    with into.open("wb") as raw:
        outer = _Digested(raw)
        with gzip.GzipFile(filename="", mode="wb", fileobj=outer, compresslevel=_LEVEL, mtime=0) as compressed:
            inner = _Digested(compressed)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.GNU_FORMAT) as archive:
                for path in sorted(chosen):
                    _add(archive, path, chosen[path])
    return Layer(into, outer.digest, inner.digest)


def _add(archive: tarfile.TarFile, path: str, entry: LayerEntry) -> None:
    about = tarfile.TarInfo(path)
    about.mode, about.uid, about.gid, about.mtime = entry.mode, entry.uid, entry.gid, 0
    if entry.kind == "directory":
        about.type = tarfile.DIRTYPE
        archive.addfile(about)
    elif entry.kind == "link":
        about.type, about.linkname = tarfile.SYMTYPE, entry.target
        archive.addfile(about)
    elif isinstance(entry.content, Path):
        with entry.content.open("rb") as content:
            about.size = entry.content.stat().st_size
            archive.addfile(about, content)
    else:
        about.size = len(entry.content)
        archive.addfile(about, io.BytesIO(entry.content))


def write_archive(into: Path, reference: str, layers: Sequence[Layer], config: Config) -> str:
    """Write the archive of one image with this reference (`registry/name:tag`). Returns its manifest's digest."""
    config_blob = _json(_config(layers, config))
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config_blob),
            "layers": [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size} for layer in layers],
        }
    )
    names = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference.rpartition(":")[2]}
    described = {**_descriptor(_MANIFEST, manifest), "annotations": names}
    index = _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [described]})
    docker = [
        {
            "Config": _blob(_digest(config_blob)),
            "RepoTags": [reference],
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    entries = [
        LayerEntry("oci-layout", content=_json({"imageLayoutVersion": "1.0.0"})),
        LayerEntry("index.json", content=index),
        LayerEntry("manifest.json", content=_json(docker)),
        LayerEntry(_blob(_digest(config_blob)), content=config_blob),
        LayerEntry(_blob(_digest(manifest)), content=manifest),
        *(LayerEntry(_blob(layer.digest), content=layer.file) for layer in layers),
    ]
    partial = into.with_name(f".{into.name}.{os.getpid()}.partial")
    try:
        with tarfile.open(partial, "w", format=tarfile.GNU_FORMAT) as archive:
            for entry in sorted({entry.path: entry for entry in entries}.values(), key=lambda entry: entry.path):
                _add(archive, entry.path, entry)
        partial.replace(into)
    finally:
        partial.unlink(missing_ok=True)
    return _digest(manifest)


def _config(layers: Sequence[Layer], config: Config) -> dict[str, Any]:
    run: dict[str, Any] = {
        "Entrypoint": list(config.entrypoint),
        "Cmd": list(config.command),
        "Env": [f"{name}={value}" for name, value in sorted(config.environment.items())],
        "User": config.user,
        "WorkingDir": config.directory,
        "Labels": dict(sorted(config.labels.items())),
    }
    return {
        "architecture": architecture(),
        "os": "linux",
        "config": {name: value for name, value in run.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
    }


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class _Digested(io.RawIOBase):
    """A file that is only written, and whose digest is known at the end."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._hash.update(data)
        self._file.write(data)
        return len(data)
