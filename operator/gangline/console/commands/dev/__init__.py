"""The commands of developers, under `gangline dev`."""
