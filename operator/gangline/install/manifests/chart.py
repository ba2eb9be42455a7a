"""The files of the Helm chart and of the kustomize directories, written from the tree."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import gangline
from gangline.api.schema import crd_install
from gangline.install.manifests import objects, values
from gangline.install.manifests.tree import (
    All,
    Condition,
    Digest,
    Document,
    Each,
    Equal,
    Fact,
    FactName,
    FormattedText,
    IfElse,
    JsonText,
    Node,
    NoNamespace,
    Not,
    Set,
    Spread,
    Value,
    When,
)
from gangline.kube.resources import Json

# --- trees as text of Helm templates ----------------------------------------------------------------------------------


_FACTS: Final[Mapping[FactName, str]] = {
    "namespace": ".Release.Namespace",
    "manager": ".Release.Service",
    "instance": ".Release.Name",
}
#: a key or string that YAML reads as this very string without quotes
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*( [A-Za-z0-9_./-]+)*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})


def template(document: Document) -> str:
    """One object as a template, with its separator."""
    body = "\n".join(_mapping(document.node, 0))
    text = f"---\n{body}\n"
    return text if document.condition is None else f"{_if(document.condition)}\n{text}{_END}\n"


_END: Final = "{{- end }}"


# --- structure --------------------------------------------------------------------------------------------------------


def _mapping(node: Mapping[Any, Node], depth: int) -> Iterator[str]:
    for key, inner in node.items():
        if isinstance(key, Spread):
            yield _block(f".Values.{key.path}", depth)
        else:
            yield from _conditional(inner, lambda each, key=key: _entry(key, each, depth))


def _conditional(node: Node, emit: Any) -> Iterator[str]:
    """The lines of an entry, within its condition or with its alternative."""
    if isinstance(node, When):
        yield _if(node.condition)
        yield from _conditional(node.node, emit)
        yield _END
    elif isinstance(node, IfElse) and not (_scalar(node.yes) and _scalar(node.no)):
        yield _if(node.when)
        yield from emit(node.yes)
        yield "{{- else }}"
        yield from emit(node.no)
        yield _END
    else:
        yield from emit(node)


def _entry(key: str, node: Node, depth: int) -> Iterator[str]:
    head = f"{' ' * depth}{_constant(key)}:"
    if isinstance(node, dict) and node:
        yield head
        yield from _mapping(node, depth + 2)
    elif isinstance(node, list) and node:
        yield head
        yield from _list(node, depth)
    else:
        yield f"{head} {_inline(node)}"


def _list(node: list[Node], depth: int) -> Iterator[str]:
    for inner in node:
        if isinstance(inner, Spread):
            yield _block(f".Values.{inner.path}", depth)
        elif isinstance(inner, Each):
            yield f"{{{{- range .Values.{inner.path} }}}}"
            yield f"{' ' * depth}- {inner.key}: {{{{ toJson . }}}}"
            yield from _mapping(inner.more, depth + 2)
            yield _END
        else:
            yield from _conditional(inner, lambda each: _element(each, depth))


def _element(node: Node, depth: int) -> Iterator[str]:
    if isinstance(node, dict) and node:
        lines = list(_mapping(node, depth + 2))
        first = next(number for number, line in enumerate(lines) if not line.startswith("{{"))
        if first:
            raise TypeError(f"the first entry of an element is conditional: {node!r}")
        yield f"{' ' * depth}- {lines[0].lstrip()}"
        yield from lines[1:]
    elif isinstance(node, list):
        raise TypeError(f"a list in a list: {node!r}")
    else:
        yield f"{' ' * depth}- {_inline(node)}"


def _block(value: str, depth: int) -> str:
    """The elements or entries of a value, if it has any."""
    return f"{{{{- with {value} }}}}{{{{ toYaml . | nindent {depth} }}}}{{{{- end }}}}"


def _if(condition: Condition) -> str:
    return f"{{{{- if {_bare(_test(condition))} }}}}"


# --- leaves -----------------------------------------------------------------------------------------------------------


def _scalar(node: Node) -> bool:
    return not isinstance(node, dict | list | Value) or isinstance(node, FormattedText)


def _inline(node: Node) -> str:
    if isinstance(node, dict | list):
        return json.dumps(node)  # empty
    if node is None or isinstance(node, bool | int | float | str):
        return _constant(node)
    return f"{{{{ toJson {_expression(node)} }}}}"


def _constant(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            return value
        if "{{" in value or "}}" in value:
            return f"{{{{ toJson {_quoted(value)} }}}}"
    return json.dumps(value, ensure_ascii=False)


def _expression(node: Node) -> str:
    """The node in the template language; parenthesised if it has arguments."""
    match node:
        case Value(path):
            return f".Values.{path}"
        case Fact(name):
            return _FACTS[name]
        case FormattedText(text, parts):
            pattern = text.replace("%", "%%").replace("{}", "%v")
            return f"(printf {_quoted(pattern)} {' '.join(map(_expression, parts))})"
        case JsonText(of):
            return f"(toPrettyJson {_expression(of)})"
        case Digest(of):
            return f"(sha256sum (toJson {_expression(of)}))"
        case IfElse(when, yes, no):
            return f"(ternary {_expression(yes)} {_expression(no)} {_test(when, boolean=True)})"
        case str():
            return _quoted(node)
        case int():
            return json.dumps(node)
        case _:
            raise TypeError(f"{node!r} is no expression")


def _test(condition: Condition, *, boolean: bool = False) -> str:
    match condition:
        case Set(path):
            return f"(not (empty .Values.{path}))" if boolean else f".Values.{path}"
        case Equal(path, text):
            return f"(eq (toString .Values.{path}) {_quoted(text)})"
        case Not(of):
            return f"(not {_test(of)})"
        case All(of):
            return f"(and {' '.join(_test(each, boolean=boolean) for each in of)})"
        case NoNamespace(name):
            return f'(not (lookup "v1" "Namespace" "" {_quoted(name)}))'


def _bare(test: str) -> str:
    return test[1:-1] if test.startswith("(") else test


def _quoted(text: str) -> str:
    """A string of the template language."""
    return json.dumps(text, ensure_ascii=False)


HEADER: Final = "Generated by `make manifests`. Do not edit: change gangline.install."
#: what a checkout keeps: files below these directories are generated
DIRECTORIES: Final = ("charts/gangline", "config")
_NOTES: Final = """Gangline {{ .Chart.AppVersion }} is in namespace {{ .Release.Namespace }}.

  kubectl -n {{ .Release.Namespace }} rollout status deployment/gangline-webhooks
  kubectl -n {{ .Release.Namespace }} rollout status deployment/gangline-operator

