"""What of Kueue's API works in Gangline, differs, or does not work: tables with a row for each field.

In: nothing. Out: `docs/reference/compatibility.md`, and the warnings that the webhooks give for fields without effect. Tests
compare each table with the code: a row that promises too much, and a field without a row, fail. Who builds what was missing
changes its row to `WORKS`.
"""
