"""The part `placement` of a QueuePolicy: scorers and filters of nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.schema.common import DNS_LABEL, Duration, LabelValue, Quantity
from gangline.api.schema.json_schema import LIST_SET, ApiModel, Cel, list_map, rules


class PlacementWeights(ApiModel):
    """How much each resource counts."""

    cpu: Annotated[int, Field(ge=0, le=100)] = 0
    """CPU."""
    memory: Annotated[int, Field(ge=0, le=100)] = 0
    """Memory."""
    gpu: Annotated[int, Field(ge=0, le=100)] = 0
    """Accelerators."""


_Key = Annotated[str, Field(min_length=1, max_length=317)]
_RuleName = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]


class PlacementScoreSpec(ApiModel):
    """A scorer: how good a node is, from 0 to 100 points."""

    model_config = rules(
        Cel(
            "has(self.label) == (self.name in ['NodeLabel', 'NetworkCost'])",
            "NodeLabel and NetworkCost need a label, others have none",
        ),
        Cel("!has(self.value) || self.name == 'NodeLabel'", "value belongs to NodeLabel"),
        Cel(
            "!has(self.weights) || self.name in ['Pack', 'Spread', 'BestFit', 'DotProduct']",
            "weights belong to Pack, Spread, BestFit and DotProduct",
        ),
        Cel(
            "!has(self.weights) || has(self.weights.cpu) && self.weights.cpu > 0"
            " || has(self.weights.memory) && self.weights.memory > 0 || has(self.weights.gpu) && self.weights.gpu > 0",
            "one weight at least must be above 0",
        ),
        Cel(
            "self.name in ['NodeMetric', 'TargetLoad', 'RiskBalance'] ? has(self.annotation) != has(self.telemetry)"
            " : !has(self.telemetry)",
            "NodeMetric, TargetLoad and RiskBalance need an annotation or a telemetry rule, others have no rule",
        ),
        Cel(
            "!has(self.annotation) || self.name in ['NodeMetric', 'TargetLoad', 'RiskBalance', 'Thermal']",
            "annotation belongs to NodeMetric, TargetLoad, RiskBalance and Thermal",
        ),
        Cel("has(self.deviation) == (self.name == 'RiskBalance')", "RiskBalance needs a deviation, others have none"),
        Cel("!has(self.sensitivity) || self.name == 'RiskBalance'", "sensitivity belongs to RiskBalance"),
        Cel("!has(self.least) || self.name == 'NodeMetric'", "least belongs to NodeMetric"),
        Cel(
            "!has(self.most) || self.name == 'NodeMetric' || self.name == 'Thermal' && has(self.annotation)",
            "most belongs to NodeMetric, and to Thermal with an annotation",
        ),
        Cel(
            "self.name != 'NodeMetric' || (has(self.least) ? self.least : 0) != (has(self.most) ? self.most : 100)",
            "least and most must differ",
        ),
        Cel("!has(self.target) || self.name == 'TargetLoad'", "target belongs to TargetLoad"),
        Cel("has(self.resource) == (self.name == 'Bandwidth')", "Bandwidth needs a resource, others have none"),
        Cel("has(self.plugin) == (self.name == 'Plugin')", "Plugin needs the name of a plugin, others have none"),
    )

    name: Literal[
        "Pack",
        "Spread",
        "BestFit",
        "DotProduct",
        "Fragmentation",
        "Interference",
        "CardPack",
        "Standalone",
        "Balance",
        "ImageLocality",
        "DataLocality",
        "NetworkCost",
        "NodeLabel",
        "Bandwidth",
        "NodeMetric",
        "TargetLoad",
        "RiskBalance",
        "Power",
        "Thermal",
        "Plugin",
    ]
    """Pack: full nodes first. Spread: empty ones. BestFit: the least left, in units of the largest node. DotProduct: nodes
    whose free amounts have the shape of the pod. Fragmentation: as little free GPU as possible that typical pods cannot use.
    Interference: where all pods together are fastest, by their JobProfiles. CardPack: full cards first, by memory where the
    share is one of memory. Standalone: nodes with pods of the same class only. Balance: nodes whose pods use least of their
    GPUs. ImageLocality: images are there. DataLocality: the least time to load its data and to run. NetworkCost: the lowest
    number in a node label. NodeLabel: nodes with a label. Bandwidth: the least left of a resource. NodeMetric: a number in a
    node annotation. TargetLoad: CPU load near a target. RiskBalance: low and steady load. Power: the fewest watts more.
    Thermal: much left of the cap of its power domain. Plugin: a scorer of your own."""
    tier: Annotated[int, Field(ge=0, le=9)] = 0
    """A later tier decides between nodes that are equal in all earlier ones."""
    weight: Annotated[int, Field(ge=1, le=100)] = 1
    """The weight of the scorer inside its tier."""
    label: _Key | None = None
    """The key of the label that NetworkCost and NodeLabel look at."""
    value: LabelValue | None = None
    """NodeLabel: nodes with this value. Unset: with any."""
    weights: PlacementWeights | None = None
    """Pack, Spread, BestFit and DotProduct: the weights of resources. Unset: CPU 1, memory 1 and GPU 4 for Pack and Spread, CPU 1
    and GPU 1 for the others."""
    annotation: _Key | None = None
    """The key of the node annotation whose number NodeMetric, TargetLoad (percent of CPU in use) and RiskBalance (the mean of it)
    look at. A node without it has 50 points. Thermal: the annotation with the heat of a node; unset: heat makes no difference."""
    telemetry: _RuleName | None = None
    """The telemetry rule of this policy whose number they look at, in place of an annotation. TargetLoad and RiskBalance then
    also count the CPU that was placed on the node since."""
    deviation: _Key | None = None
    """RiskBalance: the key of the node annotation with the standard deviation, in percent; with telemetry, the rule that measures
    it."""
    least: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    """NodeMetric: the number that has 100 points. Unset: 0."""
    most: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    """NodeMetric: the number that has none; below least where more is better. Thermal: nodes whose annotation says more have
    none. Unset: 100."""
    target: Annotated[int, Field(ge=1, le=99)] | None = None
    """TargetLoad: the load in percent that has most points. Unset: 40."""
    sensitivity: Annotated[int, Field(ge=1, le=10)] | None = None
    """RiskBalance: how much a small deviation counts. Unset: 1."""
    resource: Annotated[str, Field(min_length=1, max_length=317)] | None = None
    """Bandwidth: the resource of nodes that counts bandwidth."""
    plugin: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)] | None = None
    """Plugin: the name of its entry point in the group gangline.scorers. One that the operator has not, or that fails, has the
    same points for all nodes."""


class PlacementFilterSpec(ApiModel):
    """A filter: a rule that excludes nodes, whatever is free on them."""

    model_config = rules(
        Cel("has(self.label) == (self.name == 'NodeLabel')", "NodeLabel needs a label, others have none"),
        Cel("!has(self.values) || self.name == 'NodeLabel'", "values belong to NodeLabel"),
        Cel("!has(self.resource) || self.name == 'RDMA'", "resource belongs to RDMA"),
        Cel("has(self.annotation) == (self.name == 'NodeMetric')", "NodeMetric needs an annotation, others have none"),
        Cel(
            "(has(self.most) || has(self.least)) == (self.name == 'NodeMetric')",
            "NodeMetric needs most or least, others have neither",
        ),
        Cel(
            "!has(self.percent) && !has(self.perPod) || self.name == 'MemSafe'", "percent and perPod belong to MemSafe"
        ),
    )

    name: Literal["NodeLabel", "ImagePresent", "RDMA", "NodeMetric", "MemSafe", "BandwidthFit"]
    """NodeLabel: nodes with a label. ImagePresent: nodes that have all images of the pod. RDMA: nodes with it. NodeMetric: nodes
    whose annotation says a number within limits, or says none. MemSafe: cards that pods share keep a margin of memory.
    BandwidthFit: nodes whose interfaces have free what the pod's annotation gangline.io/network-mbps asks of them."""
    label: _Key | None = None
    """NodeLabel: the key of the label."""
    values: Annotated[list[LabelValue], Field(min_length=1, max_length=16), LIST_SET] | None = None
    """NodeLabel: one of these values. Unset: any."""
    resource: Annotated[str, Field(min_length=1, max_length=317)] | None = None
    """RDMA: the resource of nodes that stands for it. Unset: any rdma/…, vpc.amazonaws.com/efa or nvidia.com/hostdev, or a label
    feature.node.kubernetes.io/rdma.available or rdma.capable."""
    annotation: _Key | None = None
    """NodeMetric: the key of the node annotation."""
    most: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    """NodeMetric: the highest number that a node may have."""
    least: Annotated[int, Field(ge=0, le=999_999_999)] | None = None
    """NodeMetric: the lowest number that a node may have."""
    percent: Annotated[int, Field(ge=0, le=50)] | None = None
    """MemSafe: percent of a card's memory that stay free. Unset: 5."""
    per_pod: Quantity | None = None
    """MemSafe: the memory that each pod takes of a card beyond what it asks for, at most 1Ti. Unset: 600Mi."""