Its pods run under the restricted Pod Security Standard. Helm does not label the namespace that it creates:

  kubectl label namespace {{ .Release.Namespace }} pod-security.kubernetes.io/enforce=restricted

Give a team its queue, namespace and rights:

  gangline setup TEAM --apply

The roles of people are gangline-viewer-role, gangline-researcher-role, gangline-team-lead-role and gangline-administrator-role.
"""


def files() -> dict[str, str]:
    """Path in the checkout -> text."""
    return {
        "crds/kustomization.yaml": _kustomization(sorted(crd_install.files())),
        **{f"charts/gangline/{name}": text for name, text in chart().items()},
        **{f"config/{name}": text for name, text in kustomize().items()},
    }


def chart() -> dict[str, str]:
    """File name -> text."""
    templates: dict[str, str] = {}
    for document in objects.documents():
        if document.only != "plain":
            name = f"templates/{document.file}"
            templates[name] = templates.get(name, f"{{{{- /* {HEADER} */ -}}}}\n") + template(document)
    return {
        "Chart.yaml": _yaml(_about()),
        "values.yaml": values.commented(),
        "values.schema.json": json.dumps(values.schema(), indent=2) + "\n",
        "README.md": _readme(),
        ".helmignore": ".git\n*.tgz\n",
        "templates/NOTES.txt": _NOTES,
        **templates,
    }


def kustomize() -> dict[str, str]:
    """Directories for `kubectl apply -k`: the defaults, the same with cert-manager, and monitoring to go with either."""
    without = {"crds": {"enabled": False}}
    own = _objects(without)
    issued = _objects(without, {"certificates": {"mode": "cert-manager"}})
    watched = _objects(
        without,
        {"monitoring": {part: {"enabled": True} for part in ("serviceMonitor", "rules", "dashboard")}},
    )
    monitoring = [body for body in watched if body not in own]
    return {
        **_directory("default", own, above=["../../crds"]),
        **_directory("cert-manager", issued, above=["../../crds"]),
        **_directory("monitoring", monitoring, above=[]),
    }


def manifests(bodies: list[Json]) -> str:
    """Objects as YAML, one document each."""
    return "".join(f"---\n{_dump(body)}" for body in bodies)


def differing(root: Path) -> list[str]:
    """The generated files of a checkout that are not as they should be."""
    wanted = files()
    stale = [
        name
        for name, text in wanted.items()
        if not (root / name).is_file() or (root / name).read_text(encoding="utf-8") != text
    ]
    return sorted({*stale, *_leftover(root, wanted)})


def write(root: Path) -> None:
    """Write the generated files, and remove those that are generated no more. Raises OSError."""
    wanted = files()
    for name in _leftover(root, wanted):
        (root / name).unlink()
    write_files(root, wanted)


def write_files(root: Path, texts: Mapping[str, str]) -> None:
    """Write texts to files below a directory. Raises OSError."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _leftover(root: Path, wanted: Mapping[str, str]) -> set[str]:
    there = {
        str(path.relative_to(root))
        for directory in DIRECTORIES
        for path in (root / directory).rglob("*")
        if path.is_file()
    }
    return there - wanted.keys()


