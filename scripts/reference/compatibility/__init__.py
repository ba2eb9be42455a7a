"""What of Kueue's features, keys, conditions and settings works in Gangline, differs, or does not work.

The page of the reference is made of these tables and of `gangline.api.compatibility`, whose fields the webhooks read, too. Tests
compare each row with the code.
"""
