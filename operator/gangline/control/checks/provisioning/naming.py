"""Names of ProvisioningRequests and their PodTemplates, the same as Kueue's: the attempt is read from a request's name."""

from __future__ import annotations

import hashlib
from typing import Final

from gangline import bounded

_HASH_LENGTH: Final = 5
#: characters of a name that are kept: with a dash and the digest it is as long as the API server allows
_LONGEST: Final = 252 - _HASH_LENGTH
#: digits of the greatest attempt
_DIGITS: Final = 10
#: attempts that are recognized in a name that had to be cut, which does not show its attempt
_MOST_CUT: Final = 32


def request_name(workload: str, check: str, attempt: int) -> str:
    return _cut(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    return _cut(f"ppt-{request}-{pod_set}")


def attempt_of(request: str, workload: str, check: str) -> int | None:
    """The number of the attempt that a request of this name is; None for a request of another workload or check."""
    prefix = f"{workload}-{check}-"
    if request.startswith(prefix) and (number := bounded.whole(request.removeprefix(prefix))) is not None:
        return number
    if len(prefix) + _DIGITS <= _LONGEST:
        return None
    attempts = range(1, _MOST_CUT + 1)
    return next((number for number in attempts if request_name(workload, check, number) == request), None)


def _cut(name: str) -> str:
    """The name; one that is too long ends in a digest. The API server accepts no dot before it."""
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()[:_HASH_LENGTH]
    return f"{name[:_LONGEST].rstrip('.')}-{digest}"
