"""Cycles with an open row, counted from a list of commands: the slow and obvious way."""

from __future__ import annotations

from collections.abc import Iterable


def open_cycles(commands: Iterable[tuple[int, int, str, int]], channel: int, banks: int, end: int) -> int:
    """Cycles before ``end`` in which ``channel`` has a row open; ``commands``: (cycle, channel, command, bank)."""
    total, since = 0, 0
    opened: set[int] = set()
    for cycle, where, command, bank in commands:
        if where != channel:
            continue
        before = bool(opened)
        if command == "ACT16":
            opened = set(range(banks))
        elif command == "ACT":
            opened.add(bank)
        elif command == "PRE":
            opened.remove(bank)
        elif command in ("PREA", "WRA16"):
            opened = set()
        if opened and not before:
            since = cycle
        elif before and not opened:
            total += cycle - since
    return total + (end - since if opened else 0)
