"""The values of an installation: what whoever installs may choose. `values.yaml`, its schema and the page of docs come from here.

A description is the docstring below its field. Names are camelCase, as everywhere in Kubernetes.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, cast

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

import gangline
from gangline import bounded
from gangline.api.read.configuration import file as configuration_file
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.managed_jobs import SHIPPED
from gangline.kube.resources import Json

#: the image that `gangline dev image build` makes
IMAGE: Final = "docker.io/gangline/gangline"
#: characters of a file of values, and of one `--set`
LONGEST: Final = 1_000_000
LONGEST_SETTING: Final = 10_000
_LONGEST_REFERENCE: Final = 500

#: labels by which objects are found are not the user's
_RESERVED: Final = "app.kubernetes.io/"
_LABEL: Final[dict[str, Any]] = {"propertyNames": {"not": {"pattern": "^app\\.kubernetes\\.io/"}}}
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


def _unreserved(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if name.startswith(_RESERVED):
            raise ValueError(f"labels {_RESERVED}… are the installation's")
    return labels


Labels = Annotated[dict[str, str], Field(json_schema_extra=_LABEL), AfterValidator(_unreserved)]
Strings = dict[str, str]
Objects = list[Json]
Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(m|[kKMGTPE]i?)?$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Replicas = Annotated[int, Field(ge=1, le=20)]


class ValuesError(ValueError):
    """Values that don't fit; the message names the value."""


class ValuesModel(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, validate_by_name=True, use_attribute_docstrings=True, extra="forbid", frozen=True
    )


class ImageValues(ValuesModel):
    repository: str = IMAGE
    """Registry and name; what `gangline dev image build` makes is named like this."""
    tag: str = gangline.__version__
    """The tag of the image, which a digest replaces."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """`sha256:…`: exactly this image, whatever the tag says later."""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """IfNotPresent, Always or Never."""


class Crds(ValuesModel):
    enabled: bool = True
    """Install the custom resource definitions, Kueue's and Gangline's. They are applied over Kueue's own."""
    keep: bool = True
    """The kinds, and with them all queues and workloads, stay when the release is uninstalled."""


class Kueue(ValuesModel):
    create_namespace: bool = True
    """Create the namespace `kueue-system` if it isn't there. Its Lease keeps Kueue and Gangline from deciding at once."""
    alias: bool = False
    """A Deployment `kueue-controller-manager` without pods, whose image `kubectl kueue version` prints. Not beside Kueue."""


class ComponentValues(ValuesModel):
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """debug, info, warning or error."""
    log_format: Literal["text", "json"] = "json"
    """text, or json with one object per line."""
    extra_args: list[str] = []
    """More arguments of the command: docs/cli.md."""
    extra_env: Objects = []
    """More environment variables, as in a container."""
    pod_labels: Labels = {}
    """More labels of the pods."""
    pod_annotations: Strings = {}
    """More annotations of the pods."""
    node_selector: Strings = {}
    """Labels of the nodes that the pods run on."""
    tolerations: Objects = []
    """Taints of nodes that the pods run on all the same."""
    affinity: Json = {}
    """Replaces the preference for different nodes."""
    priority_class_name: str = "system-cluster-critical"
    """GPU jobs wait while no pod of Gangline runs. Where this class may not be used, name another one, or none: \"\"."""


class Resources(ValuesModel):
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class OperatorResources(Resources):
    requests: dict[str, Quantity] = {"cpu": "100m", "memory": "512Mi"}
    """Measured (docs/performance.md): 266 MB with 15,000 workloads, 475 MB with 50,000 in 1,000 queues; 2 ms of CPU for each
    workload, 0.3 % of a core at rest."""
    limits: dict[str, Quantity] = {"memory": "2Gi"}
    """No CPU limit: a throttled leader loses its lease."""


class WebhookResources(Resources):
    requests: dict[str, Quantity] = {"cpu": "50m", "memory": "128Mi"}
    """Measured (docs/install.md): 69 MB at rest, 76 MB after conversions of long lists."""
    limits: dict[str, Quantity] = {"memory": "512Mi"}
    """No CPU limit: the API server waits for the answer."""


