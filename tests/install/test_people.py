"""The roles of people: the table of docs/roles.md says what the chart gives, and a refusal names the role that has it."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import click
import pytest

from gangline.api import names
from gangline.console.cli import main
from gangline.console.views import denied
from gangline.console.views.denied import MissingRight, missing_right
from gangline.install.manifests import people
from gangline.kube.errors import Forbidden

Json = dict[str, Any]
PAGE: Final = Path(__file__).parents[2] / "docs" / "roles.md"
ROLES: Final = (names.VIEWER, names.RESEARCHER, names.TEAM_LEAD, names.ADMINISTRATOR)
#: a row of the table: what one may do, the right, and a mark for each role
ROW: Final = re.compile(
    r"^\| (?P<what>[^|]+) \| `(?P<right>[^`]+)` \| (?P<marks>[^|]*\|[^|]*\|[^|]*\|[^|]*) \|$", re.MULTILINE
)


def rows() -> list[tuple[str, list[bool]]]:
    found = [
        (match["right"], [bool(mark.strip()) for mark in match["marks"].split("|")])
        for match in ROW.finditer(PAGE.read_text())
    ]
    assert len(found) >= 20
    return found


def bodies() -> dict[str, Json]:
    roles: list[Any] = [document.node for document in people.documents()]
    return {role["metadata"]["name"]: role for role in roles}


def rules_of(role: str) -> list[Json]:
    """The rules of a role, those of the roles that it is made of included, as Kubernetes' controller fills them in."""
    made = bodies()
    selectors = (made[role].get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    parts = [
        each
        for each in made.values()
        if any(wanted["matchLabels"].items() <= each["metadata"]["labels"].items() for wanted in selectors)
    ]
    return [rule for each in (made[role], *parts) for rule in each.get("rules") or ()]


def allows(role: str, verb: str, resource: str, name: str = "") -> bool:
    """`resource` as in `pods/log` or `jobs.batch`; `name`: of the one object, "" = any."""
    of, slash, below = resource.partition("/")
    plural, _, group = of.partition(".")
    return any(
        verb in rule["verbs"] and group in rule["apiGroups"] and f"{plural}{slash}{below}" in rule["resources"]
        for rule in rules_of(role)
        if "resources" in rule and (not rule.get("resourceNames") or name in rule["resourceNames"])
    )


@pytest.mark.parametrize(("right", "marks"), rows())
def test_the_table_of_the_page_is_what_the_roles_give(right: str, marks: list[bool]) -> None:
    assert [allows(role, *right.split(" ")) for role in ROLES] == marks


#: what starts and ends clusters on this machine, and what has rights of its own
#: `mcp` needs those of the commands that its tools are
WITHOUT_RIGHTS: Final = {"run", "up", "down", "completion", "admin", "dev", "mcp"}


def test_each_command_that_needs_a_right_is_in_the_table() -> None:
    whats = [match["what"] for match in ROW.finditer(PAGE.read_text())]
    named = {word.split(" ")[0] for what in whats for word in re.findall("`([^`]+)`", what)}
    commands = set(main.list_commands(click.Context(main)))
    assert commands > WITHOUT_RIGHTS
    assert commands - WITHOUT_RIGHTS - named == set()


def test_each_role_may_what_the_one_before_it_may() -> None:
    for less, more in pairwise(ROLES):
        for rule in rules_of(less):
            for group, resource, verb in (
                (group, resource, verb)
                for group in rule.get("apiGroups") or ()
                for resource in rule["resources"]
                for verb in rule["verbs"]
            ):
                plural, slash, below = resource.partition("/")
                name = f"{plural}.{group}" if group else plural
                assert rule.get("resourceNames") or allows(more, verb, f"{name}{slash}{below}"), (more, verb, resource)


def test_no_role_of_people_reads_secrets_or_writes_what_decides() -> None:
    for role in ROLES:
        for resource in ("secrets", "configmaps", "pods/exec", "workloads/status.kueue.x-k8s.io"):
            assert (
                not any(allows(role, verb, resource) for verb in ("get", "create", "patch", "update"))
                or "status" in resource
            )
        assert not allows(role, "patch", "workloads.kueue.x-k8s.io/status")
    assert not allows(names.RESEARCHER, "patch", "workloads.kueue.x-k8s.io"), "a Workload's requests are its quota"


def test_kueues_roles_keep_their_names_and_are_made_as_before() -> None:
    made = bodies()
    for name, label in (("kueue-batch-admin-role", people.BATCH_ADMIN), ("kueue-batch-user-role", people.BATCH_USER)):
        assert made[name]["aggregationRule"] == {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]}
    assert names.PRIORITY_CLASSES_VIEWER in made


