#!/usr/bin/env bash
# Runs the tests that need no cluster, and a smoke of both processes, on every supported Python that this machine has.
#   scripts/pythons.sh [VERSION …]     3.11 3.12 3.13 3.14
# Each gets an environment of its own, .venvs/VERSION, with exactly what requirements.lock names.
set -euo pipefail
cd "$(dirname "$0")/.."

versions=("$@")
(($#)) || versions=(3.11 3.12 3.13 3.14)

# the interpreter of that version: on PATH, or one of pyenv's
python_of() {
  local path
  for path in $(type -aP "python$1") "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    [[ -x "$path" ]] && [[ "$("$path" -c 'import ensurepip, sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" == "$1" ]] &&
      { echo "$path"; return; }
  done
  return 1
}

ran=()
for version in "${versions[@]}"; do
  python="$(python_of "$version")" || { echo "· Python $version: not on this machine"; continue; }
  environment=".venvs/$version"
  GANGLINE_PYTHON="$python" ./scripts/venv.sh "$environment"
  "$environment/bin/python" -c 'import sys; print("· Python", sys.version.split()[0])'
  for command in operator webhooks crds rbac; do "$environment/bin/gangline" "$command" --help >/dev/null; done
  "$environment/bin/python" -W error::SyntaxWarning -m compileall -q -f operator/gangline webhooks
  "$environment/bin/pytest" -q -p no:cacheprovider -m "not cluster" \
    tests/engine tests/api tests/jobs tests/kube tests/webhooks tests/control tests/control_io tests/forecast
  ran+=("$version")
done
((${#ran[@]})) || { echo "error: none of ${versions[*]} is on this machine" >&2; exit 1; }
echo "· passed on Python ${ran[*]}"
