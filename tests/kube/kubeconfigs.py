"""Kubeconfigs as files, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def kubeconfig(tmp_path: Path, user: dict[str, Any], file: str = "config", **cluster: Any) -> Path:
    document = {
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "bare", "context": {"cluster": "c"}},
            {"name": "lost", "context": {"cluster": "nowhere", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://example.test:6443/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    path = tmp_path / file
    path.write_text(yaml.safe_dump(document))
    return path
