"""JobProfile: what was measured of a class of jobs, alone on a card and beside others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gangline.api.profiles import (
    LONGEST_FAMILY,
    LONGEST_GPU,
    MOST_ALONE,
    MOST_PAIRS,
    MOST_SAMPLES,
)
from gangline.api.schema.common import Conditions, Int64, KubeObject, Quantity
from gangline.api.schema.json_schema import ApiModel

_CLASS = r"^[A-Za-z0-9]([A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?$"
ClassName = Annotated[str, Field(max_length=253, pattern=_CLASS)]
GpuName = Annotated[str, Field(min_length=1, max_length=LONGEST_GPU)]


class AloneSpec(ApiModel):
    """What was measured of the class where it had a card for itself."""

    gpu: GpuName | None = None
    """A part of the name of the card's model, in any case, such as V100. Unset: any model."""
    rate: Quantity | None = None
    """Steps per second."""
    memory: Quantity | None = None
    """Memory of the card at the peak."""
    utilisation: Annotated[int, Field(ge=0, le=100)] | None = None
    """Percent of the card's compute that it uses."""
    watts: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Power of the card while it runs."""


class PairSpec(ApiModel):
    """What was measured of the class beside one job of another class. It has a direction: the other's profile has the other
    one.
    """

    beside: ClassName
    """The other class."""
    gpu: GpuName | None = None
    """A part of the name of the card's model, in any case. Unset: any model."""
    sharing: Literal["TimeSlice", "MPS", "Software", "Claim"] | None = None
    """How the card was shared. Unset: in whichever way."""
    on: Literal["Card", "Node"] = "Card"
    """Card: both were on one card. Node: both were on one node, on whichever cards."""
    slowdown: Quantity | None = None
    """How much slower it was than alone: 1.25 is 1/1.25 of the speed. From 0.9 to 20."""
    samples: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] = 1
    """The number of measurements of which the slowdown is the mean."""
    out_of_memory: bool = False
    """One of both was killed for lack of memory. The pair is not tried on such cards."""


class JobProfileSpec(ApiModel):
    """The class, and what was measured of it."""

    class_: Annotated[ClassName | None, Field(alias="class")] = None
    """The class: what pods say in the annotation gangline.io/class. Unset: the name of the JobProfile."""
    family: Annotated[str, Field(min_length=1, max_length=LONGEST_FAMILY)] | None = None
    """Classes that are variants of one program: they are left out together when forecasts of pairs are judged. Unset: the
    class."""
    alone: Annotated[list[AloneSpec], Field(max_length=MOST_ALONE)] | None = None
    """What the class does alone, by model of card."""
    pairs: Annotated[list[PairSpec], Field(max_length=MOST_PAIRS)] | None = None
    """Beside whom it was measured."""


class JobProfileStatus(ApiModel):
    """What is made of the profile."""

    conditions: Conditions | None = None
    """Active: whether placement policies look at it."""
    observed_generation: Int64 | None = None
    """The metadata.generation that this status is about."""
    pairs: Annotated[list[PairSpec], Field(max_length=MOST_PAIRS)] | None = None
    """Pairs that were learned from progress reports of running jobs. Those of the spec precede them."""


class JobProfile(KubeObject):
    """What was measured of a class of jobs: how fast it is beside others, and what it needs. Placement policies with
    interference look at it, and policies that choose among flavors.
    """

    spec: JobProfileSpec
    """The class, and what was measured of it."""
    status: JobProfileStatus | None = None
    """What is made of the profile."""
