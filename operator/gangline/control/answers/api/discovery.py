"""Discovery documents for API servers and clients: the groups, versions and resources that are served here. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gangline.control.answers.api.question import LONGEST_USAGE
from gangline.kube.resources import Json

#: verb -> method of HTTP
METHODS: Final = {"get": "get", "list": "get", "watch": "get", "create": "post"}
#: the verb of a list that goes on
WATCH: Final = "watch"


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource, or a subresource of one, and the kind of what is answered.

    A resource without verbs belongs to another group; here it has only a subresource. `everywhere`: what it lists in a namespace
    it also lists in all of them, and the subresource of a name that is unique in the cluster is also got without a namespace.
    `parameters`: name and type of those in the query.
    """

    plural: str
    kind: str
    verbs: tuple[str, ...] = ()
    subresource: str = ""
    singular: str = ""
    namespaced: bool = True
    everywhere: bool = False
    parameters: tuple[tuple[str, str], ...] = ()
    about: str = ""
    #: seconds that a question may look back; None: as far as most may
    longest: int | None = None
    #: False: the webhooks ask, and no role of people has the right
    for_people: bool = True

    @property
    def name(self) -> str:
        return f"{self.plural}/{self.subresource}" if self.subresource else self.plural

    def paths(self, root: str) -> Iterator[tuple[str, str]]:
        """Yields each verb and its URL path below the group's root. A watch is a list with a parameter; of what can only be
        watched, the path of the list is the watch's.
        """
        scope = f"{root}/namespaces/{{namespace}}" if self.namespaced else root
        for verb in self.verbs:
            if verb == WATCH and "list" in self.verbs:
                continue
            if verb == "get":
                one = f"{self.plural}/{{name}}" + (f"/{self.subresource}" if self.subresource else "")
                yield verb, f"{scope}/{one}"
                if self.subresource and self.everywhere:
                    yield verb, f"{root}/{one}"
                continue
            yield verb, f"{scope}/{self.plural}"
            if verb in ("list", WATCH) and self.namespaced and self.everywhere:
                yield verb, f"{root}/{self.plural}"


@dataclass(frozen=True, slots=True)
class ApiGroup:
    """An API group that is served. `versions`: the preferred one last."""

    name: str
    versions: tuple[str, ...]
    resources: tuple[ServedResource, ...]

    def root(self, version: str) -> str:
        return f"/apis/{self.name}/{version}"

    def find(self, plural: str, subresource: str = "") -> ServedResource:
        return next(each for each in self.resources if (each.plural, each.subresource) == (plural, subresource))

    # --- documents ----------------------------------------------------------------------------------------------------

    def document(self) -> Json:
        """The document at `/apis/GROUP`."""
        return {"kind": "APIGroup", "apiVersion": "v1", **self.entry()}

    def entry(self) -> Json:
        versions = [
            {"groupVersion": f"{self.name}/{version}", "version": version} for version in reversed(self.versions)
        ]
        return {"name": self.name, "versions": versions, "preferredVersion": versions[0]}

    def resource_list(self, version: str) -> Json:
        """The document at `/apis/GROUP/VERSION`."""
        resources = [
            {
                "name": each.name,
                "singularName": each.singular,
                "namespaced": each.namespaced,
                "kind": each.kind,
                "verbs": list(each.verbs),
            }
            for each in self.resources
        ]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{self.name}/{version}",
            "resources": resources,
        }

    def operations(self, version: str, parameter: Any) -> Json:
        """The `paths` of an OpenAPI document."""
        found: Json = {}
        for each in self.resources:
            for verb, path in each.paths(self.root(version)):
                found.setdefault(path, {})[METHODS[verb]] = _operation(self.name, version, each, verb, path, parameter)
        return found


VISIBILITY: Final = ApiGroup(
    "visibility.kueue.x-k8s.io",
    ("v1beta1", "v1beta2"),
    tuple(
        served
        for plural, kind, namespaced in (("clusterqueues", "ClusterQueue", False), ("localqueues", "LocalQueue", True))
        for served in (
            ServedResource(plural, kind, singular=kind.lower(), namespaced=namespaced),
            ServedResource(
                plural,
                "PendingWorkloadsSummary",
                ("get",),
                "pendingworkloads",
                namespaced=namespaced,
                parameters=(("offset", "integer"), ("limit", "integer")),
                about=f"Pending workloads of a {kind}, in queue order.",
            ),
        )
    ),
)

_PAGED: Final = (("limit", "integer"), ("continue", "string"))
_KIND: Final = ("kind", "string")
_WATCHED: Final = (
    (WATCH, "boolean"),
    ("resourceVersion", "string"),
    ("timeoutSeconds", "integer"),
    ("allowWatchBookmarks", "boolean"),
)

