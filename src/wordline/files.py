"""Writing files so that nobody ever sees half of one."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 under a temporary name beside ``path``, then rename it; on failure nothing is left.

    Raises:
        OSError: as the operating system has it, or for a device or pipe, which the new file would take the place of.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