class TelemetryLimit(ApiModel):
    """The numbers for which a node violates a telemetry rule."""

    model_config = rules(Cel("has(self.above) != has(self.below)", "set above or below"))

    above: Quantity | None = None
    """Numbers above this violate the rule."""
    below: Quantity | None = None
    """Numbers below this violate the rule."""
    clear_at: Quantity | None = None
    """A node that violates the rule does so until its number has come back to this. Unset: to the limit itself."""


class TelemetryEviction(TelemetryLimit):
    """The numbers for which workloads leave a node."""

    periods: Annotated[int, Field(ge=2, le=1000)] = 3
    """A workload is evicted once the node violates this in so many periods in a row, and the next one after as many again."""


class TelemetryRuleSpec(ApiModel):
    """A number of each node, which a query to Prometheus measures, and what follows from it."""

    name: _RuleName
    """The name of the rule."""
    query: Annotated[str, Field(min_length=1, max_length=4096)]
    """The query, in PromQL: one number for each node. A node with several, with none, or with one that is not finite counts as
    not measured: it is neither excluded nor scored."""
    node_label: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")] | None = None
    """The label of the result that has the node's name. Unset: the first of node, Hostname, hostname, and instance without its
    port."""
    period: Duration = "30s"
    """How often the query is asked, from 5s to 1h. A number that is older than two periods, and than a minute, does not count."""
    exclude: TelemetryLimit | None = None
    """Pods are not placed on nodes that violate this."""
    evict: TelemetryEviction | None = None
    """Workloads leave nodes that violate this, and pods are not placed there. At most one workload is evicted in a period: the
    one with the lowest priority, and of these the one that was admitted last. It keeps its place in the queue. Unset: none is."""


