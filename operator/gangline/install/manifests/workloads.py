"""The operator, the webhooks and the dashboard: Deployments, Services, disruption budgets, configuration, history."""

from __future__ import annotations

from typing import Any, Final

from gangline.install.manifests.tree import (
    HTTP_PORT,
    KUEUE_NAMESPACE,
    METRICS_PORT,
    NAMESPACE,
    OPERATOR,
    OPERATOR_NAME,
    PART_OF,
    PRODUCT,
    UI,
    UI_NAME,
    UI_PORT,
    VISIBILITY_PORT,
    WEBHOOKS,
    WEBHOOKS_NAME,
    WEBHOOKS_PORT,
    All,
    Digest,
    Document,
    Equal,
    FormattedText,
    IfElse,
    JsonText,
    Node,
    Not,
    Set,
    Spread,
    Value,
    When,
    head,
    selector,
)
from gangline.kube.resources import Json

CONFIGURATION: Final = "gangline-configuration"
HISTORY: Final = "gangline-history"
#: the Secret of cert-manager's certificate
CERTIFICATE_SECRET: Final = "gangline-webhooks-tls"
_CERT_MANAGER: Final = Equal("certificates.mode", "cert-manager")
_CLIENT_CA: Final = Set("webhooks.clientCa")
_DATABASE: Final = Set("history.database.secret")
_VOLUME: Final = Set("history.volume.enabled")
_UI: Final = Set("ui.enabled")
_AUDIT: Final = All((Set("audit.enabled"), Not(All((Equal("audit.enabled", "auto"), Not(_UI))))))
_UI_TLS: Final = Set("ui.tlsSecret")
_OIDC: Final = Set("ui.oidc.issuer")
_OIDC_SECRET: Final = Set("ui.oidc.secret")
#: where a pod finds the API server's CA
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_HISTORY_DIRECTORY: Final = "/var/lib/gangline"
_IMAGE: Final = IfElse(
    Set("image.digest"),
    FormattedText("{}@{}", (Value("image.repository"), Value("image.digest"))),
    FormattedText("{}:{}", (Value("image.repository"), Value("image.tag"))),
)


def documents() -> list[Document]:
    return [
        Document("configuration.yaml", _configuration()),
        Document("history.yaml", _claim(), All((_VOLUME, Not(Set("history.volume.existingClaim"))))),
        Document("priorityclass.yaml", _priority_class(), Set("priorityClass.create")),
        Document("webhooks.yaml", _service(WEBHOOKS_NAME, WEBHOOKS, [_port("https", 443, WEBHOOKS_PORT)])),
        Document("webhooks.yaml", _webhooks()),
        Document("webhooks.yaml", _budget(WEBHOOKS_NAME, WEBHOOKS)),
        Document("operator.yaml", _service(OPERATOR_NAME, OPERATOR, [_port("http", HTTP_PORT, HTTP_PORT)])),
        Document(
            "operator.yaml",
            _service(f"{OPERATOR_NAME}-metrics", OPERATOR, [_port("https", METRICS_PORT, METRICS_PORT)]),
            Set("metrics.secure"),
        ),
        Document("operator.yaml", _operator()),
        Document("operator.yaml", _budget(OPERATOR_NAME, OPERATOR)),
        Document("ui.yaml", _service(UI_NAME, UI, [_port("http", 80, UI_PORT)]), _UI),
        Document("ui.yaml", _ui(), _UI),
        Document("kueue-alias.yaml", _kueue_alias(), Set("kueue.alias")),
        Document("unregister.yaml", _unregistration(), only="helm"),
    ]


# --- the operator -----------------------------------------------------------------------------------------------------


