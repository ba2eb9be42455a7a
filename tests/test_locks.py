"""The lock files: every package that is installed is named by version and hash, and nothing else is fetched."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def locked(name: str) -> dict[str, str]:
    """Package -> what the lock file says of it, its markers and hashes among it."""
    entries: list[str] = []
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        if line.startswith(" "):
            entries[-1] += line
        else:
            entries.append(line)
    return {re.split("[= ]", entry)[0]: entry for entry in entries}


def wanted(requirements: list[str]) -> set[str]:
    names = (re.match(r"[\w.-]+", requirement) for requirement in requirements)
    return {re.sub(r"[-_.]+", "-", name.group()).lower() for name in names if name}


@pytest.mark.parametrize(
    "name", ["requirements.lock", *(f"requirements-{group}.lock" for group in ("fuzz", "mutants", "docs", "tools"))]
)
def test_every_package_is_pinned_by_version_and_hash(name: str) -> None:
    packages = locked(name)
    assert packages
    for package, entry in packages.items():
        assert re.match(rf"{re.escape(package)}==\S+ ", entry), f"{package} has no exact version"
        assert HASH.search(entry), f"{package} has no hash"
        assert "://" not in entry, f"{package} says where it is from: who installs it chooses"


def test_the_locks_name_all_that_the_project_asks_for() -> None:
    groups = PROJECT["dependency-groups"]
    asked = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"], *groups["dev"]]
    assert wanted(asked) <= set(locked("requirements.lock"))
    assert wanted(groups["fuzz"]) <= set(locked("requirements-fuzz.lock"))
    assert wanted(groups["mutants"]) <= set(locked("requirements-mutants.lock"))
    assert wanted(groups["docs"]) <= set(locked("requirements-docs.lock"))
    assert wanted(groups["tools"]) <= set(locked("requirements-tools.lock"))


def test_what_is_installed_is_what_is_locked() -> None:
    installs = [line for line in (ROOT / "scripts/venv.sh").read_text().splitlines() if '"${pip[@]}" ' in line]
    assert len(installs) == 4
    for line in installs:
        assert "--require-hashes --requirement" in line or "--no-deps --no-build-isolation --editable ." in line
