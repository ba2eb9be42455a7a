"""`gangline admin crds`: prints, writes or compares the custom resource definitions."""

from __future__ import annotations

from pathlib import Path

import click

from gangline.api.schema import crd_install, crdgen
from gangline.console.output import terminal


@click.command("crds")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write one file per kind to this directory."
)
@click.option("--check", is_flag=True, help="Only compare with --out (default: crds); exit 1 if anything differs.")
def command(out: Path | None, check: bool) -> None:
    """Print the custom resource definitions that Gangline serves, as YAML."""
    files = crd_install.files()
    if check:
        _compare(files, out or Path("crds"))
    elif out is not None:
        _write(files, out)
    else:
        terminal.say("---\n".join(files.values()), nl=False)


def _write(files: dict[str, str], out: Path) -> None:
    """Write `files` to `out` and remove generated YAML files of kinds that no longer exist."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for stale in _present(out) - files.keys():
            (out / stale).unlink()
        for name, text in files.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error


def _compare(files: dict[str, str], out: Path) -> None:
    present = _present(out)
    differing = [
        name for name in files if name not in present or (out / name).read_text(encoding="utf-8") != files[name]
    ]
    differing += sorted(present - files.keys())
    if differing:
        raise click.ClickException(
            f"{out} differs from the models in {', '.join(differing)}: run `gangline admin crds --out {out}`"
        )


def _present(out: Path) -> set[str]:
    """The generated files in `out`; other files there are neither compared nor removed."""
    return {path.name for path in out.glob("*.yaml") if path.read_text(encoding="utf-8").startswith(crdgen.HEADER)}
