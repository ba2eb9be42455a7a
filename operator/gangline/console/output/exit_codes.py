"""The exit codes of all commands. docs/cli.md has the same table, and a test compares them."""

from __future__ import annotations

from typing import Final

#: what was asked for is done
SUCCESS: Final = 0
#: it is not, and a message on stderr says why; or the answer is no, such as a check that has found a fault
FAILURE: Final = 1
#: the command line is wrong, or lacks a consent that nobody can be asked for
USAGE: Final = 2
#: Ctrl-C ended the command before it was done
INTERRUPTED: Final = 130
