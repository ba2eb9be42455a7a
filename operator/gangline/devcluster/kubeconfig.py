"""kubeconfig files: written for local control planes, read for their current context."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

import yaml

from gangline import files
from gangline.devcluster.certs import Pair
from gangline.devcluster.errors import DevClusterError


def write_kubeconfig(path: Path, *, name: str, server: str, authority: bytes, user: str, client: Pair) -> None:
    """Write a kubeconfig with everything embedded (PEM certificates and key), readable by its owner alone."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority-data": _base64(authority)}},
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    files.write(path, yaml.safe_dump(content, sort_keys=False).encode())


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts of a kubeconfig."""

    path: Path
    current: str | None
    names: tuple[str, ...]


def users_kubeconfig() -> Path:
    """The kubeconfig that kubectl would use: the first existing file of $KUBECONFIG, else ~/.kube/config."""
    listed = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = listed or [Path.home() / ".kube" / "config"]
    return next((path for path in candidates if path.exists()), candidates[0])


def read_contexts(path: Path) -> Contexts:
    """The contexts of a kubeconfig. Raises DevClusterError if the file is not one."""
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError as error:
        raise DevClusterError(f"there is no kubeconfig at {path}") from error
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DevClusterError(f"the kubeconfig {path} can't be read: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("contexts") or [], list):
        raise DevClusterError(f"{path} is not a kubeconfig")
    named = [entry["name"] for entry in content.get("contexts") or [] if isinstance(entry, dict) and "name" in entry]
    return Contexts(path, content.get("current-context") or None, tuple(named))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
