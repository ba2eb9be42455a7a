"""Shares of cards in the words of those who share GPUs out.

In: what the containers of a pod request, and its annotations. Out: what it asks of cards (`Share`), what it counts for in quota
of `gangline.io/gpu-milli` and `gangline.io/gpu-mem`, and what contradicts itself.
"""
