"""Every object of an installation, in the order in which they are applied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from gangline.api import names
from gangline.api.schema import crd_install
from gangline.install import rights
from gangline.install.manifests import alerts, people, workloads
from gangline.install.manifests.tree import (
    HTTP_PORT,
    KUEUE_NAMESPACE,
    METRICS_PORT,
    NAMESPACE,
    OPERATOR,
    OPERATOR_NAME,
    PRODUCT,
    UI,
    UI_NAME,
    UI_PORT,
    VISIBILITY_PORT,
    WEBHOOKS,
    WEBHOOKS_NAME,
    WEBHOOKS_PORT,
    All,
    Document,
    Each,
    Equal,
    FormattedText,
    IfElse,
    Node,
    NoNamespace,
    Not,
    Set,
    Spread,
    TemplateContext,
    Value,
    When,
    head,
    labels,
    render,
    selector,
)
from gangline.install.manifests.workloads import CERTIFICATE_SECRET
from gangline.kube.resources import Json

# --- cert-manager's objects, where it issues the webhooks' certificate ------------------------------------------------


_API: Final = "cert-manager.io/v1"
_WANTED: Final = Equal("certificates.mode", "cert-manager")


def certificate_documents() -> list[Document]:
    issuer = {**head(_API, "Issuer", WEBHOOKS_NAME, WEBHOOKS), "spec": {"selfSigned": {}}}
    ours = {"name": WEBHOOKS_NAME, "kind": "Issuer", "group": "cert-manager.io"}
    given = Set("certificates.issuerRef")
    spec = {
        "secretName": CERTIFICATE_SECRET,
        "dnsNames": [
            FormattedText(f"{WEBHOOKS_NAME}.{{}}.svc", (NAMESPACE,)),
            FormattedText(f"{WEBHOOKS_NAME}.{{}}.svc.cluster.local", (NAMESPACE,)),
        ],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "usages": ["digital signature", "server auth"],
        "issuerRef": IfElse(given, Value("certificates.issuerRef"), ours),
    }
    return [
        Document("certificates.yaml", issuer, All((_WANTED, Not(given)))),
        Document("certificates.yaml", {**head(_API, "Certificate", WEBHOOKS_NAME, WEBHOOKS), "spec": spec}, _WANTED),
    ]


# --- NetworkPolicies: what reaches the pods, and on request what they reach -------------------------------------------


_EGRESS: Final = Set("networkPolicy.egress.enabled")
_DNS: Final = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def network_documents() -> list[Document]:
    """The API server is on the nodes' network or outside: it has no pod that a policy could name."""
    operator = [
        _from("http", HTTP_PORT),
        _from("visibility", VISIBILITY_PORT),
        When(Set("metrics.secure"), _from("metrics", METRICS_PORT)),
    ]
    return [
        Document("networkpolicy.yaml", _policy(name, component, rules), Set("networkPolicy.enabled"))
        for name, component, rules in (
            (WEBHOOKS_NAME, WEBHOOKS, [_from("webhooks", WEBHOOKS_PORT)]),
            (OPERATOR_NAME, OPERATOR, operator),
        )
    ] + [
        Document(
            "ui.yaml",
            _policy(UI_NAME, UI, [_from("ui", UI_PORT)]),
            All((Set("ui.enabled"), Set("networkPolicy.enabled"))),
        )
    ]


def _policy(name: str, component: str, ingress: list[Node]) -> Json:
    server = {"ports": [Each("networkPolicy.egress.apiServerPorts", "port", {"protocol": "TCP"})]}
    return {
        **head("networking.k8s.io/v1", "NetworkPolicy", name, component),
        "spec": {
            "podSelector": {"matchLabels": selector(component)},
            "policyTypes": ["Ingress", When(_EGRESS, "Egress")],
            "ingress": ingress,
            "egress": When(_EGRESS, [_DNS, server, Spread("networkPolicy.egress.extra")]),
        },
    }


