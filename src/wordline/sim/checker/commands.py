"""The commands of a channel, and what each of them touches."""

from __future__ import annotations

from typing import NamedTuple

ONE_BANK = ("ACT", "PRE", "RD", "WR", "MAC", "RDCP", "WRCP")
"""Commands that name a bank."""

ALL_BANKS = ("ACT16", "PREA", "MAC16", "AF16", "EWMUL16", "WRA16")
"""Commands that touch every bank of the channel."""

REGISTERS = ("WRGB", "WRMAC16", "RDMAC16", "RDAF16")
"""Commands that touch the buffer or registers of the bank units, but no row; they need register mode."""

COMMANDS = (*ONE_BANK, *ALL_BANKS, *REGISTERS, "TMOD", "REFab")

COLUMNS = ("RD", "WR", "MAC", "RDCP", "WRCP", "MAC16", "AF16", "EWMUL16", "WRA16")
"""Commands that need their row open."""

ROWS = ("ACT", "ACT16", "PRE", "PREA", "REFab")
"""Commands that open, close or refresh rows."""

NAME_A_ROW = (*COLUMNS, "ACT", "ACT16")


class Burst(NamedTuple):
    """``length`` equal commands of one channel, ``step`` cycles apart; nothing else of that channel lies between them.

    ``bank`` is -1 where the command touches all or none, ``row`` where it has none. ``column`` counts up by one a
    command, -1 if it is not known: of the row, of the buffer (WRGB), or the accumulator (WRMAC16, RDMAC16). ``line`` is
    where it was read from, 0 for nowhere.
    """

    first: int
    length: int
    step: int
    channel: int
    command: str
    bank: int
    row: int
    column: int = -1
    line: int = 0

    @property
    def last(self) -> int:
        """The cycle of the last command."""
        return self.first + (self.length - 1) * self.step
