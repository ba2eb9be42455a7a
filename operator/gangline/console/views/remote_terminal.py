"""Connects the standard streams of this process with a command in a pod: for `gangline exec` and `gangline submit -i`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from gangline import bounded
from gangline.console.output import terminal
from gangline.console.views import denied, pod_logs
from gangline.console.views.pod_logs import RankedPod
from gangline.console.views.targets import Target
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.kube.remote_process import LONGEST_COMMAND, CommandError, RemoteCommand, RemoteProcess, running

if TYPE_CHECKING:
    from collections.abc import Iterator

#: bytes of input that are sent at a time
_PIECE: Final = 32 * 1024
#: what runs where no command is named: the better shell of those that the image has
SHELL: Final = ("sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh")


class LocalStreams(Protocol):
    """The standard streams of this process."""

    @property
    def is_terminal(self) -> bool:
        """Whether input and output are a terminal."""
        ...

    def raw(self) -> AbstractContextManager[None]:
        """Let the terminal pass on each key as it is, Ctrl-C too."""
        ...

    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        ...

    def on_resize(self, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call this when the terminal has another size."""
        ...

    def pieces(self) -> AsyncIterator[bytes]:
        """The input as it comes, until its end."""
        ...

    def write(self, data: bytes, *, err: bool) -> None: ...


class OwnStreams:
    """The streams of this process, or of other files."""

    def __init__(self, source: int | None = None) -> None:
        self._source = source

    @property
    def _input(self) -> int:
        return sys.stdin.fileno() if self._source is None else self._source

    @property
    def is_terminal(self) -> bool:
        return terminal.is_here() if self._source is None else os.isatty(self._source)

    @contextmanager
    def raw(self) -> Iterator[None]:
        import termios
        import tty

        before = termios.tcgetattr(self._input)
        try:
            tty.setraw(self._input)
            yield
        finally:
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, before)

    def size(self) -> tuple[int, int]:
        found = os.get_terminal_size(self._input)
        return found.columns, found.lines

    @contextmanager
    def on_resize(self, call: Callable[[], None]) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, call)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            source = self._input
        except (OSError, ValueError, AttributeError):  # there is no standard input
            return
        while True:
            await _readable(source)
            try:
                data = os.read(source, _PIECE)
            except OSError:  # the terminal has hung up
                return
            if not data:
                return
            yield data

    def write(self, data: bytes, *, err: bool) -> None:
        terminal.pass_on(data, err=err)


async def _readable(source: int) -> None:
    """Wait until there is something to read; files on disks always have something."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not there.done():
            there.set_result(None)

    try:
        loop.add_reader(source, wake)
    except PermissionError:
        return
    try:
        await there
    finally:
        loop.remove_reader(source)


# --- which pod --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PodOfJob:
    """A job and one of its ranks, as somebody named them: `train`, `job/train:3`."""

    job: str
    rank: int = 0

    @staticmethod
    def read(text: str) -> PodOfJob:
        """Raises click.UsageError for a rank that is no number."""
        job, colon, rank = text.partition(":")
        number = bounded.whole(rank) if colon else 0
        if number is None or not job:
            raise click.UsageError(f"{bounded.shown(text)}: a job is expected, or a job and a rank, as in train:3")
        return PodOfJob(job, number)


async def running_pod(api: ApiClient, namespace: str, target: Target, rank: int) -> RankedPod:
    """The newest pod of a rank that runs. Raises click.ClickException, which says why there is none."""
    pods = await pod_logs.pods_of(api, namespace, target)
    if not pods:
        raise click.ClickException(f"{target.title} has no pods: it {target.what_it_does()}")
    found = [pod for pod in pods if pod.rank == rank]
    if not found:
        raise click.ClickException(f"{target.title} has no rank {rank}: ranks are 0 to {max(pod.rank for pod in pods)}")
    alive = [pod for pod in found if pod.phase == "Running"]
    if not alive:
        raise click.ClickException(
            f"pod {found[-1].name} of {target.title} does not run: it is {found[-1].phase or 'new'}"
        )
    return alive[-1]


def container_of(pod: RankedPod, wanted: str) -> str:
    """The container of this name, or the first one. Raises click.ClickException for one that there is not."""
    if wanted and wanted not in pod.containers:
        raise click.ClickException(f"pod {pod.name} has no container {wanted!r}: it has {', '.join(pod.containers)}")
    return wanted or next(iter(pod.containers), "")


# --- the command ------------------------------------------------------------------------------------------------------


async def run_in_pod(
    api: ApiClient,
    command: RemoteCommand,
    streams: LocalStreams,
    beside: Callable[[Callable[[str], None]], Awaitable[Any]] | None = None,
) -> int:
    """Run a command until it ends. Returns its exit code. `beside` runs meanwhile, and gets a way to tell the user something.

    Raises click.ClickException where the command can't be run, ApiError where the connection can't be made or breaks.
    """

    def tell(text: str) -> None:
        before, after = ("\r\n", "\r\n") if command.tty else ("", "\n")
        streams.write(f"{before}{terminal.clean(text)}{after}".encode(), err=True)

    try:
        async with running(api, command) as process:
            helpers: list[Awaitable[Any]] = [_give(process, streams)] if command.takes_input else []
            if beside is not None:
                helpers.append(beside(tell))
            tasks = [asyncio.ensure_future(each) for each in helpers]
            try:
                if command.tty:
                    with streams.raw():
                        await _show_on_terminal(process, streams)
                else:
                    await _show(process, streams)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        return process.exit_code
    except CommandError as error:
        raise click.ClickException(f"the command did not run: {error}") from error
    except Forbidden as error:
        raise click.ClickException(denied.said(error)) from error
    except NotFound as error:
        raise click.ClickException(f"the pod is gone: {error.message}") from error


async def keep_open(api: ApiClient, command: RemoteCommand) -> None:
    """Run a command whose input never ends while this runs. What it writes, and that it ends or never ran, is of no interest."""
    with suppress(ApiError, CommandError):
        async with running(api, command) as process:
            async for _ in process.output():
                pass


async def _show(process: RemoteProcess, streams: LocalStreams) -> None:
    async for piece in process.output():
        streams.write(piece.data, err=piece.err)


async def _show_on_terminal(process: RemoteProcess, streams: LocalStreams) -> None:
    """Show the output, and tell the command each new size of the terminal."""
    changes: set[asyncio.Task[None]] = set()

    def resized() -> None:
        task = asyncio.ensure_future(process.resize(*streams.size()))
        changes.add(task)
        task.add_done_callback(_forget_failure)
        task.add_done_callback(changes.discard)

    await process.resize(*streams.size())
    with streams.on_resize(resized):
        await _show(process, streams)


def _forget_failure(task: asyncio.Task[None]) -> None:
    """A connection that breaks is noticed where the output is read."""
    if not task.cancelled():
        task.exception()


async def _give(process: RemoteProcess, streams: LocalStreams) -> None:
    """Pass the input on. A connection that breaks is noticed where the output is read."""
    with suppress(ApiError):
        async for piece in streams.pieces():
            await process.write(piece)
        await process.end_input()


def command_in(namespace: str, pod: RankedPod, container: str, words: Sequence[str], *, tty: bool) -> RemoteCommand:
    """A command for a pod, with the input of this process. Raises click.UsageError for one that is too long."""
    if sum(len(word.encode(errors="surrogatepass")) for word in words) > LONGEST_COMMAND:
        raise click.UsageError(f"the command is longer than {LONGEST_COMMAND // 1024} KiB: put it into a file")
    return RemoteCommand(namespace, pod.name, container, words, tty=tty, takes_input=True)
