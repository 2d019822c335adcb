"""Timelines: 64-bit semaphores that count up, and whose failure is a state that reaches every waiter."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Protocol

from wordline.errors import WordlineError


class Worker(Protocol):
    """What a wait may drive forward: a queue, and with it a simulated device."""

    def advance(self) -> bool:
        """Do some work without blocking; whether anything changed."""


class Scheduler:
    """All queues of one process part that share semaphores. Waiting on any timeline advances all of them in turn."""

    def __init__(self) -> None:
        self._workers: weakref.WeakSet[Worker] = weakref.WeakSet()

    def add(self, worker: Worker) -> None:
        """Let waits drive ``worker`` as long as it lives."""
        self._workers.add(worker)

    def advance(self) -> bool:
        """One turn of every worker; whether anything changed."""
        changed = False
        for worker in list(self._workers):
            changed |= worker.advance()
        return changed


class Semaphore:
    """A timeline: its value only grows. Once failed it stays failed; values reached before remain reached."""

    def __init__(self, scheduler: Scheduler, value: int = 0) -> None:
        self._scheduler = scheduler
        self._value = value
        self._error: WordlineError | None = None

    @property
    def value(self) -> int:
        """The value reached."""
        return self._value

    @property
    def error(self) -> WordlineError | None:
        """Why the timeline failed, or None."""
        return self._error

    def reached(self, value: int) -> bool:
        """Whether ``value`` has been reached, without waiting."""
        return self._value >= value

    def signal(self, value: int) -> None:
        """Move to ``value``. Raises ``WordlineError("timeline-order")`` when that is not forward."""
        if self._error is not None:
            return
        if value <= self._value:
            raise WordlineError(
                "timeline-order",
                f"a timeline at {self._value} was signalled {value}",
                remedy="signal ascending values; use one timeline for each independent order of events",
            )
        self._value = value

    def fail(self, error: WordlineError) -> None:
        """Fail the timeline; the first failure stays."""
        if self._error is None:
            self._error = error

    def wait(self, value: int) -> None:
        """Return when ``value`` is reached, driving simulated devices meanwhile (virtual time: it never sleeps).

        Raises:
            WordlineError: the error of the failed timeline, or "timeline-deadlock" when nothing can reach ``value``.
        """
        while not self.reached(value):
            if self._error is not None:
                raise self._error
            if not self._scheduler.advance():
                raise WordlineError(
                    "timeline-deadlock",
                    f"nothing left to do will bring the timeline from {self._value} to {value}",
                    remedy="submit the operation that signals it before waiting",
                )


@dataclass(frozen=True, slots=True)
class Point:
    """A place on a timeline: "when ``semaphore`` is at ``value``". What operations wait for and signal."""

    semaphore: Semaphore
    value: int

    def wait(self) -> None:
        """Wait until the timeline is here; see :meth:`Semaphore.wait`."""
        self.semaphore.wait(self.value)

    @property
    def reached(self) -> bool:
        """Whether the timeline is here already."""
        return self.semaphore.reached(self.value)
