"""What all our servers need: self-issued certificates, a context whose certificate can be changed while serving, and limits on
connections and requests.
"""
