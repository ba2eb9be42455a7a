"""The archive writer: the same bytes for the same input, and archives that are what they say."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from gangline.image import oci
from gangline.image.oci import Config, LayerEntry

ENTRIES = [
    LayerEntry("app/train.py", content=b"print(1)"),
    LayerEntry("usr/bin/python3", "link", target="python3.11"),
    LayerEntry("tmp", "directory", 0o1777),
]


def written(folder: Path, name: str, entries: list[LayerEntry]) -> Path:
    layer = oci.write_layer(entries, folder / f"{name}.layer")
    config = Config(("/usr/bin/python3",), environment={"B": "2", "A": "1"}, user="65532:65532")
    oci.write_archive(folder / f"{name}.tar", "docker.io/library/x:1", [layer], config)
    return folder / f"{name}.tar"


def test_the_same_entries_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    assert (
        written(tmp_path, "one", ENTRIES).read_bytes() == written(tmp_path, "two", list(reversed(ENTRIES))).read_bytes()
    )


def test_another_content_gives_another_digest(tmp_path: Path) -> None:
    other = [LayerEntry("app/train.py", content=b"print(2)"), *ENTRIES[1:]]
    assert written(tmp_path, "one", ENTRIES).read_bytes() != written(tmp_path, "two", other).read_bytes()


def test_every_blob_has_the_digest_that_names_it(tmp_path: Path) -> None:
    with tarfile.open(written(tmp_path, "one", ENTRIES)) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]
    blobs = {name: content for name, content in files.items() if name.startswith("blobs/sha256/")}
    assert len(blobs) == 3
    for name, content in blobs.items():
        assert hashlib.sha256(content).hexdigest() == name.rpartition("/")[2]
    index = json.loads(files["index.json"])["manifests"][0]
    assert index["annotations"]["io.containerd.image.name"] == "docker.io/library/x:1"
    manifest = json.loads(blobs[f"blobs/{index['digest'].replace(':', '/')}"])
    config = json.loads(blobs[f"blobs/{manifest['config']['digest'].replace(':', '/')}"])
    assert config["config"]["Env"] == ["A=1", "B=2"]
    assert config["config"]["User"] == "65532:65532"
    layer = gzip.decompress(blobs[f"blobs/{manifest['layers'][0]['digest'].replace(':', '/')}"])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
    docker = json.loads(files["manifest.json"])
    assert docker[0]["RepoTags"] == ["docker.io/library/x:1"]
    assert all(name in blobs for name in (docker[0]["Config"], *docker[0]["Layers"]))
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        found = {member.name: member for member in tar}
    assert list(found) == sorted(["app", "app/train.py", "tmp", "usr", "usr/bin", "usr/bin/python3"])
    assert found["tmp"].mode == 0o1777
    assert found["usr/bin/python3"].linkname == "python3.11"
    assert all(member.mtime == 0 and member.uid == 0 for member in found.values())


def test_a_failed_write_leaves_no_archive(tmp_path: Path) -> None:
    layer = oci.write_layer(ENTRIES, tmp_path / "layer")
    layer.file.unlink()
    with pytest.raises(FileNotFoundError):
        oci.write_archive(tmp_path / "x.tar", "docker.io/library/x:1", [layer], Config())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_becomes_entries_that_everybody_may_read(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir(mode=0o700)
    (tmp_path / "pkg/run.sh").write_text("x")
    (tmp_path / "pkg/run.sh").chmod(0o700)
    (tmp_path / "pkg/data").write_text("x")
    (tmp_path / "pkg/data").chmod(0o600)
    modes = {entry.path: entry.mode for entry in oci.tree(tmp_path, "opt", plain=True)}
    assert modes == {"opt/pkg": 0o755, "opt/pkg/run.sh": 0o755, "opt/pkg/data": 0o644}
