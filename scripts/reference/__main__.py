"""Writes docs/reference/: every kind, field, annotation, condition, event and metric, collected from the code.

    python -m scripts.reference           write
    python -m scripts.reference --check   compare; exit status 1 if a page is stale

Kinds come from the models, by the schemas that the CRDs have. Names come from `gangline.api.names` and its comments. What is
said only where it happens (conditions, reasons, events, metrics) is found in the syntax trees of all modules: `Code` has them,
`Values` works out which texts an expression can have.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Final

from scripts.reference.pages import ROOT, pages

PAGES: Final = ROOT / "docs" / "reference"


def main(arguments: Sequence[str]) -> int:
    wanted = pages()
    present = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    if "--check" in arguments:
        stale = [name for name in sorted(wanted.keys() | present.keys()) if wanted.get(name) != present.get(name)]
        for name in stale:
            old, new = (texts.get(name, "").splitlines() for texts in (present, wanted))
            print(
                "\n".join(difflib.unified_diff(old, new, f"docs/reference/{name}", "from the code", lineterm="", n=0))
            )
        if stale:
            print("docs/reference differs from the code: run `make reference`", file=sys.stderr)
        return 1 if stale else 0
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in present.keys() - wanted.keys():
        (PAGES / name).unlink()
    for name, text in wanted.items():
        (PAGES / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