class InterferenceSpec(ApiModel):
    """Whom pods may have as company on a card and on a node, by what JobProfiles say of their classes."""

    max_slowdown: Quantity = "1.25"
    """How much slower a pod of a known pair may be than alone, from 1 to 20. Jobs may allow less: annotation
    gangline.io/max-slowdown."""
    min_gain: Quantity = "1.1"
    """Pods share a card only where all together are this much faster than those that are there, and than the pod alone, from 0 to
    2."""
    unknown: Literal["Alone", "Probe", "Share"] = "Alone"
    """Pods of whose company nothing is known. Alone: they share no card. Probe: they share one with one pod at most. Share: they
    share cards as others do."""


class PowerDomainSpec(ApiModel):
    """A power domain with a cap of its own."""

    domain: Annotated[str, Field(min_length=1, max_length=63)]
    """The value of the domain label."""
    cap_watts: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """What its nodes may draw together, in watts."""


class PowerCapSpec(ApiModel):
    """What the nodes of a rack, or of a power feed, may draw together."""

    domain_label: _Key
    """The node label whose values are the domains. Nodes without it are in none."""
    cap_watts: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """What the nodes of each domain may draw together, in watts."""
    domains: Annotated[list[PowerDomainSpec], Field(min_length=1, max_length=256), list_map("domain")] | None = None
    """Domains that have another cap."""
    percent: Annotated[int, Field(ge=1, le=100)] = 95
    """Percent of each cap that gangs may use."""
    gpu_watts: Annotated[int, Field(ge=1, le=10_000)] = 700
    """What an accelerator draws at most on nodes whose annotation gangline.io/gpu-watts does not say it."""
    draw: Literal["Limit", "Measured"] = "Limit"
    """What an accelerator counts that pods have. Limit: what it draws at most. Measured: the watts of the JobProfile of the pods'
    class, where they are lower. A class is what tenants say of their pods, so Measured trusts them."""


