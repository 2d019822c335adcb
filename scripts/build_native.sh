#!/usr/bin/env bash
# Builds wordline._native: scripts/build_native.sh PYTHON BUILD_DIR PACKAGE_DIR JOBS [CMAKE_ARGS...]
# The module is moved into PACKAGE_DIR by a rename: a running program keeps the old file, and none sees half of the new one.
set -euo pipefail
python=$1 build=$2 package=$3 jobs=$4
shift 4
bin=$(cd "$(dirname "$python")" && pwd)

if [ ! -f "$build/build.ninja" ]; then
  "$bin/cmake" -G Ninja -S . -B "$build" -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DPython_EXECUTABLE="$bin/python" "$@" >"$build.log" 2>&1 ||
    { cat "$build.log" >&2; exit 1; }
fi
"$bin/ninja" -C "$build" -j "$jobs" --quiet

built=$(ls -t "$build"/_native.*so | head -n 1)
name=$(basename "$built")
if ! cmp -s "$built" "$package/$name"; then
  # The stub tells mypy what the module offers; a sanitizer build does not load into a plain interpreter, and needs none.
  if ! grep -q '^WORDLINE_SANITIZE:BOOL=ON' "$build/CMakeCache.txt"; then
    "$python" -m nanobind.stubgen -q -i "$build" -m _native -o "$build/_native.pyi"
    cp "$build/_native.pyi" "$package/._native.pyi.new"
    mv -f "$package/._native.pyi.new" "$package/_native.pyi"
  fi
  cp "$built" "$package/.$name.new"
  mv -f "$package/.$name.new" "$package/$name"
  echo "built $package/$name"
fi
