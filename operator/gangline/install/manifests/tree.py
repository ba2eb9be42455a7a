"""Manifests with open values: JSON trees whose leaves may be expressions and whose entries may be conditional.

`resolve` makes plain JSON of a tree with given values, `gangline.install.manifests.chart` the text of a Helm template. Both
know the same few expressions, so that the two can't say different things; one that either lacks is a type error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from gangline.kube.resources import Json

Node: TypeAlias = Any
FactName: TypeAlias = Literal["namespace", "manager", "instance"]


# --- expressions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Value:
    """The value at a dotted path, of any type."""

    path: str


@dataclass(frozen=True, slots=True)
class Fact:
    """What the installer knows: the namespace, who manages the objects, the name of the installation."""

    name: FactName


@dataclass(frozen=True, slots=True)
class FormattedText:
    """A string with `{}` for each part, which are expressions with strings or numbers."""

    text: str
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class JsonText:
    """A string: the JSON of the value of an expression."""

    of: Value


@dataclass(frozen=True, slots=True)
class Digest:
    """A string: the SHA-256 of the JSON of the value of an expression; it changes with the value."""

    of: Value


@dataclass(frozen=True, slots=True)
class IfElse:
    """The first node if the condition holds, else the second one."""

    when: Condition
    yes: Node
    no: Node


NAMESPACE: Final = Fact("namespace")
MANAGER: Final = Fact("manager")
INSTANCE: Final = Fact("instance")


# --- conditions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Set:
    """The value is neither false, 0 nor empty."""

    path: str


@dataclass(frozen=True, slots=True)
class Equal:
    """The value is this text, whatever else it may be."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class Not:
    of: Condition


@dataclass(frozen=True, slots=True)
class All:
    of: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class NoNamespace:
    """The cluster has no namespace of this name. Holds wherever a manifest is rendered without a cluster."""

    name: str


Condition: TypeAlias = Set | Equal | Not | All | NoNamespace


# --- structure --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class When:
    """An entry of a mapping or a list that is there only if the condition holds."""

    condition: Condition
    node: Node


@dataclass(frozen=True, slots=True)
class Spread:
    """Elements that are spread out. In a list: those of the list at a path. As a key of a mapping: the entries of the mapping at
    a path.
    """

    path: str


@dataclass(frozen=True, slots=True)
class Each:
    """Mappings that are made in a list, one for each element of the list at a path. It has the element under `key`, and what
    `more` says.
    """

    path: str
    key: str
    more: Json


@dataclass(frozen=True, slots=True)
class Document:
    """One object. `file`: the template it is in; `only`: the way to install it is part of, "" for all."""

    file: str
    node: Json
    condition: Condition | None = None
    only: Literal["", "helm", "plain"] = ""

    @property
    def kind(self) -> str:
        return self.node["kind"]


@dataclass(frozen=True, slots=True)
class TemplateContext:
    """What expressions are evaluated with."""

    values: Json
    namespace: str
    manager: str = "gangline"
    instance: str = "gangline"
    namespaces: frozenset[str] = frozenset()  # of others, in the cluster

    def at(self, path: str) -> Any:
        """The value at a path. Raises KeyError for a path that the values don't have."""
        found: Any = self.values
        for step in path.split("."):
            found = found[step]
        return found


# --- plain objects ----------------------------------------------------------------------------------------------------


def render(documents: list[Document], context: TemplateContext) -> list[Json]:
    """The objects that exist with these values, in order, without what only Helm has."""
    return [
        resolve(document.node, context)
        for document in documents
        if document.only != "helm" and (document.condition is None or holds(document.condition, context))
    ]


def holds(condition: Condition, context: TemplateContext) -> bool:
    match condition:
        case Set(path):
            return bool(context.at(path))
        case Equal(path, text):
            return context.at(path) == text
        case Not(of):
            return not holds(of, context)
        case All(of):
            return all(holds(each, context) for each in of)
        case NoNamespace(name):
            return name not in context.namespaces


def resolve(node: Node, context: TemplateContext) -> Any:
    """The node with every expression evaluated."""
    match node:
        case dict():
            return dict(_entries(node, context))
        case list():
            return list(_elements(node, context))
        case Value(path):
            return context.at(path)
        case Fact(name):
            return getattr(context, name)
        case FormattedText(text, parts):
            return text.format(*(resolve(part, context) for part in parts))
        case JsonText(of):
            return go_json(context.at(of.path), indent=2)
        case Digest(of):
            return hashlib.sha256(go_json(context.at(of.path)).encode()).hexdigest()
        case IfElse(when, yes, no):
            return resolve(yes if holds(when, context) else no, context)
        case str() | int() | float() | None:
            return node
        case _:
            raise TypeError(f"{node!r} is no part of a manifest")


def _entries(node: Mapping[Any, Node], context: TemplateContext) -> Iterator[tuple[str, Any]]:
    for key, inner in node.items():
        if isinstance(key, Spread):
            yield from context.at(key.path).items()
        elif not isinstance(inner, When):
            yield key, resolve(inner, context)
        elif holds(inner.condition, context):
            yield key, resolve(inner.node, context)


def _elements(node: list[Node], context: TemplateContext) -> Iterator[Any]:
    for inner in node:
        if isinstance(inner, Spread):
            yield from context.at(inner.path)
        elif isinstance(inner, Each):
            yield from ({inner.key: each, **inner.more} for each in context.at(inner.path))
        elif not isinstance(inner, When):
            yield resolve(inner, context)
        elif holds(inner.condition, context):
            yield resolve(inner.node, context)


def go_json(value: Any, indent: int | None = None) -> str:
    """JSON as Go's encoder writes it: sorted, and safe inside HTML."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=separators, indent=indent)
    return text.translate(_IN_HTML)


_IN_HTML: Final = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


# --- names, labels and ports that several objects of the installation share -------------------------------------------


PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
PRODUCT: Final = "gangline"
KUEUE_NAMESPACE: Final = "kueue-system"

OPERATOR: Final = "operator"
WEBHOOKS: Final = "webhooks"
UI: Final = "ui"
#: the Deployments, ServiceAccounts and Services of the components
OPERATOR_NAME: Final = "gangline-operator"
WEBHOOKS_NAME: Final = "gangline-webhooks"
UI_NAME: Final = "gangline-ui"

#: of pods; the operator's are plain HTTP, metrics over TLS, visibility over TLS
HTTP_PORT: Final = 8080
METRICS_PORT: Final = 8443
VISIBILITY_PORT: Final = 8082
WEBHOOKS_PORT: Final = 9443
UI_PORT: Final = 8484


def labels(component: str = "") -> Json:
    """The labels of every object of the installation."""
    return {**selector(component), PART_OF: PRODUCT, MANAGED_BY: MANAGER}


def selector(component: str = "") -> Json:
    """The labels by which pods of a component are found."""
    of_component = {"app.kubernetes.io/component": component} if component else {}
    return {"app.kubernetes.io/name": PRODUCT, "app.kubernetes.io/instance": INSTANCE, **of_component}


def head(
    api_version: str, kind: str, name: str, component: str = "", namespace: Node = NAMESPACE, **more: Node
) -> Json:
    """apiVersion, kind and metadata; `namespace` None for objects of the cluster, `more` for fields of the metadata."""
    where = {} if namespace is None else {"namespace": namespace}
    meta = {"name": name, **where, "labels": {**labels(component), **more.pop("labels", {})}, **more}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta}
