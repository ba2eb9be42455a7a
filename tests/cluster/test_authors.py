"""Who wrote without the lease, by entries made by hand."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.authors import usurped, written

from gangline.api import names


def entry(revision: int, author: str, *, holder: str | None = None, code: int = 200) -> str:
    lease = holder is not None
    target = {"resource": "leases", "name": names.KUEUE_LEASE} if lease else {"resource": "workloads", "name": "w"}
    answer = {"metadata": {"resourceVersion": str(revision)}, "spec": {"holderIdentity": holder} if lease else {}}
    body = {"verb": "patch", "objectRef": {"namespace": "ns", **target}, "userAgent": f"gangline/1 ({author})"}
    return json.dumps({**body, "responseStatus": {"code": code}, "responseObject": answer})


def test_writes_count_by_who_holds_the_lease_at_their_revision(tmp_path: Path) -> None:
    lines = [
        entry(9, "one"),
        entry(10, "one", holder="one"),
        entry(40, "two"),
        entry(30, "two", holder="two"),
        entry(11, "one"),
        entry(31, "one", code=409),
        entry(32, "one"),
        entry(50, "two", holder=""),
        entry(51, "two"),
    ]
    path = tmp_path / "log"
    path.write_text("".join(f"{line}\n" for line in lines))
    wrong, right = usurped(written(path, after=9))
    assert wrong == [
        "revision 32: patch workloads ns/w by one, while two leads",
        "revision 51: patch workloads ns/w by two, while nobody leads",
    ]
    assert right == {"one": 1, "two": 1}
