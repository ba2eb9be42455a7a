"""Container images without a container engine: layers from files, written as an archive that every engine loads.

In: directories and packages. Out: an OCI archive, the same bytes for the same input.
"""
