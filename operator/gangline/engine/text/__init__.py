"""Words for users, and small shared tools: numbers and times as text, alarms, change logs, the names of fixes.

In: plain values. Out: strings and numbers. Decides nothing.
"""
