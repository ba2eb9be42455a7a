"""The server of the Model Context Protocol: it lists the tools, checks their inputs, and runs each call in a thread."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import anyio
import anyio.to_thread
import jsonschema
import mcp_types as types
from mcp.server import Server, ServerRequestContext

import gangline
from gangline import bounded
from gangline.console.commands.assistant import envelope, tools
from gangline.console.commands.assistant.envelope import Document
from gangline.console.commands.assistant.tools import Given, Surroundings
from gangline.console.output.spelling import meant
from gangline.kube.resources import Json

log = logging.getLogger(__name__)

#: answers a call, blocking; also says whether it is an answer, and no refusal
Call: TypeAlias = Callable[[Given], tuple[Document, bool]]

#: calls that run at once, and seconds after which one is given up
AT_ONCE: Final = 4
PATIENCE: Final = 120.0
_ABOUT: Final = (
    "Gangline admits GPU jobs to quotas of a Kubernetes cluster. These tools answer with the rights of the user's kubeconfig. "
    "Each is the command `gangline NAME`, and `command` in an answer is what a person would type. "
)
_READ_ONLY: Final = "None of them changes anything. "
_CHANGING: Final = (
    "hold, release, cancel and submit change something: called without `confirm` they only show what would happen. Show that to "
    "the user, and call them again with `confirm` only when the user agrees. "
)


class AssistantServer:
    """The tools of one user. `allow_changes`: whether there are those that change something."""

    def __init__(self, around: Surroundings, *, allow_changes: bool = False) -> None:
        self._around = around
        self._tools: dict[str, types.Tool] = {}
        self._calls: dict[str, Call] = {}
        self._limiter = anyio.CapacityLimiter(AT_ONCE)
        for tool in tools.TOOLS:
            self._add(tool.name, tool.about, tool.schema, functools.partial(self._ask, tool), changes=False)
        if allow_changes:
            self._add_changes()

    def _add_changes(self) -> None:
        from gangline.console.commands.assistant import changes  # with what makes jobs

        previews = changes.Previews()
        for tool in changes.CHANGES:
            call = functools.partial(changes.change, tool, around=self._around, previews=previews)
            self._add(tool.name, tool.about, tool.schema, call, changes=True)

    def _add(self, name: str, about: str, schema: Json, call: Call, *, changes: bool) -> None:
        hints = types.ToolAnnotations(
            read_only_hint=not changes,
            destructive_hint=changes and name in ("cancel", "hold"),
            idempotent_hint=not changes,
            open_world_hint=False,
        )
        self._tools[name] = types.Tool(name=name, description=about, input_schema=schema, annotations=hints)
        self._calls[name] = call

    def _ask(self, tool: tools.AskingTool, given: Given) -> tuple[Document, bool]:
        return tools.ask(tool, given, self._around)

    @property
    def changes(self) -> bool:
        return len(self._tools) > len(tools.TOOLS)

    def server(self) -> Server[Any]:
        about = _ABOUT + (_CHANGING if self.changes else _READ_ONLY) + envelope.NOTICE
        return Server(
            "gangline",
            version=gangline.__version__,
            instructions=about,
            on_list_tools=self._listed,
            on_call_tool=self._called,
        )

    async def _listed(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[*self._tools.values()])

    async def _called(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        document, fine = await self._answer(params.name, params.arguments or {})
        text = json.dumps(document, ensure_ascii=False)
        content = [types.TextContent(type="text", text=text)]
        return types.CallToolResult(content=[*content], structured_content=document, is_error=not fine)

    async def _answer(self, name: str, given: Json) -> tuple[Document, bool]:
        tool = self._tools.get(name)
        if tool is None:
            known = f"there is no tool {bounded.shown(name)}.{meant(name[: bounded.SHOWN], self._tools)}"
            return envelope.refusal("", known), False
        if problem := _problem(given, tool.input_schema):
            return envelope.refusal(name, problem), False
        try:
            with anyio.fail_after(PATIENCE):
                return await anyio.to_thread.run_sync(
                    self._calls[name], given, abandon_on_cancel=True, limiter=self._limiter
                )
        except TimeoutError:
            asks = tool.annotations is not None and tool.annotations.read_only_hint
            then = "ask for less" if asks else "the change may still be made, so look at the job first"
            return envelope.refusal(name, f"there was no answer within {PATIENCE:g} s: {then}"), False
        except Exception as error:  # its text may quote what users wrote
            log.exception("the tool %s failed", name)
            return envelope.refusal(name, f"the tool {name} failed: {type(error).__name__}"), False


def _problem(given: Json, schema: Json) -> str:
    """What is wrong with a tool's input, as a sentence; "" if nothing is."""
    for error in jsonschema.Draft202012Validator(schema).iter_errors(given):
        place = ".".join(map(str, error.absolute_path))
        return f"{place or 'the input'}: {_sentence(error)}"
    return ""


def _sentence(error: jsonschema.ValidationError) -> str:
    """What the value should be; the value itself may be long."""
    rule: Any = error.validator_value
    schema: Any = error.schema
    given: Any = error.instance
    shown = bounded.shown(given)
    match error.validator:
        case "additionalProperties":
            known = schema["properties"]
            wrong = next(name for name in given if name not in known)
            return f"there is no field {bounded.shown(wrong)}, only {', '.join(known)}"
        case "required":
            return f"these fields are needed: {', '.join(rule)}"
        case "type":
            return f"a value of type {rule} is expected, not {shown}"
        case "minLength" | "minItems":
            return f"it must not be shorter than {rule}"
        case "maxLength" | "maxItems":
            return f"it must not be longer than {rule}"
        case "minimum" | "maximum":
            return f"{shown} is not between the bounds of the schema ({error.validator} {rule})"
        case _:
            return f"{shown} does not fit the schema"


async def serve(around: Surroundings, *, allow_changes: bool) -> None:
    """Serve on stdin and stdout until the client ends."""
    from mcp.server.stdio import stdio_server

    server = AssistantServer(around, allow_changes=allow_changes).server()
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