def _operator() -> Json:
    args = [
        "admin",
        "operator",
        f"--listen=0.0.0.0:{HTTP_PORT}",
        "--config=/etc/gangline/config.yaml",
        When(Not(_DATABASE), f"--history={_HISTORY_DIRECTORY}/history.db"),
        When(Set("history.labels"), FormattedText("--history-labels={}", (Value("history.labels"),))),
        f"--model={_HISTORY_DIRECTORY}/model.gz",
        When(_AUDIT, f"--audit={_HISTORY_DIRECTORY}/audit/audit.jsonl"),
        *_logging(OPERATOR),
        When(Set("metrics.secure"), f"--metrics-listen=0.0.0.0:{METRICS_PORT}"),
        When(
            Set("operator.progressReports"),
            FormattedText(f"--progress-url=http://{OPERATOR_NAME}.{{}}:{HTTP_PORT}", (NAMESPACE,)),
        ),
        When(Set("operator.telemetryUrl"), FormattedText("--telemetry={}", (Value("operator.telemetryUrl"),))),
        *_common_arguments(OPERATOR),
    ]
    database = {"secretKeyRef": {"name": Value("history.database.secret"), "key": Value("history.database.key")}}
    container = {
        **_container(OPERATOR, args),
        "env": [
            *_ENVIRONMENT,
            When(_DATABASE, {"name": "GANGLINE_HISTORY", "valueFrom": database}),
            Spread("operator.extraEnv"),
        ],
        "ports": [
            {"name": "http", "containerPort": HTTP_PORT},
            {"name": "visibility", "containerPort": VISIBILITY_PORT},
            When(Set("metrics.secure"), {"name": "metrics", "containerPort": METRICS_PORT}),
        ],
        **_probes("http", "HTTP"),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "history", "mountPath": _HISTORY_DIRECTORY},
            {"name": "configuration", "mountPath": "/etc/gangline", "readOnly": True},
            Spread("operator.extraVolumeMounts"),
        ],
    }
    claim = IfElse(Set("history.volume.existingClaim"), Value("history.volume.existingClaim"), HISTORY)
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {
            "name": "history",
            "emptyDir": When(Not(_VOLUME), {}),
            "persistentVolumeClaim": When(_VOLUME, {"claimName": claim}),
        },
        {"name": "configuration", "configMap": {"name": CONFIGURATION}},
        Spread("operator.extraVolumes"),
    ]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    return {
        **head("apps/v1", "Deployment", OPERATOR_NAME, OPERATOR),
        "spec": {
            "replicas": IfElse(_VOLUME, 1, Value("operator.replicas")),
            "selector": {"matchLabels": selector(OPERATOR)},
            "strategy": IfElse(_VOLUME, {"type": "Recreate"}, rolling),
            "template": _pod(OPERATOR, OPERATOR_NAME, container, volumes, 60),
        },
    }


def _configuration() -> Json:
    return {
        **head("v1", "ConfigMap", CONFIGURATION, OPERATOR),
        "data": {"config.yaml": JsonText(Value("configuration"))},
    }


def _claim() -> Json:
    chosen = Value("history.volume.storageClassName")
    return {
        **head("v1", "PersistentVolumeClaim", HISTORY, OPERATOR, annotations={"helm.sh/resource-policy": "keep"}),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": Value("history.volume.size")}},
            "storageClassName": When(Set("history.volume.storageClassName"), chosen),
        },
    }


# --- the webhooks -----------------------------------------------------------------------------------------------------


def _webhooks() -> Json:
    args = [
        "admin",
        "webhooks",
        f"--listen=0.0.0.0:{WEBHOOKS_PORT}",
        "--config=/etc/gangline/configuration/config.yaml",
        f"--service={WEBHOOKS_NAME}",
        FormattedText("--namespace={}", (NAMESPACE,)),
        When(Not(_CERT_MANAGER), "--mode=service"),
        When(_CERT_MANAGER, "--mode=cert-manager"),
        When(_CERT_MANAGER, "--cert-dir=/etc/gangline/tls"),
        When(_CERT_MANAGER, FormattedText(f"--inject-ca-from={{}}/{WEBHOOKS_NAME}", (NAMESPACE,))),
        When(_CLIENT_CA, "--client-ca=/etc/gangline/clients/ca.crt"),
        "--linger=10",
        *_logging(WEBHOOKS),
        *_common_arguments(WEBHOOKS),
    ]
    container = {
        **_container(WEBHOOKS, args),
        "env": [*_ENVIRONMENT, Spread("webhooks.extraEnv")],
        "ports": [{"name": "https", "containerPort": WEBHOOKS_PORT}],
        **_probes("https", "HTTPS"),
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "configuration", "mountPath": "/etc/gangline/configuration", "readOnly": True},
            When(_CERT_MANAGER, {"name": "tls", "mountPath": "/etc/gangline/tls", "readOnly": True}),
            When(_CLIENT_CA, {"name": "clients", "mountPath": "/etc/gangline/clients", "readOnly": True}),
        ],
    }
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "configuration", "configMap": {"name": CONFIGURATION}},
        When(_CERT_MANAGER, {"name": "tls", "secret": {"secretName": CERTIFICATE_SECRET}}),
        When(_CLIENT_CA, {"name": "clients", "configMap": {"name": Value("webhooks.clientCa")}}),
    ]
    return {
        **head("apps/v1", "Deployment", WEBHOOKS_NAME, WEBHOOKS),
        "spec": {
            "replicas": Value("webhooks.replicas"),
            "selector": {"matchLabels": selector(WEBHOOKS)},
            # requests wait for an answer: a new pod is ready before an old one ends
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": _pod(WEBHOOKS, WEBHOOKS_NAME, container, volumes, 30),
        },
    }


