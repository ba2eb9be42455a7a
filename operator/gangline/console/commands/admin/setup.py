"""`gangline setup`: gives a team its queue: flavors of the nodes that there are, quota, namespace, LocalQueue and rights."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import click

from gangline.api.read import parse
from gangline.api.read.reading import ParseError
from gangline.console.doctor.cluster import SYMBOLS, ClusterReads, Finding, warning
from gangline.console.doctor.examination import Check, Examination
from gangline.console.doctor.installation import EXAMINATION
from gangline.console.output import terminal
from gangline.console.views import access, asking
from gangline.control.answers.api.discovery import ANSWERS
from gangline.control.answers.workloads.words import age
from gangline.engine.model import Flavor, Node
from gangline.install import team as teams
from gangline.install.differences import MOST_LINES, changes
from gangline.install.manifests import chart
from gangline.install.team import ClusterObjects, NodeKind, TeamWishes, WishError
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import NotFound
from gangline.kube.ownership import CLUSTER_ROLES
from gangline.kube.resources import Json, Resource

FIELD_MANAGER: Final = "gangline-setup"
#: checks of `admin doctor` about what a team needs
_CHECKS: Final = frozenset({"ClusterQueues", "LocalQueues", "namespaces", "flavors", "quota"})
#: seconds in which an operator takes up new queues
_PATIENCE: Final = 20.0
_PAUSE: Final = 0.5
_RESOURCES: Final[Mapping[str, Resource]] = {
    each.kind: each
    for each in (
        *(kube.RESOURCE_FLAVORS, kube.CLUSTER_QUEUES, kube.NAMESPACES, kube.LOCAL_QUEUES),
        *(kube.ROLE_BINDINGS, kube.CLUSTER_ROLE_BINDINGS),
    )
}


@click.command("setup")
@click.argument("team", required=False, default="")
@click.option("-n", "--namespace", default="", help="The team's namespace. [default: the team's name]")
@click.option("--queue", default="", help="The team's LocalQueue, which jobs name. [default: gpus]")
@click.option(
    "--gpus",
    "amounts",
    multiple=True,
    metavar="N|FLAVOR=N",
    help="GPUs that the team owns; once for each flavor. [default: all that no queue owns]",
)
@click.option("--cohort", default=None, help="The cohort within which teams lend each other what they leave idle.")
@click.option(
    "--borrow", type=int, default=None, help="GPUs of each flavor that the team borrows at most. [default: no limit]"
)
@click.option("--user", "users", multiple=True, help="A user who may submit jobs; may be repeated.")
@click.option("--group", "groups", multiple=True, help="A group whose members may submit jobs; may be repeated.")
@click.option("--lead", "leads", multiple=True, help="A user who leads the team; may be repeated.")
@click.option(
    "--flavor-label", default="", help="The node label by which flavors differ. [default: that of the GPU's product]"
)
@click.option(
    "--terminals",
    is_flag=True,
    help="Let the team open terminals in all pods of its namespace (exec, submit -i): more than a researcher's right.",
)
@click.option("--apply", "applies", is_flag=True, help="Apply the objects, after a question.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@access.login_options
def command(
    team: str,
    namespace: str,
    queue: str,
    amounts: tuple[str, ...],
    cohort: str | None,
    borrow: int | None,
    users: tuple[str, ...],
    groups: tuple[str, ...],
    leads: tuple[str, ...],
    flavor_label: str,
    terminals: bool,
    applies: bool,
    yes: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Give TEAM its queue: read the nodes, and print flavors, ClusterQueue, namespace, LocalQueue and rights as YAML.

    With --apply, they are applied after a question, and it is said whether a job of the team would start. Without TEAM, a
    terminal is asked for what is wanted. Nothing that exists is changed without saying so. The same command again changes
    nothing.
    """
    asks = terminal.can_ask()
    if not team and not asks:
        raise click.UsageError("name the TEAM: there is no terminal to ask")
    if applies and not yes and not asks:
        raise click.UsageError("--apply asks before it writes, and there is no terminal to ask: add -y")
    try:
        wishes = TeamWishes(
            team, namespace, queue, _amounts(amounts), cohort, borrow, users, groups, leads, flavor_label, terminals
        )
        if not access.run(_set_up(wishes, kubeconfig, context, applies=applies, yes=yes)):
            sys.exit(1)
    except WishError as error:
        raise click.BadParameter(str(error), param_hint=error.flag) from error


def _amounts(written: Sequence[str]) -> dict[str, int]:
    """Quota by flavor; "" = of the only one. Raises WishError."""
    found: dict[str, int] = {}
    for each in written:
        flavor, _, number = each.rpartition("=")
        if not (number.isascii() and number.isdigit()) or len(number) > 9:
            raise WishError("--gpus", f"{each[:80]!r} is neither a number of GPUs nor FLAVOR=N, such as a100=40")
        if flavor in found or (found and "" in (*found, flavor)):
            raise WishError("--gpus", "give one number, or one for each flavor")
        found[flavor] = int(number)
    return found


