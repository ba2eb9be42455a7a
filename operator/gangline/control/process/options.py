"""The settings of an operator process: what the command line and the configuration file come down to; the namespaces that hold
Gangline's own objects; and an orderly shutdown that ends in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gangline.api import names
from gangline.api.read.configuration import metrics_settings, multikueue
from gangline.api.read.configuration.managed_jobs import EVERY_QUEUED, ManagedJobs
from gangline.api.read.configuration.manager import KUEUES, LeaseSettings
from gangline.api.read.configuration.metrics_settings import MetricsSettings
from gangline.api.read.configuration.multikueue import MultiKueueSettings
from gangline.api.read.configuration.sections import FOR_EVER, Retention
from gangline.api.read.counting.resource_rules import EVERYTHING, ResourceRules
from gangline.control.answers.api import aggregated_api
from gangline.control.process import metrics_endpoint
from gangline.control.process.lease import default_identity
from gangline.control.recording.cluster_record import RecordOptions
from gangline.engine import model
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from gangline.telemetry import ReadingSource
from gangline.tls.connections import USUAL, Handshakes

log = logging.getLogger(__name__)


#: seconds between two attempts
RETRY: Final = 1.0


async def ensure_namespace(client: ApiClient, name: str, *, report: Callable[[str], None] = lambda _: None) -> None:
    """Make sure that the namespace exists. Retries until it does; `report` gets what is in the way, and "" in the end."""
    trouble = ""
    while said := await _trouble(client, name):
        if said != trouble:
            log.warning("%s", said)
            report(said)
        trouble = said
        await asyncio.sleep(RETRY)
    report("")


async def _trouble(client: ApiClient, name: str) -> str:
    """Create the namespace unless it exists. Why it does not exist, or ""."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        try:
            await client.get(kube.NAMESPACES, None, name)
        except NotFound:
            await client.create(kube.NAMESPACES, None, body)
    except AlreadyExists:
        return ""
    except Forbidden:
        return f"there is no namespace {name}, and no right to create it: kubectl create namespace {name}"
    except ApiError as error:
        return f"namespace {name}: {error}"
    return ""


@asynccontextmanager
async def in_order(what: str, seconds: float) -> AsyncIterator[None]:
    """Run one step of the shutdown: if it fails or takes longer than `seconds`, that is logged, and the next step follows."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except Exception:
        log.exception("%s could not be shut down in order", what)


@dataclass(frozen=True, slots=True)
class ForecastOptions:
    """The places of the forecasts' data: finished runs (an SQLAlchemy URL or the path of an SQLite file), and the model trained
    on them.
    """

    history: str
    model_file: Path
    use_model: bool = True
    #: keys of the labels of jobs by which reports can be made
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The settings of an operator process."""

    kubeconfig: Path | None = None
    context: str | None = None
    leader_election: bool = True
    lease: LeaseSettings = KUEUES
    #: of Gangline's own objects
    namespace: str = names.SYSTEM_NAMESPACE
    identity: str = field(default_factory=default_identity)
    #: host and port of /healthz, /readyz and, where `secured_metrics` is None, /metrics; port 0 chooses one
    listen: tuple[str, int] = ("127.0.0.1", 0)
    #: /metrics over TLS, for authorized users only
    secured_metrics: metrics_endpoint.MetricsEndpointOptions | None = None
    #: written once the process is ready: {"pid", "port"}
    ready_file: Path | None = None
    settings: model.Settings = field(default_factory=model.Settings)
    labels_to_copy: tuple[str, ...] = ()
    annotations_to_copy: tuple[str, ...] = ()
    #: which resources count in quota, and as what
    resources: ResourceRules = EVERYTHING
    retention: Retention = FOR_EVER
    jobs: ManagedJobs = EVERY_QUEUED
    #: how workloads are sent to other clusters
    multikueue: MultiKueueSettings = multikueue.USUAL
    #: Workloads wait with the reasons of Kueue up to 0.19
    older_words: bool = False
    metrics: MetricsSettings = metrics_settings.USUAL
    #: of the servers of secured metrics and of the visibility API
    tls: Handshakes = USUAL
    max_writes: int = 24
    #: None = no forecasts and no history
    forecasts: ForecastOptions | None = None
    #: source of pod telemetry; None = no telemetry
    telemetry: ReadingSource | None = None
    #: the URL by which pods of admitted jobs reach `listen` to report their progress; "" = pods get no URL
    progress_url: str = ""
    #: Kueue's visibility API through the API server; None = not served
    visibility: aggregated_api.AggregatedApiOptions | None = None
    #: leave managedFields on Workloads (`gangline.kube.field_tracking`)
    track_fields: bool = False
    #: file to which every fact and decision is written; None = no record
    audit: Path | None = None
    #: the folder in which the history of the cluster is written; None = none is
    record: RecordOptions | None = None
