"""The tables of what differs from Kueue: whatever has no row is used, and no row says more than the code does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from scripts.reference.compatibility.features import FEATURES
from scripts.reference.compatibility.fields import FIELDS, Rows, Support, fields_of_kinds, is_covered
from scripts.reference.compatibility.keys import CONDITIONS, KEYS
from scripts.reference.compatibility.settings import SETTINGS, fields_of_file, settings_of

import gangline
from gangline.api import names
from gangline.api.read.configuration import gates, load, sections, shapes

Json = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
PACKAGE = Path(gangline.__path__[0])
WEBHOOKS = PACKAGE.parents[1] / "webhooks" / "gangline_webhooks"
#: the CRDs, and the conversion, which treats every field alike
WITHOUT = ("api/schema/", "api/convert/")
STATES = [
    *(state for fields in FIELDS.values() for state in fields.values()),
    *KEYS.values(),
    *CONDITIONS.values(),
    *SETTINGS.values(),
    *(feature.state for feature in FEATURES.values()),
]


def source() -> Iterator[tuple[str, str]]:
    """Path within its package, and text, of each module that does something."""
    for root in (PACKAGE, WEBHOOKS):
        for path in sorted(root.rglob("*.py")):
            within = path.relative_to(root).as_posix()
            if root is WEBHOOKS or not within.startswith(WITHOUT):
                yield within, path.read_text()


def is_a_shape(node: ast.AnnAssign) -> bool:
    return "Shape" in {each.id for each in ast.walk(node.annotation) if isinstance(each, ast.Name)}


def words_of_the_code() -> set[str]:
    """Every name and every word of a text in the code. Comments, docstrings and the shapes of the file do nothing."""
    found: set[str] = set()
    for _, text in source():
        tree = ast.parse(text)
        tree.body = [node for node in tree.body if not (isinstance(node, ast.AnnAssign) and is_a_shape(node))]
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found.update(re.findall(r"\w+", node.value))
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.keyword | ast.arg):
                found.add(node.arg or "")
    return found


def test_every_word_stands_where_it_is_needed() -> None:
    """What differs says how, what is not there says what holds instead."""
    known = get_args(Support.__dataclass_fields__["does"].type) or ("works", "differs", "no")
    assert {state.does for state in STATES} <= set(known)
    for state in STATES:
        assert state.does == "works" or 10 < len(state.words) < 130, state


def test_each_row_is_about_a_field() -> None:
    fields = fields_of_kinds()
    assert FIELDS.keys() <= fields.keys()
    for kind, rows in FIELDS.items():
        assert rows.keys() <= fields[kind], kind
    assert SETTINGS.keys() <= fields_of_file()


@pytest.mark.parametrize("rows", [*FIELDS.values(), SETTINGS], ids=[*FIELDS, "Configuration"])
def test_each_row_says_what_no_other_one_does(rows: Rows) -> None:
    """A row holds for all fields below its own, too."""
    for path, state in rows.items():
        assert state.words, path
        assert not is_covered(path, {row: state for row, state in rows.items() if row != path}), path


def test_a_field_without_a_row_is_used_somewhere() -> None:
    used = words_of_the_code()
    tables: dict[str, tuple[set[str], Rows]] = {
        **{kind: (fields, FIELDS.get(kind, {})) for kind, fields in fields_of_kinds().items()},
        "Configuration": (fields_of_file(), SETTINGS),
    }
    for kind, (fields, rows) in tables.items():
        assert len(fields) > 1
        for path in fields:
            leaf = path.removesuffix("[]").split(".")[-1]
            assert is_covered(path, rows) or {leaf, _snake(leaf)} & used, f"{kind} {path}"


def test_no_field_of_a_kind_is_without_effect() -> None:
    """The webhooks would have to warn who sets it."""
    assert not [path for rows in FIELDS.values() for path, state in rows.items() if state.does == "no"]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def test_every_key_that_the_code_uses_has_a_row() -> None:
    """Written out, put together from the group, or a constant of `names`."""
    written = {
        key
        for _, text in source()
        for found in re.findall(r'"((?:\w+\.)?kueue\.x-k8s\.io/[a-z-]*)"|\{(?:names\.)?GROUP\}(/[a-z-]+)"', text)
        for key in [found[0] or f"{names.GROUP}{found[1]}"]
    }
    assert len(written) > 20
    assert written - {names.V1BETA1, names.V1BETA2, f"{names.GROUP}/v"} <= KEYS.keys()


def is_used(value: str, *written: str) -> bool:
    """The constant of `names` with this value, or one of these texts, stands somewhere else than where all of its kind stand."""
    constant = next((name for name, each in vars(names).items() if each == value and name.isupper()), None)
    patterns = [re.escape(text) for text in written] + ([rf"\b{constant}\b"] if constant is not None else [])
    tables = ("api/names.py", "api/read/configuration/gate_table.py")
    return any(re.search("|".join(patterns), text) for path, text in source() if path not in tables)


#: keys that are checked on writes, and do nothing
ONLY_CHECKED = {"kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/workload-slice-replacement-for"}
#: written by the conversion to v1beta1 alone
ONLY_CONVERTED = {"kueue.x-k8s.io/workloadpriorityclass"}


def test_a_key_does_something_if_and_only_if_code_uses_it() -> None:
    wrong = [
        key
        for key, state in KEYS.items()
        if is_used(key, f'"{key}"', f'GROUP}}/{key.partition("/")[2]}"') != (state.does != "no")
    ]
    assert set(wrong) <= ONLY_CHECKED | ONLY_CONVERTED


def test_a_condition_does_something_if_and_only_if_code_names_it() -> None:
    """Types of a Workload's conditions are constants; those that nobody sets have no constant."""
    for row, state in CONDITIONS.items():
        kind, type_ = row.split(" ")
        assert "status.conditions" in fields_of_kinds()[kind]
        assert is_used(type_, f'"{type_}"') == (state.does != "no"), row


