"""How much quota there is and is used, at every ClusterQueue and cohort.

In: quotas of the configuration, amounts that are taken and given back. Out: what is available, what is borrowed, which queue
has the largest share.
"""
