"""Nodes and cards: what they have, who uses it, and what a job finds there."""
