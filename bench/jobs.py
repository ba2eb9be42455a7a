"""How fast real Jobs get through: webhook, suspension, admission, pods on simulated nodes, completion.

    python -m bench.jobs --size tenth

The floor is the same Jobs without a queue: what Kubernetes itself needs to run them. With `--kinds` instead what a gang of each
kind costs, see `bench.kinds`.
"""

import sys

from bench import admission, kinds

if __name__ == "__main__":
    raise SystemExit(kinds.main() if "--kinds" in sys.argv else admission.main(jobs=True))
