"""Who runs, when and where: pure decisions.

Standard library only. No clock, no I/O, no Kubernetes: facts come in through `Engine.observe`, decisions go out of
`Engine.decide`, and the same facts with the same `now` give the same decisions.
"""
