"""How fast real Jobs get through: webhook, suspension, admission, pods on simulated nodes, completion.

    python -m bench.jobs --size tenth

The floor is the same Jobs without a queue: what Kubernetes itself needs to run them.
"""

from bench.admission import main

if __name__ == "__main__":
    raise SystemExit(main(jobs=True))
