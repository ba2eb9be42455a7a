"""`gangline run`: an example on a cluster of its own, watched live until all of it has run."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import click

from gangline.console import example as examples
from gangline.console import stack, table
from gangline.console.example import Example, ExampleError
from gangline.console.progress import Tally
from gangline.console.screen import Screen, screen
from gangline.console.snapshot import Snapshot
from gangline.console.stack import Stack
from gangline.console.up import readable_errors, say
from gangline.console.watch import Watch, changes, watching
from gangline.devcluster.connect import Choice
from gangline.devcluster.nodes import create_pools
from gangline.devcluster.progress import narrate
from gangline.kube.client import ApiClient

LOOK_EVERY = 1.0  # seconds between two looks when nothing changes: ages move on
SETTLE = 3.0  # seconds that the queues' statuses get to tell of the last job's end
EXIT_INTERRUPTED = 130


class RunError(Exception):
    """The example did not do what it should; the message says which job and why."""


@click.command("run")
@click.option(
    "--example",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=None,
    help="Directory of manifests (default: the quickstart).",
)
@click.option(
    "--timeout", default=300, show_default=True, type=click.IntRange(min=1), help="Seconds for the jobs to end."
)
def command(directory: Path | None, timeout: int) -> None:
    """Bring up a local cluster, run an example on it and show queues and workloads live.

    On a terminal it stays up until Ctrl-C. In a pipe it ends when every job that can run has finished: exit status 0, or 1
    with the reason.
    """
    with readable_errors():
        try:
            example = examples.load(directory or examples.bundled())
            _run(example, timeout)
        except (ExampleError, RunError) as error:
            raise click.ClickException(str(error)) from error


def _run(example: Example, timeout: int) -> None:
    finished = False
    try:
        with stack.ended_by_signals(), stack.standing(Choice(source="local"), say) as standing:
            say(f"\nPoint kubectl at it from another terminal:\n  {standing.connection.kubectl_hint}\n")
            asyncio.run(_show(standing, example, timeout))
            finished = True
            if sys.stdout.isatty():
                say("\nThe cluster stays up for you to look around; Ctrl-C ends it.")
                standing.services.hold()
    except KeyboardInterrupt:
        if not finished:
            raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


async def _show(standing: Stack, example: Example, patience: int) -> None:
    async with standing.connection.client() as api:
        pools = example.node_pools()
        with narrate("Starting simulated nodes"):
            nodes = await create_pools(api, pools)
        say(f"✓ {len(nodes)} nodes: " + ", ".join(f"{pool.count} × {pool.name}" for pool in pools))
        await examples.apply(api, example.settings)
        say(f"✓ {len(example.settings)} objects from {example.directory.name}/: namespaces, flavors, queues\n")
        tally = Tally(frozenset(job.job_id for job in example.jobs))
        with screen() as shown:
            async with watching(api) as watch:
                await _follow(standing, api, example, watch, shown, tally, patience)


async def _follow(
    standing: Stack, api: ApiClient, example: Example, watch: Watch, shown: Screen, tally: Tally, patience: int
) -> None:
    """Submits the jobs and shows what happens to them until all is settled."""
    started = time.monotonic()
    submitting = asyncio.create_task(examples.submit(api, example.jobs, started), name="submit")
    before: Snapshot | None = None
    try:
        while True:
            seen, elapsed = watch.now(), time.monotonic() - started
            tally.update(seen, elapsed)
            shown.show(seen, changes(before, seen), elapsed)
            before = seen
            if submitting.done():
                submitting.result()
                if tally.settled(seen):
                    return await _conclude(watch, shown, tally, elapsed)
            if elapsed > patience:
                raise RunError(_overdue(tally, seen, patience))
            standing.services.check()
            await watch.wait(LOOK_EVERY)
    finally:
        submitting.cancel()


async def _conclude(watch: Watch, shown: Screen, tally: Tally, elapsed: float) -> None:
    """The last table and the result. Raises RunError when a job failed."""
    deadline = time.monotonic() + SETTLE
    while any(f.used for q in watch.now().queues for f in q.flavors) and time.monotonic() < deadline:
        await watch.wait(0.5)
    seen = watch.now()
    shown.show(seen, [], elapsed)
    if not sys.stdout.isatty():
        shown.say(f"\n{table.plain(table.queue_rows(seen))}\n")
    if problems := tally.problems(seen):
        raise RunError(f"{len(problems)} of {len(tally.expected)} jobs failed:\n  " + "\n  ".join(problems))
    for line in tally.summary(seen, elapsed):
        shown.say(line)


def _overdue(tally: Tally, seen: Snapshot, patience: int) -> str:
    problems = tally.problems(seen)
    return f"not finished after {patience} s (--timeout):\n  " + "\n  ".join(problems)
