"""Kueue's metrics under Kueue's names.

In: decisions that were carried out and transitions of Workloads (counters, histograms), and the engine's ledger (gauges), which
is read when somebody scrapes. Out: Prometheus' text format. Series belong to a queue or a cohort and go with it, so that there
are never more than objects justify.
"""
