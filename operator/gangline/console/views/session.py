"""An interactive session: waits until its job runs, opens a terminal in it, warns before its time is up, and deletes the job."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import click

from gangline.api import names, quantity
from gangline.api.read import conditions
from gangline.console.output import exit_codes, terminal
from gangline.console.views import access, pod_logs, remote_terminal, targets
from gangline.console.views.pod_logs import RankedPod
from gangline.console.views.remote_terminal import LocalStreams
from gangline.console.views.targets import Target
from gangline.control.answers.workloads.snapshot import FINISHED, JobState
from gangline.control.answers.workloads.words import why
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Conflict, NotFound, Unavailable
from gangline.kube.resources import GPU_JOBS, Json
from gangline.objects import WorkloadObject

#: seconds between two looks at a job that does not run yet
LOOK_EVERY: Final = 3.0
#: the seconds before the end of a session at which its user is warned
WARNINGS: Final = {300: "5 minutes", 60: "1 minute"}

Pause = Callable[[float], Awaitable[Any]]


async def hold(
    api: ApiClient,
    namespace: str,
    job: Json,
    words: Sequence[str],
    guard: Sequence[str],
    streams: LocalStreams,
    pause: Pause = asyncio.sleep,
) -> int:
    """Open a terminal in a job that was just created, once it runs. `guard` runs beside it, with an input that lasts as long as
    this process. Returns the exit code of what ran in the terminal. The job is deleted at the end, whatever ends the session:
    also Ctrl-C, and the end of the terminal itself.
    """
    with _ended_by_signals() as caught:
        try:
            try:
                target, pod = await _until_it_runs(api, namespace, job, pause)
                inside = remote_terminal.container_of(pod, "")
                command = remote_terminal.command_in(namespace, pod, inside, words, tty=True)
                terminal.say(f"(the terminal is in pod {pod.name})", err=True)

                async def beside(tell: Callable[[str], None]) -> None:
                    watched = remote_terminal.command_in(namespace, pod, inside, guard, tty=False)
                    await asyncio.gather(_warn(api, job, target, tell, pause), remote_terminal.keep_open(api, watched))

                return await _in_terminal(api, namespace, job, command, streams, beside)
            finally:
                await _delete(api, namespace, job)
        except asyncio.CancelledError:
            if not caught:
                raise
            return 128 + caught[0]
        except OSError:  # what it printed to is gone
            return exit_codes.FAILURE


@contextmanager
def _ended_by_signals() -> Iterator[list[int]]:
    """Let a hangup and a SIGTERM cancel this task, as Ctrl-C does, so that it can clean up. Yields the signals that came."""
    loop, task, caught = asyncio.get_running_loop(), asyncio.current_task(), list[int]()

    def end(which: int) -> None:
        if task is not None and not caught:
            task.cancel()
        caught.append(which)

    chosen = (signal.SIGHUP, signal.SIGTERM)
    for which in chosen:
        loop.add_signal_handler(which, end, int(which))
    try:
        yield caught
    finally:
        for which in chosen:
            loop.remove_signal_handler(which)


def _title(job: Json) -> str:
    return f"gpujob/{job['metadata']['name']}"


async def _until_it_runs(api: ApiClient, namespace: str, job: Json, pause: Pause) -> tuple[Target, RankedPod]:
    """The job and its first pod, once that runs. Says meanwhile what it waits for. Raises click.ClickException if it ends."""
    said, outage = "", access.Outage()
    while True:
        try:
            target = await targets.find(api, namespace, _title(job))
            pods = await pod_logs.pods_of(api, namespace, target)
        except ApiError as error:
            outage.endure(error)
            await pause(LOOK_EVERY)
            continue
        running = [pod for pod in pods if pod.rank == 0 and pod.phase == "Running"]
        if running:
            return target, running[-1]
        if target.state in FINISHED:
            raise click.ClickException(f"{_standing(target)}; it has ended before it ran")
        if (text := _standing(target)) != said:
            said = text
            terminal.say(text, err=True)
        await pause(LOOK_EVERY)


def _standing(target: Target) -> str:
    if target.view is None:
        return f"{target.title} is submitted"
    reason = why(target.view)
    return f"{target.title} {target.what_it_does()}" + (f": {reason}" if reason else "")


async def _in_terminal(
    api: ApiClient,
    namespace: str,
    job: Json,
    command: remote_terminal.RemoteCommand,
    streams: LocalStreams,
    beside: Callable[[Callable[[str], None]], Awaitable[None]],
) -> int:
    """Run the command of the terminal. Says why the session has ended where that was not its user's doing."""
    broken: ApiError | None = None
    code = exit_codes.FAILURE
    try:
        code = await remote_terminal.run_in_pod(api, command, streams, beside)
    except Unavailable as error:
        broken = error
    if code:
        with suppress(ApiError, click.ClickException):
            target = await targets.find(api, namespace, _title(job))
            if target.view is not None and target.state not in (JobState.RUNNING, JobState.STARTING):
                terminal.say(_standing(target), err=True)
                return code
    if broken is not None:
        terminal.say(broken.message, err=True)
    return code


async def _warn(api: ApiClient, job: Json, target: Target, tell: Callable[[str], None], pause: Pause) -> None:
    """Tell the user of a session, five minutes and one minute before, that its time will be up."""
    ends = _end(job, target)
    if ends is None:
        return
    for before, words in WARNINGS.items():
        left = ends - before - api.clock.seconds()
        if left < 0:
            continue
        await pause(left)
        tell(f"*** gangline: this session ends in {words}, by its time limit ***")


def _end(job: Json, target: Target) -> float | None:
    """When the time of a session is up, in seconds since the epoch; None where it has no limit or is not admitted."""
    limit = (job["spec"].get("runtime") or {}).get("limit")
    admitted = WorkloadObject(target.workload).true_condition(names.ADMITTED) if target.workload is not None else None
    if limit is None or admitted is None:
        return None
    return conditions.millis_of(admitted.get("lastTransitionTime")) / 1000 + quantity.parse_duration(limit)


async def _delete(api: ApiClient, namespace: str, job: Json) -> None:
    """Delete the job of a session, and say so."""
    meta = job["metadata"]
    text = f"{_title(job)} is deleted"
    try:
        await api.delete(GPU_JOBS, namespace, meta["name"], propagation="Background", uid=meta["uid"])
    except (NotFound, Conflict):
        text = f"{_title(job)} was deleted"
    except ApiError as error:
        text = f"{_title(job)} is not deleted: {error.message}\n`gangline cancel {_title(job)}` deletes it"
    with suppress(OSError):  # the terminal may be gone
        terminal.say(text, err=True)
