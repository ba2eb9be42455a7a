"""Turns what a person from Slurm writes, options and a script with directives, into the GPUJob that one would write by hand."""
