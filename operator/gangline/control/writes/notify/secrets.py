"""Reads the Secrets with the addresses of receivers, as far as RBAC lets the operator read them."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import Forbidden


class SecretReader:
    """Reads Secrets one by one, by their names."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def read(self, namespace: str, name: str) -> Mapping[str, str]:
        """The data of a Secret. Where reading is forbidden, the error names the command that grants it."""
        try:
            return (await self._client.get(kube.SECRETS, namespace, name)).get("data") or {}
        except Forbidden as error:
            grant = f"gangline admin rbac --notify-secret {namespace}/{name} | kubectl apply -f -"
            raise Forbidden(error.status, error.reason, f"{error.message}; to grant it: {grant}") from error
