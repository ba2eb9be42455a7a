"""`gangline admin install`, `upgrade`, `uninstall` and `manifests`: Gangline in a cluster, without Helm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from gangline.api import names
from gangline.console.options import Span
from gangline.console.output import terminal
from gangline.console.views import access
from gangline.files import read_text
from gangline.install import inventory, removal, rollout
from gangline.install.differences import MOST_LINES
from gangline.install.installing import InstallationError, InstallPlan, carry_out, foreign_namespaces, plan
from gangline.install.inventory import kind_and_name
from gangline.install.manifests import chart, objects, values
from gangline.install.manifests.values import ValuesError
from gangline.kube.resources import Json, ObjectKey


def _cluster(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--timeout", type=Span(), default="5m", show_default=True, help="How long to wait, such as 5m."),
        click.option("--dry-run", is_flag=True, help="Show what would change, and end."),
        access.login_options,
        _in_namespace,
    ):
        function = option(function)
    return function


_yes = click.option("--yes", "-y", is_flag=True, help="Don't ask. Without a terminal nothing is asked.")


_in_namespace = click.option(
    "--namespace", "-n", default=names.SYSTEM_NAMESPACE, show_default=True, help="Where Gangline's own objects are."
)


def _valued(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--image", default=None, metavar="REFERENCE", help="REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…"),
        click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="One value; may be repeated."),
        click.option(
            "--values",
            "-f",
            "files",
            multiple=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="YAML with values, as for the Helm chart; may be repeated.",
        ),
    ):
        function = option(function)
    return function


@click.command("manifests")
@_valued
@_in_namespace
@click.option(
    "--helm", type=click.Path(file_okay=False, path_type=Path), help="Write the Helm chart to this directory instead."
)
def manifests(
    files: tuple[Path, ...], settings: tuple[str, ...], image: str | None, namespace: str, helm: Path | None
) -> None:
    """Print the manifests of an installation, for `kubectl apply --server-side -f -`."""
    chosen = _chosen(files, settings, image)
    if helm is None:
        terminal.say(chart.manifests(objects.plain(chosen, namespace)), nl=False)
        return
    if files or settings or image:
        raise click.UsageError("--helm writes the chart for all values: give them to helm")
    try:
        chart.write_files(helm, chart.chart())
    except OSError as error:
        raise click.ClickException(f"cannot write {error.filename}: {error.strerror}") from error


@click.command("install")
@_valued
@_yes
@_cluster
def install(**given: Any) -> None:
    """Install Gangline in a cluster, or bring an installation to this version and these values.

    Shows what would change, asks, applies it, and waits until operator and webhooks are ready.
    """
    access.run(_bring(upgrading=False, **given))


@click.command("upgrade")
@_valued
@_yes
@_cluster
def upgrade(**given: Any) -> None:
    """Bring an installation to this version and these values, running jobs untouched."""
    access.run(_bring(upgrading=True, **given))


@click.command("uninstall")
@click.option(
    "--all", "everything", is_flag=True, help="Also remove the kinds, and with them all queues and workloads."
)
@click.option("--yes", "-y", is_flag=True, help="Don't ask. Needed where there is no terminal to ask.")
@_cluster
def uninstall(
    everything: bool,
    namespace: str,
    kubeconfig: Path | None,
    context: str | None,
    yes: bool,
    dry_run: bool,
    timeout: float,
) -> None:
    """Remove Gangline from a cluster. Kinds, queues and workloads stay, and running jobs run on; --all removes kinds, too."""

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            found = await removal.look(api, namespace)
            if found.nothing_to_do(everything=everything):
                terminal.say(f"Gangline is not installed in namespace {namespace}.")
                return
            _show_remains(found, everything)
            if dry_run:
                return
            if not yes:
                terminal.confirm("Remove it all, with every queue and workload?" if everything else "Go on?")
            await removal.take_off(api, found, everything=everything, seconds=timeout, say=terminal.say)

    access.run(_plainly(work()))


# --- install and upgrade ----------------------------------------------------------------------------------------------


async def _bring(
    *,
    upgrading: bool,
    files: tuple[Path, ...],
    settings: tuple[str, ...],
    image: str | None,
    namespace: str,
    kubeconfig: Path | None,
    context: str | None,
    yes: bool,
    dry_run: bool,
    timeout: float,  # noqa: ASYNC109
) -> None:
    chosen = _chosen(files, settings, image)

    async def work() -> None:
        async with access.client(kubeconfig, context) as api:
            before = await inventory.read(api, namespace)
            if upgrading and before is None:
                raise InstallationError(
                    f"Gangline is not installed in namespace {namespace}: `gangline admin install` does it"
                )
            wanted = objects.plain(chosen, namespace, others=await foreign_namespaces(api))
            decided = await plan(api, namespace, wanted)
            _show(decided)
            if dry_run:
                return
            if not (decided.is_empty or yes) and terminal.can_ask():
                terminal.confirm("Go on?")
            await carry_out(api, decided, terminal.say)
            missing = await rollout.wait(api, namespace, timeout, terminal.say)
            if missing:
                raise InstallationError(f"not ready after {timeout:g} s:\n{missing}")
            terminal.say("✓ operator and webhooks are ready")

    await _plainly(work())


def _chosen(files: tuple[Path, ...], settings: tuple[str, ...], image: str | None) -> Json:
    given: list[Json] = []
    try:
        for path in files:
            try:
                given.append(values.load(read_text(path)))
            except (ValuesError, UnicodeDecodeError) as error:
                raise click.ClickException(f"{path}: {error}") from error
        given += map(values.setting, settings)
        if image is not None:
            given.append({"image": values.image(image)})
        return values.chosen(given)
    except ValuesError as error:
        raise click.ClickException(str(error)) from error


# --- shown ------------------------------------------------------------------------------------------------------------


_MARKS = {"create": "+", "take over": "≈", "change": "~", "replace": "±", "remove": "-"}


def _show(decided: InstallPlan) -> None:
    """Created objects in a line for each kind, others one by one with their fields."""
    _show_by_kind("+", decided.keys("create"))
    for change in decided.changes:
        if change.action in ("create", "keep"):
            continue
        note = " (not of this installation's making)" if change.action == "take over" else ""
        terminal.say(f"{_MARKS[change.action]} {kind_and_name(change.key)}{note}")
        for line in change.fields[:MOST_LINES]:
            terminal.say(f"    {line}")
        if len(change.fields) > MOST_LINES:
            terminal.say(f"    … {len(change.fields) - MOST_LINES} more fields")
    unchanged = len(decided.keys("keep"))
    terminal.say(
        "Nothing changes." if decided.is_empty else f"{unchanged} objects stay as they are." if unchanged else ""
    )


def _show_remains(found: removal.Remains, everything: bool) -> None:
    _show_by_kind("-", found.removed)
    there = {name: count for name, count in found.objects.items() if count}
    counted = ", ".join(f"{count} {name}" for name, count in there.items()) or "no objects"
    if everything:
        terminal.say(f"- all kinds, and with them: {counted}")
    else:
        terminal.say(f"Kinds and their objects stay ({counted}); jobs run on, nothing is admitted. --all removes them.")


def _show_by_kind(mark: str, keys: Iterable[ObjectKey]) -> None:
    by_kind: dict[str, list[str]] = {}
    for key in keys:
        by_kind.setdefault(key.resource.kind, []).append(key.name)
    for kind, found in by_kind.items():
        terminal.say(f"{mark} {kind}: {', '.join(found)}")


async def _plainly(work: Any) -> None:
    """An installation's trouble as one message."""
    try:
        await work
    except InstallationError as error:
        raise click.ClickException(str(error)) from error
