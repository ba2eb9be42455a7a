"""What the engine says in words, and small tools that everybody uses: numbers and times as text, alarms, the names of fixes.

In: plain values. Out: strings and numbers. Decides nothing.
"""
