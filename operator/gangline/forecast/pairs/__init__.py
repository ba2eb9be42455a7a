"""Pairs of jobs that share a card: files of measured pairs, priors learned from them, and how far these can be trusted."""
