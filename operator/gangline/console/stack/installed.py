"""Gangline installed into a local cluster: its image on the real nodes, and the manifests that others apply to theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from gangline.api import names
from gangline.console.stack import own_image
from gangline.console.stack.own_image import NoCheckoutError
from gangline.console.stack.stack import JOBSET_STAND_IN, Say, Stack, Wishes, login, services_of, where
from gangline.debian import DebianError
from gangline.devcluster.connect import ClusterChoice, connect
from gangline.devcluster.connection import Connection
from gangline.devcluster.errors import DevClusterError
from gangline.devcluster.nodes import POOL_LABEL
from gangline.devcluster.progress import narrate
from gangline.devcluster.real.settings import POOL
from gangline.image.python_packages import PythonPackagesError
from gangline.install import rollout
from gangline.install.installing import InstallationError, carry_out, foreign_namespaces, plan
from gangline.install.manifests import objects, values
from gangline.kube.resources import Json

#: seconds for the pods to be ready
PATIENCE: Final = 180.0
#: simulated nodes only pretend to run pods
_ON_REAL_NODES: Final[Json] = {"nodeSelector": {POOL_LABEL: POOL}}


def chosen() -> Json:
    """The values of an installation on a local cluster."""
    operator = {**_ON_REAL_NODES, "progressReports": True, "probeNodes": True, "cordonNodes": True}
    return values.chosen([{"operator": operator, "webhooks": _ON_REAL_NODES}])


@contextmanager
def installed(choice: ClusterChoice, say: Say, wishes: Wishes) -> Iterator[Stack]:
    """A local cluster with real nodes, and Gangline in it; the cluster ends with the block.

    Raises DevClusterError, LoginError or ApiError, each with a message for the user.
    """
    with connect(choice) as connection:
        say(f"✓ {where(connection)}")
        services = services_of(connection)
        try:
            if wishes.jobset:
                services.launch("jobset", [*JOBSET_STAND_IN, *login(connection)])
            load_own_image(connection, say)
            asyncio.run(_install(connection, say))
            if wishes.jobset:
                services.wait("jobset")
                say("✓ JobSets are run by a stand-in for JobSet")
            yield Stack(connection, services)
        finally:
            services.stop()


def load_own_image(connection: Connection, say: Say) -> None:
    """Put this checkout's image on the real nodes. Raises DevClusterError."""
    if connection.load_image is None:
        raise DevClusterError("only a local cluster with real nodes gets images without a registry")
    try:
        with narrate("Building Gangline's image"):
            archive = own_image.archive(lambda _: None)
    except (NoCheckoutError, DebianError, PythonPackagesError) as error:
        raise DevClusterError(f"Gangline's image can't be built: {error}") from error
    with narrate("Loading it onto the nodes"):
        nodes = connection.load_image(archive)
    say(f"✓ {own_image.REFERENCE} is on {', '.join(nodes)}")


async def _install(connection: Connection, say: Say) -> None:
    async with connection.client() as api:
        try:
            wanted = objects.plain(chosen(), others=await foreign_namespaces(api))
            decided = await plan(api, names.SYSTEM_NAMESPACE, wanted)
            with narrate("Installing Gangline's manifests"):
                await carry_out(api, decided, lambda _: None)
            say(f"✓ {len(decided.keys('create'))} objects of the installation")
            with narrate("Waiting for operator and webhooks"):
                missing = await rollout.wait(api, names.SYSTEM_NAMESPACE, PATIENCE, lambda _: None)
        except InstallationError as error:
            raise DevClusterError(str(error)) from error
    if missing:
        raise DevClusterError(f"Gangline was not ready after {PATIENCE:g} s: {missing}")
    say("✓ operator and webhooks run in the cluster, two replicas each")
