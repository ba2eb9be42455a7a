"""Which node, and which of its cards, a pod gets: filters say which may, scorers which is best, and why.

In: hosts with what is free on them, what a pod asks for, a profile. Out: the best place, or how many hosts each filter excludes.
A profile is a list of tiers: a later tier decides between places that are equal in all earlier ones. Inside a tier, scores of
0 to 100 are weighted. Rounding is part of the design: places that differ by less than a point are equal for a tier.
"""
