"""A release: its version is the same wherever it is written, and its changes are listed by version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import gangline

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOWNCRIER: dict[str, Any] = PROJECT["tool"]["towncrier"]
CHANGELOG = (ROOT / TOWNCRIER["filename"]).read_text()
RELEASE = re.compile(r"^## (\d+)\.(\d+)\.(\d+) \(\d{4}-\d{2}-\d{2}\)$", re.M)


def fragments() -> list[Path]:
    folder = ROOT / TOWNCRIER["directory"]
    return [path for path in folder.iterdir() if path.name not in TOWNCRIER["ignore"]]


def test_the_version_is_the_same_wherever_it_is_written() -> None:
    chart = yaml.safe_load((ROOT / "charts/gangline/Chart.yaml").read_text())
    values = yaml.safe_load((ROOT / "charts/gangline/values.yaml").read_text())
    deployments = [
        container["image"]
        for obj in yaml.safe_load_all((ROOT / "config/default/deployment.yaml").read_text())
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    newest = ".".join(RELEASE.findall(CHANGELOG)[0])
    written = {PROJECT["project"]["version"], chart["version"], chart["appVersion"], values["image"]["tag"], newest}
    assert written == {gangline.__version__}
    assert {image.rpartition(":")[2] for image in deployments} == {gangline.__version__}


def test_the_changelog_lists_releases_newest_first() -> None:
    releases = [tuple(map(int, found)) for found in RELEASE.findall(CHANGELOG)]
    assert releases == sorted(set(releases), reverse=True)
    assert len(releases) == len(re.findall("^## ", CHANGELOG, re.M)), "a heading without version and date"
    assert CHANGELOG.count(TOWNCRIER["start_string"]) == 1, "where `make changelog` puts the next release"


def test_a_release_is_told_in_about_a_page() -> None:
    for release in re.split("^## ", CHANGELOG, flags=re.M)[1:]:
        assert len(release) < 8_000, f"{release.split()[0]}: leave out what users don't notice"


def test_the_next_changes_are_files_that_make_changelog_finds() -> None:
    kinds = "|".join(TOWNCRIER["fragment"])
    for path in fragments():
        assert re.fullmatch(rf"(\+[a-z0-9-]+|\d+)\.({kinds})(\.\d+)?\.md", path.name), path.name
        text = path.read_text()
        assert text.rstrip().endswith((".", ")")) and len(text) <= 600, f"{path.name}: one or two sentences"
        for target in re.findall(r"\]\(([^)#:]+)[)#]", text):
            assert (ROOT / target).exists(), f"{path.name}: {target} is not in the repository; links are from its root"
