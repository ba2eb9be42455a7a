"""Values of installations."""

from __future__ import annotations

from gangline.kube.resources import Json

#: values that between them turn everything on and off
CHOICES: dict[str, Json] = {
    "defaults": {},
    "everything": {
        "image": {"digest": f"sha256:{'0' * 64}"},
        "imagePullSecrets": [{"name": "registry"}],
        "configuration": {
            "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
            "namespace": "<&>'\"{{x}}",
        },
        "operator": {
            "replicas": 3,
            "extraArgs": ["--identity=a: b", "{{ .Values }}"],
            "extraEnv": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "podLabels": {"team": "platform"},
            "podAnnotations": {"note": "yes"},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "dedicated", "operator": "Exists"}],
            "notifySecrets": ["chat", "mail"],
            "clusterSecrets": ["worker-1"],
            "progressReports": True,
            "telemetryUrl": "http://prometheus.monitoring:9090",
            "extraVolumes": [{"name": "queries", "configMap": {"name": "queries"}}],
            "extraVolumeMounts": [{"name": "queries", "mountPath": "/queries"}],
        },
        "webhooks": {
            "clientCa": "api-server-clients",
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "gangline",
            "podAnnotations": {"a": "b"},
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        },
        "kueue": {"alias": True},
        "history": {"database": {"secret": "postgres", "key": "dsn"}, "labels": "team,example.com/project"},
        "audit": {"enabled": True},
        "metrics": {"secure": True},
        "monitoring": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "rules": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
        "networkPolicy": {
            "ingress": {
                "http": [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": {"jobs": "yes"}}}],
                "webhooks": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
            },
            "egress": {"enabled": True, "apiServerPorts": [6443], "extra": [{"ports": [{"port": 5432}]}]},
        },
        "priorityClass": {"create": True},
        "trackFields": True,
    },
    "little": {
        "crds": {"enabled": False},
        "roles": False,
        "kueue": {"createNamespace": False},
        "networkPolicy": {"enabled": False},
        "operator": {"priorityClassName": ""},
        "history": {"volume": {"enabled": True, "storageClassName": "fast"}},
    },
    "cert-manager": {
        "certificates": {"mode": "cert-manager"},
        "history": {"volume": {"enabled": True, "existingClaim": "mine", "fsGroup": 0}},
        "crds": {"keep": False},
    },
    "dashboard": {"ui": {"enabled": True}},
    "dashboard without a record": {"ui": {"enabled": True}, "audit": {"enabled": False}},
    "another issuer": {
        "certificates": {
            "mode": "cert-manager",
            "issuerRef": {"name": "ca", "kind": "ClusterIssuer", "group": "cert-manager.io"},
        },
    },
}
