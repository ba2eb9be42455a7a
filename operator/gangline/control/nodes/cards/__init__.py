"""The inventory of cards: which cards each node has, and which pods sit on them, in queues and outside of any.

In: ResourceSlices, ResourceClaims, nodes and pods. Out: `NodeCards` per node; and what is known of the sizes of all cards, by
which shares of them count in quota.
"""