ANSWERS: Final = ApiGroup(
    "answers.gangline.io",
    ("v1alpha1",),
    (
        ServedResource(
            "queuedjobs",
            "QueuedJob",
            ("get", "list"),
            singular="queuedjob",
            everywhere=True,
            parameters=(
                *_PAGED,
                ("clusterQueue", "string"),
                ("finished", "boolean"),
                ("times", "boolean"),
                ("annotations", "string"),
                _KIND,
            ),
            about="Jobs that name a queue: state, position, and with times=true the expected start and runtime.",
        ),
        ServedResource(
            "queuedjobs",
            "JobExplanation",
            ("get",),
            "why",
            parameters=(_KIND,),
            about="Why a job is in its state, who holds what it needs, and what would let it start.",
        ),
        ServedResource(
            "queuedjobs",
            "JobRemedies",
            ("get",),
            "remedies",
            parameters=(_KIND,),
            about="What would let a waiting job start earlier, its author's and an administrator's, ranked by hours gained.",
        ),
        ServedResource(
            "queuedjobs",
            "JobPromises",
            ("get",),
            "promises",
            parameters=(_KIND,),
            about="What was said of a job's start, each time that moved and why, and when it started.",
        ),
        ServedResource(
            "queuedjobs",
            "JobStory",
            ("get",),
            "story",
            parameters=(_KIND,),
            about="Each change of a job's state that the leader remembers, with its cause.",
        ),
        ServedResource(
            "queuedjobs",
            "JobPods",
            ("get",),
            "pods",
            parameters=(_KIND,),
            about="The pods of a job: where each is, and whether it runs.",
        ),
        ServedResource(
            "queuedjobs",
            "JobVictims",
            ("get",),
            "victims",
            parameters=(_KIND,),
            about="The jobs that a waiting job would preempt now, were it next, and what each would lose. Nothing is preempted.",
        ),
        ServedResource(
            "queuedjobs",
            "JobAttempts",
            ("get",),
            "attempts",
            parameters=(_KIND, ("cheaper", "boolean")),
            about="Each stretch in which the jobs of this name held quota: how it ended, and what it lost.",
        ),
        ServedResource(
            "plannedruns",
            "PlannedRun",
            ("list",),
            singular="plannedrun",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string"), ("horizonSeconds", "integer")),
            about="Which jobs run and when waiting ones will.",
        ),
        ServedResource(
            "jobattempts",
            "JobAttempt",
            ("list",),
            singular="jobattempt",
            everywhere=True,
            parameters=(
                *_PAGED,
                ("clusterQueue", "string"),
                ("sinceSeconds", "integer"),
                ("endedAs", "string"),
                ("job", "string"),
                _KIND,
                ("caused", "boolean"),
                ("cheaper", "boolean"),
            ),
            about="Each stretch in which a job held quota, those in progress first: how it ended, and what it lost.",
            longest=LONGEST_USAGE,
        ),
        ServedResource(
            "usagesums",
            "UsageSum",
            ("list",),
            singular="usagesum",
            everywhere=True,
            parameters=(
                *_PAGED,
                ("clusterQueue", "string"),
                ("sinceSeconds", "integer"),
                ("start", "integer"),
                ("end", "integer"),
                ("by", "string"),
                ("timeZone", "string"),
                ("halfLifeSeconds", "integer"),
            ),
            about="GPU-hours of a time by queue, namespace, user, flavor, kind or day: useful, lost to what, waited for.",
            longest=LONGEST_USAGE,
        ),
        ServedResource(
            "flavornodes",
            "FlavorNode",
            ("list",),
            singular="flavornode",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string")),
            about="The nodes of flavors: what they have, what is used of it, and by whom, in queues and outside of any.",
        ),
        ServedResource(
            "flavornodes",
            "NodeMoves",
            ("get",),
            "moves",
            about="Which gangs would leave a node, were it vacated now, and why others stay. Nothing is moved.",
        ),
        ServedResource(
            "queueshares",
            "QueueShare",
            ("list",),
            singular="queueshare",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string")),
            about="Quota, its use and the shares by which turns are taken, of ClusterQueues, LocalQueues and users.",
        ),
        ServedResource(
            "plannedcapacities",
            "PlannedCapacity",
            ("list",),
            singular="plannedcapacity",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string"), ("at", "integer")),
            about="What is planned at a time: quotas of ClusterQueues, open windows of Reservations, usable nodes of flavors.",
        ),
        ServedResource(
            "pastruns",
            "PastRun",
            ("list",),
            singular="pastrun",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string"), ("sinceSeconds", "integer")),
            about="Runs that have ended: how long they waited and ran, on which flavor, with how many GPU-hours.",
        ),
        ServedResource(
            "jobevents",
            "JobEvent",
            ("list", WATCH),
            singular="jobevent",
            everywhere=True,
            parameters=(*_PAGED, *_WATCHED, ("clusterQueue", "string"), ("sinceSeconds", "integer")),
            about="What happened to jobs lately: each change of state and its cause, recoveries, moved starts. With watch=true "
            "what happens from now on, or after resourceVersion.",
        ),
        ServedResource(
            "liverows",
            "LiveRow",
            (WATCH,),
            singular="liverow",
            everywhere=True,
            parameters=(*_WATCHED, ("sendInitialEvents", "boolean")),
            about="Jobs, queues, nodes and planned runs as they stand and change: a watch that begins with all of them.",
        ),
        ServedResource(
            "gangswaps",
            "GangSwap",
            ("list",),
            singular="gangswap",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string")),
            about="Gangs that lost nodes: which, how they recovered, and how long each stage took.",
        ),
        ServedResource(
            "queueaudits",
            "QueueAudit",
            ("list",),
            singular="queueaudit",
            everywhere=True,
            parameters=(*_PAGED, ("clusterQueue", "string")),
            about="Whether reserved jobs of a ClusterQueue started as promised, and what delayed them.",
        ),
        ServedResource(
            "decisions",
            "RecordedDecision",
            ("list",),
            singular="decision",
            everywhere=True,
            parameters=(
                *_PAGED,
                ("clusterQueue", "string"),
                ("workload", "string"),
                ("sinceSeconds", "integer"),
                ("untilSeconds", "integer"),
            ),
            about="Decisions as the operator's record has them, the oldest first.",
        ),
        ServedResource(
            "decisions",
            "DecisionInputs",
            ("get",),
            "inputs",
            everywhere=True,
            about="What was known when a decision was made, and whether the same is decided again.",
        ),
        ServedResource(
            "recordchecks",
            "RecordCheck",
            ("list",),
            singular="recordcheck",
            namespaced=False,
            about="Whether all recorded decisions are made again when they are repeated: the last check. To ask begins "
            "another one, at most every ten minutes.",
        ),
        ServedResource(
            "forecastaccuracies",
            "ForecastAccuracy",
            ("list",),
            singular="forecastaccuracy",
            everywhere=True,
            about="How accurate forecasts and expected starts have been.",
        ),
        ServedResource(
            "operatorstates",
            "OperatorState",
            ("list",),
            singular="operatorstate",
            namespaced=False,
            about="The leading operator: since when it leads, how long its rounds take, what waits to be written, and what it "
            "could not handle.",
        ),
        ServedResource(
            "whatifs",
            "WhatIf",
            ("create",),
            singular="whatif",
            about="When the job in spec.job would start, if submitted now or at the time spec.at, and what would start it "
            "earlier; or what spec.change would do: to a waiting job, a queue's quota or a node. Nothing is stored.",
        ),
        ServedResource(
            "planchecks",
            "PlanCheck",
            ("create",),
            singular="plancheck",
            namespaced=False,
            about="What would keep the Reservation or QuotaPlan in spec (kind, name, spec) from being honoured beside the "
            "others, and what could be instead. The webhooks ask it. Nothing is stored.",
            for_people=False,
        ),
    ),
)