async def _set_up(
    wishes: TeamWishes, kubeconfig: Path | None, context: str | None, *, applies: bool, yes: bool
) -> bool:
    """Whether all is as it should be in the end."""
    async with access.client(kubeconfig, context) as api:
        before = await _look(api, wishes)
        kinds = teams.kinds_of(before.nodes, before.flavors, wishes.flavor_label)
        terminal.say(*(f"# {kind}" for kind in kinds), err=True)
        asked = not wishes.team
        if asked:
            wishes = _wished(wishes, kinds, before.objects)
        wishes = teams.checked(wishes)
        objects = replace(before.objects, bindings=await _bindings(api, wishes))
        bodies = teams.manifests(wishes, kinds, objects)
        if not applies:
            terminal.say(chart.manifests(bodies), nl=False)
            if not asked or not terminal.agreed("Apply it?"):
                return True
        return await _applied(api, wishes, kinds, bodies, ask=not yes and not asked)


# --- what there is ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Before:
    nodes: Sequence[Node]
    flavors: Sequence[Flavor]
    objects: ClusterObjects


async def _look(api: ApiClient, wishes: TeamWishes) -> _Before:
    nodes, flavors, queues, cohorts = await asyncio.gather(
        *(api.list(each) for each in (kube.NODES, kube.RESOURCE_FLAVORS, kube.CLUSTER_QUEUES, kube.COHORTS))
    )
    return _Before(
        [node for row in nodes.items if (node := _node(row)) is not None],
        [flavor for row in flavors.items if (flavor := _flavor(row)) is not None],
        ClusterObjects(queues.items, cohorts.items),
    )


def _node(row: Json) -> Node | None:
    try:
        return parse.node(row)
    except ParseError:
        return None


def _flavor(row: Json) -> Flavor | None:
    try:
        return parse.flavor(row)
    except ParseError:
        return None


async def _bindings(api: ApiClient, wishes: TeamWishes) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for name, (resource, namespace) in teams.binding_names(wishes).items():
        try:
            found[name] = await api.get(resource, namespace, name)
        except NotFound:
            continue
    return found


def _wished(wishes: TeamWishes, kinds: Sequence[NodeKind], objects: ClusterObjects) -> TeamWishes:
    """The wishes, completed by asking the terminal for what no option says."""
    team = terminal.ask("Name of the team")
    wishes = replace(wishes, team=team, namespace=wishes.namespace or terminal.ask("Its namespace", team))
    if not wishes.gpus:
        usual = teams.gpu_shares(wishes, kinds, objects)
        answers = {
            kind.flavor: terminal.ask(
                f"GPUs of {kind.flavor} that it owns, of {kind.gpus}", str(usual.get(kind.flavor, 0))
            )
            for kind in kinds
            if kind.resource
        }
        wishes = replace(wishes, gpus=_amounts([f"{flavor}={answer}" for flavor, answer in answers.items()]))
    if wishes.cohort is None:
        known = sorted({(each.get("spec") or {}).get("cohortName") or "" for each in objects.queues} - {""})
        there = f" (there is: {', '.join(known[:4])})" if known else ""
        cohort = terminal.ask(
            f"Cohort in which teams lend each other what is idle, - for none{there}", known[0] if known else "-"
        )
        wishes = replace(wishes, cohort=None if cohort == "-" else cohort)
    if not (wishes.users or wishes.groups):
        group = terminal.ask("Group whose members submit jobs, - for none", "-")
        wishes = replace(wishes, groups=() if group == "-" else (group,))
    if not wishes.terminals and (wishes.users or wishes.groups or wishes.leads):
        question = "May they open terminals in all pods of the namespace? It is more than a researcher's right."
        wishes = replace(wishes, terminals=terminal.agreed(question))
    return wishes


# --- what changes -----------------------------------------------------------------------------------------------------


async def _applied(
    api: ApiClient, wishes: TeamWishes, kinds: Sequence[NodeKind], bodies: Sequence[Json], *, ask: bool
) -> bool:
    """Apply what differs, and say whether a job would start. True where all is as it should be, or the answer was no."""
    wanted = [(body, await _difference(api, body)) for body in bodies]
    todo = [body for body, differs in wanted if differs != []]
    for body, differs in wanted:
        if differs is None:
            terminal.say(f"+ {_title(body)}")
        elif differs:
            terminal.say(f"~ {_title(body)}, which exists", *(f"    {line}" for line in differs[:MOST_LINES]))
    if not todo:
        terminal.say("Nothing changes.")
    elif ask and not terminal.agreed("Apply it?"):
        return True
    for body in todo:
        await _apply(api, body)
        terminal.say(f"✓ {_title(body)}")
    sound = await _examined(api, wishes, bodies)
    return await _tried(api, wishes, kinds) and sound


