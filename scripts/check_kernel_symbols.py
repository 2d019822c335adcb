"""Check that no kernel object exports a shared inline function: scripts/check_kernel_symbols.py BUILD_DIR

Kernels are compiled once per instruction-set variant. An inline function or template with external linkage that is not
in the variant's own namespace becomes a weak symbol of which the linker keeps one copy, perhaps the AVX-512 one; the
portable code then dies on a processor without AVX-512. Exit code 1 lists each such symbol.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

VARIANTS = ("avx2", "avx512")


def shared_symbols(object_file: Path, variant: str) -> list[str]:
    """Demangled names of the weak definitions in the object that lie outside the variant's namespace."""
    listing = subprocess.run(
        ["nm", "--demangle", "--defined-only", str(object_file)], check=True, capture_output=True, text=True
    )
    found = []
    for line in listing.stdout.splitlines():
        kind, name = line.split(maxsplit=2)[1:]
        if kind in "WVu" and f"wordline::{variant}::" not in name:
            found.append(name)
    return found


def main() -> int:
    build = Path(sys.argv[1])
    checked = failures = 0
    for variant in VARIANTS:
        for object_file in sorted(build.glob(f"CMakeFiles/wordline_kernels_{variant}.dir/**/*.o")):
            checked += 1
            for name in shared_symbols(object_file, variant):
                failures += 1
                print(f"{object_file.name} ({variant}): shared inline function {name}")
    print(f"{checked} kernel objects, {failures} shared inline functions")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
