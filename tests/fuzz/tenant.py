"""A user with edit rights in one namespace who writes, at random, whatever the API server takes.

Jobs of every kind, Workloads, LocalQueues and pods are made, changed field by field, scaled, held and let go, given owners and
finalizers that are not theirs, bound to nodes, evicted and deleted in any order. One seed gives one sequence of attempts; what
becomes of them depends on the cluster.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from tests.fuzz import costly

from gangline.api import names
from gangline.kube import resources as kube
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError, NotFound
from gangline.kube.resources import Resource

Json: TypeAlias = dict[str, Any]

KINDS = (kube.JOBS, kube.GPU_JOBS, kube.JOB_SETS, kube.WORKLOADS, kube.PODS, kube.LOCAL_QUEUES, kube.SERVICES)
#: those that are written large and expensive to read
LARGE = (kube.GPU_JOBS, kube.JOBS, kube.JOB_SETS, kube.WORKLOADS, kube.PODS)
#: KiB of these: the API server stores up to 1.5 MiB
SIZES = (16, 64, 64, 200, 200, 700, 1400)
#: of each kind it keeps at most so many, since an honest cluster lets nobody have more (`limits`)
MOST = 40
GPU = "nvidia.com/gpu"
MARKS = sorted(
    {value for value in vars(names).values() if isinstance(value, str) and "/" in value and value[:1] != "/"}
    | {"batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/jobset-name", "job-name", "controller-uid"}
)
TEXTS: tuple[str, ...] = (
    *(
        "",
        "1",
        "0",
        "-1",
        "3",
        "true",
        "false",
        "1h",
        "1s",
        "0s",
        "10m",
        "1h" * 5000,
        "9" * 5000,
        "9" * 100_000,
        "1e400",
    ),
    *(
        "٣",
        "\U0001f600",
        "a" * 63,
        "a" * 64,
        "a,b,,c",
        "0-99999999999",
        "0-3",
        "..",
        "a/b",
        "%s",
        "$(x)",
        " ",
        "\n",
        "null",
    ),
    *(
        '{"a":' * 3000 + "1" + "}" * 3000,
        "[" * 20_000,
        '{"step":9' + "9" * 400 + "}",
        '{"step":3,"of":1e308}',
        "step=4 loss=nan",
    ),
    *(
        "mine",
        "theirs",
        "elsewhere",
        "gpu",
        "cq",
        "hostile",
        "Recreate",
        "Pack",
        "kubernetes.io/hostname",
        "2026-99-99T00:00:00Z",
    ),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        7,
        40,
        2**31 - 1,
        2**31,
        2**63 - 1,
        -(2**63),
        1.5,
        1e300,
        [],
        {},
        [None],
        [{}],
        [[]],
    ),
    *(
        {"": ""},
        {"a": None},
        {"cpu": "1Ei", GPU: "-1"},
        {GPU: 8},
        {"name": {"name": 1}},
        ["x"] * 50,
        [{"name": "a"}] * 200,
    ),
)


def role(namespace: str) -> list[Json]:
    """What makes somebody a user with edit rights there, and the limits that a cluster of many tenants sets."""
    everything = [
        {
            "apiGroups": ["", "batch", "jobset.x-k8s.io", "resource.k8s.io", names.OWN_GROUP, names.GROUP],
            "resources": ["*"],
            "verbs": ["*"],
        },
    ]
    limits = {"requests.nvidia.com/gpu": "64", "pods": "300", "count/jobs.batch": "200"}
    meta = {"name": "tenant", "namespace": namespace}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": everything},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
            "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}],
        },
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": limits}},
    ]


class Tenant:
    """`nodes` are names that it knows; its LocalQueue `mine` is there, others it makes itself."""

    def __init__(self, client: ApiClient, namespace: str, nodes: Sequence[str], seed: int) -> None:
        self.outcomes: Counter[tuple[str, str]] = Counter()
        #: the last attempts, the newest at the end: what to look at when something went wrong
        self.history: deque[str] = deque(maxlen=3000)
        self._client = client
        self._namespace = namespace
        self._nodes = nodes
        self._draw = random.Random(seed)
        self._known: dict[Resource, list[Json]] = {kind: [] for kind in KINDS}
        self._made = 0
        self._operations: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (20, self.create),
            (14, self.mark),
            (14, self.change),
            (6, self.replace),
            (6, self.scale),
            (6, self.switch),
            (4, self.own),
            (4, self.hold_up),
            (10, self.delete),
            (2, self.evict),
            (2, self.burst),
            (5, self.burden),
            (3, self.rehearse),
            (2, self.claim),
        ]

    async def act(self) -> None:
        """One attempt, of whatever kind."""
        weights, operations = zip(*self._operations, strict=True)
        (operation,) = self._draw.choices(operations, weights)
        await self._tried(operation)
        if self._draw.random() < 0.15:
            await self._look()

    async def leave(self) -> None:
        """Takes everything away that it made."""
        for kind in (
            kube.JOB_SETS,
            kube.GPU_JOBS,
            kube.JOBS,
            kube.WORKLOADS,
            kube.PODS,
            kube.LOCAL_QUEUES,
            kube.SERVICES,
            kube.RESOURCE_CLAIM_TEMPLATES,
        ):
            for obj in await self._all(kind):
                await self._remove(kind, obj["metadata"]["name"])

    # --- attempts -----------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        kind = self._draw.choices(KINDS, [8, 5, 4, 5, 5, 1, 1])[0]
        self._made += 1
        body = self._body(kind, f"x{self._made}")
        if self._draw.random() < 0.4:
            self._mark(body)
        if self._draw.random() < 0.3:
            self._spoil(body.setdefault("spec", {}))
        await self._client.create(kind, self._namespace, body)
        self._known[kind].append(body)

    async def mark(self) -> None:
        """An annotation or label, on the object or on its pods' template."""
        kind, obj = self._any()
        where = self._draw.choice(("annotations", "labels"))
        row = {self._draw.choice(MARKS): self._text(where)}
        body: Json = {"metadata": {where: row}}
        if kind in (kube.JOBS, kube.GPU_JOBS) and self._draw.random() < 0.4:
            body = {"spec": {"template": body}}
        await self._patch(kind, obj, body)

    async def change(self) -> None:
        """A field of the spec, to anything."""
        kind, obj = self._any()
        spec = copy.deepcopy(obj.get("spec") or {})
        path = self._spoil(spec)
        await self._patch(kind, obj, {"spec": {path: spec.get(path)}} if path else {"spec": None})

    async def replace(self) -> None:
        """The whole object as it was read, with some places spoilt."""
        kind, obj = self._any()
        body = await self._client.get(kind, self._namespace, obj["metadata"]["name"])
        for _ in range(self._draw.randint(1, 3)):
            self._spoil(body)
        await self._client.replace(kind, self._namespace, obj["metadata"]["name"], body)

    async def scale(self) -> None:
        count = self._draw.choice((0, 1, 2, 8, 40, 1000, 2**31 - 1))
        kind, obj = self._any(kube.JOBS, kube.GPU_JOBS, kube.WORKLOADS)
        await self._patch(kind, obj, {"spec": {"parallelism": count, "workers": count, "active": count > 1}})

    async def switch(self) -> None:
        kind, obj = self._any(kube.JOBS, kube.GPU_JOBS, kube.JOB_SETS)
        await self._patch(kind, obj, {"spec": {"suspend": self._draw.random() < 0.5}})

    async def own(self) -> None:
        """Owners that it has, that others have, or that nobody has."""
        kind, obj = self._any()
        of, owner = self._any()
        reference = {
            "apiVersion": of.api_version,
            "kind": of.kind,
            "name": self._draw.choice((owner["metadata"]["name"], "elsewhere")),
            "uid": owner["metadata"].get("uid") or "0",
            "controller": self._draw.random() < 0.7,
        }
        await self._patch(
            kind, obj, {"metadata": {"ownerReferences": self._draw.choice(([reference], [reference] * 3, None))}}
        )

    async def hold_up(self) -> None:
        """Finalizers, its own and ours."""
        kind, obj = self._any()
        rows = [["example.com/never"], [names.IN_USE_FINALIZER], None, [names.IN_USE_FINALIZER, "example.com/never"]]
        await self._patch(kind, obj, {"metadata": {"finalizers": self._draw.choice(rows)}})

    async def delete(self) -> None:
        kind, obj = self._any()
        name = obj["metadata"]["name"]
        if self._draw.random() < 0.3:
            await self._remove(kind, name)
            return
        propagation = self._draw.choice(("Background", "Foreground", "Orphan"))
        grace = self._draw.choice((None, 0, 1, 900))
        await self._client.delete(kind, self._namespace, name, propagation=propagation, grace_seconds=grace)

    async def evict(self) -> None:
        _, pod = self._any(kube.PODS)
        meta = {"name": pod["metadata"]["name"], "namespace": self._namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta}
        evictions = Resource("", "v1", f"pods/{meta['name']}/eviction", kind="Eviction")
        await self._client.create(evictions, self._namespace, body)

    async def burst(self) -> None:
        """Many at once."""
        operation = self._draw.choice((self.create, self.mark, self.change, self.delete))
        await asyncio.gather(*(self._tried(operation) for _ in range(20)))

    async def burden(self) -> None:
        """An object that is expensive for its size, which stays."""
        kind, body = self._large()
        await self._client.create(kind, self._namespace, body)
        self._known[kind].append(body)

    async def rehearse(self) -> None:
        """The same, reviewed and not stored."""
        kind, body = self._large()
        await self._client.create(kind, self._namespace, body, query={"dryRun": "All"})

    async def claim(self) -> None:
        """A job whose pods claim devices that many expensive expressions select."""
        self._made += 1
        name, count = f"x{self._made}", self._draw.choice((1, 4, 16))
        requests = [
            {"name": f"r{n}", "exactly": {"deviceClassName": "gpu", "selectors": costly.selectors(24_000)}}
            for n in range(count)
        ]
        meta = {"name": name, "namespace": self._namespace}
        template = {"metadata": meta, "spec": {"spec": {"devices": {"requests": requests}}}}
        await self._client.create(kube.RESOURCE_CLAIM_TEMPLATES, self._namespace, template)
        job = self._body(kube.JOBS, name)
        pods = job["spec"]["template"]["spec"]
        pods["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": name}]
        pods["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
        await self._client.create(kube.JOBS, self._namespace, job)
        self._known[kube.JOBS].append(job)

    def _large(self) -> tuple[Resource, Json]:
        self._made += 1
        kind = self._draw.choice(LARGE)
        body = self._body(kind, f"x{self._made}")
        burdens = tuple(costly.drawn(body, self._draw) for _ in range(self._draw.choice((1, 1, 2))))
        return kind, costly.burdened(body, burdens, 1024 * self._draw.choice(SIZES))

    # --- objects ------------------------------------------------------------------------------------------------------

    def _body(self, kind: Resource, name: str) -> Json:
        draw = self._draw
        labels = (
            {names.QUEUE_NAME: draw.choice(("mine", "mine", "mine", "theirs", "none"))} if draw.random() < 0.8 else {}
        )
        meta: Json = {"name": name, "namespace": self._namespace, "labels": labels}
        made: Json = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        pods, gpus = draw.choice((1, 1, 2, 4, 8, 40)), draw.choice((0, 1, 1, 2, 8))
        template = self._template(gpus)
        gang = {
            "parallelism": pods,
            "completions": pods * draw.choice((1, 1, 3)),
            "template": template,
            "backoffLimit": 1,
        }
        if kind == kube.JOBS:
            return made | {"spec": gang | {"completionMode": draw.choice(("Indexed", "NonIndexed"))}}
        if kind == kube.GPU_JOBS:
            runtime = {"runtime": {"expected": draw.choice(("1s", "1h"))}} if draw.random() < 0.5 else {}
            return made | {"spec": {"workers": pods, "gpusPerWorker": gpus, "template": template, **runtime}}
        if kind == kube.JOB_SETS:
            row = {"name": "w", "replicas": draw.choice((1, 2)), "template": {"spec": gang}}
            return made | {"spec": {"replicatedJobs": [row] * draw.choice((1, 1, 2))}}
        if kind == kube.WORKLOADS:
            rows = [{"name": f"p{n}", "count": pods, "template": template} for n in range(draw.choice((1, 1, 3, 8)))]
            return made | {"spec": {"queueName": labels.get(names.QUEUE_NAME, "mine"), "podSets": rows}}
        if kind == kube.LOCAL_QUEUES:
            meta["name"] = draw.choice((name, "theirs"))
            return made | {"spec": {"clusterQueue": draw.choice(("hostile", "others", "none"))}}
        if kind == kube.SERVICES:  # under the name that a GPUJob's own would have
            meta["name"] = draw.choice([name, *(obj["metadata"]["name"] for obj in self._known[kube.GPU_JOBS])])
            return made | {"spec": {"clusterIP": "None", "ports": [{"port": 1}]}}
        node = {"nodeName": draw.choice(self._nodes)} if draw.random() < 0.7 else {}
        gang_of = (
            draw.choice(self._known[kube.WORKLOADS])["metadata"]["name"] if self._known[kube.WORKLOADS] else "none"
        )
        meta["annotations"] = {names.WORKLOAD_ANNOTATION: gang_of}
        return made | {"spec": template["spec"] | node}

    def _template(self, gpus: int) -> Json:
        runtime = self._draw.choice(("100ms", "1s", "10s", ""))
        container: Json = {"name": "main", "image": "example.com/train"}
        if gpus:
            container["resources"] = {"limits": {GPU: str(gpus)}}
        return {
            "metadata": {"annotations": {names.SIMULATED_RUNTIME: runtime} if runtime else {}},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": self._draw.choice((0, 1, 30, 900)),
                "containers": [container],
            },
        }

    def _mark(self, body: Json) -> None:
        inner = (body.get("spec") or {}).get("template")
        for meta in (body["metadata"], *([inner.setdefault("metadata", {})] if isinstance(inner, dict) else ())):
            for where in ("annotations", "labels"):
                rows = meta.setdefault(where, {})
                rows |= {self._draw.choice(MARKS): self._text(where) for _ in range(self._draw.randint(0, 2))}

    def _text(self, where: str) -> str:
        """For an annotation anything; for a label mostly what can be one."""
        fitting = [text for text in TEXTS if len(text) < 64 and text.isascii() and text.isalnum()]
        return self._draw.choice(fitting if where == "labels" and self._draw.random() < 0.8 else TEXTS)

    def _spoil(self, body: Any) -> str:
        """Another value somewhere inside, or one less, or one more. Returns the field at the top that this is in."""
        at, top = body, ""
        while isinstance(at, dict | list) and at:
            key = self._draw.choice(sorted(at) if isinstance(at, dict) else range(len(at)))
            top = top or str(key)
            if not isinstance(at[key], dict | list) or not at[key] or self._draw.random() < 0.3:
                match self._draw.randrange(5):
                    case 0:
                        del at[key]
                    case 1 if isinstance(at, list):
                        at.extend(copy.deepcopy(at[key]) for _ in range(self._draw.choice((1, 3, 20))))
                    case 2:
                        at[key] = self._draw.choice(TEXTS)
                    case _:
                        at[key] = copy.deepcopy(self._draw.choice(VALUES))
                break
            at = at[key]
        return top

    # --- the API server -----------------------------------------------------------------------------------------------

    def _any(self, *kinds: Resource) -> tuple[Resource, Json]:
        there = [kind for kind in kinds or KINDS if self._known[kind]]
        if not there:
            raise NotFound(404, "NotFound", "it has none yet")
        kind = self._draw.choice(there)
        return kind, self._draw.choice(self._known[kind])

    async def _patch(self, kind: Resource, obj: Json, body: Json) -> None:
        await self._client.patch(kind, self._namespace, obj["metadata"]["name"], body)

    async def _tried(self, operation: Callable[[], Awaitable[None]]) -> None:
        outcome = "taken"
        try:
            await operation()
        except ApiError as error:
            outcome = error.reason or str(error.status)
        self.outcomes[operation.__name__, outcome] += 1
        self.history.append(f"{operation.__name__}: {outcome}")

    async def _look(self) -> None:
        """What it has; of a kind with too many, the oldest go."""
        kind = self._draw.choice(KINDS)
        self._known[kind] = await self._all(kind)
        self.history.append(json.dumps({kind.plural: [obj["metadata"]["name"] for obj in self._known[kind]]}))
        for obj in self._known[kind][: max(0, len(self._known[kind]) - MOST)]:
            await self._remove(kind, obj["metadata"]["name"])
        for obj in (await self._all(kube.RESOURCE_CLAIM_TEMPLATES))[:-MOST]:
            await self._remove(kube.RESOURCE_CLAIM_TEMPLATES, obj["metadata"]["name"])

    async def _all(self, kind: Resource) -> list[Json]:
        try:
            return (await self._client.list(kind, self._namespace)).items
        except ApiError:
            return []

    async def _remove(self, kind: Resource, name: str) -> None:
        try:
            await self._client.delete(kind, self._namespace, name, propagation="Background", grace_seconds=0)
            await self._client.patch(kind, self._namespace, name, {"metadata": {"finalizers": None}})
        except ApiError:
            return
