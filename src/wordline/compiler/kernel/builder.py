"""Writing kernels: fresh registers and short forms for the commands that every kernel uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from wordline.compiler.kernel.ir import Address, Command, Item, Loop, command
from wordline.compiler.kernel.passes import PassItem
from wordline.compiler.kernel.roll import roll
from wordline.compiler.kernel.symbols import IntLike, Register, linear


class Builder:
    """Collects items; ``loop`` nests. Register names are unique within one builder."""

    def __init__(self) -> None:
        self._counter = 0
        self._stack: list[list[Item]] = [[]]

    def take(self) -> tuple[Item, ...]:
        """The items so far, and start afresh (register names stay unique)."""
        items = tuple(self._stack[0])
        self._stack = [[]]
        return items

    def fresh(self, hint: str = "t") -> Register:
        """A register of its own; ``hint`` begins its name."""
        self._counter += 1
        return Register(f"{hint}{self._counter}")

    def emit(self, name: str, **operands: IntLike | Address) -> None:
        """Append a command without a target."""
        self._stack[-1].append(command(name, None, None, **operands))

    def normal_mode(self) -> None:
        """Leave register mode now rather than when a command needs that."""
        self._stack[-1].append(command("TMOD", None, {"mode": 0}))

    def register_mode(self) -> None:
        """Enter register mode now rather than when a command needs that."""
        self._stack[-1].append(command("TMOD", None, {"mode": 1}))

    def extend(self, items: Sequence[Item]) -> None:
        """Append items."""
        self._stack[-1].extend(items)

    def passes(self, *items: PassItem) -> None:
        """Append vector passes."""
        self._stack[-1].extend(items)

    def rolled(self, commands: list[Command]) -> None:
        """Append commands, repeats as loops."""
        self._stack[-1].extend(roll(commands, lambda: self.fresh("i")))

    def calc(self, operation: str, a: IntLike, b: IntLike = 0, hint: str = "t") -> Register:
        """Append a scalar instruction (``ADD``, ``SHR``, ...) and return its target."""
        target = self.fresh(hint)
        self._stack[-1].append(command(operation, target, None, a=a, b=b))
        return target

    def argument(self, index: int, hint: str) -> Register:
        """Load a word of the argument block."""
        target = self.fresh(hint)
        self._stack[-1].append(command("LDA", target, None, index=index))
        return target

    def load(self, address: IntLike, hint: str) -> Register:
        """Load a word of controller memory."""
        target = self.fresh(hint)
        self._stack[-1].append(command("LDM", target, None, address=address))
        return target

    @contextmanager
    def loop(self, count: IntLike, hint: str = "i") -> Iterator[Register]:
        """What is written inside is the body of a counted loop over the register; a count of 0 skips it."""
        register = self.fresh(hint)
        self._stack.append([])
        yield register
        body = tuple(self._stack.pop())
        self._stack[-1].append(Loop(register, linear(count), body))


def turn_row(row: IntLike, *, idle: bool = False) -> tuple[Command, ...]:
    """Close whatever is open, refresh if it is time, and open ``row`` in all banks.

    Under work a refresh costs the same at any row turn, so it is put off while it may be: it may then fall into a time
    in which the channel waits for another engine. ``idle`` turns begin such a time, and take all that may be taken.
    """
    refresh = (command("REF"), command("REF")) if idle else (command("REF", None, {"when": LATE}),)
    return command("PREA"), *refresh, command("ACT16", row=row)


LATE = 1
"""Field ``when`` of REF: only once no more refreshes may be postponed."""
CHANNEL = Register("channel")
"""The register in which a channel stream finds its own number (r1)."""
