"""Every environment variable that wordline reads, typed. Nothing else in the package touches ``os.environ``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from wordline.errors import WordlineError

Simd = Literal["auto", "portable", "avx2", "avx512"]
_SIMD: tuple[Simd, ...] = ("auto", "portable", "avx2", "avx512")


def cache_dir() -> Path:
    """WORDLINE_CACHE: folder of compiled artifacts and tuning results.

    Default: ``wordline`` in XDG_CACHE_HOME, which is ``~/.cache`` if it is not set to an absolute path.
    """
    value = os.environ.get("WORDLINE_CACHE")
    if value:
        return expanded(value)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else expanded("~/.cache")) / "wordline"


def expanded(path: str | Path) -> Path:
    """The path with a leading ``~`` or ``~user`` replaced. Raises ``WordlineError("no-home")`` for an unknown home."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise WordlineError(
            "no-home",
            f"the home folder in {str(path)!r} cannot be determined",
            where="environment",
            remedy="set HOME, or WORDLINE_CACHE for the cache; write other paths without ~",
        ) from error


def threads() -> int:
    """WORDLINE_THREADS: threads of the native simulator and the compiler. Default: the CPUs this process may use."""
    value = os.environ.get("WORDLINE_THREADS")
    if not value:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1024:
        raise _bad("WORDLINE_THREADS", value, "a number from 1 to 1024")
    return int(value)


def simd() -> Simd:
    """WORDLINE_SIMD: instruction set of the native simulator; every choice gives the same bits. Default: ``auto``."""
    value = os.environ.get("WORDLINE_SIMD") or "auto"
    for choice in _SIMD:
        if value == choice:
            return choice
    raise _bad("WORDLINE_SIMD", value, f"one of {', '.join(_SIMD)}")


def traceback() -> bool:
    """WORDLINE_TRACEBACK: 1 shows the traceback of an internal error of the command line. Default: 0."""
    value = os.environ.get("WORDLINE_TRACEBACK") or "0"
    if value not in ("0", "1"):
        raise _bad("WORDLINE_TRACEBACK", value, "0 or 1")
    return value == "1"


def _bad(name: str, value: str, wanted: str) -> WordlineError:
    return WordlineError("bad-knob", f"{name} is {value!r}", where="environment", remedy=f"set {name} to {wanted}")
