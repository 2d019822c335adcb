"""Progress of long work, on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A function to call with each new phase: a spinner on a terminal, otherwise a line a phase.

    Says nothing unless called, and imports nothing then.
    """
    reporter = _Terminal() if sys.stderr.isatty() else _Lines()
    try:
        yield reporter
    finally:
        reporter.finish()


class _Lines:
    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __call__(self, phase: str) -> None:
        print(f"[{time.perf_counter() - self._start:6.1f} s] {phase}", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Nothing is left on the screen."""


class _Terminal:
    def __init__(self) -> None:
        self._status: Status | None = None

    def __call__(self, phase: str) -> None:
        if self._status is None:
            from rich.console import Console

            self._status = Console(stderr=True).status(phase)
            self._status.start()
        else:
            self._status.update(phase)

    def finish(self) -> None:
        """Take the spinner off the screen."""
        if self._status is not None:
            self._status.stop()
