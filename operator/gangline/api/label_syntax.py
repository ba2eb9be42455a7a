"""The syntax of names, labels and annotations: Kubernetes' rules, with its own error texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from gangline import bounded

_LABEL_RE: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_RE: Final = rf"{_LABEL_RE}(\.{_LABEL_RE})*"
_NAME_RE: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_RE: Final = f"({_NAME_RE})?"

_LABEL: Final = re.compile(_LABEL_RE)
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_RE)
_NAME: Final = re.compile(_NAME_RE)
_VALUE: Final = re.compile(_VALUE_RE)
#: characters of the longest key: a domain, a slash and a name
_LONGEST: Final = 253 + 1 + 63
#: characters of a text that is compared with a pattern: a longer one is too long for every pattern
_COMPARED: Final = 4_096
#: bytes of all keys and values of an object's annotations
MOST_ANNOTATIONS: Final = 256 * 1024

_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_RE}')"
)
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_RE}')"
)
_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_RE}')"
)
_VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '{_VALUE_RE}')"
)


# --- names ------------------------------------------------------------------------------------------------------------


def too_long(limit: int) -> str:
    """The error text for a text of more bytes than this."""
    return f"must be no more than {limit} bytes"


def dns_label_faults(value: str) -> list[str]:
    """Why `value` is not an RFC 1123 label; empty if it is one."""
    return _faults(value, 63, _LABEL, _LABEL_RULE)


def dns_subdomain_faults(value: str) -> list[str]:
    return _faults(value, 253, _SUBDOMAIN, _SUBDOMAIN_RULE)


def qualified_name_faults(value: str) -> list[str]:
    """Faults of a label key, annotation key or resource name: `[prefix/]name`."""
    prefix, slash, name = value.rpartition("/")
    faults: list[str] = []
    if slash:
        if not prefix:
            faults.append("prefix part must be non-empty")
        faults += [f"prefix part {fault}" for fault in dns_subdomain_faults(prefix) if prefix]
    if not name:
        return [*faults, "name part must be non-empty"]
    return faults + [f"name part {fault}" for fault in _faults(name, 63, _NAME, _NAME_RULE)]


def label_value_faults(value: str) -> list[str]:
    return _faults(value, 63, _VALUE, _VALUE_RULE)


def _faults(value: str, longest: int, pattern: re.Pattern[str], rule: str) -> list[str]:
    faults = [too_long(longest)] if len(value) > longest else []
    if len(value) <= _COMPARED and not pattern.fullmatch(value):
        faults.append(rule)
    return faults


@bounded.parser(_LONGEST, instead=False, worst=("a.", "a-", "a/", "."))
def is_key(text: str) -> bool:
    """Whether a text is a label's key, `[domain/]name`."""
    return not qualified_name_faults(text)


@bounded.parser(_LONGEST, instead=False, worst=("a.", "a-", "."))
def is_value(text: str) -> bool:
    """Whether a text is a label's value."""
    return not label_value_faults(text)


# --- maps -------------------------------------------------------------------------------------------------------------


def label_faults(labels: Mapping[str, object]) -> Iterator[tuple[object, str]]:
    """What is wrong in a map of labels: each key or value, and its fault."""
    for key, value in labels.items():
        yield from ((key, fault) for fault in qualified_name_faults(key))
        yield from ((value, fault) for fault in label_value_faults(value if isinstance(value, str) else ""))


def annotation_faults(annotations: Mapping[str, object]) -> Iterator[tuple[str | None, str]]:
    """What is wrong in a map of annotations: each key and its fault, or None for all together."""
    size = 0
    for key, value in annotations.items():
        yield from ((key, fault) for fault in qualified_name_faults(key.lower()))
        size += len(key.encode(errors="replace"))
        size += len(value.encode(errors="replace")) if isinstance(value, str) else 0
    if size > MOST_ANNOTATIONS:
        yield None, f"may not be more than {MOST_ANNOTATIONS} bytes"
