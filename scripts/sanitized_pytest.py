"""Run pytest on the sanitizer build: scripts/sanitized_pytest.py PACKAGE_PARENT PYTEST_ARGS...

PACKAGE_PARENT holds a copy of the package whose native module was built with ASan and UBSan. The sanitizer's run-time
library has to be loaded before the interpreter's own code, so this script starts itself again with it preloaded.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_MARK = "WORDLINE_SANITIZED_PYTEST"


def _restart() -> None:
    compiler = os.environ.get("CXX", "c++")
    # The C++ library too: the sanitizer finds the real __cxa_throw only if it is loaded from the start.
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    environment = os.environ | {
        _MARK: "1",
        "LD_PRELOAD": " ".join(libraries),
        # The interpreter itself leaks on purpose at exit.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


def main() -> int:
    if _MARK not in os.environ:
        _restart()
    package_parent = Path(sys.argv[1]).resolve()
    # The development install puts a finder in front of sys.path, which would find the ordinary build first.
    sys.meta_path[:] = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
    sys.path.insert(0, str(package_parent))

    from wordline import _native

    if not _native.build_info()["sanitized"]:
        print(f"{_native.__file__} was not built with the sanitizers", file=sys.stderr)
        return 1
    import pytest

    return int(pytest.main(sys.argv[2:]))


if __name__ == "__main__":
    sys.exit(main())
