"""A Kubernetes object as it was read: JSON with names for what objects of every kind have."""

from __future__ import annotations

from typing import Any

from gangline.api import names
from gangline.kube.resources import Json, as_revision


class Stored(dict[str, Any]):
    """An object as the API server sent it. It is JSON, which nobody changes once the mirror has stored it.

    The names read the JSON: an absent or null field is "", 0, an empty mapping or None, so that nobody has to ask twice.
    Whoever writes an object makes JSON of its own.
    """

    __slots__ = ("weight",)
    #: bytes of memory, about, where whoever received the object has measured it (`control.isolation.intake`)
    weight: int

    # --- which object it is ---

    @property
    def metadata(self) -> Json:
        return self["metadata"]

    @property
    def name(self) -> str:
        return self["metadata"]["name"]

    @property
    def namespace(self) -> str:
        """The namespace; "" of an object without one."""
        return self["metadata"].get("namespace") or ""

    @property
    def key(self) -> str:
        """The identity of the object in the engine: `namespace/name`, or `name` of an object without a namespace."""
        metadata = self["metadata"]
        namespace = metadata.get("namespace")
        return f"{namespace}/{metadata['name']}" if namespace else metadata["name"]

    @property
    def uid(self) -> str:
        return self["metadata"].get("uid") or ""

    @property
    def resource_version(self) -> str:
        return self["metadata"].get("resourceVersion") or ""

    @property
    def revision(self) -> int:
        """The resourceVersion as a number: of one kind's objects, the greater one is the newer (Kubernetes guarantees it since
        1.35, and every API server on etcd has kept to it). 0 where it is no number.
        """
        return as_revision(self.resource_version)

    @property
    def generation(self) -> int:
        return self["metadata"].get("generation") or 0

    @property
    def created(self) -> str:
        """When the object was created, as RFC 3339 in seconds; "" where that is not known."""
        return self["metadata"].get("creationTimestamp") or ""

    # --- what is written on it ---

    @property
    def labels(self) -> dict[str, str]:
        return self["metadata"].get("labels") or {}

    @property
    def user(self) -> str:
        """The user whom a job or a Workload names by its label; "" for none."""
        found = self.labels.get(names.USER)
        return found if isinstance(found, str) else ""

    @property
    def annotations(self) -> dict[str, str]:
        return self["metadata"].get("annotations") or {}

    @property
    def finalizers(self) -> list[str]:
        return self["metadata"].get("finalizers") or []

    # --- whose it is ---

    @property
    def owners(self) -> list[Json]:
        """The references to its owners."""
        return self["metadata"].get("ownerReferences") or []

    @property
    def controller(self) -> Json | None:
        """The reference to the object's controller: its managing owner, of which there is at most one."""
        return next((reference for reference in self.owners if reference.get("controller")), None)

    @property
    def controller_uid(self) -> str | None:
        """The UID of its controller."""
        reference = self.controller
        return reference["uid"] if reference is not None else None

    # --- what it says ---

    @property
    def spec(self) -> Json:
        return self.get("spec") or {}

    @property
    def status(self) -> Json:
        return self.get("status") or {}

    @property
    def deleting(self) -> bool:
        """Whether the object is being deleted, and not gone yet."""
        return "deletionTimestamp" in self["metadata"]

    @property
    def deletion_time(self) -> str:
        """When the object is to be gone, as RFC 3339 in seconds; "" while nobody deletes it."""
        return self["metadata"].get("deletionTimestamp") or ""

    @property
    def conditions(self) -> list[Json]:
        return self.status.get("conditions") or []

    def condition(self, kind: str) -> Json | None:
        """The condition of this type."""
        return next((row for row in self.conditions if row.get("type") == kind), None)

    def true_condition(self, kind: str) -> Json | None:
        """The condition of this type, if its status is True."""
        row = self.condition(kind)
        return row if row is not None and row.get("status") == "True" else None

    def is_true(self, kind: str) -> bool:
        """Whether the condition of this type is there and True."""
        return self.true_condition(kind) is not None
