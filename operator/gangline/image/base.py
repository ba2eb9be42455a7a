"""The base of an image: a small Debian with Python, from packages that a lock file names by version and digest.

No shell, no package manager, no user but numbers: what a container of ours runs is Python, and nothing else.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gangline.debian import DebianError, Package, Packages, unpack
from gangline.image.oci import Layer, LayerEntry, tree, write_layer

LOCK: Final = Path(__file__).with_name("base.lock")
#: the minor version of Debian 12's Python
PYTHON: Final = "3.11"
INTERPRETER: Final = f"/usr/bin/python{PYTHON}"
#: Debian's packages of Python and of the libraries that wheels expect; a package's own dependencies hold dpkg and a shell
PACKAGES: Final = (
    "base-files",
    "ca-certificates",
    "libbz2-1.0",
    "libc6",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "libgomp1",
    "liblzma5",
    "libncursesw6",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libsqlite3-0",
    "libssl3",
    "libstdc++6",
    "libtinfo6",
    "libuuid1",
    "media-types",
    "netbase",
    "python3.11-minimal",
    "tzdata",
    "zlib1g",
)
#: the user that containers run as: no one's number on Debian, and the usual one of images without a shell
USER: Final = 65532
_UNNEEDED: Final = re.compile(
    r"^(usr/share/(doc|man|locale|lintian|bug|info|doc-base|menu|python3?/|pixmaps)|etc/(default|init\.d|motd|update-motd)"
    r"|usr/(sbin|lib/(init|systemd))|var/(log|backups)|(bin|sbin|boot|dev|media|mnt|srv|lib/systemd)(/|$))"
)
_CERTIFICATES: Final = "usr/share/ca-certificates/mozilla"
_TRUSTED: Final = "etc/ssl/certs/ca-certificates.crt"


def read_lock(path: Path = LOCK) -> list[Package]:
    """The packages of a lock file, a line each: name, version, architecture, SHA-256. Raises DebianError."""
    found: list[Package] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 4:
            raise DebianError(f"{path}, line {number}: not name, version, architecture and SHA-256")
        found.append(Package(*words))
    return found


def write_lock(packages: Iterable[Package], path: Path = LOCK) -> None:
    """Write the packages to a lock file."""
    lines = ["# Debian packages of images: name, version, architecture, SHA-256. `make lock` writes it anew."]
    lines += [f"{p.name} {p.version} {p.architecture} {p.sha256}" for p in packages]
    path.write_text("\n".join(lines) + "\n")


def unpacked(packages: Sequence[Package], source: Packages, root: Path) -> Path:
    """The packages' files in the directory `root`. Raises DebianError."""
    unpack(source.download(packages), root)
    return root


def entries(root: Path) -> list[LayerEntry]:
    """The entries of an unpacked base, without what a container never reads."""
    made = list(tree(root, keep=lambda path: not _UNNEEDED.match(path)))
    made += [
        LayerEntry("usr/bin/python3", "link", 0o777, target=f"python{PYTHON}"),
        LayerEntry("tmp", "directory", 0o1777),
        LayerEntry("etc/passwd", content=f"root:x:0:0:root:/:/\ngangline:x:{USER}:{USER}:gangline:/tmp:/\n".encode()),
        LayerEntry("etc/group", content=f"root:x:0:\ngangline:x:{USER}:\n".encode()),
        LayerEntry("etc/nsswitch.conf", content=b"passwd: files\ngroup: files\nhosts: files dns\n"),
        LayerEntry(_TRUSTED, content=_certificates(root)),
    ]
    if (root / "bin").is_dir() and not (root / "bin").is_symlink():  # Debian's merged /usr
        made += [LayerEntry(name, "link", 0o777, target=f"usr/{name}") for name in ("bin", "sbin")]
    return made


def layer(packages: Sequence[Package], source: Packages, into: Path) -> Layer:
    """Write the base's layer. Raises DebianError."""
    with tempfile.TemporaryDirectory(prefix="gangline-base-") as folder:
        return write_layer(entries(unpacked(packages, source, Path(folder) / "root")), into)


def _certificates(root: Path) -> bytes:
    """The trusted authorities in one file, as Debian's own update makes it."""
    folder = root / _CERTIFICATES
    return b"".join(file.read_bytes() for file in sorted(folder.glob("*.crt"))) if folder.is_dir() else b""