class OperatorValues(ComponentValues):
    replicas: Replicas = 2
    """One leads, the others stand by."""
    resources: OperatorResources = OperatorResources()
    notify_secrets: list[Annotated[str, Field(pattern=_NAME)]] = []
    """Secrets in the same namespace that QueuePolicies name, with addresses of notifications. The operator reads no others."""
    cluster_secrets: list[Annotated[str, Field(pattern=_NAME)]] = []
    """Secrets in `kueue-system` with the kubeconfigs of MultiKueueClusters. The operator reads no others: docs/multikueue.md."""
    cluster_profiles: bool = False
    """The operator may read ClusterProfiles in `kueue-system`, for the gate MultiKueueClusterProfile: docs/multikueue.md."""
    probe_nodes: bool = False
    """QueuePolicies may ask for `recovery.probeNodes`: the operator may taint nodes, and reads their Leases."""
    cordon_nodes: bool = False
    """The operator cordons nodes in the maintenances of Reservations, and uncordons them afterwards: docs/reservations.md."""
    progress_reports: bool = False
    """Jobs get the URL to which `gangline.progress` reports."""
    telemetry_url: str = ""
    """A Prometheus: GPU metrics find stalled jobs (docs/runaway.md), and telemetry rules measure nodes (docs/placement.md)."""
    extra_volumes: Objects = []
    """More volumes of the pods, such as one with `--telemetry-queries`."""
    extra_volume_mounts: Objects = []
    """Where the container has them."""


class Webhooks(ComponentValues):
    replicas: Replicas = 2
    """All of them answer. Jobs with a queue are refused while there is none."""
    client_ca: Annotated[str, Field(pattern=rf"^$|{_NAME}")] = ""
    """A ConfigMap with `ca.crt`: reviews of objects need a client certificate of this CA, which the API server's admission
    configuration has to give it first. Without it everybody who reaches the port may ask."""
    resources: WebhookResources = WebhookResources()


class UiResources(Resources):
    requests: dict[str, Quantity] = {"cpu": "20m", "memory": "128Mi"}
    """Measured: 79 MB with 30 jobs and one open page."""
    limits: dict[str, Quantity] = {"memory": "512Mi"}
    """Each view that somebody looks at keeps its rows."""


class Oidc(ValuesModel):
    issuer: str = ""
    """URL of the issuer, as the API server knows it. Without it each person pastes a token."""
    client_id: str = ""
    """The client that the API server expects in tokens."""
    secret: Annotated[str, Field(pattern=rf"^$|{_NAME}")] = ""
    """A Secret with `client-secret`, if the client has one."""
    url: Annotated[str, Field(pattern=r"^(https?://.*)?$")] = ""
    """The dashboard's URL, as browsers reach it. The issuer has to know `URL/login/callback`."""


class Ui(ComponentValues):
    enabled: bool = False
    """Serve the dashboard: docs/dashboard.md. Each person signs in with a token, which the API server is asked with."""
    replicas: Replicas = 1
    """They share nothing."""
    base: Annotated[str, Field(pattern=r"^/([-A-Za-z0-9._~/]*/)?$")] = "/"
    """The path below which a proxy or an Ingress serves it; it ends with /."""
    cluster: str = ""
    """The cluster's name in titles."""
    oidc: Oidc = Oidc()
    tls_secret: Annotated[str, Field(pattern=rf"^$|{_NAME}")] = ""
    """A Secret with `tls.crt` and `tls.key`: the pods serve TLS themselves. Without it something before them has to."""
    insecure_cookies: bool = False
    """Let browsers send tokens without TLS. For trials alone."""
    priority_class_name: str = ""
    """Its pods may wait: jobs do not need them."""
    resources: UiResources = UiResources()


class Database(ValuesModel):
    secret: Annotated[str, Field(pattern=rf"^$|{_NAME}")] = ""
    """A Secret in the same namespace with the URL of a database (SQLAlchemy's, such as `postgresql+psycopg://…`)."""
    key: str = "url"
    """The key in that Secret."""


class Volume(ValuesModel):
    enabled: bool = False
    """Keep the history on a volume. A volume is on one node: there is one operator then, and no standby."""
    size: Quantity = "2Gi"
    """The size of the claim."""
    storage_class_name: str = ""
    """\"\": the cluster's default."""
    existing_claim: Annotated[str, Field(pattern=rf"^$|{_NAME}")] = ""
    """A claim that is there already. \"\": the claim `gangline-history` is created, and stays after an uninstallation."""
    fs_group: Annotated[int, Field(ge=0, le=2_147_483_647)] = 65532
    """Group of the volume's files. 0: none, for OpenShift, which chooses one itself."""


