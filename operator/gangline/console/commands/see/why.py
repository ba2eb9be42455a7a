"""`gangline why JOB`: why a job is pending, which workloads hold the resources it needs, and what has to change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gangline.api import names
from gangline.console.output import presenting, terminal
from gangline.console.output.formats import OutputFormat, answer_option, dated, document
from gangline.console.output.layout import wrapped
from gangline.console.views import access, asking, completing, history, own_rights
from gangline.console.views.jobs import INSTANTS
from gangline.control.answers.workloads import briefs
from gangline.control.answers.workloads.briefs import job_kinds, matches, singular
from gangline.control.answers.workloads.snapshot import AnswerSnapshot, JobState, WorkloadView
from gangline.control.answers.workloads.words import Line, age, offered
from gangline.kube.client import ApiClient, Forbidden, NotFound
from gangline.kube.resources import LOCAL_QUEUES, WORKLOADS, Json, Resource

if TYPE_CHECKING:
    from gangline.control.writes.events import Warned


@click.command("why")
@click.argument("job", metavar="JOB", shell_complete=completing.jobs)
@access.cluster_options
@click.option("--history", "with_history", is_flag=True, help="Show the job's past state changes and their causes.")
@answer_option
def command(
    job: str,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    with_history: bool,
    output: OutputFormat,
) -> None:
    """Explain why JOB is pending (or its state). JOB is a name, kind/name (job/x, gpujob/x) or a Workload's name."""
    if with_history:
        _show_history(*access.run(_history(job, kubeconfig, context, namespace)), output)
        return
    access.run(_why(job, kubeconfig, context, namespace, output))


async def _why(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None, output: OutputFormat
) -> None:
    """Print the explanation at once, then the remedies, for which the operator plays what follows. A document has both."""
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        view, lines, answered = await _explained(api, where, job)
        waits = answered and view.state is JobState.PENDING
        if not output.kind:
            show(view, lines, follows=waits)
        offers = await _remedies(api, where, job) if waits else {}
        if output.kind:
            rows = [[line.label, line.text] for line in (*lines, *remedy_lines(offers))]
            body = {
                **dated(briefs.as_json(view), INSTANTS),
                "explanation": rows,
                "remedies": offers.get("remedies", []),
            }
            terminal.say(document(output.kind, body))
        elif offers:
            terminal.say(*remedies_rendered(offers, presenting.width()))


async def _explained(api: ApiClient, namespace: str, job: str) -> tuple[WorkloadView, list[Line], bool]:
    """The job, its explanation, and whether these are the operator's."""
    try:
        answer = await _asked(api, namespace, job, "why")
    except own_rights.NoOperator as error:
        from gangline.control.answers.explanation import explain  # much of the operator, which has not answered

        view, seen = await _looked_up(api, namespace, job, error)
        (view,) = own_rights.with_warnings([view], await own_rights.warned(api, namespace))
        return view, explain(view, seen, time.time()), False
    return briefs.of_json(answer["job"]), [Line(line["label"], line["text"]) for line in answer["lines"]], True


async def _remedies(api: ApiClient, namespace: str, job: str) -> Json:
    """The operator's remedies that would let a waiting job start earlier; {} where it does not say: it makes no forecasts, or is
    busy.
    """
    try:
        path, query = asking.job_path(namespace, job, "remedies")
        return await asking.get(api, path, query)
    except (*own_rights.NoOperator, asking.NoAnswerError):
        return {}


def remedy_lines(offers: Json) -> list[Line]:
    """The expected start, and one line for each remedy, best first."""
    if not offers:
        return []
    start = offers.get("startsInSeconds")
    because = f", {offers['because']}" if offers.get("because") else ""
    expected = f"in {_span(start)}{because}" if start is not None else "not expected, as things are"
    lines = [Line("starts", expected)]
    for each in offers["remedies"]:
        who = " (an administrator)" if each["by"] == "administrator" else ""
        then, gained = each["startsInSeconds"], each["gainedHours"]
        when = "now" if then["p50"] < 1 else f"in {_span(then)}"
        more = f", {age(gained * 3600)} earlier" if gained is not None else ""
        lines.append(Line("remedies", f"{each['change']}{who}: starts {when}{more}"))
    if untried := offers.get("unexamined", 0):
        lines.append(
            Line("remedies", f"{untried} other changes were not tried in time: the operator is busy, ask again")
        )
    return lines


def _span(start: Json) -> str:
    p50, p90 = start["p50"], start["p90"]
    return f"{age(p50)} – {'?' if p90 is None else age(p90)}"


async def _asked(api: ApiClient, namespace: str, job: str, what: str) -> Json:
    """The operator's answer. Raises click.ClickException where there is no such job, with what there is instead."""
    try:
        return await asking.of_job(api, namespace, job, what)
    except asking.NoAnswerError as error:
        if error.missing:
            raise click.ClickException(await _no_workload(api, namespace, job) or error.message) from error
        raise


async def _looked_up(api: ApiClient, namespace: str, job: str, error: Exception) -> tuple[WorkloadView, AnswerSnapshot]:
    """The workload, among what the user may read."""
    seen = await own_rights.look(api, namespace, error)
    view = own_rights.find(seen, namespace, job)
    if view is None:
        raise click.ClickException(
            await _no_workload(api, namespace, job) or _in_other_namespaces(seen, namespace, job)
        )
    return view, seen


