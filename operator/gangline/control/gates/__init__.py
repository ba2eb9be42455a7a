"""Pods that wait behind a scheduling gate of ours until it is known where they may go."""