async def _difference(api: ApiClient, body: Json) -> list[str] | None:
    """What applying would change of an object, in lines; None where there is none yet."""
    meta = body["metadata"]
    try:
        live = await api.get(_RESOURCES[body["kind"]], meta.get("namespace"), meta["name"])
    except NotFound:
        return None
    return changes(live, await _apply(api, body, dry_run=True))


async def _apply(api: ApiClient, body: Json, *, dry_run: bool = False) -> Json:
    meta, query = body["metadata"], {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
    return await api.patch(
        _RESOURCES[body["kind"]],
        meta.get("namespace"),
        meta["name"],
        body,
        kind="apply",
        field_manager=FIELD_MANAGER,
        force=True,
        query=query,
    )


def _title(body: Json) -> str:
    meta = body["metadata"]
    return (
        f"{body['kind']} {meta['namespace']}/{meta['name']}"
        if "namespace" in meta
        else f"{body['kind']} {meta['name']}"
    )


# --- whether it works -------------------------------------------------------------------------------------------------


async def _examined(api: ApiClient, wishes: TeamWishes, bodies: Iterable[Json]) -> bool:
    """Say what doctor finds about the team's objects. Returns whether none of it is a failure."""
    await _active(api, wishes.team)
    about = {body["metadata"]["name"] for body in bodies} | {f"{wishes.namespace}/{wishes.queue}"}
    checks: list[Check] = [check for check in EXAMINATION.checks if check.name in _CHECKS]
    examination = Examination(checks, EXAMINATION.words)
    cluster = ClusterReads(api)
    try:
        found = await examination.of(cluster)
    finally:
        await cluster.close()
    found += await _missing_roles(api, bodies)
    concerned = [each for each in found if each.verdict != "ok" and _concerns(each, about)]
    for each in concerned:
        terminal.say(f"{SYMBOLS[each.verdict]} {each.detail}", *([f"  → {each.advice}"] if each.advice else []))
    if not concerned:
        terminal.say("✓ doctor finds nothing wrong with it")
    return not any(each.verdict == "failure" for each in concerned)


async def _missing_roles(api: ApiClient, bodies: Iterable[Json]) -> list[Finding]:
    """Roles that bindings name, and that an installation without roles does not have."""
    found: list[Finding] = []
    for role in dict.fromkeys(body["roleRef"]["name"] for body in bodies if "roleRef" in body):
        try:
            await api.get(CLUSTER_ROLES, None, role)
        except NotFound:
            advice = "install Gangline with its roles (the value roles: true), or bind another role"
            found.append(warning(f"there is no ClusterRole {role}, so its binding gives no right", advice))
    return found


def _concerns(finding: Finding, about: set[str]) -> bool:
    return not finding.objects or bool(about & set(finding.objects))


async def _active(api: ApiClient, queue: str) -> None:
    """Wait until an operator has looked at the ClusterQueue; not for ever."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        found = await api.get(kube.CLUSTER_QUEUES, None, queue)
        rows = (found.get("status") or {}).get("conditions") or ()
        if any((row.get("type"), row.get("status")) == ("Active", "True") for row in rows):
            return
        await asyncio.sleep(_PAUSE)


async def _tried(api: ApiClient, wishes: TeamWishes, kinds: Sequence[NodeKind]) -> bool:
    """Say when a small job of the team would start, as the operator plays it. Returns False where it would never start."""
    used = [kind for kind in kinds if not wishes.gpus or kind.flavor in wishes.gpus or "" in wishes.gpus]
    body = {
        "apiVersion": f"{ANSWERS.name}/{ANSWERS.versions[-1]}",
        "kind": "WhatIf",
        "metadata": {},
        "spec": {"job": teams.sample_job(wishes, used)},
    }
    what = f"A job of {'one GPU' if any(kind.resource for kind in used) else 'one CPU'} in LocalQueue {wishes.queue}"
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            whatif = (await asking.create(api, f"/namespaces/{wishes.namespace}/whatifs", body))["status"]
            break
        except asking.NoAnswerError as error:  # the queue is new: the operator may not have seen it yet
            if time.monotonic() > until:
                terminal.say(f"✗ {what} would not start: {error.message}")
                return False
            await asyncio.sleep(_PAUSE)
        except (asking.NotServedError, asking.NotAllowedError) as error:
            terminal.say(f"? whether a job would start is not known: {error}")
            return True
    starts = whatif["startsInSeconds"]
    if starts is None:
        terminal.say(f"✗ {what} would not start: {whatif['obstacle'] or 'no reason is given'}")
        return False
    when = "at once" if starts["p50"] < 1 else f"in {age(starts['p50'])}"
    terminal.say(f"✓ {what} would start {when}.")
    terminal.say(f"  Jobs of namespace {wishes.namespace} name it: kueue.x-k8s.io/queue-name: {wishes.queue}")
    return True