def _unregistration() -> Json:
    """The Job that removes the registration of the webhooks before Helm removes the webhooks: API servers stop calling them, and
    stored objects stay readable without them.
    """
    container = {
        **_container(WEBHOOKS, ["admin", "webhooks", "--unregister", FormattedText("--namespace={}", (NAMESPACE,))]),
        "env": [*_ENVIRONMENT],
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    hook = {
        "helm.sh/hook": "pre-delete",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded,hook-failed",
    }
    template = _pod("unregister", WEBHOOKS_NAME, container, [{"name": "tmp", "emptyDir": {}}], 30, of=WEBHOOKS)
    template["spec"]["restartPolicy"] = "Never"
    return {
        **head("batch/v1", "Job", "gangline-unregister", "unregister", annotations=hook),
        "spec": {"backoffLimit": 3, "activeDeadlineSeconds": 240, "template": template},
    }


# --- the dashboard ----------------------------------------------------------------------------------------------------


def _ui() -> Json:
    """The dashboard's pods have no token: they ask with those of the people who look."""
    args = [
        "ui",
        When(Not(_OIDC), "--login=token"),
        When(_OIDC, "--login=oidc"),
        When(_OIDC, FormattedText("--oidc-issuer={}", (Value("ui.oidc.issuer"),))),
        When(_OIDC, FormattedText("--oidc-client-id={}", (Value("ui.oidc.clientId"),))),
        When(_OIDC, FormattedText("--url={}", (Value("ui.oidc.url"),))),
        When(_OIDC_SECRET, "--oidc-client-secret-file=/etc/gangline/oidc/client-secret"),
        f"--listen=0.0.0.0:{UI_PORT}",
        FormattedText("--base={}", (Value("ui.base"),)),
        When(Set("ui.cluster"), FormattedText("--cluster={}", (Value("ui.cluster"),))),
        When(_UI_TLS, "--tls-cert=/etc/gangline/tls/tls.crt"),
        When(_UI_TLS, "--tls-key=/etc/gangline/tls/tls.key"),
        When(Set("ui.insecureCookies"), "--insecure-cookies"),
        *_logging(UI),
        Spread("ui.extraArgs"),
    ]
    container = {
        **_container(UI, args),
        "env": [*_ENVIRONMENT, Spread("ui.extraEnv")],
        "ports": [{"name": "http", "containerPort": UI_PORT}],
        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
        "livenessProbe": {"tcpSocket": {"port": "http"}, "initialDelaySeconds": 10, "periodSeconds": 10},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "server", "mountPath": _ACCOUNT, "readOnly": True},
            When(_UI_TLS, {"name": "tls", "mountPath": "/etc/gangline/tls", "readOnly": True}),
            When(_OIDC_SECRET, {"name": "oidc", "mountPath": "/etc/gangline/oidc", "readOnly": True}),
        ],
    }
    volumes = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "server", "configMap": {"name": "kube-root-ca.crt"}},
        When(_UI_TLS, {"name": "tls", "secret": {"secretName": Value("ui.tlsSecret")}}),
        When(_OIDC_SECRET, {"name": "oidc", "secret": {"secretName": Value("ui.oidc.secret")}}),
    ]
    template = _pod(UI, "default", container, volumes, 15)
    template["spec"]["automountServiceAccountToken"] = False
    return {
        **head("apps/v1", "Deployment", UI_NAME, UI),
        "spec": {
            "replicas": Value("ui.replicas"),
            "selector": {"matchLabels": selector(UI)},
            "template": template,
        },
    }


# --- of all -----------------------------------------------------------------------------------------------------------