def _from(peers: str, port: int) -> Json:
    """The rule that lets peers reach a port: everybody, unless the values name peers."""
    path = f"networkPolicy.ingress.{peers}"
    return {"ports": [{"port": port, "protocol": "TCP"}], "from": When(Set(path), [Spread(path)])}


_RBAC: Final = "rbac.authorization.k8s.io/v1"
_KEEP: Final = {"helm.sh/resource-policy": "keep"}
#: the namespace enforces the restricted Pod Security Standard, under which all pods run
_RESTRICTED: Final = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}


def documents() -> list[Document]:
    """The tree of the installation."""
    return [
        Document("namespaces.yaml", _own_namespace(), only="plain"),
        Document(
            "namespaces.yaml",
            head("v1", "Namespace", KUEUE_NAMESPACE, namespace=None, annotations=_KEEP),
            All((Set("kueue.createNamespace"), NoNamespace(KUEUE_NAMESPACE))),
        ),
        *(
            Document(f"crds/{crd['metadata']['name']}.yaml", _crd(crd), Set("crds.enabled"))
            for crd in crd_install.crds()
        ),
        *_rights(),
        *people.documents(),
        *certificate_documents(),
        *network_documents(),
        *workloads.documents(),
        *alerts.alert_documents(),
        *alerts.dashboard_documents(),
    ]


def plain(
    chosen: Json,
    namespace: str = names.SYSTEM_NAMESPACE,
    *,
    manager: str = PRODUCT,
    others: frozenset[str] = frozenset(),
) -> list[Json]:
    """The objects with these values (`values.chosen`); `others`: namespaces that are not to be created."""
    return render(documents(), TemplateContext(chosen, namespace, manager, namespaces=others))


def _own_namespace() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {**labels(), **_RESTRICTED}},
    }


def _crd(crd: Json) -> Json:
    meta = crd["metadata"]
    kept = {"annotations": When(Set("crds.keep"), _KEEP)}
    return {**crd, "metadata": {**meta, "labels": {**meta.get("labels", {}), **labels()}, **kept}}


# --- rights of operator and webhooks ----------------------------------------------------------------------------------


def _rights() -> Iterator[Document]:
    """Accounts, roles and bindings as `gangline admin rbac` prints them, in the namespace of the installation."""
    for body in rights.manifests():
        if body["kind"] != "Namespace":
            yield Document("rights.yaml", _ours(body))
    for body in rights.probing():
        yield Document("rights.yaml", _ours(body), Set("operator.probeNodes"))
    for body in rights.cordoning():
        yield Document("rights.yaml", _ours(body), Set("operator.cordonNodes"))
    for body in rights.profiles(KUEUE_NAMESPACE):
        yield Document("rights.yaml", _ours(body), Set("operator.clusterProfiles"))
    yield from _readable_secrets(f"{OPERATOR_NAME}-secrets", "operator.notifySecrets", NAMESPACE)
    yield from _readable_secrets(rights.CLUSTER_SECRETS, "operator.clusterSecrets", KUEUE_NAMESPACE)


def _readable_secrets(name: str, value: str, namespace: Node) -> Iterator[Document]:
    """The Secrets that a value of the chart lists, which the operator may read in a namespace."""
    readable = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": Value(value)}
    role = {**head(_RBAC, "Role", name, OPERATOR, namespace), "rules": [readable]}
    binding = {
        **head(_RBAC, "RoleBinding", name, OPERATOR, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": NAMESPACE}],
    }
    for body in (role, binding):
        yield Document("rights.yaml", body, Set(value))


def _ours(body: Json) -> Node:
    meta = {**body["metadata"], "labels": {**body["metadata"].get("labels", {}), **labels()}}
    return _moved({**body, "metadata": meta})


def _moved(node: Any) -> Node:
    """The node with the namespace of the installation in the place of the usual one."""
    if isinstance(node, dict):
        return {key: _moved(inner) for key, inner in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [_moved(inner) for inner in node]
    return NAMESPACE if node == names.SYSTEM_NAMESPACE else node
