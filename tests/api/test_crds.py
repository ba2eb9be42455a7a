"""The CRDs: as committed, as Kueue's users know them, and only with keywords that a kube-apiserver accepts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from click.testing import CliRunner
from pydantic import Field

from gangline.api.schema import crd_install, crdgen, kinds
from gangline.api.schema.common import Opaque, Quantity
from gangline.api.schema.json_schema import ApiModel, Cel, checked, list_map, rules, structural
from gangline.console.commands.admin.crds import command

Json = dict[str, Any]
REPO = Path(__file__).parents[2]
CRDS = crd_install.crds()
FILES = crd_install.files()

ACCEPTED = {
    "additionalProperties", "anyOf", "default", "description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format",
    "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength", "minimum", "nullable",
    "pattern", "properties", "required", "type", "x-kubernetes-int-or-string", "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
}  # fmt: skip


def test_the_committed_files_are_what_the_models_say() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in (REPO / "crds").glob("*_*.yaml")}
    assert committed == FILES, "run `gangline admin crds --out crds`"


def test_files_hold_what_installers_get() -> None:
    assert [yaml.safe_load(text) for text in FILES.values()] == CRDS


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every schema within a schema."""
    yield path, schema
    for name, sub in schema.get("properties", {}).items():
        yield from nodes(sub, f"{path}.{name}")
    for inner in ("items", "additionalProperties"):
        if inner in schema:
            yield from nodes(schema[inner], f"{path}[]")


