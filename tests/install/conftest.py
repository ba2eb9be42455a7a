"""Helm, as it is compiled for the tests of the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.devcluster.building import build
from gangline.devcluster.building.build import HELM


@pytest.fixture(scope="module")
def helm() -> Path:
    if not build.is_built(HELM, HELM.programs):
        pytest.fail("Helm is not compiled yet; run `gangline dev cluster build --helm` (minutes, once)")
    return HELM.binaries_directory() / "helm"