GROUPS: Final = (VISIBILITY, ANSWERS)


def group_list() -> Json:
    """The document at `/apis`."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group.entry() for group in GROUPS]}


def documents() -> dict[str, Json]:
    """The discovery and OpenAPI documents by their paths."""
    found: dict[str, Json] = {"/apis": group_list(), "/openapi/v2": openapi_v2(), "/openapi/v3": openapi_v3_index()}
    for group in GROUPS:
        found[f"/apis/{group.name}"] = group.document()
        for version in group.versions:
            found[group.root(version)] = group.resource_list(version)
            found[f"/openapi/v3{group.root(version)}"] = openapi_v3(group, version)
    return found


# --- OpenAPI ----------------------------------------------------------------------------------------------------------


def openapi_v2() -> Json:
    """The document at `/openapi/v2`, which the API server merges into its own."""
    paths: Json = {}
    for group in GROUPS:
        for version in group.versions:
            paths |= group.operations(version, _v2)
    return {"swagger": "2.0", "info": {"title": "Gangline", "version": "v1"}, "paths": paths, "definitions": {}}


def openapi_v3_index() -> Json:
    """The document at `/openapi/v3`."""
    roots = [group.root(version) for group in GROUPS for version in group.versions]
    return {"paths": {root.lstrip("/"): {"serverRelativeURL": f"/openapi/v3{root}"} for root in roots}}


def openapi_v3(group: ApiGroup, version: str) -> Json:
    """The document at `/openapi/v3/apis/GROUP/VERSION`."""
    paths = group.operations(version, _v3)
    return {"openapi": "3.0.0", "info": {"title": group.name, "version": version}, "paths": paths, "components": {}}


def _operation(group: str, version: str, served: ServedResource, verb: str, path: str, parameter: Any) -> Json:
    names = [name for name in ("namespace", "name") if f"{{{name}}}" in path]
    scope = "Namespaced" if "namespace" in names else "AllNamespaces" if served.namespaced else ""
    words = [verb, *group.split("."), version, scope, served.plural, served.subresource]
    return {
        "operationId": words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:]),
        "description": served.about,
        "parameters": [
            *(parameter(name, "path", "string", required=True) for name in names),
            *(parameter(name, "query", kind, required=False) for name, kind in served.parameters),
        ],
        "responses": {"201" if verb == "create" else "200": {"description": "OK"}},
        "x-kubernetes-action": {"create": "post"}.get(verb, verb),
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": served.kind},
    }


def _v2(name: str, where: str, kind: str, *, required: bool) -> Json:
    return {"name": name, "in": where, "type": kind, "required": required}


def _v3(name: str, where: str, kind: str, *, required: bool) -> Json:
    return {"name": name, "in": where, "schema": {"type": kind}, "required": required}
