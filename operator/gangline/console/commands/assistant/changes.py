"""The tools that change something, each in two calls. The first shows what would happen and gives a token; the second, with the
same input and the token, does exactly that. A token is good once, for a few minutes, and for the objects as they were shown.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias

import click

from gangline import bounded
from gangline.console.commands.assistant import envelope
from gangline.console.commands.assistant.envelope import Document
from gangline.console.commands.assistant.tools import (
    JOB,
    NAMESPACE,
    Given,
    Surroundings,
    ToolField,
    schema_of,
    text_field,
)
from gangline.console.commands.change import cancel, hold
from gangline.console.commands.start import submit
from gangline.console.output import terminal
from gangline.console.submitting.gpu_job import Submission, Work
from gangline.console.submitting.wishes import MOST_SCRIPT, OPTIONS, WishError
from gangline.console.submitting.wishes import given as wish
from gangline.console.views import access, targets
from gangline.console.views.targets import SeenVersions
from gangline.kube.client import ApiClient
from gangline.kube.resources import GPU_JOBS, Json

#: makes a change in a namespace
Act: TypeAlias = Callable[[ApiClient, str], Awaitable[str]]

#: seconds for which a token is good, and previews that are remembered
GOOD_FOR: Final = 300.0
MOST_PREVIEWS: Final = 64
_CONFIRM: Final = text_field("confirm", "The token of the preview: do it.", most=64)
#: options of `submit` that would read variables of this process
_OF_THIS_PROCESS: Final = frozenset({"export"})
_MOST_WORDS: Final = 64
_MOST_VALUES: Final = 32
_LONGEST_WORD: Final = 4096


@dataclass(frozen=True, slots=True)
class ChangePreview:
    """A change that was shown. `given`: the input of the call; `act`: makes it; `server`: of the API; `until`: how long its token
    is good.
    """

    tool: str
    given: str
    act: Act
    server: str
    namespace: str
    until: float


@dataclass(slots=True)
class Previews:
    """Changes that were shown, by token."""

    now: Callable[[], float] = time.monotonic
    _kept: dict[str, ChangePreview] = field(default_factory=dict[str, ChangePreview])

    def keep(self, tool: str, given: Given, act: Act, server: str, namespace: str) -> str:
        """Remember a change. Returns its token."""
        for token in [token for token, each in self._kept.items() if each.until <= self.now()]:
            del self._kept[token]
        while len(self._kept) >= MOST_PREVIEWS:
            del self._kept[next(iter(self._kept))]
        token = secrets.token_urlsafe(16)
        self._kept[token] = ChangePreview(tool, _canonical(given), act, server, namespace, self.now() + GOOD_FOR)
        return token

    def take(self, token: str, tool: str, given: Given, server: str) -> ChangePreview:
        """The change with this token, once. Raises click.ClickException for a token that is none, or of another change."""
        found = self._kept.pop(token, None)
        if found is None or found.until <= self.now():
            raise click.ClickException(
                "this token is not good, or not any more: call the tool without confirm for a new preview"
            )
        if (found.tool, found.given, found.server) != (tool, _canonical(given), server):
            raise click.ClickException(
                "this token is of another change, and is used up: call the tool without confirm for a new preview"
            )
        return found


def _canonical(given: Given) -> str:
    return json.dumps({name: value for name, value in given.items() if name != "confirm"}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """What a change would do, in words and as texts of further fields, and how it is made."""

    would: str
    act: Act
    more: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ChangingTool:
    """A tool that changes something. `show` looks at what it is about, and changes nothing."""

    name: str
    about: str
    fields: tuple[ToolField, ...]
    show: Callable[[ApiClient, str, Given], Awaitable[ShownChange]]
    required: tuple[str, ...] = ()

    @property
    def schema(self) -> Json:
        return schema_of((*self.fields, NAMESPACE, _CONFIRM), self.required)


async def _held(api: ApiClient, namespace: str, given: Given) -> ShownChange:
    return await _of_job(partial(hold.held, stop=bool(given.get("stop"))), api, namespace, given)


async def _released(api: ApiClient, namespace: str, given: Given) -> ShownChange:
    return await _of_job(hold.released, api, namespace, given)


async def _cancelled(api: ApiClient, namespace: str, given: Given) -> ShownChange:
    return await _of_job(cancel.cancelled, api, namespace, given)


async def _of_job(command: Callable[..., Awaitable[str]], api: ApiClient, namespace: str, given: Given) -> ShownChange:
    """What a command would do with a job, and the command bound to the job as it was shown."""
    name = _job(given)
    seen = SeenVersions.of(await targets.find(api, namespace, name))

    async def act(api: ApiClient, namespace: str, *, dry_run: bool = False) -> str:
        return await command(api, namespace, name, dry_run=dry_run, as_seen=seen)

    return ShownChange(await act(api, namespace, dry_run=True), act)


def _job(given: Given) -> str:
    """The job of a call. Raises click.ClickException for a queue, whose change would be one of everybody's jobs."""
    name: str = given["job"]
    if targets.queue_of(name) is not None:
        raise click.ClickException(f"{bounded.shown(name)} is a queue: this tool changes one job")
    return name


