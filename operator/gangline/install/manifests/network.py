"""NetworkPolicies: what reaches the pods, and on request what they reach."""

from __future__ import annotations

from typing import Final

from gangline.install.manifests.naming import (
    HTTP_PORT,
    METRICS_PORT,
    OPERATOR,
    OPERATOR_NAME,
    VISIBILITY_PORT,
    WEBHOOKS,
    WEBHOOKS_NAME,
    WEBHOOKS_PORT,
    head,
    selector,
)
from gangline.install.manifests.tree import Document, Each, Node, Set, Spread, When
from gangline.kube.resources import Json

_EGRESS: Final = Set("networkPolicy.egress.enabled")
_DNS: Final = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def documents() -> list[Document]:
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
