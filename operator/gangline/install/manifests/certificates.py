"""cert-manager's objects, where it issues the webhooks' certificate."""

from __future__ import annotations

from typing import Final

from gangline.install.manifests.naming import WEBHOOKS, WEBHOOKS_NAME, head
from gangline.install.manifests.tree import NAMESPACE, All, Document, Equal, FormattedText, IfElse, Not, Set, Value
from gangline.install.manifests.workloads import CERTIFICATE_SECRET

_API: Final = "cert-manager.io/v1"
_WANTED: Final = Equal("certificates.mode", "cert-manager")


def documents() -> list[Document]:
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
