"""Which operator wrote what, and who held the lease then, by the audit log of the API server."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gangline.api import names
from gangline.install import rights

Json = dict[str, Any]
LEASE = names.KUEUE_LEASE
#: of what operators write; leases tell who led
GROUPS = ("", "batch", "coordination.k8s.io", "gangline.io", "jobset.x-k8s.io", "kueue.x-k8s.io")


def flags(directory: Path) -> list[str]:
    """Flags of kube-apiserver that make it log the operators' writes with what came of them, to `log(directory)`."""
    operator = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{rights.OPERATOR.name}"
    rule = {
        "level": "RequestResponse",
        "users": [operator],
        "verbs": ["create", "update", "patch"],
        "resources": [{"group": group} for group in GROUPS],
    }
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [rule, {"level": "None"}],
    }
    path = directory / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return [f"--audit-policy-file={path}", f"--audit-log-path={log(directory)}"]


def log(directory: Path) -> Path:
    return directory / "apiserver-audit.json"


@dataclass(frozen=True, slots=True)
class Written:
    """One write that was let through: the revision that came of it, and whose it was. `holder`: of the lease, where it is one."""

    revision: int
    author: str
    what: str
    holder: str | None = None


def written(path: Path, *, after: int = 0) -> Iterator[Written]:
    """In the order of revisions; only those later than `after`."""
    with path.open() as lines:
        found = [entry for entry in map(_entry, lines) if entry is not None and entry.revision > after]
    return iter(sorted(found, key=lambda entry: entry.revision))


def _entry(line: str) -> Written | None:
    entry: Json = json.loads(line)
    answer, target = entry.get("responseObject") or {}, entry["objectRef"]
    version = (answer.get("metadata") or {}).get("resourceVersion")
    if entry["responseStatus"]["code"] >= 300 or not version:
        return None
    author = entry.get("userAgent", "").partition("(")[2].rstrip(")")
    lease = target["resource"] == "leases" and target.get("name") == LEASE
    holder = (answer["spec"].get("holderIdentity") or "") if lease else None
    what = f"{entry['verb']} {target['resource']} {target.get('namespace', '')}/{target.get('name', '')}"
    return Written(int(version), author, what, holder)


def usurped(entries: Iterable[Written]) -> tuple[list[str], Counter[str]]:
    """Writes by operators that did not hold the lease at that revision, in words; and how many each made while it did."""
    holder, wrong, right = "", list[str](), Counter[str]()
    for entry in entries:
        if entry.holder is not None:
            holder = entry.holder
        elif entry.author == holder:
            right[holder] += 1
        else:
            wrong.append(f"revision {entry.revision}: {entry.what} by {entry.author}, while {holder or 'nobody'} leads")
    return wrong, right
