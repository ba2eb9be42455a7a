"""What the pods of a Workload count for, as Kueue counts them.

In: pod specs as JSON, and the rules that hold for them: LimitRanges, RuntimeClasses, ResourceClaimTemplates and Kueue's
configuration. Out: completed specs, amounts for quota, and why a Workload is not admitted.
"""

from gangline.api.read.counting.counted import NO_RULES, NamespaceRules, as_written, completed, unclaimable, violation
from gangline.api.read.counting.gpu_shares import GpuShares, gpu_shares

__all__ = [
    "NO_RULES",
    "GpuShares",
    "NamespaceRules",
    "as_written",
    "completed",
    "gpu_shares",
    "unclaimable",
    "violation",
]
