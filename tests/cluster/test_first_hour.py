"""docs/first-hour-admin.md and docs/first-hour-user.md, followed literally: each block is run as it stands, by an administrator
and then by a member of the team, with the rights that the administrator's commands gave. What blocks show is compared, numbers
aside.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.cluster.test_first_steps import Shell, shell
from tests.cluster.test_quickstart import blocks, differences

from gangline.devcluster.certs import Authority

__all__ = ["shell"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PAGES = {who: ROOT / "docs" / f"first-hour-{who}.md" for who in ("admin", "user")}
#: pattern of commands that are not run -> why
NOT_RUN = {r"gangline logs ": "pods of simulated nodes have no containers, so they have no logs"}
PATIENCE = 60.0


@dataclass(frozen=True)
class Step:
    """What a page says to do: a script, or a command with its output ([] = it shows none)."""

    where: str
    script: str
    output: tuple[str, ...] | None = None


def steps(page: Path) -> Iterator[Step]:
    for language, text, line in blocks(page):
        where = f"{page.name}:{line}"
        if language == "sh":
            yield Step(where, "".join(row + "\n" for row in text.splitlines() if not reason(row)))
        elif language == "console":
            for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
                command, *output = part.splitlines()
                yield Step(where, command, tuple(output))


def reason(command: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.match(pattern, command)), "")


def follow(page: Path, shell: Shell, kubeconfig: Path) -> dict[str, str]:
    """Do all that the page says. Returns what each command with an output printed."""
    seen: dict[str, str] = {}
    for step in steps(page):
        script = f"set -euo pipefail; export KUBECONFIG={kubeconfig}; {step.script}"
        printed = shell.run(script)
        deadline = time.monotonic() + PATIENCE
        while step.output and (found := differences(step.output, printed.splitlines())):
            assert time.monotonic() < deadline, "\n".join([f"{step.where}: {step.script}", *found, printed])
            time.sleep(1)
            printed = shell.run(script)
        if step.output is not None:
            seen[step.script] = printed
    return seen


def member(cluster: Path, user: str, group: str, folder: Path) -> Path:
    """A kubeconfig of a member of the group, with a client certificate of the cluster's own authority."""
    issued = Authority.load(cluster.parent / "pki", "ca").issue_client(user, [group])
    certificate, key = issued.save(folder, user)
    kubeconfig = yaml.safe_load(cluster.read_text())
    for each in kubeconfig["users"]:
        each["user"] = {"client-certificate": str(certificate), "client-key": str(key)}
    path = folder / "member.kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return path


def test_the_first_hour(shell: Shell, tmp_path: Path) -> None:
    said = shell.run("gangline up --local --detach")
    found = re.search(r"export KUBECONFIG=(\S+)", said)
    assert found, said
    admin = tmp_path / "admin.kubeconfig"
    admin.write_text(Path(found[1]).read_text())

    seen = follow(PAGES["admin"], shell, admin)
    assert "vision" in seen["gangline limits -A"] and "language" in seen["gangline limits -A"]

    mira = member(Path(found[1]), "mira", "vision-researchers", tmp_path)
    seen = follow(PAGES["user"], shell, mira)
    assert "language" not in shell.run(f"export KUBECONFIG={mira}; kubectl get localqueues -o name")
    refused = shell.run(f"export KUBECONFIG={mira}; kubectl get pods -n default 2>&1", status=1)
    assert "forbidden" in refused
    deadline = time.monotonic() + 60
    while "train-large" in (rows := shell.run(f"export KUBECONFIG={admin}; gangline queue -n team-vision -o name")):
        assert time.monotonic() < deadline, "the cancelled job is gone as soon as its pods are"
        time.sleep(1)
    assert "train" in rows


def test_the_pages_name_what_the_test_does_first() -> None:
    assert "gangline up --local --detach" in PAGES["admin"].read_text()


@pytest.mark.parametrize("who", PAGES)
def test_the_pages_have_steps(who: str) -> None:
    found = list(steps(PAGES[who]))
    assert sum(step.output is None for step in found) >= 4 and sum(step.output is not None for step in found) >= 4
    assert all(step.script.strip() for step in found)