# --- refusals ---------------------------------------------------------------------------------------------------------


def refusal(verb: str, resource: str, group: str, namespace: str = "team-vision", name: str = "x") -> str:
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    lacks = f'User "mira" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    return f'{resource}.{group} "{name}" is forbidden: {lacks}'


@pytest.mark.parametrize(("right", "marks"), rows())
def test_a_refusal_names_the_least_role_that_has_the_right(right: str, marks: list[bool]) -> None:
    verb, resource, *name = right.split(" ")
    of, slash, below = resource.partition("/")
    plural, _, group = of.partition(".")
    missing = missing_right(refusal(verb, f"{plural}{slash}{below}", group, "team-vision", *name))
    assert missing is not None
    least = next((role for role, has in zip(ROLES, marks, strict=True) if has), "")
    if missing.role == names.PRIORITY_CLASSES_VIEWER:
        assert allows(names.PRIORITY_CLASSES_VIEWER, verb, resource)
    elif missing.role == names.TERMINAL_USER:
        assert allows(names.TERMINAL_USER, verb, resource) and not least
    else:
        assert missing.role == least


def test_what_is_said_has_the_right_the_role_and_the_command() -> None:
    error = Forbidden(403, "Forbidden", refusal("patch", "workloads", "kueue.x-k8s.io"))
    assert denied.said(error) == (
        "mira may not patch workloads.kueue.x-k8s.io in namespace team-vision. "
        "The role gangline-team-lead-role gives this right; an administrator grants it by\n"
        "  kubectl create rolebinding NAME -n team-vision --clusterrole gangline-team-lead-role --user mira"
    )
    error = Forbidden(403, "Forbidden", refusal("list", "workloadpriorityclasses", "kueue.x-k8s.io", ""))
    assert "clusterrolebinding NAME --clusterrole kueue-workloadpriorityclass-viewer-role" in denied.said(error)
    error = Forbidden(403, "Forbidden", refusal("get", "secrets", ""))
    assert "none of Gangline's roles" in denied.said(error)


def test_the_denial_of_a_webhook_is_said_as_it_is() -> None:
    text = (
        'admission webhook "clusterqueues.gangline.io" denied the request: spec.resourceGroups[0]: must not be negative'
    )
    assert denied.said(Forbidden(403, "Forbidden", text)) == text


def test_names_that_a_shell_would_read_are_quoted() -> None:
    text = refusal("patch", "workloads", "kueue.x-k8s.io").replace("mira", "a; rm -rf ~")
    assert "--user 'a; rm -rf ~'" in denied.said(Forbidden(403, "Forbidden", text))


def test_the_kinds_of_jobs_are_those_of_the_role() -> None:
    kinds = {str(each.resource) for each in people._KINDS if people.BATCH_USER in each.editors}
    assert kinds == denied.JOBS


@pytest.mark.parametrize(("queues", "role"), [("localqueues", names.VIEWER), ("clusterqueues", names.ADMINISTRATOR)])
def test_who_sees_what_waits(queues: str, role: str) -> None:
    right = MissingRight("mira", "get", f"{queues}/pendingworkloads", "visibility.kueue.x-k8s.io", "team")
    assert right.role == role and allows(role, "get", right.name.replace("/pendingworkloads", "") + "/pendingworkloads")


def test_a_right_that_nobody_has() -> None:
    assert MissingRight("mira", "delete", "nodes", "", "").role == ""
