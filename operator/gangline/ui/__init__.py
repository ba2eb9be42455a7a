"""The dashboard: serves its pages, and asks the API server for what they show, with the rights of the person who looks.

It keeps nothing but what it shows just now, so several replicas need not know of each other.
"""
