"""Forward simulation: an engine under a virtual clock, whose decisions are carried out at once.

`simulation` is the simulator itself. Everything that plays the engine forward is a subclass of it: the courses of an `outlook`
here, the counterfactuals of the floor (`engine.floor.world`), and the replay of a trace (`gangline.replay.simulator`).
"""
