"""`gangline exec`: runs a command in a pod of a job, as `srun --jobid --overlap` does."""

from __future__ import annotations

from pathlib import Path

import click

from gangline.console.views import access, completing, remote_terminal, targets
from gangline.console.views.remote_terminal import OwnStreams, PodOfJob


@click.command("exec", context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS]")
@click.argument("job", metavar="JOB[:RANK]", shell_complete=completing.jobs)
@click.argument("words", metavar="[-- COMMAND [ARG…]]", nargs=-1, type=click.UNPROCESSED)
@click.option("-c", "--container", default="", help="The container; by default the first one.")
@click.option(
    "--tty/--no-tty", default=None, help="Give the command a terminal, or none (default: as this process has one)."
)
@access.cluster_options
def command(
    job: str,
    words: tuple[str, ...],
    container: str,
    tty: bool | None,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Run COMMAND in the pod of a RANK of JOB (0), of any kind of job that runs; at a terminal without COMMAND a shell.

    It gets the standard input of this process. The exit code is the command's.
    """
    if words[:1] == ("--",):  # options end at JOB, so that click hands it on
        words = words[1:]
    streams = OwnStreams()
    with_terminal = streams.is_terminal if tty is None else tty
    if with_terminal and not streams.is_terminal:
        raise click.UsageError("--tty needs a terminal as standard input and output")
    if not words and not with_terminal:
        raise click.UsageError("name a command after --, as in `gangline exec train:1 -- nvidia-smi`")
    named = PodOfJob.read(job)

    async def work() -> int:
        async with access.client(kubeconfig, context) as api:
            where = namespace or api.login.namespace
            target = await targets.find(api, where, named.job)
            pod = await remote_terminal.running_pod(api, where, target, named.rank)
            inside = remote_terminal.container_of(pod, container)
            chosen = remote_terminal.command_in(where, pod, inside, words or remote_terminal.SHELL, tty=with_terminal)
            return await remote_terminal.run_in_pod(api, chosen, streams)

    if code := access.run(work()):
        raise click.exceptions.Exit(code)
