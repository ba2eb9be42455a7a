"""Writes charts/gangline/ and config/, the manifests of an installation; `--check` compares them and says what is stale."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gangline.install.manifests import chart

ROOT = Path(__file__).parents[1]


def main(arguments: Sequence[str]) -> int:
    if "--check" not in arguments:
        chart.write(ROOT)
        return 0
    stale = chart.differing(ROOT)
    if stale:
        print(f"not as gangline.install has it: {', '.join(stale)}: run `make manifests`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