SCHEMAS = [
    pytest.param(version["schema"]["openAPIV3Schema"], id=f"{crd['spec']['names']['kind']}-{version['name']}")
    for crd in CRDS
    for version in crd["spec"]["versions"]
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schemas_are_structural(schema: Json) -> None:
    for path, node in nodes(schema):
        assert node.keys() <= ACCEPTED, path
        assert "type" in node or "x-kubernetes-int-or-string" in node, path
        for key in node.get("x-kubernetes-list-map-keys", ()):
            item = node["items"]
            assert key in item.get("required", ()) or "default" in item["properties"][key], f"{path}: {key}"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_every_field_explains_itself(schema: Json) -> None:
    for path, node in nodes(schema):
        for name, field in node.get("properties", {}).items():
            if (path, name) != ("", "metadata"):
                assert field.get("description", "").endswith((".", ".)")), f"{path}.{name}"


def crd(kind: str) -> Json:
    return next(found for found in CRDS if found["spec"]["names"]["kind"] == kind)


def version(kind: str, name: str) -> Json:
    return next(found for found in crd(kind)["spec"]["versions"] if found["name"] == name)


@pytest.mark.parametrize(
    ("kind", "scope", "short_names", "status", "columns"),
    [
        (
            "ClusterQueue",
            "Cluster",
            ["cq"],
            True,
            ["Cohort", "Strategy*", "Pending Workloads", "Admitted Workloads*", "Policy"],
        ),
        (
            "LocalQueue",
            "Namespaced",
            ["queue", "queues", "lq"],
            True,
            ["ClusterQueue", "Pending Workloads", "Admitted Workloads"],
        ),
        (
            "Workload",
            "Namespaced",
            ["kwl", "kueueworkload", "kueueworkloads"],
            True,
            ["Queue", "Reserved in", "Admitted", "Finished", "Age"],
        ),
        ("ResourceFlavor", "Cluster", ["flavor", "flavors", "rf"], False, []),
        ("Cohort", "Cluster", ["co"], True, []),
        ("WorkloadPriorityClass", "Cluster", ["wpc"], False, ["Value"]),
        ("AdmissionCheck", "Cluster", ["ac"], True, []),
        ("Topology", "Cluster", ["topo"], False, []),
        ("ProvisioningRequestConfig", "Cluster", ["prc"], False, []),
    ],
)
def test_kueue_kinds_look_as_users_know_them(
    kind: str, scope: str, short_names: list[str], status: bool, columns: list[str]
) -> None:
    spec = crd(kind)["spec"]
    assert (spec["group"], spec["scope"], spec["names"]["shortNames"]) == ("kueue.x-k8s.io", scope, short_names)
    assert [(v["name"], v["served"], v["storage"]) for v in spec["versions"]] == [
        ("v1beta1", True, False),
        ("v1beta2", True, True),
    ]
    for each in spec["versions"]:
        shown = [c["name"] + ("*" if c.get("priority") else "") for c in each.get("additionalPrinterColumns", [])]
        assert shown == columns
        assert ("subresources" in each) == status
    assert version(kind, "v1beta1")["deprecationWarning"] == "This version is deprecated. Use v1beta2 instead."
    assert "deprecated" not in version(kind, "v1beta2")


def test_columns_follow_the_field_names_of_their_version() -> None:
    paths = {
        name: version("ClusterQueue", name)["additionalPrinterColumns"][0]["jsonPath"]
        for name in ("v1beta1", "v1beta2")
    }
    assert paths == {"v1beta1": ".spec.cohort", "v1beta2": ".spec.cohortName"}


def test_workloads_can_be_selected_by_cluster_queue() -> None:
    assert version("Workload", "v1beta2")["selectableFields"] == [{"jsonPath": ".status.admission.clusterQueue"}]


def field(kind: str, name: str, path: str) -> Json:
    node = version(kind, name)["schema"]["openAPIV3Schema"]
    for step in path.split("."):
        node = node["items"]["properties"][step] if "items" in node else node["properties"][step]
    return node


@pytest.mark.parametrize("name", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize(
    ("kind", "path", "default"),
    [
        ("ClusterQueue", "spec.queueingStrategy", "BestEffortFIFO"),
        ("ClusterQueue", "spec.stopPolicy", "None"),
        ("ClusterQueue", "spec.preemption", {}),
        ("ClusterQueue", "spec.preemption.withinClusterQueue", "Never"),
        ("ClusterQueue", "spec.preemption.reclaimWithinCohort", "Never"),
        ("ClusterQueue", "spec.preemption.borrowWithinCohort", {}),
        ("ClusterQueue", "spec.preemption.borrowWithinCohort.policy", "Never"),
        ("ClusterQueue", "spec.flavorFungibility", {}),
        ("ClusterQueue", "spec.flavorFungibility.whenCanBorrow", "MayStopSearch"),
        ("ClusterQueue", "spec.flavorFungibility.whenCanPreempt", "TryNextFlavor"),
        ("LocalQueue", "spec.stopPolicy", "None"),
        ("Workload", "spec.active", True),
        ("Workload", "spec.podSets.name", "main"),
        ("Workload", "spec.podSets.count", 1),
    ],
)
def test_defaults(name: str, kind: str, path: str, default: Any) -> None:
    assert field(kind, name, path)["default"] == default


@pytest.mark.parametrize(
    "path", ["spec.namespaceSelector", "spec.cohortName", "spec.resourceGroups", "spec.fairSharing"]
)
def test_what_means_something_by_its_absence_has_no_default(path: str) -> None:
    assert "default" not in field("ClusterQueue", "v1beta2", path)


def test_pod_templates_are_opaque() -> None:
    for kind, name, path in (
        ("Workload", "v1beta2", "spec.podSets.template"),
        ("GPUJob", "v1alpha1", "spec.roles.template"),
    ):
        assert field(kind, name, path)["properties"]["spec"] == {
            "description": "The pods' spec.",
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }


def test_limits() -> None:
    assert field("Workload", "v1beta2", "spec.podSets")["maxItems"] == 18
    assert field("Workload", "v1beta2", "status.schedulingStats.evictions")["maxItems"] == 256
    assert field("ClusterQueue", "v1beta2", "spec.resourceGroups")["maxItems"] == 16
    assert field("ResourceFlavor", "v1beta2", "spec.nodeLabels")["maxProperties"] == 8


def test_conversion_is_the_webhooks_only_where_versions_differ() -> None:
    config = {"url": "https://example/convert", "caBundle": "Q0E="}
    by_kind = {found["spec"]["names"]["kind"]: found["spec"].get("conversion") for found in crd_install.crds(config)}
    converted = {kind for kind, conversion in by_kind.items() if conversion and conversion["strategy"] == "Webhook"}
    assert converted == {
        "ClusterQueue", "LocalQueue", "Workload", "AdmissionCheck", "MultiKueueConfig", "MultiKueueCluster",
    }  # fmt: skip
    assert by_kind["Workload"]["webhook"] == {"clientConfig": config, "conversionReviewVersions": ["v1"]}
    assert not any("conversion" in c["spec"] for c in CRDS), "applied again, they leave it as the webhooks have set it"


@pytest.mark.parametrize(
    "kind", [kind for kind in kinds.KINDS if kind not in kinds.CONVERTED], ids=lambda kind: kind.kind
)
def test_versions_without_conversion_have_the_same_fields(kind: crdgen.ApiKind) -> None:
    shapes = [{path: node.get("type") for path, node in nodes(structural(found.model))} for found in kind.versions]
    assert all(shape == shapes[0] for shape in shapes)


# --- the generator ----------------------------------------------------------------------------------------------------


class Part(ApiModel):
    """A part of it."""

    size: Annotated[int, Field(gt=0)] = 1
    """How big."""


class Whole(ApiModel):
    """All of it,
    in several lines.

    And paragraphs."""

    model_config = rules(Cel("self.a < 3", "too big"))
    some_name: str
    """A name."""
    choice: Literal["A", "B"] = "A"
    """A choice."""
    only: Literal["X"] = "X"
    """No choice."""
    part: Part = Part()
    """A part, described where it is used."""
    parts: Annotated[list[Part], list_map("size")] | None = None
    """Parts."""
    amount: Quantity | None = None
    """An amount."""
    opaque: Opaque | None = None
    """Anything."""
    old: Annotated[str | None, checked(Cel("self == oldSelf", "frozen"))] = None
    """What it was."""


def test_generated_schema() -> None:
    schema = structural(Whole)
    fields = schema["properties"]
    part = {"exclusiveMinimum": True, "minimum": 0, "type": "integer", "default": 1, "description": "How big."}
    assert schema["description"] == "All of it, in several lines.\n\nAnd paragraphs."
    assert schema["required"] == ["someName"]
    assert schema["x-kubernetes-validations"] == [{"rule": "self.a < 3", "message": "too big"}]
    assert fields["choice"] == {"type": "string", "enum": ["A", "B"], "default": "A", "description": "A choice."}
    assert fields["only"]["enum"] == ["X"]
    assert fields["part"] == {
        "type": "object",
        "properties": {"size": part},
        "default": {},
        "description": "A part, described where it is used.",
    }
    assert fields["parts"]["x-kubernetes-list-type"] == "map"
    assert fields["parts"]["x-kubernetes-list-map-keys"] == ["size"]
    assert fields["parts"]["items"]["description"] == "A part of it."
    assert "default" not in fields["amount"]
    assert fields["amount"]["x-kubernetes-int-or-string"] is True
    assert fields["opaque"]["x-kubernetes-preserve-unknown-fields"] is True
    assert fields["old"]["type"] == "string"
    assert fields["old"]["x-kubernetes-validations"] == [{"rule": "self == oldSelf", "message": "frozen"}]


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_prints_all_kinds() -> None:
    printed = CliRunner().invoke(command, [])
    assert printed.exit_code == 0
    assert list(yaml.safe_load_all(printed.output)) == CRDS


def test_command_writes_and_checks(tmp_path: Path) -> None:
    run, out = CliRunner(), str(tmp_path / "new" / "crds")
    assert run.invoke(command, ["--out", out]).exit_code == 0
    assert run.invoke(command, ["--out", out, "--check"]).exit_code == 0
    changed = tmp_path / "new" / "crds" / "kueue.x-k8s.io_workloads.yaml"
    changed.write_text(changed.read_text() + "# edited\n")
    failed = run.invoke(command, ["--out", out, "--check"])
    assert failed.exit_code == 1
    assert "kueue.x-k8s.io_workloads.yaml" in failed.output


def test_command_removes_kinds_that_are_no_more_and_nothing_else(tmp_path: Path) -> None:
    stale = tmp_path / "kueue.x-k8s.io_olds.yaml"
    stale.write_text(crdgen.HEADER + "kind: Old\n")
    foreign = tmp_path / "mine.yaml"
    foreign.write_text("kind: Mine\n")
    assert "kueue.x-k8s.io_olds.yaml" in CliRunner().invoke(command, ["--out", str(tmp_path), "--check"]).output
    assert CliRunner().invoke(command, ["--out", str(tmp_path)]).exit_code == 0
    assert not stale.exists()
    assert foreign.exists()


def test_command_says_what_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    failed = CliRunner().invoke(command, ["--out", str(tmp_path / "file" / "crds")])
    assert failed.exit_code == 1
    assert "cannot write" in failed.output
