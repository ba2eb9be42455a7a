#!/usr/bin/env bash
# Makes or refreshes the virtual environment that the Makefile works in.
#   scripts/venv.sh DIR          Gangline and what it is checked and tested with
#   scripts/venv.sh DIR fuzz     the same and what `make fuzz` needs
#   scripts/venv.sh DIR mutants  the mutation tester of `make mutants`
#   scripts/venv.sh DIR docs     what `make docs` needs
#   scripts/venv.sh DIR node     Node.js, with which `make ui` builds the dashboard's pages
#   scripts/venv.sh DIR tools    what `make lock`, `make sbom` and `make changelog` need
# GANGLINE_PYTHON=/path/to/python3.x picks the interpreter. Nothing is installed but what a lock file names by version and hash.
set -euo pipefail
cd "$(dirname "$0")/.."

dir="${1:?usage: scripts/venv.sh DIR [fuzz|mutants|docs|node|tools]}"
what="${2:-gangline}"
oldest="3.11"

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < tuple(map(int, sys.argv[1].split("."))))' "$oldest" 2>/dev/null
}

find_python() {
  if [[ -n "${GANGLINE_PYTHON:-}" ]]; then
    new_enough "$GANGLINE_PYTHON" && { echo "$GANGLINE_PYTHON"; return; }
    echo "error: GANGLINE_PYTHON=$GANGLINE_PYTHON is not a Python of version $oldest or newer" >&2
    return 1
  fi
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    command -v "$name" >/dev/null && new_enough "$name" && { best_build_of "$name"; return; }
  done
  echo "error: Gangline needs Python $oldest or newer; found $(python3 --version 2>&1 || echo none)." >&2
  echo "       Install one, or name it: make GANGLINE_PYTHON=/path/to/python3.12 …" >&2
  return 1
}

# $1, unless it was built without optimisations (as pyenv does by default) and PATH has the same version built with them:
# up to a fifth less CPU for what Gangline does in Python. Only a shared library tells; others are taken as they are.
best_build_of() {
  local version path
  version="$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  while read -r path; do
    "$path" -c "$is_well_built" 2>/dev/null && { echo "$path"; return; }
  done < <(command -v "$1"; type -aP "python$version")
  echo "$1"
}

is_well_built='
import pathlib, sys, sysconfig
import ensurepip, venv  # it can make environments
maps = pathlib.Path("/proc/self/maps")
shared = maps.exists() and "libpython" in maps.read_text()
optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
sys.exit(shared and not optimised)
'

if [[ ! -x "$dir/bin/python" ]]; then
  python="$(find_python)"
  echo "· creating $dir with $("$python" --version), $python" >&2
  "$python" -m venv "$dir" || {
    echo "error: $python cannot create virtual environments (Debian and Ubuntu: apt install python3-venv)" >&2
    rm -rf "$dir"
    exit 1
  }
fi

pip=("$dir/bin/python" -m pip --disable-pip-version-check --quiet install)
if [[ "$what" == mutants || "$what" == docs || "$what" == node || "$what" == tools ]]; then
  echo "· installing requirements-$what.lock into $dir" >&2
  "${pip[@]}" --require-hashes --requirement "requirements-$what.lock"
  exit
fi
echo "· installing Gangline and its tools into $dir" >&2
"${pip[@]}" --require-hashes --requirement requirements.lock
"${pip[@]}" --no-deps --no-build-isolation --editable .
if [[ "$what" == fuzz ]]; then
  "${pip[@]}" --require-hashes --requirement requirements-fuzz.lock
fi
