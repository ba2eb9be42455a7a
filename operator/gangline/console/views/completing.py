"""Names for a shell to complete: of jobs and queues, as far as the user may read them. Never an error, and never long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from gangline.kube.client import ApiClient
    from gangline.kube.plain_client import PlainClient

#: what lists the objects
Client: TypeAlias = "ApiClient | PlainClient"
#: seconds for the answer, after which nothing is offered
PATIENCE: Final = 2.0
#: names that are offered at most
MOST: Final = 500


def jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs of the namespace by name, or as kind/name once the kind is typed."""
    return _named(ctx, incomplete, _jobs)


def local_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _named(ctx, incomplete, _local_queues)


def held(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what `hold` and `release` take: jobs, `localqueue/NAME`."""

    async def names(api: Client, namespace: str) -> list[tuple[str, str]]:
        queues = [(f"localqueue/{name}", about) for name, about in await _local_queues(api, namespace)]
        return [*await _jobs(api, namespace), *queues]

    return _named(ctx, incomplete, names)


def cluster_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _named(ctx, incomplete, lambda api, _: _cluster_queues(api))


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _named(ctx, incomplete, lambda api, _: _nodes(api))


def cordoned(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete what `cordon` and `uncordon` take: nodes, `localqueue/NAME`, `clusterqueue/NAME`."""

    async def names(api: Client, namespace: str) -> list[tuple[str, str]]:
        asked = (_nodes(api), _local_queues(api, namespace), _cluster_queues(api))
        found = await asyncio.gather(*asked, return_exceptions=True)  # a user may list some of them only
        kinds = zip(("", "localqueue/", "clusterqueue/"), found, strict=True)
        return [
            (f"{kind}{name}", about)
            for kind, each in kinds
            if not isinstance(each, BaseException)
            for name, about in each
        ]

    return _named(ctx, incomplete, names)


async def _cluster_queues(api: Client) -> list[tuple[str, str]]:
    from gangline.kube.resources import CLUSTER_QUEUES

    found = (await api.list(CLUSTER_QUEUES)).items
    return [(each["metadata"]["name"], (each.get("spec") or {}).get("cohortName") or "") for each in found]


async def _nodes(api: Client) -> list[tuple[str, str]]:
    from gangline.kube.resources import NODES

    found = (await api.list(NODES)).items
    return [(each["metadata"]["name"], "cordoned" if each["spec"].get("unschedulable") else "") for each in found]


async def _jobs(api: Client, namespace: str) -> list[tuple[str, str]]:
    from gangline.control.answers.workloads.snapshot import FINISHED, workload_view
    from gangline.kube.resources import WORKLOADS
    from gangline.objects import WorkloadObject

    views = [workload_view(WorkloadObject(raw), {}) for raw in (await api.list(WORKLOADS, namespace)).items]
    live = [view for view in views if view.state not in FINISHED]
    return [
        named
        for view in live
        for named in ((view.job_name, str(view.state)), (f"{view.job_kind.lower()}/{view.job_name}", str(view.state)))
    ]


async def _local_queues(api: Client, namespace: str) -> list[tuple[str, str]]:
    from gangline.kube.resources import LOCAL_QUEUES

    found = (await api.list(LOCAL_QUEUES, namespace)).items
    return [(each["metadata"]["name"], (each.get("spec") or {}).get("clusterQueue") or "") for each in found]


def _named(
    ctx: click.Context, incomplete: str, names: Callable[[Client, str], Awaitable[list[tuple[str, str]]]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    given: dict[str, Any] = ctx.params

    async def ask() -> list[tuple[str, str]]:
        from gangline.kube import config
        from gangline.kube.client import ApiClient
        from gangline.kube.plain_client import PlainClient

        login = config.load(given.get("kubeconfig"), given.get("context"))
        client = PlainClient(login, PATIENCE) if PlainClient.suffices(login) else ApiClient(login)
        async with asyncio.timeout(PATIENCE), client as api:
            return await names(api, given.get("namespace") or login.namespace)

    try:
        found = asyncio.run(ask())
    except Exception:  # a shell shows what is printed here in the middle of what the user types
        return []
    typed = bool(incomplete)  # with nothing typed, each job is offered once
    wanted = [(name, about) for name, about in found if name.startswith(incomplete) and ("/" in name) <= typed]
    return [CompletionItem(name, help=about) for name, about in sorted(set(wanted))[:MOST]]
