"""The operator's answers, computed here by an administrator who may list everything, where no operator gives them."""

from __future__ import annotations

import click

from gangline.console.output import remarks
from gangline.console.views import own_rights, world
from gangline.console.views.world import ClusterInstant
from gangline.control.answers.ahead import whatif
from gangline.control.answers.desk import Wish
from gangline.control.answers.refusals import NoSuchJobError, NoSuchQueueError
from gangline.control.answers.sight import Everybody
from gangline.control.answers.workloads.briefs import WrongNameError
from gangline.kube.client import ApiClient
from gangline.kube.resources import Json

_WRONG = (NoSuchJobError, NoSuchQueueError, WrongNameError, whatif.WrongJobError)


async def jobs(
    api: ApiClient, namespace: str, anywhere: bool, cluster_queue: str | None, finished: bool, error: Exception
) -> list[Json]:
    """Jobs with their times."""
    here = await _load(api, error)
    wish = Wish("" if anywhere or cluster_queue else namespace, cluster_queue or "", finished, times=True)
    try:
        found = await here.answers().jobs(Everybody(), wish)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong
    return [item for item in found.items if anywhere or item["namespace"] == namespace]


async def job(api: ApiClient, namespace: str, name: str, error: Exception) -> Json:
    """One job with its times, by its name or `kind/name`."""
    here = await _load(api, error)
    kind, _, name = name.rpartition("/")
    try:
        return await here.answers().job(Everybody(), namespace, kind, name, with_times=True)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def plan(api: ApiClient, cluster_queue: str | None, horizon: float, error: Exception) -> list[Json]:
    here = await _load(api, error)
    try:
        return (await here.answers().plan(Everybody(), "", cluster_queue or "", horizon)).items
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def what_if(api: ApiClient, namespace: str, submitted: Json, error: Exception) -> Json:
    here = await _load(api, error)
    try:
        return await here.answers().what_if(Everybody(), namespace, submitted)
    except _WRONG as wrong:
        raise click.ClickException(str(wrong)) from wrong


async def _load(api: ApiClient, error: Exception) -> ClusterInstant:
    """A local copy of the cluster's engine. Raises click.ClickException if the user may not list everything."""
    try:
        here = await world.load(api)
    except world.ListForbiddenError as refused:
        raise click.ClickException(f"{error}; to compute expected starts here, {refused}") from refused
    own_rights.say(error)
    if not here.from_operator:
        remarks.remark("forecasts come from finished workloads in the cluster and hints of the jobs")
    return here
