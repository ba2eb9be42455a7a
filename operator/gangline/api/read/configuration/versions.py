"""The version of Kueue as which a configuration file is read: `gangline.kueueCompatibility`.

Versions differ in what holds where a file says nothing. The newest stands for Kueue's development branch, which Gangline follows.
"""

from __future__ import annotations

from typing import Final

from gangline.api.read.configuration.fields import ConfigurationError

#: oldest first
VERSIONS: Final = ("0.15", "0.16", "0.17", "0.18", "0.19", "0.20")
NEWEST: Final = VERSIONS[-1]
PATH: Final = "gangline.kueueCompatibility"


def chosen(value: object, default: str = NEWEST) -> str:
    """The version in a file's field, or `default` without one. Raises ConfigurationError."""
    if value is None:
        return default
    if value not in VERSIONS:
        known = ", ".join(f'"{version}"' for version in VERSIONS)
        raise ConfigurationError(f"{PATH}: one of {known} in quotes is wanted, not {str(value)[:80]!r}")
    return str(value)


def at_least(version: str, other: str) -> bool:
    return VERSIONS.index(version) >= VERSIONS.index(other)


def closest(major: int, minor: int) -> str:
    """The version that reads a file as Kueue `major.minor` does, for one that is not listed the nearest."""
    if major > 0:
        return NEWEST
    return VERSIONS[min(max(minor - 15, 0), len(VERSIONS) - 1)]
