"""The custom resource definitions: present, served, of this version, and converted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final, cast

from gangline import bounded
from gangline.api.read.conditions import millis_of
from gangline.api.schema import crd_install
from gangline.api.schema.kinds import CONVERTED
from gangline.console.doctor.cluster import PATIENCE, ClusterReads, Finding, failure, ok, unknown, warning
from gangline.console.doctor.examination import Findings
from gangline.console.doctor.installation import endpoints
from gangline.console.doctor.installation.leadership import leases
from gangline.control.feed import watched_kinds
from gangline.kube import resources as kube
from gangline.kube import versions
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json
from gangline.kube.transport import Call
from gangline.objects import Stored

UPDATE: Final = "gangline admin crds | kubectl apply --server-side --force-conflicts -f -"
#: CRDs without which the operator admits what needs none of their objects
_OPTIONAL: Final = frozenset(f"{kind.plural}.{kind.group}" for kind in watched_kinds.optional())
#: names of differing fields in one line
_FIELDS: Final = 3


async def definitions(cluster: ClusterReads) -> Findings:
    wanted = crd_install.crds()
    found = await asyncio.gather(*(_definition(cluster, crd) for crd in wanted))
    findings = [finding for crd, live in zip(wanted, found, strict=True) for finding in _examined(crd, live)]
    for finding in findings:
        yield finding
    if not findings:
        yield ok(f"{len(wanted)} kinds are served as this Gangline ({len(wanted)} CRDs) defines them")


async def _definition(cluster: ClusterReads, crd: Json) -> Json | None:
    return await cluster.get(kube.CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"])


def _examined(wanted: Json, live: Json | None) -> Iterator[Finding]:
    name = wanted["metadata"]["name"]
    if live is None:
        if name in _OPTIONAL:
            yield warning(f"{name} is not installed: its objects cannot be created", UPDATE)
        else:
            yield failure(f"{name} is not installed: nothing is admitted without it", UPDATE)
        return
    for kind in ("Established", "NamesAccepted"):
        if Stored(live).true_condition(kind) is None:
            said = (Stored(live).condition(kind) or {}).get("message") or "no reason is given"
            yield failure(f"{name} is not {kind}: {said}", "remove the CRD whose names conflict with it")
    served = {row["name"]: row for row in live["spec"]["versions"] if row.get("served")}
    for row in wanted["spec"]["versions"]:
        if row["name"] not in served:
            yield failure(f"{name} does not serve {row['name']}", UPDATE)
    storage = next((row["name"] for row in live["spec"]["versions"] if row.get("storage")), "")
    expected = next(row["name"] for row in wanted["spec"]["versions"] if row["storage"])
    if storage != expected:
        yield warning(f"{name} stores {storage or 'no version'}, not {expected}", UPDATE)
    yield from _differing(wanted, served)


def _differing(wanted: Json, served: dict[str, Json]) -> Iterator[Finding]:
    name = wanted["metadata"]["name"]
    for row in wanted["spec"]["versions"]:
        if row["name"] not in served:
            continue
        fields = list(differences(_schema(row), _schema(served[row["name"]])))
        if fields:
            shown = bounded.some(fields, _FIELDS)
            yield warning(f"{name} {row['name']} differs from this Gangline's, in {shown}", UPDATE)


def _schema(version: Json) -> Json:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def differences(wanted: Any, live: Any, path: str = "") -> Iterator[str]:
    """The paths of fields whose schemas differ; descriptions do not count."""
    if not isinstance(wanted, dict) or not isinstance(live, dict):
        if wanted != live:
            yield path or "."
        return
    ours, theirs = cast(Json, wanted), cast(Json, live)
    for key in sorted((ours.keys() | theirs.keys()) - {"description"}):
        if key in ("properties", "items"):
            below = path if key == "properties" else f"{path}[]"
            yield from _below(ours.get(key) or {}, theirs.get(key) or {}, below, key == "properties")
        elif ours.get(key) != theirs.get(key):
            yield path or "."
            return


def _below(ours: Json, theirs: Json, path: str, named: bool) -> Iterator[str]:
    if not named:
        yield from differences(ours, theirs, path)
        return
    for field in sorted(ours.keys() | theirs.keys()):
        where = f"{path}.{field}".lstrip(".")
        if field in ours and field in theirs:
            yield from differences(ours[field], theirs[field], where)
        else:
            yield where


async def conversion(cluster: ClusterReads) -> Findings:
    """Kinds with two differing versions: a webhook converts them, and an object in the version that is not stored can be read."""
    healthy = True
    for kind in CONVERTED:
        live = await cluster.get(kube.CUSTOM_RESOURCE_DEFINITIONS, None, kind.name)
        if live is None:
            continue
        async for finding in _converted(cluster, live):
            healthy = False
            yield finding
    if healthy:
        yield ok(f"both versions of {', '.join(kind.kind for kind in CONVERTED)} can be read")


async def _converted(cluster: ClusterReads, crd: Json) -> Findings:
    name, how = crd["metadata"]["name"], crd["spec"].get("conversion") or {}
    start = "start `gangline admin webhooks`: they register themselves"
    if how.get("strategy") != "Webhook":
        yield failure(f"{name} is converted by nobody: fields of the other version are lost", start)
        return
    client = (how.get("webhook") or {}).get("clientConfig") or {}
    trouble = await endpoints.trouble(cluster, client)
    if trouble:
        yield failure(f"{name} is converted by {endpoints.name_of(client)}: {trouble}", start)
    for version in (row["name"] for row in crd["spec"]["versions"] if row.get("served") and not row.get("storage")):
        path = f"/apis/{crd['spec']['group']}/{version}/{crd['spec']['names']['plural']}"
        resource = kube.Resource(crd["spec"]["group"], version, crd["spec"]["names"]["plural"])
        try:
            await cluster.api.json(Call("list", resource, "GET", path, {"limit": "1"}, within=PATIENCE))
        except ApiError as error:
            if error.status == 403:
                raise
            yield failure(f"{name} cannot be read in {version}: {error.message}", start)


# --- the version of Kubernetes, what it lacks, and whether clocks agree -----------------------------------------------


#: seconds by which two clocks may differ
SKEW: Final = 5.0


async def kubernetes(cluster: ClusterReads) -> Findings:
    said = await cluster.version()
    text = str(said.get("gitVersion"))
    version = versions.of(said)
    supported = f"{versions.OLDEST} to {versions.NEWEST} are supported"
    if version is None:
        yield unknown(f"{text!r} is no version; {supported}")
    elif version < versions.OLDEST:
        yield failure(f"{text}; {supported}", "update the cluster")
    elif version > versions.NEWEST:
        yield warning(f"{text}; {supported}", "update Gangline, or expect what nobody has tested")
    else:
        yield ok(f"{text}; {supported}")
    for sentence in versions.lacking(version) if version is not None else ():
        yield ok(sentence)


async def clocks(cluster: ClusterReads) -> Findings:
    """Check of this machine's clock and the leader's, both against the API server's."""
    now, ahead = await cluster.server_clock()
    if abs(ahead) > SKEW:
        side = "behind" if ahead > 0 else "ahead of"
        yield warning(f"this machine's clock is {abs(ahead):.0f} s {side} the API server's", "synchronise it (NTP)")
    else:
        yield ok("this machine's clock agrees with the API server's")
    for where, lease in await leases(cluster):
        renewed = millis_of((lease.get("spec") or {}).get("renewTime"))
        stored = max((millis_of(row.get("time")) for row in lease["metadata"].get("managedFields") or ()), default=0)
        # The API server dates its own record of a write, so both clocks are read at the same moment. Without that record,
        # a renewal in the future still betrays a clock that is ahead.
        skew = (renewed - stored if stored else max(0, renewed - now)) / 1000 if renewed else 0.0
        if abs(skew) > SKEW:
            side = "ahead of" if skew > 0 else "behind"
            advice = "synchronise the clock of its node (NTP): conditions carry its times"
            yield warning(f"the clock of the holder of {where} is {abs(skew):.0f} s {side} the API server's", advice)
