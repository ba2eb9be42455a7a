"""When a job would start if it were submitted now: the question to the operator, and its answer as lines."""

from __future__ import annotations

import click

from gangline.console.output import clock, presenting
from gangline.console.output.layout import Rows, wrapped
from gangline.console.views import asking, own_rights
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.workloads.words import age, runtime_text
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.resources import Json, Resource


async def submitted(api: ApiClient, job: Json, resource: Resource, date: str = "") -> Json:
    """The operator's answer about a job with a namespace; without an operator, what the user's own rights let know. `date`: when
    it would be submitted; "": now.
    """
    namespace = job["metadata"]["namespace"]
    job = await accepted(api, job, resource)
    try:
        return await asked(api, namespace, {"job": job, **({"at": date} if date else {})})
    except own_rights.NoOperator as error:
        from gangline.console.views import own_answers

        return await own_answers.what_if(api, namespace, job, date, error)


async def asked(api: ApiClient, namespace: str, spec: Json) -> Json:
    """The operator's answer to a question what would happen. Raises as `asking.create` does."""
    head = {"apiVersion": f"{ANSWERS.name}/{ANSWERS.versions[-1]}", "kind": "WhatIf", "metadata": {}}
    return (await asking.create(api, f"/namespaces/{namespace}/whatifs", {**head, "spec": spec}))["status"]


async def accepted(api: ApiClient, job: Json, resource: Resource) -> Json:
    """The job as the API server would store it, from a dry run; the job unchanged if the user may not create it.

    Raises click.ClickException with the API server's message if it would reject the job.
    """
    namespace, rehearsal = job["metadata"]["namespace"], {"dryRun": "All", "fieldValidation": "Strict"}
    try:
        return await api.create(resource, namespace, job, query=rehearsal)
    except ApiError as error:
        if isinstance(error, Invalid) or "denied the request" in error.message:
            raise click.ClickException(f"the API server would reject the job: {error.message}") from error
        return job  # the user may not create jobs, or the job exists already


def answer_lines(answer: Json, columns: int | None) -> list[str]:
    """The answer as lines for a terminal of so many columns; None: for a pipe."""
    reason = f", {answer['because']}" if answer["because"] else ""
    obstacle = f": {answer['obstacle']}" if answer["obstacle"] else ""
    starts = answer["startsInSeconds"]
    start = f"no start within the horizon{obstacle}" if starts is None else f"it would start {_span(answer)}"
    source = f"{answer['forecast']['source']}, from {answer['forecast']['samples']} finished runs"
    at = answer.get("submittedAt")
    when = "now" if at is None else f"at {clock.rfc3339(at)}"
    lines = [
        f"Submitted {when} to queue {answer['queue']}, {start}{reason}",
        f"and run for {_runs(answer)} ({source}).",
        *([answer["assumed"]] if at is not None else ()),
        "",
    ]
    lines = [part for line in lines for part in wrapped(line, columns)]
    if not answer["suggestions"]:
        return [*lines, "No smaller size, shorter runtime or other queue would start it earlier."]
    cells = tuple(
        (str(rank), _span(each), _gained(each), _runs(each), each["change"])
        for rank, each in enumerate(answer["suggestions"], start=1)
    )
    return [*lines, *presenting.styled(Rows(("", "STARTS", "EARLIER BY", "RUNS FOR", "WHAT IF"), cells), columns)]


def interval(found: Json | None) -> str:
    if found is None:
        return "not within the horizon"
    last = "?" if found["p90"] is None else age(found["p90"])
    return "at once" if found["p90"] is not None and found["p90"] < 1 else f"in {age(found['p50'])} – {last}"


def _runs(answer: Json) -> str:
    runs = answer["runsForSeconds"]
    return runtime_text(runs["p50"], runs["p90"], answer["flavor"] or "")


def _span(answer: Json) -> str:
    return interval(answer["startsInSeconds"])


def _gained(answer: Json) -> str:
    return age(answer["gainedHours"] * 3600) if answer["gainedHours"] is not None else "all"
