"""The tools that only ask. Each is a command: a call of the tool runs the command with `-o json` and the kubeconfig's rights.

So an answer is the command's document, and there is nothing here that could answer differently.
"""

from __future__ import annotations

import json
import logging
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from gangline.console.commands.assistant import envelope
from gangline.console.commands.assistant.envelope import Document, Window
from gangline.console.commands.future import eta, plan, whatif
from gangline.console.commands.see import history, nodes, preemptions, queue, report, share, why
from gangline.console.output import terminal
from gangline.kube.resources import Json

log = logging.getLogger(__name__)

Given: TypeAlias = Mapping[str, Any]

#: characters of a name, of a word such as 7d, and of a manifest
_NAME: Final = 253
_WORD: Final = 64
_MANIFEST: Final = 100_000
#: names in one list
_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class ToolField:
    """A field of a tool's input. `option`: the command's option, "" for its argument."""

    name: str
    schema: Json
    option: str = ""

    def words(self, value: Any) -> list[str]:
        """The words of the command line; a value can be no option of its own."""
        if not self.option:
            return [str(value)]
        if isinstance(value, bool):
            return [self.option] if value else []
        values: Sequence[Any] = value if isinstance(value, list) else [value]
        return [f"{self.option}={each}" for each in values]


def text_field(name: str, about: str, option: str = "", *, most: int = _NAME) -> ToolField:
    return ToolField(name, {"type": "string", "description": about, "minLength": 1, "maxLength": most}, option)


def _flag(name: str, about: str, option: str) -> ToolField:
    return ToolField(name, {"type": "boolean", "description": about, "default": False}, option)


def _names(name: str, about: str, option: str) -> ToolField:
    each = {"type": "string", "minLength": 1, "maxLength": _NAME}
    return ToolField(name, {"type": "array", "description": about, "items": each, "maxItems": _NAMES}, option)


def _number(name: str, about: str, option: str, *, least: int = 0, most: int) -> ToolField:
    schema: Json = {"type": "integer", "description": about, "minimum": least, "maximum": most}
    return ToolField(name, schema, option)


NAMESPACE: Final = text_field("namespace", "The namespace; without it that of the kubeconfig.", "--namespace", most=63)
JOB: Final = text_field("job", "A name, or kind/name such as gpujob/train.", most=320)
_ALL: Final = _flag(
    "all_namespaces", "The answer is about all namespaces; names of others are labels in it.", "--all-namespaces"
)
_QUEUE: Final = text_field("cluster_queue", "Only of this ClusterQueue.", "--cluster-queue")
_USERS: Final = _names("users", "Only of these users, or namespaces.", "--user")
_STATES: Final = _names("states", "Only in these states, such as Pending or Running.", "--state")
_QUEUES: Final = _names("queues", "Only of these LocalQueues or ClusterQueues.", "--queue")
_SORT: Final = _names("sort", "Sort by these columns of the command's table; -COLUMN: descending.", "--sort")
#: which jobs of a list, and in which order
_CHOSEN: Final = (_USERS, _STATES, _QUEUES, _SORT)
_SINCE: Final = text_field("since", "How far to look back, such as 12h or 7d.", "--since", most=_WORD)
_LISTED: Final = (
    ToolField(
        "limit",
        {
            "type": "integer",
            "description": "Entries of the answer at most.",
            "minimum": 1,
            "maximum": envelope.MOST_ENTRIES,
            "default": envelope.ENTRIES,
        },
    ),
    ToolField(
        "offset",
        {"type": "integer", "description": "Entries before the first one.", "minimum": 0, "maximum": 1_000_000},
    ),
)
_PAGING: Final = frozenset(each.name for each in _LISTED)
#: fields whose value is a file of the command
_FILES: Final = frozenset({"manifest"})


