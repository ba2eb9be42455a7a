"""`gangline dev image`: container images without a container engine or a registry."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from gangline.console.options import file_option
from gangline.console.output import terminal
from gangline.console.stack.own_image import REFERENCE, NoCheckoutError, packages, sources
from gangline.debian import DebianError
from gangline.image import base, builder
from gangline.image.builder import BuiltImage, UserImage
from gangline.image.python_packages import PythonPackagesError

_REFERENCE: Final = re.compile(
    r"^[a-z0-9][a-z0-9.-]*(:\d{1,5})?/[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
)


class Reference(click.ParamType[str]):
    """`REGISTRY/NAME:TAG`; a name without a registry is completed as containers are: docker.io/library/NAME:TAG."""

    name = "reference"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        host, slash, _ = value.partition("/")
        named = bool(slash) and ("." in host or ":" in host or host == "localhost")
        full = value if named else f"docker.io/{value}" if slash else f"docker.io/library/{value}"
        if len(full) > 255 or not _REFERENCE.fullmatch(full):
            self.fail(f"{value!r} is not REGISTRY/NAME:TAG", param, ctx)
        return full


_file_option = file_option("The archive. [default: dist/NAME.tar]")


@click.group()
def command() -> None:
    """Build container images as archives that containerd, Docker, Podman and kind load. Needs Debian's apt-get."""


@command.command()
@_file_option
@click.option("--tag", "reference", type=Reference(), default=REFERENCE, show_default=True, help="REGISTRY/NAME:TAG.")
def build(file: Path | None, reference: str) -> None:
    """Build Gangline's image from this checkout: one image for the operator and the webhooks, with its SBOM beside it.

    The same commit gives the same digest.
    """
    into = file or Path("dist/gangline.tar")
    with _plain_errors():
        made = builder.build_gangline(sources(), packages(), into, reference, _Progress())
    _report(made)
    terminal.say(f"SBOM      {builder.sbom_of(into)}")


@command.command()
@_file_option
@click.option("--tag", "reference", type=Reference(), required=True, help="REGISTRY/NAME:TAG.")
@click.option("--package", "chosen", multiple=True, metavar="NAME", help="A Debian package; may be repeated.")
@click.option(
    "--add", multiple=True, metavar="FILE:PATH", help="A file or directory, and its path in the image; may be repeated."
)
@click.option("--progress", is_flag=True, help="Add gangline.progress, which reports a training's progress.")
@click.argument("entrypoint", nargs=-1)
def pack(
    file: Path | None,
    reference: str,
    chosen: tuple[str, ...],
    add: tuple[str, ...],
    progress: bool,
    entrypoint: tuple[str, ...],
) -> None:
    """Build an image with Python, Debian packages and files of your own. Containers run ENTRYPOINT, by default Python.

    For example PyTorch for CPUs: gangline dev image pack --tag trainer:1 --package python3-torch --add train.py:/app/train.py
    -- python3 /app/train.py
    """
    files = dict(_file(each) for each in add)
    if progress:
        files |= builder.progress_files()
    name = reference.rpartition("/")[2].partition(":")[0]
    wanted = UserImage(chosen, files, entrypoint or (builder.INTERPRETER,))
    with _plain_errors():
        made = builder.build_user_image(wanted, packages(), file or Path(f"dist/{name}.tar"), reference, _Progress())
    _report(made)


@command.command("lock")
def lock_command() -> None:
    """Write the lock file of the base anew, with the newest versions of its Debian packages."""
    with _plain_errors():
        base.write_lock(packages().packages(list(base.PACKAGES)))
    terminal.say(str(base.LOCK))


def _file(text: str) -> tuple[str, Path]:
    source, colon, path = text.rpartition(":")
    if not colon or not path.startswith("/") or ".." in Path(path).parts or not Path(source).exists():
        raise click.BadParameter(
            f"{text!r} is not FILE:PATH, of a file that exists and an absolute path", param_hint="--add"
        )
    return path.lstrip("/"), Path(source)


class _Progress:
    """Says what is done, on stderr."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        terminal.say(f"{time.monotonic() - self._began:5.1f} s  {text}", err=True)


def _report(made: BuiltImage) -> None:
    terminal.say(f"archive   {made.archive}")
    terminal.say(f"image     {made.reference}")
    terminal.say(f"digest    {made.digest}")
    terminal.say(f"size      {made.size / 1e6:.1f} MB compressed")


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except (NoCheckoutError, DebianError, PythonPackagesError) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"{error.filename or ''}: {error.strerror}") from error