def test_settings_that_do_not_work_are_those_of_which_the_operator_says_so() -> None:
    for path in (*sections.WITHOUT_EFFECT, *sections.ONLY_AS_USUAL):
        assert SETTINGS[path].does != "works", path
    warned_of = {*sections.WITHOUT_EFFECT, *sections.ONLY_AS_USUAL, "integrations.frameworks"}
    for path, state in SETTINGS.items():
        if state.does != "works" and path not in warned_of and not state.words.startswith("refused"):
            body, usual = _set(path), load({})
            found = load(body)
            assert any(path.partition("[")[0] in text for text in found.ignored), path
            assert not usual.ignored


def _set(path: str) -> Json:
    """A file in which this field has an effect in Kueue."""
    samples: dict[str, Any] = {
        "health.readinessEndpointName": {"health": {"readinessEndpointName": "ready"}},
        "tls.curvePreferences": {"tls": {"curvePreferences": [29]}},
        "health.livenessEndpointName": {"health": {"livenessEndpointName": "live"}},
        "metrics.customLabels[].sourceAnnotationKey": {
            "featureGates": {"CustomMetricLabels": True},
            "metrics": {
                "customLabels": [
                    {"name": "a", "sourceAnnotationKey": "a/b", "sourceKind": "Workload", "trackedValues": ["x"]}
                ]
            },
        },
    }
    return samples[path]


def test_shapes_are_the_kinds_that_the_walk_knows() -> None:
    """A `Map` has names of the user's own: no rows."""
    assert isinstance(sections.V1BETA2, Mapping)
    assert not list(settings_of(shapes.Map(shapes.TEXT)))


@pytest.mark.parametrize("name", FEATURES)
def test_features_agree_with_their_gates_and_pages(name: str) -> None:
    feature = FEATURES[name]
    for gate in feature.gates:
        assert gates.does(gate), gate
        if feature.state.does == "works":
            assert gates.does(gate) in (gates.READ, gates.ON), gate
    if feature.state.does == "no":
        assert any(gates.does(gate) == gates.OFF for gate in feature.gates)
    assert not feature.page or (DOCS / feature.page).is_file()
