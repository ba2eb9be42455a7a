"""Words for users, and small shared tools: numbers and times as text, alarms and change logs.

In: plain values. Out: strings and numbers. Decides nothing.
"""