class HistoryValues(ValuesModel):
    database: Database = Database()
    volume: Volume = Volume()
    labels: Annotated[str, Field(max_length=2000, pattern=r"^[A-Za-z0-9._/,-]*$")] = ""
    """Keys of labels of jobs by which `gangline report --by label:KEY` can be made, with commas between them; 8 at most."""


class AuditValues(ValuesModel):
    enabled: bool | Literal["auto"] = "auto"
    """Record facts and decisions: the dashboard shows the past decision by decision, each with its inputs, and
    `gangline admin audit` repeats them. At most 5 files of 64 MiB, beside the history. auto: where the dashboard is served."""


class CertificateValues(ValuesModel):
    mode: Literal["own", "cert-manager"] = "own"
    """Who issues the webhooks' certificate: the webhooks themselves, into a Secret that the replicas share, or cert-manager."""
    issuer_ref: Json = {}
    """`{name, kind, group}` of an issuer of cert-manager. Without it a self-signed one is created."""


class MetricsValues(ValuesModel):
    secure: bool = False
    """Serve /metrics on port 8443 over TLS to those who may `get` the path /metrics, instead of on port 8080 to everybody."""


class ServiceMonitor(ValuesModel):
    enabled: bool = False
    """Create a ServiceMonitor for the Prometheus operator."""
    interval: str = "30s"
    """The time between two scrapes."""
    labels: Labels = {}
    """The labels by which your Prometheus finds the object."""


class AlertRulesValues(ValuesModel):
    enabled: bool = False
    """Create alerts as a PrometheusRule."""
    runbooks: str = ""
    """The address of the site that `make docs` builds, without a slash at its end: each alert links to its section there."""
    labels: Labels = {}
    """The labels by which your Prometheus finds the object."""


class Dashboard(ValuesModel):
    enabled: bool = False
    """Create a dashboard for Grafana, in a ConfigMap that Grafana's sidecar loads."""
    labels: Labels = {"grafana_dashboard": "1"}
    """The labels by which Grafana's sidecar finds the ConfigMap."""


class Monitoring(ValuesModel):
    service_monitor: ServiceMonitor = ServiceMonitor()
    rules: AlertRulesValues = AlertRulesValues()
    dashboard: Dashboard = Dashboard()


class Egress(ValuesModel):
    enabled: bool = False
    """Allow nothing outgoing but DNS, the API server and what `extra` says: databases, receivers of notifications, Prometheus."""
    api_server_ports: list[Port] = [443, 6443]
    """Ports of the API server, wherever it is."""
    extra: Objects = []
    """Rules as in a NetworkPolicy's `egress`."""


class Ingress(ValuesModel):
    http: Objects = []
    """Who reaches the operator's plain HTTP (probes, progress reports, metrics, forecasts, extender): peers as in the `from` of a
    NetworkPolicy, here and below. `[]`: everybody, since any job may report its progress."""
    visibility: Objects = []
    """Who reaches the operator's part of the API: the API server. `[]`: everybody; each request needs its client certificate."""
    metrics: Objects = []
    """Who reaches secured metrics: Prometheus. `[]`: everybody; each request needs a token."""
    webhooks: Objects = []
    """Who reaches the webhooks: the API server, mostly by an `ipBlock`. `[]`: everybody; its addresses are not known here."""
    ui: Objects = []
    """Who reaches the dashboard: the pods of the Ingress. `[]`: everybody; each person needs a token."""


class NetworkPolicy(ValuesModel):
    enabled: bool = True
    """Nothing but the ports in use can be reached."""
    ingress: Ingress = Ingress()
    egress: Egress = Egress()


class PriorityClass(ValuesModel):
    create: bool = False
    """Create the class `gangline`, for `priorityClassName: gangline`."""
    value: Annotated[int, Field(ge=-2_147_483_648, le=1_000_000_000)] = 1_000_000_000
    """The priority of that class."""


_OR_TEXT: Final[Any] = Field(json_schema_extra={"type": ["object", "string"]})