def _objects(*given: Json) -> list[Json]:
    return objects.plain(values.chosen(given), manager="kustomize")


def _directory(name: str, bodies: list[Json], above: list[str]) -> dict[str, str]:
    """The files of a directory by path, each with all objects of one kind."""
    by_kind: dict[str, list[Json]] = {}
    for body in bodies:
        by_kind.setdefault(body["kind"].lower(), []).append(body)
    made = {f"{kind}.yaml": f"# {HEADER}\n{manifests(of_kind)}" for kind, of_kind in by_kind.items()}
    listed = _kustomization([*above, *made])
    return {f"{name}/{file}": text for file, text in {**made, "kustomization.yaml": listed}.items()}


def _kustomization(resources: list[str]) -> str:
    body = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}
    return f"# {HEADER}\n{_dump(body)}"


def _about() -> Json:
    return {
        "apiVersion": "v2",
        "name": "gangline",
        "description": "A Kueue-compatible admission controller for GPU gangs that forecasts, backfills and heals",
        "type": "application",
        "version": gangline.__version__,
        "appVersion": gangline.__version__,
        "kubeVersion": ">=1.31.0-0",
        "keywords": ["kueue", "gpu", "batch", "gang scheduling"],
    }


def _readme() -> str:
    return (
        f"<!-- {HEADER} -->\n\n# Gangline\n\n{_about()['description']}. Docs: docs/install.md.\n\n"
        "    helm install gangline charts/gangline --namespace gangline-system --create-namespace\n\n"
        f"## Values\n\n{table()}"
    )


def table() -> str:
    """The values as a table of Markdown."""
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, default, text in values.described():
        shown = "" if default is None else f"`{json.dumps(default)}`"
        rows.append(f"| `{path}` | {shown.replace('|', '&#124;')} | {text.replace('|', '&#124;')} |")
    return "\n".join(rows) + "\n"


def _yaml(body: Json) -> str:
    return f"# {HEADER}\n{_dump(body)}"


class _Dumper(yaml.SafeDumper):
    """Writes YAML without anchors, and with long texts as they are."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _dump(body: Json) -> str:
    return yaml.dump(body, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
