"""Types shared by several kinds: names, quantities, times, conditions, selectors, tolerations."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema

from gangline.api import quantity
from gangline.api.schema.json_schema import ATOMIC_MAP, INT32, INT64, ApiModel, Keywords, list_map
from gangline.engine.model import UNLIMITED

DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DNS_SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
#: A key of a label, or the type of a condition: `name` or `prefix/name`.
QUALIFIED_NAME = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
REASON = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"


def _quantity(value: int | str) -> int | str:
    quantity.parse(value)
    return value


def _duration(value: str) -> str:
    quantity.parse_duration(value)
    return value


def _within_64_bits(value: int) -> int:
    if not -UNLIMITED <= value <= UNLIMITED:
        raise ValueError("must be a whole number within 64 bits")
    return value


Int32: TypeAlias = Annotated[int, AfterValidator(_within_64_bits), INT32]
Int64: TypeAlias = Annotated[int, AfterValidator(_within_64_bits), INT64]
Count: TypeAlias = Annotated[int, Field(ge=0), AfterValidator(_within_64_bits), INT32]
PositiveInt32: TypeAlias = Annotated[int, Field(ge=1), AfterValidator(_within_64_bits), INT32]
Time: TypeAlias = Annotated[str, Keywords(format="date-time")]
#: A name of an object: DNS-1123 subdomain.
ObjectName: TypeAlias = Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)]
PodSetName: TypeAlias = Annotated[str, Field(max_length=63, pattern=DNS_LABEL)]
#: A resource such as cpu or nvidia.com/gpu.
ResourceName: TypeAlias = Annotated[str, Field(min_length=1, max_length=317)]
#: An admission check's name, as Kueue limits it.
CheckName: TypeAlias = Annotated[str, Field(min_length=1, max_length=316)]
LabelKey: TypeAlias = Annotated[str, Field(min_length=1, max_length=317)]
LabelValue: TypeAlias = Annotated[str, Field(max_length=63)]
StopPolicy: TypeAlias = Literal["None", "Hold", "HoldAndDrain"]
Quantity: TypeAlias = Annotated[
    int | str,
    AfterValidator(_quantity),
    WithJsonSchema(
        {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": quantity.PATTERN,
            "x-kubernetes-int-or-string": True,
        }
    ),
]
Duration: TypeAlias = Annotated[
    str, AfterValidator(_duration), Field(max_length=64), Keywords(pattern=quantity.DURATION_PATTERN)
]
#: A number between 0 and 1, written as a string because Kubernetes discourages floats.
Fraction: TypeAlias = Annotated[str, Field(max_length=16, pattern=r"^(0(\.[0-9]+)?|1(\.0+)?)$")]
#: An object of any content: pod templates, which the API server validates when pods are created from them.
Opaque: TypeAlias = Annotated[
    dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
]
ObjectMeta: TypeAlias = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


class KubeObject(ApiModel):
    """The fields at the top of every object."""

    api_version: str | None = None
    """Group and version of this representation of the object, such as kueue.x-k8s.io/v1beta2."""
    kind: str | None = None
    """The kind of this object, in CamelCase."""
    metadata: ObjectMeta | None = None  # undescribed: the API server accepts no schema but its own


class Condition(ApiModel):
    """One observed aspect of the object's state."""

    type: Annotated[str, Field(max_length=316), Keywords(pattern=QUALIFIED_NAME)]
    """The aspect that the condition is about, in CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds: True, False or Unknown."""
    observed_generation: Annotated[int, Field(ge=0), INT64] | None = None
    """The metadata.generation that was judged."""
    last_transition_time: Time
    """The time at which `status` last changed."""
    reason: Annotated[str, Field(min_length=1, max_length=1024), Keywords(pattern=REASON)]
    """The reason, in one CamelCase word that programs can match."""
    message: Annotated[str, Field(max_length=32768)]
    """The reason, in a sentence for people."""


Conditions: TypeAlias = Annotated[list[Condition], Field(max_length=16), list_map("type")]


class LabelSelectorRequirement(ApiModel):
    """One condition on a label."""

    key: str
    """The label's key."""
    operator: str
    """The comparison: In, NotIn, Exists or DoesNotExist."""
    values: list[str] | None = None
    """What the label is compared with; empty for Exists and DoesNotExist."""


class LabelSelector(ApiModel):
    """Selects objects by label; all conditions must hold. An empty selector selects everything."""

    match_labels: dict[str, str] | None = None
    """Labels and the exact values they must have."""
    match_expressions: list[LabelSelectorRequirement] | None = None
    """Further conditions on labels."""


AtomicLabelSelector: TypeAlias = Annotated[LabelSelector, ATOMIC_MAP]


class Taint(ApiModel):
    """A taint of a node: pods that do not tolerate it are kept away."""

    key: Annotated[str, Field(min_length=1, max_length=317)]
    """The taint's key."""
    value: LabelValue | None = None
    """The taint's value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """What happens to pods that do not tolerate it. PreferNoSchedule never keeps a workload off a flavor."""
    time_added: Time | None = None
    """When the taint was set."""


class Toleration(ApiModel):
    """Lets pods run on nodes with a matching taint."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """The taint's key; left out (with operator Exists) it matches every taint."""
    operator: Literal["Equal", "Exists"] | None = None
    """Equal (the default) compares the value too, Exists only the key."""
    value: LabelValue | None = None
    """The taint's value, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """The taint's effect; left out it matches all effects."""
    toleration_seconds: Int64 | None = None
    """How long a NoExecute taint is tolerated; left out: forever."""


class FairSharing(ApiModel):
    """The member's weight when unused quota is shared."""

    weight: Quantity = "1"
    """A member with weight 2 may borrow twice as much as one with weight 1 before it is the one that must wait or
    give back. With weight 0 it borrows only what no other member wants."""


class FairSharingStatus(ApiModel):
    """The member's status in fair sharing."""

    weighted_share: Int64
    """The largest share, over all resources, of what it borrows against what its cohort can lend, in thousandths and
    divided by its weight. 0: it does not borrow. 9223372036854775807: it borrows with weight 0."""
