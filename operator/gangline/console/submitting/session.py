"""The pods of an interactive session: what keeps them until somebody has come and gone, and what runs in the terminal.

The first pod ends when its terminal is closed, its user's connection is gone, or no terminal was opened in time, and the job with
it: a session whose user's machine has died holds no GPUs for long. The other pods wait for the end of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangline.console.submitting import wishes
from gangline.console.submitting.gpu_job import UNLIMITED, Work
from gangline.console.submitting.wishes import Wishes

#: the time limit of a session that names none
LIMIT: Final = "4h"
#: seconds in which its terminal has to be opened once the pod runs
OPENED_WITHIN: Final = 600
#: the file that holds the process of the terminal; several pods may share /tmp
_MARK: Final = "/tmp/.gangline-session-$HOSTNAME"
#: `sleep` in the background: a shell that waits for it ends at once when the pod is deleted
_KEEPER: Final = f"""\
trap 'exit 0' TERM
nap() {{ sleep "$1" & wait $!; }}
while [ "${{GANGLINE_INDEX:-0}}" != 0 ]; do nap 3600; done
mark="{_MARK}" waited=0
: >"$mark"
while [ ! -s "$mark" ]; do
  if [ "$waited" -ge {OPENED_WITHIN} ]; then
    echo "no terminal was opened within {OPENED_WITHIN // 60} minutes"
    exit 1
  fi
  nap 2
  waited=$((waited + 2))
done
read -r terminal <"$mark"
while kill -0 "$terminal" 2>/dev/null; do nap 2; done
echo "the terminal is closed"
exit 1
"""
#: ends the terminal once its input ends. A process in a terminal notices nothing when the connection of its user is gone: the
#: container runtime keeps the terminal open. A process with a pipe gets an end of its input. Only `sh` is used to wait for that,
#: since an image may have no `cat`.
_GUARD: Final = f"""\
while read -r line; do :; done
read -r terminal <"{_MARK}" || exit 0
kill -HUP "$terminal" 2>/dev/null || exit 0
sleep 5
kill -KILL "$terminal" 2>/dev/null
"""
_SHELL: Final = "if command -v bash >/dev/null 2>&1; then exec bash; else exec sh; fi"


def keeper() -> Work:
    """What the pods of a session run themselves."""
    return Work(["sh", "-c", _KEEPER], name="session")


def in_terminal(words: Sequence[str]) -> list[str]:
    """The command of the terminal: these words, or a shell. It tells the pod which process the terminal is."""
    run = 'exec "$@"' if words else _SHELL
    return ["sh", "-c", f'echo $$ >"{_MARK}"; {run}', "session", *words]


def guard() -> list[str]:
    """The command that runs beside the terminal, with a pipe as its input, and ends it when the user's connection is gone."""
    return ["sh", "-c", _GUARD]


def of_session(merged: Wishes) -> Wishes:
    """The options of a session, with a time limit where none is named. Raises WishError for what a session can't have."""
    if array := merged.one("array"):
        raise array.refuse("a session is one job")
    limit = merged.one("time")
    if limit is not None and limit.value.upper() in UNLIMITED:
        raise limit.refuse("a session has a limit: it would keep its GPUs as long as its terminal is open")
    least = {} if limit is not None else {"time": [wishes.given("time", LIMIT)]}
    return Wishes({**merged.by_name, **least}, merged.remarks)