class PlacementSearchSpec(ApiModel):
    """A search for the places of a gang, where the usual way of placing does not suffice. What it finds obeys all filters, and is
    taken only where it is better.
    """

    budget: Annotated[int, Field(ge=1, le=1000)] = 200
    """How many placements may be tried in a decision for the gangs of each namespace in a ClusterQueue. A ClusterQueue may try
    four times as many, and all of them together 1000."""
    improve: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Places that keep pods closer together are searched for where there are this many percent more hops between them than the
    least possible. Only pods with a required or preferred topology count. Unset: places are searched for only where the pods of a
    gang find none together, though each pod set would by itself."""
    seed: Annotated[int, Field(ge=0, le=999_999_999)] = 0
    """The seed of the random numbers. The same seed finds the same places."""


class PlacementSpec(ApiModel):
    """Which nodes the pods get. Gangs of these queues are bound to nodes, also on flavors without a topology: each pod gets the
    node selector of its host. Without this part nodes in use are filled first, or by Kueue's order inside topologies.
    """

    model_config = rules(Cel("!(has(self.profile) && has(self.scores))", "set profile or scores, not both"))

    profile: (
        Literal["Pack", "Spread", "Fragmentation", "Standalone", "Balance", "Interference", "Green", "Edge"] | None
    ) = None
    """Pack: full nodes first, so that whole nodes stay free. Spread: empty nodes first. Fragmentation: as little free GPU as
    possible that typical pods cannot use, then the tightest node. Standalone: nodes with pods of the same class only, then full
    ones. Balance: nodes whose GPUs are used least, then empty ones. Interference: cards where all pods are fastest together, then
    full nodes and cards. Green: where the pod adds few watts, with the Fragmentation score. Edge: near nodes, then those with
    the pod's images and data, then empty ones. Unset, without scores: Fragmentation."""
    scores: Annotated[list[PlacementScoreSpec], Field(min_length=1, max_length=16)] | None = None
    """Scorers instead of those of a profile."""
    filters: Annotated[list[PlacementFilterSpec], Field(min_length=1, max_length=16)] | None = None
    """The filters that exclude nodes, before any scorer. The reason of gangs that wait counts the nodes that each
    of them excludes."""
    telemetry: Annotated[list[TelemetryRuleSpec], Field(min_length=1, max_length=8), list_map("name")] | None = None
    """What is measured of nodes, for scorers, and to exclude nodes and evict workloads."""
    interference: InterferenceSpec | None = None
    """The company that pods may have. Unset: anybody; with the profile Interference, those whom its defaults allow."""
    power: Annotated[list[PowerCapSpec], Field(min_length=1, max_length=8)] | None = None
    """Caps of power. They hold for the gangs of all ClusterQueues, also of those that the policy does not select: a gang starts
    only where all domains of its nodes stay within their caps. Of several caps of one domain the lowest holds. They hold while
    the policy selects a ClusterQueue, and not with dryRun."""
    search: PlacementSearchSpec | None = None
    """The search for places. Unset: places are taken as they are found first."""
    dry_run: bool = False
    """The policy's choice is worked out at each admission and shown in the Workload's condition PlacementPreview. Nothing follows
    from it: gangs start as without this part."""
