"""The pages of conditions and events: what is said only where it happens, found in the syntax trees."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import Final

from scripts.reference.markdown import as_cell, as_code, as_table
from scripts.reference.names_page import constants
from scripts.reference.syntax_trees import Code, Scope
from scripts.reference.texts import OPEN, Texts, Values, argument, last_name

from gangline.api import names
from gangline.control.writes.status.event_table import EVENTS

#: function that sets a condition -> the places of type, status, reason and message among its arguments
CONDITIONS: Final = {"put": (1, 2, 3, 4), "_with": (1, 2, 3, 4)}
#: the last part of a module's name -> whose conditions it sets
OBJECTS: Final = {
    "dependency_changes": "Workload",
    "gate_changes": "Workload",
    "run_changes": "Workload",
    "status_changes": "Workload",
    "queue_status": "ClusterQueue and LocalQueue",
    "policy_status": "QueuePolicy",
    "profile_status": "JobProfile",
    "active_checks": "AdmissionCheck",
    "clusters": "MultiKueueCluster",
    "remote_writes": "Workload of a worker cluster",
    "status": "GPUJob",
}
#: the most messages that are listed for one reason
MESSAGES: Final = 7
#: messages that are put together from whole texts: there is nothing to say of them
OPEN_MESSAGE: Final = re.compile(rf"[{OPEN}\W]*")
FOOTNOTE: Final = (
    f"\n`{OPEN}` stands for what depends on the case: a name, a number, or a reason that a job or its pods give.\n"
)


def conditions_page(code: Code, values: Values) -> str:
    comments = {
        getattr(names, constant.name): constant.comment
        for constant in constants(Path(str(names.__file__)).read_text(encoding="utf-8"))
    }
    found: dict[str, dict[tuple[str, str], dict[str, set[str]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(set))
    )
    for function, places in CONDITIONS.items():
        for call, scope in code.calls[function]:
            if (
                len(call.args) <= places[-1] or scope.functions[-1].name in CONDITIONS
            ):  # one that passes on what it is given
                continue
            kind, status, reason, message = (call.args[place] for place in places)
            about = OBJECTS[scope.module.rpartition(".")[2]]
            stands = ast.unparse(status).strip("'\"")
            stands = stands if stands in ("True", "False") else "True or False"
            for types, reasons, messages in _statements(code, values, (kind, reason, message), scope):
                for type_, each in product(types, reasons - {""}):
                    found[about][type_, stands][each] |= messages if len(reasons) == 1 else set()
    if set(found) != set(OBJECTS.values()):
        raise LookupError(f"conditions are set elsewhere than before: {sorted(found)}")
    parts = ["# Conditions and their reasons\n", FOOTNOTE]
    for about, conditions in sorted(found.items()):
        parts.append(f"## {about}\n")
        for type_, rows in groupby(sorted(conditions.items()), lambda row: row[0][0]):
            parts.append(f"### {about}: {type_}\n")
            if comment := comments.get(type_):
                parts.append(comment[0].upper() + comment[1:] + ".\n")
            lines = [
                (status, as_code(reason), _messages(frozenset(messages)))
                for (_, status), reasons in rows
                for reason, messages in sorted(reasons.items())
            ]
            parts.append(as_table(("status", "reason", "message"), lines))
    return "\n".join(parts)


def recorded_events(code: Code, values: Values) -> dict[tuple[str, str], set[str]]:
    """(type, reason) of every event that the code records -> its notes."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for call, scope in code.calls["record"]:
        if len(call.args) < 4 or not isinstance(call.args[1], ast.Constant | ast.Name):
            continue
        for types, reasons, notes in _statements(code, values, call.args[1:4], scope):
            for reason in reasons - {""}:
                found["/".join(sorted(types)), reason] |= notes if len(reasons) == 1 else set()
    return found


def events_page(code: Code, values: Values) -> str:
    rows = [
        (
            as_code(reason),
            type_,
            EVENTS[reason].about,
            EVENTS[reason].by,
            EVENTS[reason].when,
            _messages(frozenset(notes)),
        )
        for (type_, reason), notes in sorted(recorded_events(code, values).items(), key=lambda row: row[0][1])
    ]
    return "\n".join(
        [
            "# Events\n",
            "The operator writes events by `events.k8s.io/v1` with `reportingController: gangline.io/operator`. Equal events"
            " about the same object within six minutes are one event with a count. Under load the oldest are dropped.\n",
            FOOTNOTE,
            "## All events\n",
            as_table(("reason", "type", "of", "whose word", "when", "note"), rows),
        ]
    )


def _statements(code: Code, values: Values, said: Sequence[ast.expr], scope: Scope) -> Iterator[tuple[Texts, ...]]:
    """What the last arguments of a call can be, together: a reason with its own message rather than with every message."""
    asked = [arg.id if isinstance(arg, ast.Name) else "" for arg in said]
    for node in ast.walk(scope.functions[-1]):
        match node:
            case ast.match_case(pattern=ast.MatchClass(cls=cls, patterns=patterns), body=body) if any(
                inner is said[-1] for statement in body for inner in ast.walk(statement)
            ):
                bound = [getattr(pattern, "name", "") for pattern in patterns]
                if not set(filter(None, asked)) <= set(bound):
                    continue
                for made, where in code.calls[last_name(cls)]:
                    given = dict(zip(bound, made.args, strict=False))
                    yield tuple(
                        values.of(given[name], where) if name in given else values.of(arg, scope)
                        for name, arg in zip(asked, said, strict=True)
                    )
                return
            case ast.Assign(
                targets=[ast.Tuple(elts=targets)], value=ast.IfExp(body=ast.Tuple() as one, orelse=ast.Tuple() as other)
            ):
                bound = [last_name(target) for target in targets]
                if set(bound) <= set(asked):
                    for row in (one, other):
                        given = dict(zip(bound, row.elts, strict=True))
                        yield tuple(
                            values.of(given.get(name, arg), scope) for name, arg in zip(asked, said, strict=True)
                        )
                    return
    *before, reason, message = said
    cls = values.class_of(reason.value, scope) if isinstance(reason, ast.Attribute) else None
    if cls is None or not isinstance(reason, ast.Attribute) or "message" not in code.fields(cls):
        yield tuple(values.of(arg, scope) for arg in said)
        return
    fields = list(code.fields(cls))
    for made, where in code.calls[cls]:
        reasons = values.of(argument(made, fields, reason.attr), where)
        whole = isinstance(message, ast.Attribute)  # and nothing around it
        notes = values.of(argument(made, fields, "message"), where) if whole else frozenset[str]()
        yield (*(_of_object(code, values, arg, made, cls, scope) for arg in before), reasons, notes)


def _of_object(code: Code, values: Values, arg: ast.expr, made: ast.Call, cls: str, scope: Scope) -> Texts:
    """An attribute of the object that `made` makes, if it is a property that chooses by one of its fields."""
    if isinstance(arg, ast.Attribute):
        for function in code.classes[cls][0].body:
            match function:
                case ast.FunctionDef(body=[*_, ast.Return(value=ast.IfExp(test=ast.Attribute(attr=name)) as choice)]):
                    given = argument(made, list(code.fields(cls)), name)
                    if function.name == arg.attr and isinstance(given, ast.Constant):
                        where = Scope(code.classes[cls][1].module, (function,))
                        return values.of(choice.body if given.value else choice.orelse, where)
    return values.of(arg, scope)


def _messages(texts: Texts) -> str:
    known = sorted(text for text in texts if not OPEN_MESSAGE.fullmatch(text))
    return "<br>".join(as_cell(text) for text in known) if len(known) <= MESSAGES else ""
