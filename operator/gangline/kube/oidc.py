"""Refreshes an OIDC id-token with the official client: the only module that imports `kubernetes`, in a process of its own.

    python -m gangline.kube.oidc < settings.json

In: `auth-provider.config` of a kubeconfig as JSON, on stdin. Out: the new `id-token` and `refresh-token`, or an `error`, as JSON
on stdout. The process is gone after each refresh, and with it the client's memory, its temporary files and calls that have
no time limit.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import sys
from typing import Any

from gangline import bounded

TOKENS = ("id-token", "refresh-token")


def main() -> None:
    logging.disable()  # the official client logs server responses
    try:
        answer = refreshed(json.load(sys.stdin))
    except Exception as error:
        answer = {"error": _words(error)}
    json.dump(answer, sys.stdout)


def refreshed(settings: dict[str, Any]) -> dict[str, str]:
    """The tokens that the issuer returns for the refresh token. Raises any exception of the official client."""
    from kubernetes.client import Configuration
    from kubernetes.config.kube_config import KubeConfigLoader

    expired = _expired()  # makes the loader refresh, which it does only for an expired token
    provider = {"client-secret": "", **settings, "id-token": expired}
    if not any(provider.get(f"idp-certificate-authority{suffix}") for suffix in ("", "-data")):
        provider["idp-certificate-authority"] = _trusted()  # without one the loader verifies nothing
    user = {"auth-provider": {"name": "oidc", "config": provider}}
    document = {
        "current-context": "oidc",
        "contexts": [{"name": "oidc", "context": {"cluster": "none", "user": "oidc"}}],
        "clusters": [{"name": "none", "cluster": {}}],
        "users": [{"name": "oidc", "user": user}],
    }
    KubeConfigLoader(document).load_and_set(Configuration())
    if provider["id-token"] == expired:
        raise ValueError("it gives no new token")
    return {name: provider[name] for name in TOKENS}


def _expired() -> str:
    part = base64.urlsafe_b64encode(b'{"exp":1}').decode().rstrip("=")
    return f"{part}.{part}.{part}"


def _trusted() -> str:
    """A file with the certificates of public authorities: the system's, else those that come with the official client."""
    import certifi

    return ssl.get_default_verify_paths().cafile or certifi.where()


def _words(error: Exception) -> str:
    """The error in words, without anything that could be a credential."""
    code = getattr(error, "error", None)  # OAuth's own, such as invalid_grant
    return f"{type(error).__name__} ({bounded.shown(code)})" if isinstance(code, str) and code else type(error).__name__


if __name__ == "__main__":
    main()
