"""`gangline run`: runs an example on a cluster of its own and shows it live until all its jobs have finished."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import click

from gangline.console.commands.run.up import readable_errors, say
from gangline.console.node_counts import NodeCounts, NodeCountsType
from gangline.console.output import exit_codes
from gangline.console.run import example as examples
from gangline.console.run import local_needs, progress
from gangline.console.run.example import Example, ExampleError
from gangline.console.run.progress import RunProgress
from gangline.console.run.screen import Screen, screen
from gangline.console.stack import installed, stack
from gangline.console.stack.stack import Stack, Wishes
from gangline.console.views.watch import WatchedCluster, changes, watching
from gangline.control.answers.workloads.snapshot import AnswerSnapshot
from gangline.control.audit.audit_log import FLUSH_EVERY
from gangline.devcluster.components import ControlPlaneOptions
from gangline.devcluster.connect import ClusterChoice
from gangline.devcluster.nodes import create_pools
from gangline.devcluster.progress import narrate
from gangline.kube.client import ApiClient
from gangline.kube.resources import JOB_SETS

LOOK_EVERY = 1.0  # seconds between two refreshes without changes, because ages change
SETTLE = 3.0  # seconds to wait until the queues' statuses reflect the end of the last job


class RunError(Exception):
    """A job of the example did not behave as expected; the message names the job and the cause."""


@click.command("run")
@click.option(
    "--example",
    "names",
    multiple=True,
    help="Directory of manifests, or the name of a bundled example; several run one after the other. [default: quickstart]",
)
@click.option(
    "--nodes",
    default=NodeCounts(),
    type=NodeCountsType(),
    metavar="real:N",
    help="Real nodes on this machine beside the simulated ones; Gangline's image is built, and installed in the cluster. Needs "
    "root.",
)
@click.option("--end", is_flag=True, help="End when all jobs have finished, even on a terminal.")
@click.option(
    "--timeout",
    default=300,
    show_default=True,
    type=click.IntRange(min=1),
    help="Seconds to wait for the jobs of each example to finish.",
)
def command(names: tuple[str, ...], nodes: NodeCounts, end: bool, timeout: int) -> None:
    """Bring up a local cluster, run an example on it and show queues and workloads live.

    On a terminal the cluster stays up until Ctrl-C. In a pipe, or with --end, the command ends when every job that can run
    has finished: exit status 0, or 1 with the reason. If a QueuePolicy backfills, the command also checks that reserved jobs
    started by their promised time.
    """
    with readable_errors():
        try:
            chosen = [_example(name) for name in names or ("quickstart",)]
            _check(chosen, nodes)
            stays = sys.stdout.isatty() and not end
            runs = [ExampleRun(each, patience=timeout, stay=stays and each is chosen[-1]) for each in chosen]
            _run(runs, nodes)
        except (ExampleError, RunError) as error:
            raise click.ClickException(str(error)) from error


def _example(name: str) -> Example:
    return examples.load(Path(name) if Path(name).is_dir() else examples.bundled(name))


def _check(chosen: Sequence[Example], nodes: NodeCounts) -> None:
    if nodes.simulated:
        raise click.UsageError("--nodes: the examples say which nodes are simulated; give real:N alone")
    for example in chosen:
        if not nodes.real and local_needs.needs_real_nodes(example):
            raise click.UsageError(f"{example.directory.name} runs on real nodes only: --nodes real:3")
        if nodes.real and progress.matter(example):
            raise click.UsageError(
                f"{example.directory.name} is checked by the operator's record, which stays in the pod: run it without --nodes"
            )


def _run(runs: Sequence[ExampleRun], nodes: NodeCounts) -> None:
    try:
        with stack.ended_by_signals(), _standing(runs, nodes) as standing:
            say(f"\nPoint kubectl at it from another terminal:\n  {standing.connection.kubectl_hint}\n")
            say(stack.dashboard_hint(standing))
            for run in runs:
                with local_needs.provided(run.example, standing.connection):
                    asyncio.run(run.show(standing))
    except KeyboardInterrupt:
        if not all(run.settled for run in runs):
            raise click.exceptions.Exit(exit_codes.INTERRUPTED) from None


def _standing(runs: Sequence[ExampleRun], nodes: NodeCounts) -> AbstractContextManager[Stack]:
    """The stack that the examples need, with the stand-in for JobSet if they have JobSets."""
    jobset = any(job.resource.kind == JOB_SETS.kind for run in runs for job in run.example.jobs)
    choice, wishes = (
        ClusterChoice(source="local", local=ControlPlaneOptions(real=nodes.real_pool())),
        Wishes(jobset=jobset),
    )
    return (installed.installed if nodes.real else stack.standing)(choice, say, wishes)


class ExampleRun:
    """One run of an example. `patience`: seconds for its jobs to finish; `stay`: keep showing the cluster afterwards."""

    def __init__(self, example: Example, *, patience: float, stay: bool) -> None:
        self.settled = False
        self.example = example
        self._patience = patience
        self._stay = stay
        self._tally = RunProgress(frozenset(job.job_id for job in example.jobs))
        self._before: AnswerSnapshot | None = None

    async def show(self, standing: Stack) -> None:
        """Submit the example and show its progress. Raises RunError, ExampleError or StartError."""
        async with standing.connection.client() as api:
            await self._prepare(api)
            with screen() as shown:
                async with watching(api) as watch:
                    elapsed = await self._follow(standing, api, watch, shown)
                    await self._conclude(standing, watch, shown, elapsed)
                    while self._stay:
                        await watch.wait(LOOK_EVERY)
                        standing.services.check()
                        self._look(watch, shown, elapsed)

    async def _prepare(self, api: ApiClient) -> None:
        pools = self.example.node_pools()
        if pools:
            with narrate("Starting simulated nodes"):
                nodes = await create_pools(api, pools)
            say(f"✓ {len(nodes)} nodes: " + ", ".join(f"{pool.count} × {pool.name}" for pool in pools))
        await examples.apply(api, self.example.settings)
        kinds = ", ".join(dict.fromkeys(m.resource.kind for m in self.example.settings))
        say(f"✓ {len(self.example.settings)} objects of {self.example.directory.name}/: {kinds}\n")

    async def _follow(self, standing: Stack, api: ApiClient, watch: WatchedCluster, shown: Screen) -> float:
        """Submit the jobs and show their progress until all are settled. Returns the elapsed seconds."""
        self._before = watch.now()  # jobs of an earlier example are no news
        started = time.monotonic()
        submitting = asyncio.create_task(examples.submit(api, self.example.jobs, started), name="submit the jobs")
        try:
            while True:
                elapsed = time.monotonic() - started
                seen = self._look(watch, shown, elapsed)
                if submitting.done():
                    submitting.result()
                    if self._tally.settled(seen):
                        return elapsed
                if elapsed > self._patience:
                    problems = "\n  ".join(self._tally.problems(seen))
                    raise RunError(f"not finished after {self._patience:g} s (--timeout):\n  {problems}")
                standing.services.check()
                await watch.wait(LOOK_EVERY)
        finally:
            submitting.cancel()

    def _look(self, watch: WatchedCluster, shown: Screen, elapsed: float) -> AnswerSnapshot:
        seen = watch.now()
        self._tally.update(seen, elapsed)
        shown.show(seen, changes(self._before, seen), elapsed)
        self._before = seen
        return seen

    async def _show_promises(self, standing: Stack, seen: AnswerSnapshot, shown: Screen) -> None:
        """Show promised and actual starts of reserved jobs. Raises RunError when a promise was broken."""
        await asyncio.sleep(2 * FLUSH_EVERY)
        report = await asyncio.to_thread(progress.kept, stack.record(standing.services), seen.workloads)
        for line in report.lines:
            shown.say(line)
        if report.broken:
            self.settled = False
            raise RunError("a promise was broken:\n  " + "\n  ".join(report.broken))

    async def _conclude(self, standing: Stack, watch: WatchedCluster, shown: Screen, elapsed: float) -> None:
        """Show the last table and the result. Raises RunError when a job failed."""
        deadline = time.monotonic() + SETTLE
        while any(f.used for q in watch.now().queues for f in q.flavors) and time.monotonic() < deadline:
            await watch.wait(0.5)
        seen = self._look(watch, shown, elapsed)
        shown.conclude(seen)
        if problems := self._tally.problems(seen):
            failed = "\n  ".join(problems)
            raise RunError(f"{len(problems)} of {len(self.example.jobs)} jobs failed:\n  {failed}")
        self.settled = True
        for line in self._tally.summary(seen, elapsed):
            shown.say(line)
        if progress.matter(self.example):
            await self._show_promises(standing, seen, shown)
        if self._stay:
            shown.say("\nThe cluster stays up until Ctrl-C.")