async def _history(
    job: str, kubeconfig: Path | None, context: str | None, namespace: str | None
) -> tuple[WorkloadView, list[history.Event], str]:
    """The workload, its history, and a description of the history's source."""
    async with access.client(kubeconfig, context) as api:
        where = namespace or api.login.namespace
        try:
            answer = await _asked(api, where, job, "story")
            view, events = briefs.of_json(answer["job"]), history.of_answer(answer)
            why = "it has no history of this workload"
        except own_rights.NoOperator as error:
            view, _ = await _looked_up(api, where, job, error)
            events, why = [], str(error)
        if events:
            return view, events, "from the running operator"
        raw = await api.get(WORKLOADS, view.namespace, view.name)
    return view, history.of_conditions(raw), f"from the Workload's conditions and not from the operator: {why}"


def _show_history(view: WorkloadView, events: list[history.Event], source: str, output: OutputFormat) -> None:
    if output.kind:
        body = {**briefs.as_json(view), "history": [event.as_json() for event in events], "source": source}
        body = dated(body, (*INSTANTS, "history.at"))
        terminal.say(document(output.kind, body))
        return
    terminal.say(f"{view.job} in namespace {view.namespace}, workload {view.name}")
    terminal.say(*history.rendered(events))
    terminal.say(f"({source})", err=True)


async def _no_workload(api: ApiClient, namespace: str, job: str) -> str:
    """The sentence about a job that exists without a Workload; "" if there is no such job that the user may read."""
    kind, _, name = job.rpartition("/")
    for resource in [each for known, each in job_kinds().items() if singular(kind) in ("", known)]:
        try:
            found = await api.get(resource, namespace, name)
            warned = own_rights.by_uid(await own_rights.warned(api, namespace))
            queues = await _local_queues(api, namespace)
            return _unqueued(found, resource, warned.get(found["metadata"]["uid"], ()), queues)
        except (NotFound, Forbidden):
            continue
    return ""


async def _local_queues(api: ApiClient, namespace: str) -> list[str]:
    """The names of the LocalQueues of a namespace; none where the user may not list them, or the kind is not installed."""
    try:
        return [each["metadata"]["name"] for each in (await api.list(LOCAL_QUEUES, namespace)).items]
    except (NotFound, Forbidden):
        return []


def _in_other_namespaces(seen: AnswerSnapshot, namespace: str, job: str) -> str:
    kind, _, name = job.rpartition("/")
    found = sorted({v.namespace for v in seen.workloads if matches(v, singular(kind), name)})
    if found:
        return f"no job {job!r} in namespace {namespace}; there is one in {', '.join(found)}: use -n {found[0]}"
    return f"no job {job!r} in namespace {namespace}"


def _unqueued(obj: Json, resource: Resource, warned: Sequence[Warned], queues: Sequence[str]) -> str:
    metadata = obj["metadata"]
    named = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}.get(names.QUEUE_NAME)
    what = f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
    if not named:
        others = offered(metadata["namespace"], queues)
        return f"{what} names no queue (label {names.QUEUE_NAME}), so Gangline does not manage it{others}"
    if warned:
        newest = warned[0]
        said = f"{newest.reason}, {age(time.time() - newest.at)} ago: {newest.note}"
        return f"{what} names queue {named!r} and has no Workload; the operator says: {said}"
    if queues and named not in queues:
        near = offered(metadata["namespace"], queues)
        return f"{what} names queue {named!r}, which does not exist, and has no Workload yet{near}"
    return f"{what} names queue {named!r} but has no Workload yet: is the operator running? (`gangline admin doctor`)"


#: characters of the labels of the lines that follow once remedies are found; no label is longer
_WIDEST: Final = len("remedies")


def show(view: WorkloadView, lines: list[Line], *, follows: bool = False) -> None:
    """Print aligned lines, with Kueue's own message last. `follows`: remedies are printed below them later."""
    terminal.say(*rendered(view, lines, presenting.width(), follows=follows))


def rendered(view: WorkloadView, lines: list[Line], columns: int | None, *, follows: bool = False) -> list[str]:
    """The lines for a terminal of so many columns; None: for a pipe, one line per fact."""
    new = view.message and not any(line.text.endswith(view.message) for line in lines)
    facts = [*lines, Line("message", view.message)] if new else lines
    title = wrapped(f"{view.job} in namespace {view.namespace}, workload {view.name}", columns)
    printed: list[str] = [*title] if columns is None else [terminal.style(part, bold=True) for part in title]
    width = _WIDEST if follows else max(len(fact.label) for fact in facts)
    return [*printed, *_aligned(facts, width, columns)]


def remedies_rendered(offers: Json, columns: int | None) -> list[str]:
    """The expected start and the remedies, aligned as what `rendered` has made where they follow."""
    return _aligned(remedy_lines(offers), _WIDEST, columns)


def _aligned(facts: Sequence[Line], width: int, columns: int | None) -> list[str]:
    """Facts with their labels in a column of this width; a label that repeats is printed once."""
    printed: list[str] = []
    before = ""
    for fact in facts:
        label, before = "" if fact.label == before else fact.label, fact.label
        for part in wrapped(fact.text, columns and columns - width - 4):
            head = f"  {label:{width}}  "
            printed.append((head if columns is None else terminal.style(head, bold=True)) + part)
            label = ""
    return printed
