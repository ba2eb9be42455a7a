"""`multiKueue.clusterProfile`: the programs that fetch credentials for clusters which ClusterProfiles describe.

Only this file names programs and their arguments: a ClusterProfile names one of these by its name, and adds nothing to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gangline.api.read.configuration.fields import ConfigurationError, flag, mapping
from gangline.kube.config import EXEC_VERSIONS
from gangline.kube.resources import Json

#: providers that can be named
MOST: Final = 64
#: as in Kueue one of them has to be given; such a program never gets an input
_MODES: Final = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True, slots=True)
class AccessProvider:
    """`command` runs without a shell; `env`: name and value of each variable that it gets besides those of this process."""

    name: str
    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False

    @property
    def plugin(self) -> Json:
        """The provider as `exec` of a user in a kubeconfig."""
        return {
            "apiVersion": self.api_version,
            "command": self.command,
            "args": list(self.args),
            "env": [{"name": name, "value": value} for name, value in self.env],
            "installHint": self.install_hint,
            "provideClusterInfo": self.provide_cluster_info,
            "interactiveMode": "Never",
        }


def load(body: Any, path: str) -> tuple[AccessProvider, ...] | None:
    """Read the access providers of the section, by Kueue's rules. Its shape has been checked; None without the section. Raises
    ConfigurationError.
    """
    if body is None:
        return None
    section = mapping(body, path)
    new: list[Any] = section.get("accessProviders") or []
    old: list[Any] = section.get("credentialsProviders") or []
    if new and old:
        raise ConfigurationError(
            f"{path}.credentialsProviders: must not be specified when accessProviders is specified"
        )
    return _providers(new, f"{path}.accessProviders") or _providers(old, f"{path}.credentialsProviders")


def _providers(rows: Sequence[Any], path: str) -> tuple[AccessProvider, ...]:
    if len(rows) > MOST:
        raise ConfigurationError(f"{path}: at most {MOST} can be named")
    return tuple(_provider(mapping(row, f"{path}[{i}]"), f"{path}[{i}]") for i, row in enumerate(rows))


def _provider(row: Json, path: str) -> AccessProvider:
    where = f"{path}.execConfig"
    body = mapping(row.get("execConfig"), where)
    name, command, version = (
        _needed(fields, at, field)
        for fields, at, field in ((row, path, "name"), (body, where, "command"), (body, where, "apiVersion"))
    )
    if version not in EXEC_VERSIONS:
        raise ConfigurationError(f"{where}.apiVersion: {' or '.join(EXEC_VERSIONS)} is wanted, not {version[:80]!r}")
    mode = _needed(body, where, "interactiveMode")
    if mode not in _MODES:
        raise ConfigurationError(f"{where}.interactiveMode: {' or '.join(_MODES)} is wanted, not {mode[:80]!r}")
    return AccessProvider(
        name=name,
        command=command,
        api_version=version,
        args=tuple(str(each or "") for each in body.get("args") or ()),
        env=tuple(
            (_needed(each, f"{where}.env[{i}]", "name"), str(each.get("value") or ""))
            for i, each in enumerate(mapping(row, where) for row in body.get("env") or ())
        ),
        install_hint=str(body.get("installHint") or ""),
        provide_cluster_info=flag(body, f"{where}.provideClusterInfo"),
    )


def _needed(body: Json, path: str, field: str) -> str:
    value = body.get(field)
    if not value:
        raise ConfigurationError(f"{path}.{field}: must be specified")
    return str(value)
