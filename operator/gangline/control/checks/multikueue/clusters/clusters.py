"""The connections to all MultiKueueClusters: one for each object, which says in its condition Active how it stands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import orjson

from gangline import bounded
from gangline.api import names
from gangline.api.admission.syntax import dns_subdomain_faults
from gangline.api.read import conditions
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.control.checks.multikueue.clusters import kubeconfigs, profiles
from gangline.control.checks.multikueue.clusters.kubeconfigs import KubeconfigError
from gangline.control.checks.multikueue.clusters.remote_cluster import ConnectionState, RemoteCluster
from gangline.control.feed.mirror import Mirror
from gangline.control.isolation.quarantine import Quarantine
from gangline.control.writes.events import EventRecorder
from gangline.control.writes.outgoing import Priority
from gangline.control.writes.writes import Writes
from gangline.jobs.base import RunsOnOtherCluster
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.config import Login
from gangline.kube.errors import ApiError, Forbidden, NotFound
from gangline.kube.resources import Json, ObjectKey
from gangline.objects import Stored

log = logging.getLogger(__name__)

#: seconds within which a Secret has to be read
_SECRET = 15.0
_UNCHECKED_PATH = (
    "Using locationType=Path without MultiKueueKubeConfigPathValidation feature gate is deprecated and will be removed in a "
    f"future release. Enable the MultiKueueKubeConfigPathValidation feature gate and place kubeconfig files under "
    f"{kubeconfigs.DIRECTORY}/."
)


class Clusters:
    """The connections to all clusters. `changed` is called with keys of Workloads, `moved` when a connection is made or lost.
    `client`: to this cluster; `kinds`: of the jobs that are sent; `quotas`: called when quotas of queues there may have changed;
    `is_known`: whether a Workload, or a family of them, is here.
    """

    def __init__(
        self,
        client: ApiClient,
        mirror: Mirror,
        writes: Writes,
        recorder: EventRecorder,
        settings: MultiKueueSettings,
        kinds: Sequence[RunsOnOtherCluster],
        *,
        changed: Callable[[str], None],
        moved: Callable[[], None],
        may_write: Callable[[], bool],
        now: Callable[[], int],
        quarantine: Quarantine,
        quotas: Callable[[], None] | None,
        is_known: Callable[[str], bool],
    ) -> None:
        self._client = client
        self._mirror = mirror
        self._writes = writes
        self._recorder = recorder
        self._settings = settings
        self._kinds = kinds
        self._changed = changed
        self._moved = moved
        self._may_write = may_write
        self._now = now
        self._quarantine = quarantine
        self._quotas = quotas
        self._is_known = is_known
        self._known: dict[str, tuple[Json, RemoteCluster]] = {}
        self._profiles = profiles.Profiles(client, settings, self._profile_changed)
        self._closing: set[asyncio.Task[None]] = set()

    def all(self) -> dict[str, RemoteCluster]:
        return {name: cluster for name, (_, cluster) in self._known.items()}

    def follow(self) -> None:
        """Open and close connections as the objects want them now, and report each connection in its object's condition."""
        wanted = {
            name: obj for name, obj in self._mirror.objects[kube.MULTI_KUEUE_CLUSTERS].items() if not obj.deleting
        }
        for name in [name for name in self._known if name not in wanted]:
            _, cluster = self._known.pop(name)
            self._close(cluster)
        for name, obj in wanted.items():
            source = obj.spec.get("clusterSource") or {}
            known = self._known.get(name)
            if known is None:
                cluster = self._open(name)
            else:
                cluster = known[1]
                if known[0] != source:
                    cluster.look_again()
            if known is None or known[0] != source:
                self._tell_unchecked_path(obj, source)
            self._known[name] = (source, cluster)
            if cluster.state is not None:
                work = partial(self._report, obj, cluster.state)
                self._quarantine.attempt("reporting its connection", kube.MULTI_KUEUE_CLUSTERS, name, work)

    async def close(self) -> None:
        for _, cluster in self._known.values():
            self._close(cluster)
        self._known.clear()
        await asyncio.gather(self._profiles.close(), *self._closing, return_exceptions=True)

    def _open(self, name: str) -> RemoteCluster:
        return RemoteCluster(
            name,
            self._settings.origin,
            partial(self._read, name),
            kinds=self._kinds,
            changed=self._changed,
            moved=self._moved,
            may_write=self._may_write,
            now=self._now,
            quotas=self._quotas,
            patience=self._settings.worker_lost_timeout,
            is_known=self._is_known,
        )

    def _close(self, cluster: RemoteCluster) -> None:
        task = asyncio.get_running_loop().create_task(cluster.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _tell_unchecked_path(self, obj: Stored, source: Json) -> None:
        if (source.get("kubeConfig") or {}).get("locationType") == "Path" and not self._settings.paths_checked:
            self._recorder.record(obj, "Warning", "DeprecatedPathUsage", _UNCHECKED_PATH)

    # --- conditions ---

    def _report(self, obj: Stored, state: ConnectionState) -> None:
        rows: conditions.Conditions = [dict(row) for row in obj.conditions]
        generation = obj.metadata.get("generation")
        if conditions.put(
            rows, names.ACTIVE, state.active, state.reason, state.message, now=self._now(), generation=generation
        ):
            body = {"metadata": {"resourceVersion": obj.resource_version}, "status": {"conditions": rows}}
            key = ObjectKey.of(kube.MULTI_KUEUE_CLUSTERS, obj)
            self._writes.send(key, "status", body, priority=Priority.STATUS, failed=partial(_refused, key))

    # --- how they are reached ---

    async def _read(self, name: str) -> tuple[str, Callable[[], Login]]:
        """Read the kubeconfig of a cluster. Returns its text, and a function that makes a login of it."""
        source = self._known[name][0] if name in self._known else {}
        if profile := source.get("clusterProfileRef"):
            return await self._of_profile(str(profile.get("name") or ""))
        kubeconfig: Json = source.get("kubeConfig") or {}
        location = str(kubeconfig.get("location") or "")
        if kubeconfig.get("locationType", "Secret") == "Path":
            text = await asyncio.to_thread(kubeconfigs.of_path, location, checked=self._settings.paths_checked)
        else:
            text = kubeconfigs.of_secret(await self._secret(location), location)
        make = partial(kubeconfigs.login, text, location, insecure_allowed=self._settings.insecure_allowed)
        return text, make

    async def _of_profile(self, name: str) -> tuple[str, Callable[[], Login]]:
        if not self._settings.profiles:
            raise profiles.off()
        text = orjson.dumps(await self._profiles.kubeconfig(name)).decode()
        return text, partial(kubeconfigs.login_by_plugin, text, name)

    def _profile_changed(self, name: str) -> None:
        for source, cluster in self._known.values():
            if (source.get("clusterProfileRef") or {}).get("name") == name:
                cluster.look_again()

    async def _secret(self, name: str) -> Json:
        if dns_subdomain_faults(name):
            raise KubeconfigError("BadKubeConfig", f"{bounded.shown(name)} cannot be the name of a Secret")
        namespace = self._settings.namespace
        try:
            return (await self._client.get(kube.SECRETS, namespace, name, within=_SECRET)).get("data") or {}
        except Forbidden as error:
            grant = f"gangline admin rbac --cluster-secret {namespace}/{name} | kubectl apply -f -"
            raise KubeconfigError("BadKubeConfig", f"{error.message}; to grant it: {grant}") from None
        except NotFound:
            raise KubeconfigError("BadKubeConfig", f'Secret "{name}" not found') from None
        except ApiError as error:
            raise KubeconfigError("BadKubeConfig", error.message or str(error)) from None


def _refused(key: ObjectKey, error: Exception) -> None:
    """Log the refusal. After a conflict the watch shows the cluster as it is now, and it is reported again."""
    log.info("condition Active of %s: %s", key, error)
