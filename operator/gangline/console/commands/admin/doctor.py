"""`gangline admin doctor`: checks this machine, an installation, or a cluster that is to change over from Kueue."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gangline.console.output import terminal
from gangline.console.output.formats import OutputFormat, answer_option, document
from gangline.console.views import access

if TYPE_CHECKING:
    from gangline.console.doctor.cluster import Finding
    from gangline.console.doctor.examination import Examination


@click.command()
@click.option("--cluster", "of_cluster", is_flag=True, help="Check the installation of Gangline on a cluster.")
@click.option("--from-kueue", is_flag=True, help="Say what changes for a cluster that runs Kueue now.")
@access.login_options
@answer_option
def command(
    of_cluster: bool, from_kueue: bool, kubeconfig: Path | None, context: str | None, output: OutputFormat
) -> None:
    """Check whether this machine has what `make run` needs, or check a cluster. Exit status 1 if something is missing."""
    if of_cluster and from_kueue:
        raise click.UsageError("--cluster and --from-kueue are two examinations: choose one")
    if of_cluster or from_kueue:
        from gangline.console.doctor import changeover, installation

        _examine(installation.EXAMINATION if of_cluster else changeover.EXAMINATION, kubeconfig, context, output)
    elif kubeconfig or context:
        raise click.UsageError("--kubeconfig and --context belong to --cluster and --from-kueue")
    else:
        _this_machine(output)


def _this_machine(output: OutputFormat) -> None:
    from gangline.console.doctor import machine

    findings = [check() for check in machine.CHECKS]
    missing = [finding for finding in findings if finding.verdict == "missing"]
    if output.kind:
        terminal.say(document(output.kind, machine.as_json(findings)))
        sys.exit(1 if missing else 0)
    terminal.console(highlight=False).print(machine.render(findings))
    if missing:
        terminal.say(f"\n`make run` does not work yet. Missing: {', '.join(finding.subject for finding in missing)}.")
        sys.exit(1)
    terminal.say("\nThis machine has everything that `make run` needs.")


def _examine(examination: Examination, kubeconfig: Path | None, context: str | None, output: OutputFormat) -> None:
    from gangline.console.doctor.cluster import ClusterReads

    async def examined() -> list[Finding]:
        async with access.client(kubeconfig, context) as api:
            cluster = ClusterReads(api)
            try:
                await cluster.version()  # without an API server no check says anything
                return await examination.of(cluster)
            finally:
                await cluster.close()

    findings = access.run(examined())
    answer = examination.as_json(findings)
    terminal.say(document(output.kind, answer) if output.kind else examination.rendered(findings))
    if not answer["ok"]:
        sys.exit(1)
