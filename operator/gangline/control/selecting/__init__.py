"""CEL selectors of users, evaluated in a process of its own.

In: expressions, and devices as JSON. Out: verdicts (`api.selecting`), or that there are none for now.
"""

from gangline.control.selecting.selector_process import SelectorProcess
from gangline.control.selecting.selector_queue import SelectorQueue

__all__ = ["SelectorProcess", "SelectorQueue"]