@dataclass(frozen=True, slots=True)
class AskingTool:
    """A tool that runs a command. `line`: what the command is called."""

    line: str
    about: str
    command: click.Command
    fields: tuple[ToolField, ...]
    required: tuple[str, ...] = ()
    listed: bool = True

    @property
    def name(self) -> str:
        return self.line

    @property
    def schema(self) -> Json:
        return schema_of((*self.fields, *(_LISTED if self.listed else ())), self.required)

    def words(self, given: Given) -> list[str]:
        """The words of the command line for a call."""
        by_name = {each.name: each for each in self.fields}
        options: list[str] = []
        arguments: list[str] = []
        for name, value in given.items():
            if (each := by_name.get(name)) is not None:
                (options if each.option else arguments).extend(each.words(value))
        return [*options, "--output=json", *(["--", *arguments] if arguments else [])]


def schema_of(fields: Sequence[ToolField], required: Sequence[str] = ()) -> Json:
    """The JSON Schema of a tool's input. Whatever it does not name is refused."""
    properties = {each.name: each.schema for each in fields}
    more = {"required": [*required]} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **more}


TOOLS: Final = (
    AskingTool(
        "queue",
        "Running and pending jobs: position, GPUs, and why each pending one waits; with times when it is expected to start.",
        queue.command,
        (
            NAMESPACE,
            _ALL,
            _QUEUE,
            *_CHOSEN,
            _flag("times", "Forecast runtimes and expected starts.", "--times"),
            _flag("finished", "Jobs that have ended, too.", "--finished"),
        ),
    ),
    AskingTool(
        "why",
        "Why one job waits: the reason, who holds what it needs, its expected start, and which changes would start it earlier.",
        why.command,
        (JOB, NAMESPACE, _flag("history", "The job's changes of state instead.", "--history")),
        required=("job",),
        listed=False,
    ),
    AskingTool(
        "eta",
        "When pending jobs, or one job, are expected to start: p50 and p90, and what has to end before.",
        eta.command,
        (
            JOB,
            NAMESPACE,
            _ALL,
            *_CHOSEN,
            _flag("history", "The starts that `job` was promised, and how they moved.", "--history"),
            _flag("accuracy", "How accurate earlier expected starts have been.", "--accuracy"),
        ),
    ),
    AskingTool(
        "whatif",
        "What would happen, changing nothing: when a job of a manifest would start; or what another runtime, size or queue of a "
        "waiting job, another quota of a ClusterQueue, or a drained node would do, and to whom.",
        whatif.command,
        (
            JOB,
            text_field(
                "manifest", "A Job, JobSet or GPUJob as YAML or JSON, not submitted.", "--filename", most=_MANIFEST
            ),
            text_field("time", "`job` would run for so long, such as 2h.", "--time", most=_WORD),
            _number("gpus", "GPUs of `job`, or of the quota.", "--gpus", most=1_000_000),
            text_field("queue", "`job` would wait in this LocalQueue.", "--queue"),
            text_field("quota", "The ClusterQueue whose quota of `flavor` would be `gpus`.", "--quota"),
            text_field("flavor", "The ResourceFlavor of `quota`.", "--flavor"),
            text_field("drain", "The gangs on this node would move.", "--drain"),
            NAMESPACE,
        ),
        listed=False,
    ),
    AskingTool(
        "plan",
        "Which jobs run and which will, from when to when, by median forecasts. Of all namespaces unless one is named.",
        plan.command,
        (
            NAMESPACE,
            _QUEUE,
            *_CHOSEN,
            text_field("horizon", "How far to look ahead, such as 24h or 7d.", "--horizon", most=_WORD),
        ),
    ),
    AskingTool(
        "history",
        "Runs that have ended, or with attempts each stretch in which a job held quota: how it ended and what was lost.",
        history.command,
        (
            NAMESPACE,
            _ALL,
            _QUEUE,
            *_CHOSEN,
            _SINCE,
            _flag("attempts", "Each attempt, in progress or ended.", "--attempts"),
        ),
    ),
    AskingTool(
        "preemptions",
        "Who was preempted for whom, by which rule, when, and which work was lost: of a job, a ClusterQueue or a namespace.",
        preemptions.command,
        (
            JOB,
            NAMESPACE,
            _ALL,
            _QUEUE,
            _USERS,
            _QUEUES,
            _SORT,
            _SINCE,
            _flag("caused", "Those that the job or queue caused, not those that it suffered.", "--caused"),
        ),
    ),
    AskingTool(
        "report",
        "GPU-hours of a time and what became of them: useful, starting, idle, lost to which cause; everybody's in these queues.",
        report.command,
        (
            NAMESPACE,
            _ALL,
            _QUEUE,
            text_field("by", f"What a row is: {', '.join(report.BY)} or {report.LABEL}KEY.", "--by"),
            _SINCE,
            text_field("from", "Since when, such as 2026-11-01, in place of `since`.", "--from", most=_WORD),
            text_field("to", "Until when, with `from`; not in it.", "--to", most=_WORD),
            text_field("time_zone", "The zone of dates and days, such as Europe/Berlin.", "--tz", most=_WORD),
            _SORT,
        ),
    ),
    AskingTool(
        "nodes",
        "The nodes of your queues' flavors: capacity, what is used, and who sits there.",
        nodes.command,
        (NAMESPACE, _ALL, _QUEUE, _STATES, _SORT, _flag("cards", "The cards of these nodes instead.", "--cards")),
    ),
    AskingTool(
        "share",
        "Quota and its use by ClusterQueue, LocalQueue and user, and who is next.",
        share.share,
        (NAMESPACE, _ALL, _QUEUE, _USERS, _QUEUES, _SORT),
    ),
    AskingTool(
        "limits",
        "What bounds each queue, by flavor and resource: quota, and how much it may borrow and lend.",
        share.limits,
        (NAMESPACE, _ALL, _QUEUE, _QUEUES, _SORT),
    ),
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The kubeconfig and its context, as the user gave them to `gangline mcp`."""

    kubeconfig: Path | None = None
    context: str | None = None

    def words(self) -> list[str]:
        options = {"--kubeconfig": self.kubeconfig, "--context": self.context}
        return [f"{option}={value}" for option, value in options.items() if value is not None]


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """What a command has printed. `error`: why it has failed, as a sentence; "" if it has not."""

    text: str = ""
    remarks: Sequence[str] = field(default_factory=tuple[str, ...])
    error: str = ""


def run(command: click.Command, line: str, words: Sequence[str]) -> CommandOutcome:
    """Run a command here, in a thread without an event loop."""
    error = ""
    with terminal.captured() as printed:
        try:
            command.main([*words], prog_name=f"gangline {line}", standalone_mode=False)
        except click.ClickException as refused:
            error = refused.format_message()
        except Exception as failed:
            log.exception("gangline %s failed", line)
            error = f"`gangline {line}` failed: {type(failed).__name__}"
    return CommandOutcome("\n".join(printed.out), printed.err, error)


def ask(tool: AskingTool, given: Given, around: Surroundings) -> tuple[Document, bool]:
    """The answer to a call whose input fits the schema, and whether it is one. Blocks: call it in a thread."""
    shown = f"gangline {tool.line} {shlex.join(tool.words(given))}"
    with tempfile.TemporaryDirectory(prefix="gangline-") as folder:
        outcome = run(tool.command, tool.line, [*around.words(), *tool.words(_with_files(given, Path(folder)))])
        error = outcome.error.replace(f"{folder}/", "")
    if error:
        return envelope.refusal(shown, error, outcome.remarks), False
    window = Window(given.get("offset", 0), given.get("limit", envelope.ENTRIES))
    try:
        return envelope.answer(shown, json.loads(outcome.text or "null"), outcome.remarks, window), True
    except envelope.TooLongAnswerError as refused:
        return envelope.refusal(shown, str(refused)), False


def _with_files(given: Given, folder: Path) -> Given:
    """The call with the files that its command reads, in place of their text."""
    found = dict(given)
    for name in _FILES & given.keys():
        found[name] = folder / name
        found[name].write_text(given[name])
    return found
