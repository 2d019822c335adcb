"""The queue of a device: operations in order, each waiting for and signalling points on timelines."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wordline.errors import WordlineError
from wordline.runtime.device_interface import Completion, ErrorCode, ExecuteFlag, Opcode, fault_place
from wordline.runtime.ring import Ring
from wordline.runtime.timeline import Point, Scheduler, Semaphore

Points = Sequence[Point]


@dataclass(slots=True)
class _Operation:
    """A descriptor, or a call on the host (``opcode`` None)."""

    opcode: Opcode | None
    flags: int
    operands: tuple[int, ...]
    call: Callable[[], None] | None
    waits: Points
    signals: Points
    point: Point
    done: Callable[[Completion], None] | None


class Queue:
    """Operations start in the order of submission; one that waits holds those behind it.

    Every verb takes ``waits`` and ``signals`` and returns its point on the queue's own timeline, which it signals last.
    An operation that fails, or that waits for a failed timeline, fails all it would have signalled; the queue's own
    timeline then fails too, and with it everything submitted later, until the device is reset.
    """

    def __init__(self, ring: Ring, scheduler: Scheduler) -> None:
        self._ring = ring
        self._scheduler = scheduler
        self._pending: deque[_Operation] = deque()
        self._flying: deque[_Operation] = deque()
        self.timeline = Semaphore(scheduler)
        self._submitted = 0
        self.cycles = 0
        """Device time at the end of the last operation completed."""
        scheduler.add(self)

    def fence(self, waits: Points = (), signals: Points = ()) -> Point:
        """Reached when everything submitted before has completed."""
        return self._submit(Opcode.FENCE, (), waits, signals)

    def write_rows(self, address: int, first_row: int, rows: int, waits: Points = (), signals: Points = ()) -> Point:
        """Copy ``rows`` DRAM rows of all banks from host memory at ``address``: [row, channel, bank, column, lane]."""
        return self._submit(Opcode.BANK_WRITE, (address, first_row, rows), waits, signals)

    def read_rows(self, address: int, first_row: int, rows: int, waits: Points = (), signals: Points = ()) -> Point:
        """The reverse of :meth:`write_rows`."""
        return self._submit(Opcode.BANK_READ, (address, first_row, rows), waits, signals)

    def zero_rows(
        self, first_row: int, rows: int, channel_mask: int, waits: Points = (), signals: Points = ()
    ) -> Point:
        """Zero ``rows`` DRAM rows in all banks of the channels named by the mask."""
        return self._submit(Opcode.BANK_FILL, (first_row, rows, channel_mask), waits, signals)

    def write_words(self, address: int, word: int, words: int, waits: Points = (), signals: Points = ()) -> Point:
        """Copy ``words`` words of controller memory, from ``word`` up, from the host window at ``address``."""
        return self._submit(Opcode.CMEM_WRITE, (address, word, words), waits, signals)

    def read_words(self, address: int, word: int, words: int, waits: Points = (), signals: Points = ()) -> Point:
        """The reverse of :meth:`write_words`."""
        return self._submit(Opcode.CMEM_READ, (address, word, words), waits, signals)

    def load_program(self, address: int, size: int, slot: int, waits: Points = (), signals: Points = ()) -> Point:
        """Load the program image of ``size`` bytes in the host window at ``address`` into a slot."""
        return self._submit(Opcode.LOAD_PROGRAM, (address, size, slot), waits, signals)

    def unload_program(self, slot: int, waits: Points = (), signals: Points = ()) -> Point:
        """Empty a slot."""
        return self._submit(Opcode.UNLOAD_PROGRAM, (slot,), waits, signals)

    def execute(
        self,
        slot: int,
        argument_base: int,
        mode: ExecuteFlag,
        waits: Points = (),
        signals: Points = (),
        done: Callable[[Completion], None] | None = None,
    ) -> Point:
        """Run the program in ``slot``, argument block at word ``argument_base``; ``done`` gets the completion."""
        return self._submit(Opcode.EXECUTE, (slot, argument_base), waits, signals, mode, done)

    def host_call(self, call: Callable[[], None], waits: Points = (), signals: Points = ()) -> Point:
        """Call ``call`` on the host when everything before has completed. What it raises fails the operation."""
        return self._add(None, 0, (), call, waits, signals, None)

    def advance(self) -> bool:
        """Start what can start, let a simulated device work, take completions; whether anything changed."""
        changed = self._start()
        if self._flying:
            self._ring.interface.advance()
            changed |= self._collect()
        return changed | self._start()

    def abandon(self, error: WordlineError) -> None:
        """Fail everything submitted and begin a new timeline (the device was reset)."""
        for operation in (*self._flying, *self._pending):
            self._finish(operation, error)
        self._flying.clear()
        self._pending.clear()
        self.timeline.fail(error)
        self.timeline = Semaphore(self._scheduler)
        self._submitted = self.cycles = 0

    def _submit(
        self,
        opcode: Opcode,
        operands: tuple[int, ...],
        waits: Points,
        signals: Points,
        flags: int = 0,
        done: Callable[[Completion], None] | None = None,
    ) -> Point:
        return self._add(opcode, flags, operands, None, waits, signals, done)

    def _add(
        self,
        opcode: Opcode | None,
        flags: int,
        operands: tuple[int, ...],
        call: Callable[[], None] | None,
        waits: Points,
        signals: Points,
        done: Callable[[Completion], None] | None,
    ) -> Point:
        self._submitted += 1
        point = Point(self.timeline, self._submitted)
        self._pending.append(_Operation(opcode, flags, operands, call, waits, signals, point, done))
        self._start()
        return point

    def _start(self) -> bool:
        changed = False
        while self._pending:
            operation = self._pending[0]
            error = self.timeline.error or next((w.semaphore.error for w in operation.waits if not w.reached), None)
            if error is None:
                if not all(w.reached for w in operation.waits):
                    break
                if operation.opcode is None and self._flying:
                    break
                if operation.opcode is not None and self._ring.full:
                    break
            elif self._flying:
                break  # what was submitted earlier still completes, and its waiters must see that
            self._pending.popleft()
            changed = True
            if error is not None:
                self._finish(operation, error)
            elif operation.opcode is None:
                self._call(operation)
            else:
                self._ring.push(operation.opcode, operation.flags, operation.operands)
                self._flying.append(operation)
        return changed

    def _call(self, operation: _Operation) -> None:
        assert operation.call is not None
        try:
            operation.call()
        except WordlineError as error:
            self._finish(operation, error)
        else:
            self._finish(operation, None)

    def _collect(self) -> bool:
        changed = False
        for completion in self._ring.completions():
            operation = self._flying.popleft()
            changed = True
            self.cycles = completion.end_cycle
            error = None if completion.status == ErrorCode.OK else self._device_error(operation, completion)
            if error is None and operation.done is not None:
                operation.done(completion)
            self._finish(operation, error)
        return changed

    def _finish(self, operation: _Operation, error: WordlineError | None) -> None:
        for point in (*operation.signals, operation.point):
            if error is None:
                try:
                    point.semaphore.signal(point.value)
                except WordlineError as disorder:
                    error = disorder
            if error is not None:
                point.semaphore.fail(error)

    def _device_error(self, operation: _Operation, completion: Completion) -> WordlineError:
        assert operation.opcode is not None
        if completion.status == ErrorCode.ABORTED and self.timeline.error is not None:
            return self.timeline.error
        try:
            name = ErrorCode(completion.status).name.lower().replace("_", " ")
        except ValueError:
            name = f"error {completion.status}"
        where = f"operation {operation.opcode.name}"
        if completion.status == ErrorCode.FAULT:
            stream, channel, instruction = fault_place(completion.detail)
            where = f"stream {stream}, channel {channel}, instruction {instruction}"
        return WordlineError(
            "device-fault",
            f"the device reports {name}: {self._ring.interface.fault_text()}",
            where=where,
            remedy="`wordline disasm` shows the instruction; reset the device to go on",
        )
