"""`python -m tests.conformance tests/data/vectors/*`: how many recorded scenarios agree, and where the others differ."""

from tests.conformance.vectors import command

if __name__ == "__main__":
    command()