def _parsed(written: Any) -> Any:
    """A block string, as in Kueue's chart, is the file itself."""
    if not isinstance(written, str):
        return written
    try:
        return configuration_file.parse(written) or {}
    except ConfigurationError as error:
        raise ValueError(str(error)) from None


class Values(ValuesModel):
    image: ImageValues = ImageValues()
    """One image for operator and webhooks."""
    image_pull_secrets: list[dict[Literal["name"], str]] = []
    """`[{name: …}]`: Secrets for the registry."""
    configuration: Annotated[Json, BeforeValidator(_parsed), _OR_TEXT] = {"integrations": {"frameworks": list(SHIPPED)}}
    """Kueue's configuration file (config.kueue.x-k8s.io), as it is: fair sharing, waitForPodsReady, … The kinds of jobs are those
    that Kueue's own manifests list, as far as Gangline has them."""
    operator: OperatorValues = OperatorValues()
    webhooks: Webhooks = Webhooks()
    ui: Ui = Ui()
    """The dashboard, in a browser."""
    crds: Crds = Crds()
    roles: bool = True
    """Roles for people, under Kueue's names: batch-admin, batch-user, and a viewer and an editor of each kind."""
    kueue: Kueue = Kueue()
    certificates: CertificateValues = CertificateValues()
    history: HistoryValues = HistoryValues()
    """Where finished runs are kept, from which forecasts learn. By default in the pod: lost with it, learned again."""
    audit: AuditValues = AuditValues()
    """The record of the operator's decisions, in the pod, or on the history's volume."""
    metrics: MetricsValues = MetricsValues()
    monitoring: Monitoring = Monitoring()
    network_policy: NetworkPolicy = NetworkPolicy()
    priority_class: PriorityClass = PriorityClass()
    track_fields: bool = False
    """Keep metadata.managedFields on Workloads; this costs the API server more CPU and memory."""


#: values of Kueue's chart that are none here -> what to do instead
OF_KUEUES_CHART: Final[Mapping[str, str]] = {
    "managerConfig": "its controllerManagerConfigYaml goes into `configuration`, as it is",
    "controllerManager": "replicas, resources, nodeSelector, tolerations … go into `operator` and `webhooks`; "
    "featureGates into `configuration.featureGates`",
    "enableCertManager": "write `certificates: {mode: cert-manager}`",
    "enablePrometheus": "write `monitoring: {serviceMonitor: {enabled: true}, rules: {enabled: true}}`",
    "enableVisibilityAPF": "leave it out: the visibility API needs no flow schema here",
    "enableKueueViz": "write `ui: {enabled: true}` for Gangline's dashboard",
    "kueueViz": "its replicas, resources, nodeSelector, tolerations … go into `ui`",
    "metrics.prometheusNamespace": "leave it out: the ServiceMonitor is in the installation's namespace",
    "metrics.serviceMonitor": "write `monitoring: {serviceMonitor: …}`",
    "metricsService": "leave it out: there is nothing to choose",
    "webhookService": "leave it out: there is nothing to choose",
    "mutatingWebhook": "leave it out: there is nothing to choose",
    "validatingWebhook": "leave it out: there is nothing to choose",
    "kubernetesClusterDomain": "leave it out: there is nothing to choose",
    "nameOverride": "leave it out: names are fixed, so that there is one installation in a cluster",
    "fullnameOverride": "leave it out: names are fixed, so that there is one installation in a cluster",
    "global": "its imagePullSecrets go into `imagePullSecrets`",
}
#: faults that a message lists
MOST_FAULTS: Final = 20


# --- read -------------------------------------------------------------------------------------------------------------


def defaults() -> Json:
    return Values().model_dump(by_alias=True)


def chosen(given: Sequence[Json]) -> Json:
    """The defaults with each of the given values over them, mapping by mapping as Helm does it. Raises ValuesError."""
    merged = defaults()
    for each in given:
        merged = _over(merged, each)
    try:
        return Values.model_validate(merged, strict=True, by_alias=True, by_name=False).model_dump(by_alias=True)
    except ValidationError as error:
        found = [_in_words(each) for each in error.errors(include_url=False, include_input=False)]
        more = [f"and {len(found) - MOST_FAULTS} more"] if len(found) > MOST_FAULTS else []
        raise ValuesError("\n".join([*found[:MOST_FAULTS], *more])) from None


