"""What of Kueue's API works in Gangline, differs, or does not work: tables for a page of the reference.

Tests compare each row, and each field without a row, with the code.
"""
