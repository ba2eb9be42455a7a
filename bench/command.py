"""The end of a benchmark's `main`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from bench.parameters import ParameterError
from bench.stack import BenchError
from gangline.console.stack.stack import ended_by_signals


def carried_out(run: Callable[[], int]) -> int:
    """The result of `run`; 2, and a line that says why, if its parameters or its control plane are at fault.

    A signal ends every started process; 130 then.
    """
    try:
        with ended_by_signals():
            return run()
    except (ParameterError, BenchError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
