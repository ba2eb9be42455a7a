"""Kubeconfigs of other clusters: where they are kept, and what they may say.

A kubeconfig is written by whoever manages the clusters, not by whoever runs this process: it must not read files of this process,
run programs in it, or turn off the verification of servers. Rules and messages are Kueue's.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from gangline import bounded, files
from gangline.kube import config
from gangline.kube.config import Login, LoginError
from gangline.kube.resources import Json

#: where files with kubeconfigs may be
DIRECTORY: Final = Path("/etc/multikueue/kubeconfigs")
#: the key in a Secret
KEY: Final = "kubeconfig"
#: bytes of a file that are read
_MOST_BYTES: Final = config.LONGEST * 4
_HOST: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_HOST: Final = 253


class KubeconfigError(Exception):
    """Says that a kubeconfig cannot be used, with the `reason` of the cluster's condition Active."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def login(text: str, name: str, *, insecure_allowed: bool = False) -> Login:
    """The login that a kubeconfig says. `name` stands for it in messages. Raises KubeconfigError."""
    return _login(text, name, "BadKubeConfig", "" if insecure_allowed else "InsecureKubeConfig")


def login_by_plugin(text: str, name: str) -> Login:
    """The login of a kubeconfig that was made of a ClusterProfile, whose plugin the configuration names. Raises
    KubeconfigError.
    """
    return _login(text, name, "BadClusterProfile", "BadRestConfig", plugin=True)


def _login(text: str, name: str, bad: str, insecure: str, *, plugin: bool = False) -> Login:
    """The login of a kubeconfig. `bad`, `insecure`: reasons for what cannot be read, and for what is not allowed, "" = everything
    is.
    """
    try:
        document = config.document(text)
        if insecure and (fault := next(_faults(document, plugin=plugin), "")):
            raise KubeconfigError(insecure, fault)
        return config.of_document(document, name)
    except LoginError as error:
        raise KubeconfigError(bad, str(error)) from None
    except (TypeError, ValueError, AttributeError) as error:  # fields of other types than they should be
        raise KubeconfigError(bad, f"not a kubeconfig: {str(error)[: config.SHOWN]}") from None


def of_secret(data: Json, name: str) -> str:
    """The text in the data of a Secret. Raises KubeconfigError."""
    if KEY not in data:
        raise KubeconfigError("BadKubeConfig", f'key "{KEY}" not found in secret "{name}"')
    try:
        return _decoded(str(data[KEY]))
    except ValueError:  # too long, or not base64, or not UTF-8
        raise KubeconfigError("BadKubeConfig", f'key "{KEY}" of secret "{name}" is not text') from None


@bounded.parser(_MOST_BYTES * 2)
def _decoded(text: str) -> str:
    """The text behind base64. Raises ValueError."""
    return base64.b64decode(text, validate=True).decode()


def of_path(path: str, *, checked: bool, directory: Path = DIRECTORY) -> str:
    """The text in a file, which has to be below `directory` where that is `checked`. Raises KubeconfigError."""
    try:
        found = _allowed(path, directory) if checked else Path(path)
        return files.read_text(found, most=_MOST_BYTES)
    except OSError as error:
        raise KubeconfigError("BadKubeConfig", f"open {path}: {(error.strerror or str(error)).lower()}") from None
    except (UnicodeDecodeError, ValueError, RuntimeError) as error:
        raise KubeconfigError("BadKubeConfig", str(error)) from None


def _allowed(path: str, directory: Path) -> Path:
    """The file itself. Raises ValueError for one outside of the folder, also behind a link."""
    if not path:
        raise ValueError("kubeconfig path must not be empty")
    where = "kubeconfig path is not under the allowed prefix"
    if ".." in Path(path).parts:
        raise ValueError(f'{where}: path contains ".."')
    if not Path(path).is_absolute():
        raise ValueError(f"{where}: path must be absolute")
    if not directory.exists():
        raise ValueError(f'{where}: "{path}" is not under "{directory}"')
    found, allowed = Path(path).resolve(strict=True), directory.resolve()
    if not found.is_relative_to(allowed):
        raise ValueError(f'{where}: "{found}" is not under "{allowed}"')
    return found


# --- what it says -----------------------------------------------------------------------------------------------------


def _faults(document: Json, *, plugin: bool) -> Iterator[str]:
    """The reasons why a kubeconfig is unsafe, in Kueue's order and words."""
    users, clusters = _entries(document, "users"), _entries(document, "clusters")
    if any(user.get("tokenFile") for user in users.values()):
        yield "tokenFile is not allowed"
    for name, cluster in clusters.items():
        if cluster.get("insecure-skip-tls-verify"):
            yield f"insecure TLS verification is not allowed for cluster {name[: bounded.SHOWN]}"
        if cluster.get("certificate-authority"):
            data = f"use certificate-authority-data for cluster {name[: bounded.SHOWN]}"
            yield f"certificate-authority file paths are not allowed, {data}"
        if not cluster.get("server"):
            yield f"server URL is required for cluster {name[: bounded.SHOWN]}"
    context = _entries(document, "contexts").get(str(document.get("current-context")), {})
    cluster, user = clusters.get(str(context.get("cluster")), {}), users.get(str(context.get("user")), {})
    if not _is_trusted(str(cluster.get("server") or "")):
        yield "untrusted server endpoint"
    if user.get("username") or user.get("password"):
        yield "basic auth is not allowed"
    if user.get("exec") and not plugin:
        yield "exec plugins are not allowed"
    if user.get("auth-provider"):
        yield "auth providers are not allowed"
    for name in ("client-certificate", "client-key"):  # Kueue reads the file
        if user.get(name):
            yield f"{name} file paths are not allowed, use {name}-data"


def _entries(document: Json, section: str) -> dict[str, Json]:
    """The entries of a section by their names. The first of a name counts, as where the login is read; what is wrong with others
    is said there.
    """
    rows: Any = document.get(section)
    found: dict[str, Json] = {}
    for row in cast("list[Any]", rows) if isinstance(rows, list) else ():
        name, value = (row.get("name"), row.get(section[:-1])) if isinstance(row, dict) else (None, None)
        if isinstance(name, str):
            found.setdefault(name, cast("Json", value) if isinstance(value, dict) else {})
    return found


def _is_trusted(server: str) -> bool:
    """Whether the server is reached over TLS, at an address or at a name of the domain name system. Kueue accepts http."""
    try:
        parts = urlsplit(server.lower())
        host = parts.hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(host)
        known = True
    except ValueError:
        known = len(host) <= _LONGEST_HOST and _HOST.fullmatch(host) is not None
    return parts.scheme == "https" and known
