"""The claims of roles whose pods get their shares of GPUs by DRA.

Pods that wait for their place get a claim each from the operator (`api.sharing.card_claims`); the others get theirs from a
ResourceClaimTemplate of the gang. Its name follows from what it asks for, so it never has to change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from gangline.api import names
from gangline.api.sharing import card_claims
from gangline.jobs.base import Json, PodSetInfo
from gangline.jobs.gpujob.gang import Gang, Role
from gangline.kube.resources import RESOURCE_CLAIM_TEMPLATES

_DIGEST_LENGTH: Final = 10


def templates(gang: Gang, infos: Sequence[PodSetInfo], owner: Json) -> list[Json]:
    """The ResourceClaimTemplates of those roles whose pods do not wait for a place, by the order of the roles."""
    made: list[Json] = []
    for role, info in zip(gang.roles, infos, strict=True):
        spec = _asked(role)
        if spec is not None and not _waits(info):
            labels = {names.GPUJOB_LABEL: gang.name, names.ROLE_LABEL: role.name}
            meta = {"name": _name(gang, role, spec), "namespace": gang.namespace, "labels": labels}
            made.append(
                {
                    "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
                    "kind": RESOURCE_CLAIM_TEMPLATES.kind,
                    "metadata": {**meta, "ownerReferences": [owner]},
                    "spec": {"metadata": {"labels": labels}, "spec": spec},
                }
            )
    return made


def claim(template: Json, gang: Gang, role: Role, info: PodSetInfo) -> None:
    """Let the pods of this template, which is that of the role as admitted, claim their share."""
    spec = _asked(role)
    if spec is None:
        return
    by = card_claims.BY_OPERATOR if _waits(info) else _name(gang, role, spec)
    pod = template["spec"]
    row = {"name": card_claims.CLAIM, "resourceClaimTemplateName": by}
    pod["resourceClaims"] = [*(pod.get("resourceClaims") or ()), row]
    resources = pod["containers"][0].get("resources") or {}
    claims = [*(resources.get("claims") or ()), {"name": card_claims.CLAIM}]
    pod["containers"][0]["resources"] = {**resources, "claims": claims}


def claims(gang: Gang) -> list[Role]:
    """The roles whose pods claim their share."""
    return [role for role in gang.roles if _asked(role) is not None]


def _asked(role: Role) -> Json | None:
    return card_claims.spec((role.template.get("metadata") or {}).get("annotations") or {})


def _waits(info: PodSetInfo) -> bool:
    return any(gate.get("name") == names.TOPOLOGY_GATE for gate in info.scheduling_gates)


def _name(gang: Gang, role: Role, spec: Json) -> str:
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"{gang.child_name(role)}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]}"
