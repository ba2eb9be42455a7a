"""Cards of nodes: what of each is taken, how many pods with a share still fit, and which cards each gets.

In: the cards of nodes, the shares of pods and where they sit. Out: why a card is not for a share, how many pods fit, and which
cards they get. What is given back leaves a card exactly as it was.
"""