async def _submitted(api: ApiClient, namespace: str, given: Given) -> ShownChange:
    """GPUJobs of a command or a script. What is submitted later is what is shown now; no file or variable of ours is in it."""
    command, script = given.get("command"), given.get("script")
    if (command is None) == (script is None):
        raise click.ClickException("give either command or script")
    work = Work(command) if command is not None else Work(given.get("arguments", ()), script, "script.sh")
    try:
        wishes = [
            wish(name, "" if value is True else value)
            for name in OPTIONS
            for value in _values(given.get(_input_name(name)))
        ]
    except WishError as error:
        raise click.ClickException(str(error)) from error
    made: Submission = await submit.prepared_jobs(api, namespace, work, wishes, {})
    with terminal.captured() as printed:
        await submit.show_jobs(api, namespace, GPU_JOBS, made)

    async def act(api: ApiClient, namespace: str) -> str:
        with terminal.captured() as said:
            await submit.create_jobs(api, namespace, GPU_JOBS, made)
        return "\n".join(said.out)

    number = f"{len(made.jobs)} GPUJob{'s' if len(made.jobs) != 1 else ''}"
    would = "\n".join([f"{number} would be submitted", *made.remarks, *(line for line in printed.err if line)])
    return ShownChange(would, act, {"manifest": "\n".join(printed.out)})


def _values(value: Any) -> list[Any]:
    if isinstance(value, list):
        return [*value]
    return [] if value in (None, False) else [value]


def _input_name(option: str) -> str:
    return option.replace("-", "_")


def _options() -> tuple[ToolField, ...]:
    """The options of `gangline submit` that are acted on."""
    found: list[ToolField] = []
    for option in OPTIONS.values():
        if option.why or option.refused or option.name in _OF_THIS_PROCESS:
            continue
        each: Json = {"type": "string", "minLength": 1, "maxLength": _LONGEST_WORD}
        schema = {"type": "boolean"} if option.takes == "flag" else each
        if option.many:
            schema = {"type": "array", "items": each, "maxItems": _MOST_VALUES}
        shape = f" {option.metavar}" if option.metavar else ""
        found.append(ToolField(_input_name(option.name), {**schema, "description": f"{option.about}{shape}"}))
    return tuple(found)


_WORDS: Final[Json] = {
    "type": "array",
    "items": {"type": "string", "maxLength": _LONGEST_WORD},
    "minItems": 1,
    "maxItems": _MOST_WORDS,
}
CHANGES: Final = (
    ChangingTool(
        "hold",
        "Keep a job from starting until it is released.",
        (
            JOB,
            ToolField("stop", {"type": "boolean", "description": "Stop it if it runs; it starts anew once released."}),
        ),
        _held,
        ("job",),
    ),
    ChangingTool("release", "Queue a held job again.", (JOB,), _released, ("job",)),
    ChangingTool("cancel", "Delete a job, whether it waits or runs.", (JOB,), _cancelled, ("job",)),
    ChangingTool(
        "submit",
        "Submit a command or a script as a GPUJob, which runs it once in each of its pods.",
        (
            ToolField("command", {**_WORDS, "description": "The command and its arguments."}),
            ToolField(
                "script",
                {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MOST_SCRIPT,
                    "description": "The text of a script, in place of command; its lines #SBATCH and #GANGLINE are options.",
                },
            ),
            ToolField("arguments", {**_WORDS, "description": "Arguments of the script."}),
            *_options(),
        ),
        _submitted,
    ),
)


def change(tool: ChangingTool, given: Given, around: Surroundings, previews: Previews) -> tuple[Document, bool]:
    """The answer to a call whose input fits the schema, and whether it is one. Blocks: call it in a thread."""
    with terminal.captured() as printed:
        try:
            fields = access.run(_change(tool, given, around, previews))
            return envelope.answer_with_fields(tool.name, fields, printed.err), True
        except click.ClickException as error:
            return envelope.refusal(tool.name, error.format_message(), printed.err), False
        except envelope.TooLongAnswerError:
            return envelope.refusal(tool.name, "the preview is too long to be shown: use `gangline submit`"), False


async def _change(tool: ChangingTool, given: Given, around: Surroundings, previews: Previews) -> dict[str, Document]:
    async with access.client(around.kubeconfig, around.context) as api:
        if (token := given.get("confirm")) is not None:
            preview = previews.take(token, tool.name, given, api.login.server)
            return {"done": envelope.marked(await preview.act(api, preview.namespace))}
        namespace = given.get("namespace") or api.login.namespace
        shown = await tool.show(api, namespace, given)
        more = {name: envelope.marked(text) for name, text in shown.more.items()}
        token = previews.keep(tool.name, given, shown.act, api.login.server, namespace)
        return {
            "would": envelope.marked(shown.would),
            **more,
            "namespace": namespace,
            "nothing_changed_yet": True,
            "confirm": token,
            "valid_seconds": round(GOOD_FOR),
        }
