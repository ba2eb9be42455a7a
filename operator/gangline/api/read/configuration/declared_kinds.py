"""`integrations.declared`: the user's own job kinds. Every error names the field of the configuration."""

from __future__ import annotations

import re
from typing import Any, Final, cast

from gangline.api import jobkinds
from gangline.api.jobkinds import configured
from gangline.api.jobkinds.declaration import Behaviour, Declaration, Path, Suspension, Words
from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.shapes import TEXT, Shape
from gangline.kube.resources import Json, Resource

#: kinds, and parts of each
MOST_KINDS: Final = 32
MOST_PODS: Final = 18
MOST_PATHS: Final = 32
MOST_VALUES: Final = 16
_SIGN: Final[Shape] = {"condition": TEXT, "path": TEXT, "values": [TEXT]}
SHAPE: Final[Shape] = [
    {
        "group": TEXT,
        "version": TEXT,
        "kind": TEXT,
        "plural": TEXT,
        "suspend": TEXT,
        "active": TEXT,
        "pods": [{"each": TEXT, "name": TEXT, "template": TEXT, "count": TEXT, "indexLabel": TEXT}],
        "ready": _SIGN,
        "running": _SIGN,
        "succeeded": _SIGN,
        "failed": _SIGN,
        "priorityClass": TEXT,
        "managedBy": TEXT,
        "immutable": [TEXT],
    }
]
_GROUP: Final = re.compile(r"(?=.{3,253}$)[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)+")
_VERSION: Final = re.compile(r"v[0-9]{1,4}((alpha|beta)[0-9]{1,4})?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_PLURAL: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"([a-z0-9][-a-z0-9.]{0,252}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
#: what a condition's type and a value may be
_WORD: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,127}")
_TAKEN: Final = frozenset({"kueue.x-k8s.io", "gangline.io"})


def load(rows: list[Any], where: str = "integrations.declared") -> tuple[Declaration, ...]:
    """The rows have the shape above. Raises ConfigurationError."""
    if len(rows) > MOST_KINDS:
        raise ConfigurationError(f"{where}: at most {MOST_KINDS} kinds can be declared")
    found: dict[tuple[str, str], Declaration] = {}
    for i, row in enumerate(rows):
        at = f"{where}[{i}]"
        made = _kind(cast(Json, row or {}), at)
        if made.identity in found or jobkinds.is_built_in(*made.identity):
            raise ConfigurationError(f"{at}.kind: {made.kind} of {made.group} is declared already")
        found[made.identity] = made
    return tuple(found.values())


def _kind(row: Json, at: str) -> Declaration:
    group = _word(row, f"{at}.group", _GROUP, "a group such as example.com")
    if group in _TAKEN:
        raise ConfigurationError(f"{at}.group: {group} has no kinds of users")
    version = _word(row, f"{at}.version", _VERSION, "a version such as v1")
    kind = _word(row, f"{at}.kind", _KIND, "a kind such as TrainingRun")
    plural = _word(row, f"{at}.plural", _PLURAL, "a plural such as trainingruns", default=f"{kind.lower()}s")
    pods = tuple(_pods(cast(Json, each or {}), f"{at}.pods[{i}]") for i, each in enumerate(row.get("pods") or ()))
    if not 0 < len(pods) <= MOST_PODS:
        raise ConfigurationError(f"{at}.pods: 1 to {MOST_PODS} entries are wanted")
    succeeded, failed = (
        _sign(row[name], f"{at}.{name}") if row.get(name) else None for name in ("succeeded", "failed")
    )
    ready, running = _sign(row.get("ready"), f"{at}.ready"), _sign(row.get("running"), f"{at}.running")
    return Declaration(
        resource=Resource(group, version, plural, kind=kind),
        suspension=_suspension(row, at),
        behaviour=Behaviour(
            places=configured.AllPods(pods),
            finished=configured.Ended(succeeded, failed),
            ready=ready,
            active=running,
            idle=configured.AtRest((running, ready)),
        ),
        priority_class=_path(row, f"{at}.priorityClass", begins="spec") if row.get("priorityClass") else (),
        managed_by=_path(row, f"{at}.managedBy", begins="spec") if row.get("managedBy") else (),
        frozen=_frozen(row.get("immutable") or [], f"{at}.immutable"),
        words=Words(),
    )


def _suspension(row: Json, at: str) -> Suspension:
    if row.get("suspend") and row.get("active"):
        raise ConfigurationError(f"{at}.active: may not be set together with suspend")
    if row.get("active"):
        return Suspension(_path(row, f"{at}.active", begins="spec"), inverted=True)
    return Suspension(_path(row, f"{at}.suspend", begins="spec", default="spec.suspend"))


def _pods(row: Json, at: str) -> configured.ConfiguredPods:
    each: Path = _path(row, f"{at}.each", begins="spec") if row.get("each") else ()
    template = _path(row, f"{at}.template", begins="" if each else "spec")
    if each and len(_path(row, f"{at}.name", default="name")) > 1:
        raise ConfigurationError(f"{at}.name: one field of the entry is wanted")
    name = (
        (row.get("name") or "name")
        if each
        else _word(row, f"{at}.name", _PLURAL, "a name in lower case", default="main")
    )
    label = row.get("indexLabel") or ""
    if label and not _LABEL.fullmatch(label):
        raise ConfigurationError(f"{at}.indexLabel: {label[:80]!r} is not the key of a label")
    try:
        count = configured.factors(row.get("count") or "1")
    except ValueError as error:
        raise ConfigurationError(f"{at}.count: {error}") from None
    return configured.ConfiguredPods(template, count, each, name, label)


def _sign(row: Json | None, at: str) -> configured.StatusSign:
    body: Json = row or {}
    if bool(body.get("condition")) == bool(body.get("path")):
        raise ConfigurationError(f"{at}: either a condition or a path is wanted")
    values = cast("list[str]", body.get("values") or [])
    if body.get("condition"):
        if values:
            raise ConfigurationError(f"{at}.values: only a path has values")
        return configured.StatusSign(condition=_word(body, f"{at}.condition", _WORD, "the type of a condition"))
    if len(values) > MOST_VALUES:
        raise ConfigurationError(f"{at}.values: at most {MOST_VALUES} values are wanted")
    return configured.StatusSign(path=_path(body, f"{at}.path", begins="status"), values=tuple(values))


def _frozen(paths: list[str], at: str) -> tuple[Path, ...]:
    if len(paths) > MOST_PATHS:
        raise ConfigurationError(f"{at}: at most {MOST_PATHS} paths are wanted")
    return tuple(_parsed(text, f"{at}[{i}]", "spec") for i, text in enumerate(paths))


def _word(row: Json, at: str, pattern: re.Pattern[str], called: str, default: str = "") -> str:
    text = row.get(at.rpartition(".")[2]) or default
    if len(text) > configured.LONGEST_PATH or not pattern.fullmatch(text):
        raise ConfigurationError(f"{at}: {called} is wanted, not {text[:80]!r}")
    return text


def _path(row: Json, at: str, *, begins: str = "", default: str = "") -> Path:
    return _parsed(row.get(at.rpartition(".")[2]) or default, at, begins)


def _parsed(text: str, at: str, begins: str) -> Path:
    try:
        found = configured.path(text)
    except ValueError as error:
        raise ConfigurationError(f"{at}: {error}") from None
    if begins and not text.startswith(f"{begins}."):
        raise ConfigurationError(f"{at}: {text[:80]!r} does not begin with {begins}.")
    return found
