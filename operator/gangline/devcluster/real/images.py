"""Images on real nodes: the pause container's, made here, and archives that are imported without a registry."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.locks import locked
from gangline.devcluster.real.network import namespace_of
from gangline.devcluster.real.programs import Programs
from gangline.devcluster.real.settings import PAUSE
from gangline.image import oci

#: containerd's namespace for the images and containers of Kubernetes
_KUBERNETES: Final = "k8s.io"
_AT_ONCE: Final = 2
_PAUSE_USER: Final = "65535:65535"


def pause(programs: Programs) -> Path:
    """The archive of the pause container's image, made once."""
    into = programs.own / "pause.tar"
    with locked(programs.own / "pause.lock"):
        if not into.exists():
            binary = oci.LayerEntry("pause", mode=0o755, content=programs.own / "pause")
            layer = oci.write_layer([binary], programs.own / "pause.layer")
            oci.write_archive(into, PAUSE, [layer], oci.Config(entrypoint=("/pause",), user=_PAUSE_USER))
            layer.file.unlink()
    return into


def import_command(programs: Programs, archive: Path) -> list[str]:
    """The command that imports an archive, to be run on a node."""
    ctr = programs.containerd / "ctr"
    return [str(ctr), "-n", _KUBERNETES, "images", "import", "--local", "--discard-unpacked-layers", str(archive)]


def load(archive: Path, nodes: Mapping[str, int], programs: Programs) -> None:
    """Import an archive on nodes, given with their processes. Raises DevClusterError."""
    if not archive.is_file():
        raise DevClusterError(f"there is no image archive at {archive}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for trouble in pool.map(lambda each: _import(each[0], each[1], archive.resolve(), programs), nodes.items()):
            if trouble:
                raise DevClusterError(trouble)


def _import(name: str, pid: int, archive: Path, programs: Programs) -> str:
    command = on_node(pid, import_command(programs, archive))
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"node {name} can't import {archive}: {answer.stderr.strip()[-500:]}" if answer.returncode else ""


def on_node(pid: int, command: Sequence[str]) -> list[str]:
    """A command in the namespaces of a node, given by its process."""
    init = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    mounts = Path(f"/proc/{init}/ns/mnt")
    return ["nsenter", f"--net={namespace_of(pid)}", f"--mount={mounts}", "--", *command]
