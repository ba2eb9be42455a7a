"""ClusterProfiles (gate MultiKueueClusterProfile): how a cluster is reached, as a manager of clusters says it.

A profile says where the cluster is, and which kinds of credentials it takes, by name. What fetches such credentials is a program
that only the configuration of this process names; the profile adds neither arguments nor variables to it. Rules and messages are
Kueue's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

import orjson

from gangline.api.read.configuration.access_providers import AccessProvider
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.kube import config
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.reflector import Event, Reflector, Removed, Upsert
from gangline.kube.resources import Json
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: why a profile cannot be used
REASON: Final = "BadClusterProfile"
#: profiles that are kept
MOST: Final = 10_000
#: seconds within which they have to be listed, and after which a kind that is not installed is looked for again
LISTED: Final = 15.0
ABSENT_RETRY: Final = 5.0
#: where profiles say how their cluster is reached, the old name first
_FIELDS: Final = ("credentialProviders", "accessProviders")
#: fields of a cluster that have no effect for its connection, or only for the program
_KEPT: Final = frozenset(
    {
        *("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority"),
        *("certificate-authority-data", "proxy-url", "disable-compression", "extensions"),
    }
)


@dataclass(frozen=True, slots=True)
class Access:
    """The way to the cluster of a profile: `cluster` as in a kubeconfig, and the provider that fetches the credentials."""

    cluster: Json
    provider: AccessProvider

    def kubeconfig(self, name: str) -> Json:
        context = {"name": name, "context": {"cluster": name, "user": name}}
        return {
            "clusters": [{"name": name, "cluster": self.cluster}],
            "users": [{"name": name, "user": {"exec": self.provider.plugin}}],
            "contexts": [context],
            "current-context": name,
        }


def access_of(profile: Json, providers: Sequence[AccessProvider]) -> Access | None:
    """The access by the first of these providers that the profile lists; None: it lists none. Fields of other types are as if not
    there.
    """
    status: Any = profile.get("status")
    listed: dict[str, Json] = {}
    for field in _FIELDS:
        rows: Any = cast("Json", status).get(field) if isinstance(status, dict) else None
        for row in cast("list[Any]", rows) if isinstance(rows, list) else ():
            if isinstance(row, dict) and isinstance(row.get("name"), str):
                cluster: Any = cast("Json", row).get("cluster")
                listed[row["name"]] = cast("Json", cluster) if isinstance(cluster, dict) else {}
    found = next((each for each in providers if each.name in listed), None)
    if found is None:
        return None
    return Access({name: value for name, value in listed[found.name].items() if name in _KEPT}, found)


def off() -> KubeconfigError:
    """The error of a cluster that is named by a ClusterProfile while the feature gate is off."""
    return KubeconfigError(
        "MultiKueueClusterProfileFeatureDisabled", "MultiKueueClusterProfile feature gate is disabled"
    )


class Profiles:
    """The ClusterProfiles in the namespace of Kueue, watched from the first question on. `changed` is called with the name of
    one.
    """

    def __init__(self, client: ApiClient, settings: MultiKueueSettings, changed: Callable[[str], None]) -> None:
        self._client = client
        self._namespace = settings.namespace
        self._providers = settings.access_providers
        self._changed = changed
        self._known: dict[str, Access | str] = {}  # or why it leads nowhere
        self._reflector: Reflector | None = None
        self._following: asyncio.Task[None] | None = None

    async def kubeconfig(self, name: str) -> Json:
        """The kubeconfig that stands for the profile of this name. Raises KubeconfigError."""
        reflector = self._follow()
        with suppress(TimeoutError):
            async with asyncio.timeout(LISTED):
                await reflector.synced.wait()
        if not reflector.synced.is_set():
            raise KubeconfigError(REASON, f"{reflector.resource} could not be listed within {LISTED:g} s")
        if reflector.refusal:
            grant = "gangline admin rbac --config FILE | kubectl apply -f -"
            raise KubeconfigError(REASON, f"{reflector.refusal}; to grant it, with your configuration: {grant}")
        key = f"{self._namespace}/{name}"
        if key not in self._known:
            why = " (the kind is not installed)" if reflector.absent else ""
            kind = f"{reflector.resource.kind}.{reflector.resource.group}"
            raise KubeconfigError(REASON, f'{kind} "{name}" not found{why}')
        if self._providers is None:
            raise KubeconfigError(REASON, "no access provider configured")
        access = self._known[key]
        if isinstance(access, str):
            raise KubeconfigError(REASON, access)
        return access.kubeconfig(name)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    def _follow(self) -> Reflector:
        if self._reflector is None:
            self._reflector = Reflector(
                self._client,
                kube.CLUSTER_PROFILES,
                namespace=self._namespace,
                decode=self._read,
                optional=True,
                refusable=True,
                absent_retry=ABSENT_RETRY,
            )
            work = self._reflector.run(self._take)
            self._following = asyncio.get_running_loop().create_task(work, name="ClusterProfiles")
        return self._reflector

    def _read(self, sent: Json) -> tuple[str, Access | str]:
        """The key, and what is kept: no more than a kubeconfig may have."""
        profile = Stored(sent)
        access = access_of(profile, self._providers or ())
        if access is None:
            return profile.key, f'no matching cluster accessor found for cluster profile "{profile.name}"'
        if len(orjson.dumps(access.cluster)) > config.LONGEST:
            return profile.key, f"cluster of {access.provider.name}: it is longer than {config.LONGEST} characters"
        return profile.key, access

    def _take(self, event: Event) -> None:
        if isinstance(event, Upsert):
            key, access = cast("tuple[str, Access | str]", event.obj)
            if key not in self._known and len(self._known) >= MOST:
                log.warning("there are more than %d ClusterProfiles: %s is not read", MOST, key)
                return
            self._known[key] = access
        elif isinstance(event, Removed):
            key = event.key
            self._known.pop(key, None)
        else:
            return
        self._changed(key.partition("/")[2])