def _over(below: Json, above: Json) -> Json:
    """A null removes what was below, as in Helm."""
    merged = dict(below)
    for key, value in above.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _over(merged[key], cast(Json, value))
        else:
            merged[key] = value
    return merged


def _in_words(error: ErrorDetails) -> str:
    where = ".".join(bounded.printable(str(step))[: bounded.SHOWN] for step in error["loc"])
    words = "there is no such value" if error["type"] == "extra_forbidden" else error["msg"].lower()
    advice = OF_KUEUES_CHART.get(where) or OF_KUEUES_CHART.get(where.partition(".")[0])
    if error["type"] == "extra_forbidden" and advice:
        return f"{where}: a value of Kueue's chart; {advice}"
    return f"{where or 'values'}: {words}"


def load(text: str) -> Json:
    """A file of values. Raises ValuesError."""
    if len(text) > LONGEST:
        raise ValuesError("too long for values")
    try:
        read = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValuesError(f"not YAML: {error}") from error
    if read is None:
        return {}
    if not isinstance(read, dict) or not all(isinstance(key, str) for key in cast(Json, read)):
        raise ValuesError("not a mapping of values")
    return cast(Json, read)


@bounded.parser(LONGEST_SETTING, refuse=lambda _: ValuesError("too long for a value"), worst=("a.", "a=[", "a={b: "))
def setting(text: str) -> Json:
    """`operator.replicas=3` as values; what comes after the = is YAML. Raises ValuesError."""
    path, equals, value = text.partition("=")
    steps = path.split(".")
    if not equals or not all(steps) or len(steps) > 8:
        raise ValuesError(f"{bounded.shown(text)} is not of the form NAME.NAME=VALUE")
    try:
        read: Any = yaml.safe_load(value)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValuesError(f"{path}: not YAML: {error}") from error
    for step in reversed(steps):
        read = {step: read}
    return read


@bounded.parser(_LONGEST_REFERENCE, refuse=lambda text: ValuesError(f"{bounded.shown(text)} is too long for an image"))
def image(reference: str) -> Json:
    """`REGISTRY/NAME:TAG` or `REGISTRY/NAME@sha256:…` as values. Raises ValuesError."""
    repository, at, digest = reference.partition("@")
    if at:
        return {"repository": repository, "digest": digest}
    repository, colon, tag = reference.rpartition(":")
    if not colon or "/" in tag:
        raise ValuesError(f"{bounded.shown(reference)} has neither a tag nor a digest")
    return {"repository": repository, "tag": tag, "digest": ""}


# --- schema -----------------------------------------------------------------------------------------------------------


def schema() -> Json:
    """The JSON schema of values.yaml. A chart that has this one as a part may set `global`."""
    made = Values.model_json_schema(by_alias=True)
    made["properties"]["global"] = {"type": "object"}
    made.pop("title", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def described() -> Iterator[tuple[str, Any, str]]:
    """Path, default and description of every value, in order; sections with the default None."""
    yield from _described(Values, Values(), "")


def _described(kind: type[BaseModel], value: BaseModel, path: str) -> Iterator[tuple[str, Any, str]]:
    for name, field in kind.model_fields.items():
        inner, where = getattr(value, name), f"{path}{field.alias or name}"
        text = " ".join((field.description or "").split())
        if isinstance(inner, BaseModel):
            yield where, None, text
            yield from _described(type(inner), inner, f"{where}.")
        else:
            yield where, inner, text


def commented() -> str:
    """values.yaml: the defaults, each below its description."""
    lines = ["# Generated by `make manifests` from gangline.install.manifests.values. Do not edit.", ""]
    for path, default, text in described():
        *above, name = path.split(".")
        indent = "  " * len(above)
        lines += [f"{indent}# {line}" for line in textwrap.wrap(text, 118 - len(indent))]
        if default is None:
            lines.append(f"{indent}{name}:")
        else:
            dumped = yaml.safe_dump({name: default}, sort_keys=False, width=1000)
            lines += [f"{indent}{line}".replace("''", '""') for line in dumped.splitlines()]
    return "\n".join(lines) + "\n"