_ENVIRONMENT: Final[list[Json]] = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
    for name, path in (
        ("POD_IP", "status.podIP"),
        ("POD_NAME", "metadata.name"),
        ("POD_NAMESPACE", "metadata.namespace"),
    )
]


def _logging(component: str) -> list[Node]:
    return [
        FormattedText("--log-level={}", (Value(f"{component}.logLevel"),)),
        FormattedText("--log-format={}", (Value(f"{component}.logFormat"),)),
    ]


def _common_arguments(component: str) -> list[Node]:
    return [When(Set("trackFields"), "--track-fields"), Spread(f"{component}.extraArgs")]


def _container(component: str, args: list[Node]) -> Json:
    return {
        "name": component,
        "image": _IMAGE,
        "imagePullPolicy": Value("image.pullPolicy"),
        "args": args,
        "resources": Value(f"{component}.resources"),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _probes(port: str, scheme: str) -> Json:
    def probe(path: str, **times: int) -> Json:
        return {"httpGet": {"path": path, "port": port, "scheme": scheme}, "timeoutSeconds": 5, **times}

    return {
        "readinessProbe": probe("/readyz", periodSeconds=5, failureThreshold=2),
        "livenessProbe": probe("/healthz", initialDelaySeconds=10, periodSeconds=10, failureThreshold=6),
    }


def _pod(component: str, account: str, container: Json, volumes: list[Node], grace: int, *, of: str = "") -> Json:
    """A pod template under the restricted Pod Security Standard. No user is named: the image's is 65532, OpenShift's its own."""
    chosen = of or component
    apart: Any = {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": selector(component)},
                    },
                }
            ]
        }
    }
    fs_group = When(All((_VOLUME, Set("history.volume.fsGroup"))), Value("history.volume.fsGroup"))
    checksum = {"checksum/configuration": Digest(Value("configuration"))} if component in (OPERATOR, WEBHOOKS) else {}
    annotations: Json = {**checksum, Spread(f"{chosen}.podAnnotations"): None}  # type: ignore[dict-item]
    return {
        "metadata": {
            "labels": {**selector(component), PART_OF: PRODUCT, Spread(f"{chosen}.podLabels"): None},
            "annotations": annotations if checksum else When(Set(f"{chosen}.podAnnotations"), annotations),
        },
        "spec": {
            "serviceAccountName": account,
            "terminationGracePeriodSeconds": grace,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
                **({"fsGroup": fs_group} if component == OPERATOR else {}),
            },
            "priorityClassName": When(Set(f"{chosen}.priorityClassName"), Value(f"{chosen}.priorityClassName")),
            "imagePullSecrets": When(Set("imagePullSecrets"), Value("imagePullSecrets")),
            "nodeSelector": When(Set(f"{chosen}.nodeSelector"), Value(f"{chosen}.nodeSelector")),
            "tolerations": When(Set(f"{chosen}.tolerations"), Value(f"{chosen}.tolerations")),
            "affinity": IfElse(Set(f"{chosen}.affinity"), Value(f"{chosen}.affinity"), apart),
            "containers": [container],
            "volumes": volumes,
        },
    }


def _service(name: str, component: str, ports: list[Json]) -> Json:
    return {**head("v1", "Service", name, component), "spec": {"selector": selector(component), "ports": ports}}


def _port(name: str, port: int, target: int) -> Json:
    return {"name": name, "port": port, "targetPort": target, "protocol": "TCP"}


def _budget(name: str, component: str) -> Json:
    """One pod at a time ends while nodes are drained; pods that don't work don't hold up a drain."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": selector(component)},
    }
    return {**head("policy/v1", "PodDisruptionBudget", name, component), "spec": spec}


def _priority_class() -> Json:
    return {
        **head("scheduling.k8s.io/v1", "PriorityClass", "gangline", namespace=None),
        "value": Value("priorityClass.value"),
        "globalDefault": False,
        "description": "Gangline's operator and webhooks: GPU jobs wait while they don't run.",
    }


def _kueue_alias() -> Json:
    """A Deployment without pods: it only has the image, which `kubectl kueue version` prints."""
    matched = selector("kueue-alias")
    container = _container(OPERATOR, ["admin", "operator"])
    return {
        **head("apps/v1", "Deployment", "kueue-controller-manager", "kueue-alias", KUEUE_NAMESPACE),
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": matched},
            "template": {
                "metadata": {"labels": matched},
                "spec": {
                    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{**container, "name": "manager"}],
                },
            },
        },
    }
