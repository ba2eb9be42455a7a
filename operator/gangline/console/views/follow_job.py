"""Follows what a job prints until it ends: for `gangline logs -f` and `gangline submit --follow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline.console.output import terminal
from gangline.console.views import access, pod_logs, targets
from gangline.console.views.pod_logs import LogLine, LogQuery, RankedPod
from gangline.control.answers.workloads.snapshot import FINISHED
from gangline.kube.client import ApiClient
from gangline.kube.errors import ApiError
from gangline.kube.resources import Json

#: conditions by which jobs say that they have ended
_ENDS: Final = frozenset({"Complete", "Completed", "Failed", "Succeeded", "Finished"})


def shown(pod: RankedPod, line: LogLine, *, prefix: bool) -> str:
    """The line as it is printed."""
    return f"[{pod.prefix}] {line.text}" if prefix else line.text


async def follow(
    api: ApiClient,
    namespace: str,
    job: str,
    query: LogQuery,
    ranks: Sequence[int] = (),
    *,
    prefix: bool = True,
) -> None:
    """Show the lines of the job's pods, also of those that come later, until the job ends or is deleted. Raises
    targets.NoSuchJob for one that does not exist.
    """
    await targets.find(api, namespace, job)
    outage = access.Outage()

    async def look() -> tuple[Sequence[RankedPod], bool]:
        try:
            target = await targets.find(api, namespace, job)
            pods = await pod_logs.pods_of(api, namespace, target)
        except targets.NoSuchJob:
            return (), True
        except ApiError as error:
            outage.endure(error)
            return (), False
        chosen = [pod for pod in pods if not ranks or pod.rank in ranks]
        return chosen, target.state in FINISHED or _has_ended(target.job)

    def show(pod: RankedPod, line: LogLine) -> None:
        terminal.say(shown(pod, line, prefix=prefix))

    await pod_logs.following(api, namespace, look, query, show)


def _has_ended(job: Json | None) -> bool:
    conditions = ((job or {}).get("status") or {}).get("conditions") or []
    return any(each.get("type") in _ENDS and each.get("status") == "True" for each in conditions)
