"""Bank and buffer commands of a channel stream (rules: ``docs/device-programs.md``).

A column is 32 bytes: 16 bf16 elements. Column commands name their row; when another row is open the engine turns the
row itself (implicit opening), so an explicit ``PREA``/``ACT16`` ahead of use only moves the turn earlier. A burst
covers ``count`` consecutive columns. Reference state: ``state.own.buffer`` uint16 [buffer columns, 16];
``state.own.accumulators`` float32 [accumulators, banks]; uint16 views ``state.scratch_columns(offset, n)`` [n, 16] of
this channel's scratch, ``state.bank_columns(bank, row, column, n)`` [n, 16] (read only; the ``writable_`` form for
writes) and ``state.all_bank_columns(row, column, n)`` [banks, n, 16] of its banks. Operands are range-checked before.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import AffineWord, Bits, Engine, Instruction, Kind

CHANNEL = (Engine.CHANNEL,)
BANK = AffineWord("bank", "bank", "bank of the channel")
ROW = AffineWord("row", "row", "DRAM row")
COLUMN = AffineWord("column", "column", "first column of the burst")
BUFFER = AffineWord("buffer", "buffer", "first column in the global buffer")
ACCUMULATOR = AffineWord("accumulator", "accumulator", "accumulator index, the same in every bank")
ACCUMULATORS = AffineWord("accumulator", "accumulators", "first accumulator index, the same in every bank")
COUNT = AffineWord("count", "count", "burst length; nothing happens when it is <= 0")
SOURCE = AffineWord("source", "scratch", "byte offset in this channel's scratch")
TARGET = AffineWord("target", "scratch", "byte offset in this channel's scratch")

KINDS = {
    "buffer": Kind("buffer column", True, lambda machine: machine.buffer.columns),
    "accumulator": Kind("accumulator", False, lambda machine: machine.bank_unit.accumulators),
    "accumulators": Kind("accumulator", True, lambda machine: machine.bank_unit.accumulators),
}


def _mac16(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics.mac import mac_columns

    weights = state.all_bank_columns(o.row, o.column, o.count)
    vector = state.own.buffer[o.buffer : o.buffer + o.count]
    state.own.accumulators[o.accumulator] = mac_columns(state.own.accumulators[o.accumulator], weights, vector)


def _mac(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics.mac import mac_columns

    weights = state.bank_columns(o.bank, o.row, o.column, o.count)
    vector = state.own.buffer[o.buffer : o.buffer + o.count]
    state.own.accumulators[o.accumulator, o.bank] = mac_columns(
        state.own.accumulators[o.accumulator, o.bank], weights, vector
    )


def _rd(state: Any, o: SimpleNamespace) -> None:
    state.scratch_columns(o.target, o.count)[:] = state.bank_columns(o.bank, o.row, o.column, o.count)


def _wr(state: Any, o: SimpleNamespace) -> None:
    state.writable_bank_columns(o.bank, o.row, o.column, o.count)[:] = state.scratch_columns(o.source, o.count)


def _wre(state: Any, o: SimpleNamespace) -> None:
    column = state.writable_bank_columns(o.bank, o.row, o.column, 1)[0]
    column[[lane for lane in range(len(column)) if o.lanes >> lane & 1]] = state.scratch_element(o.source)


def _rdcp(state: Any, o: SimpleNamespace) -> None:
    state.own.buffer[o.buffer : o.buffer + o.count] = state.bank_columns(o.bank, o.row, o.column, o.count)


def _wrcp(state: Any, o: SimpleNamespace) -> None:
    state.writable_bank_columns(o.bank, o.row, o.column, o.count)[:] = state.own.buffer[o.buffer : o.buffer + o.count]


def _wrgb(state: Any, o: SimpleNamespace) -> None:
    state.own.buffer[o.buffer : o.buffer + o.count] = state.scratch_columns(o.source, o.count)


def _wrmac16(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics.formats import bf16_bits_to_f32

    biases = state.scratch_columns(o.source, o.count if o.advance else 1)
    state.own.accumulators[o.accumulator : o.accumulator + o.count] = bf16_bits_to_f32(biases)


def _rdmac16(state: Any, o: SimpleNamespace) -> None:
    from wordline.numerics.mac import readout_bf16

    state.scratch_columns(o.target, o.count)[:] = readout_bf16(
        state.own.accumulators[o.accumulator : o.accumulator + o.count]
    )


BANK_COMMANDS = (
    Instruction("ACT", 32, CHANNEL, "row", "Open a row of one bank.", (), (BANK, ROW)),
    Instruction("ACT16", 33, CHANNEL, "row", "Open the same row in all banks of the channel.", (), (ROW,)),
    Instruction("PRE", 34, CHANNEL, "row", "Close the row of one bank.", (), (BANK,)),
    Instruction("PREA", 35, CHANNEL, "row", "Close the rows of all banks.", (), ()),
    Instruction(
        "REF",
        36,
        CHANNEL,
        "refresh",
        "Refresh all banks, which are closed first; takes one from the refresh debt. Does nothing when the debt does "
        "not allow it: early, as many as may be pulled in are ahead already; late, the debt may still grow.",
        (Bits("when", 1, "early: as soon as it may; late: once no more may be postponed", names=("early", "late")),),
    ),
    Instruction(
        "TMOD",
        37,
        CHANNEL,
        "mode",
        "Switch to register mode (1) or normal mode (0) ahead of need; without it the engine switches when a command "
        "needs the other mode. Nothing happens when the mode is already right.",
        (Bits("mode", 1, "mode after the command", names=("normal", "register")),),
    ),
    Instruction(
        "MAC16",
        40,
        CHANNEL,
        "mac16",
        "In every bank, for each column of the burst: accumulator += dot(bank column, buffer column).",
        (),
        (ROW, COLUMN, BUFFER, ACCUMULATOR, COUNT),
        (),
        _mac16,
    ),
    Instruction(
        "MAC", 41, CHANNEL, "mac", "MAC16 in one bank.", (), (BANK, ROW, COLUMN, BUFFER, ACCUMULATOR, COUNT), (), _mac
    ),
    Instruction(
        "RD",
        42,
        CHANNEL,
        "rd",
        "Read columns of one bank into this channel's scratch.",
        (),
        (BANK, ROW, COLUMN, COUNT, TARGET),
        (),
        _rd,
    ),
    Instruction(
        "WR",
        43,
        CHANNEL,
        "wr",
        "Write columns of one bank from this channel's scratch.",
        (),
        (BANK, ROW, COLUMN, COUNT, SOURCE),
        (),
        _wr,
    ),
    Instruction(
        "WRE",
        44,
        CHANNEL,
        "wr",
        "Masked write of one column: the bf16 element at `source` is replicated to the lanes whose bit is set in "
        "`lanes`; other lanes keep their value.",
        (),
        (
            BANK,
            ROW,
            COLUMN,
            AffineWord("source", "element", "byte offset of the element in this channel's scratch"),
            AffineWord("lanes", "value", "lane mask, bit i for lane i"),
        ),
        (),
        _wre,
    ),
    Instruction(
        "RDCP",
        45,
        CHANNEL,
        "rdcp",
        "Copy columns of one bank into the global buffer.",
        (),
        (BANK, ROW, COLUMN, BUFFER, COUNT),
        (),
        _rdcp,
    ),
    Instruction(
        "WRCP",
        46,
        CHANNEL,
        "wrcp",
        "Copy columns of the global buffer into one bank.",
        (),
        (BANK, ROW, COLUMN, BUFFER, COUNT),
        (),
        _wrcp,
    ),
    Instruction(
        "WRGB",
        48,
        CHANNEL,
        "wrgb",
        "Fill buffer columns from this channel's scratch; other columns stay.",
        (),
        (BUFFER, COUNT, SOURCE),
        (),
        _wrgb,
    ),
    Instruction(
        "WRMAC16",
        49,
        CHANNEL,
        "wrmac16",
        "Set `count` accumulators from `accumulator` up, in every bank, to bf16 values of scratch (one column, one "
        "element a bank; the next column for the next accumulator if `advance`, else the same one).",
        (Bits("advance", 1, "1: next scratch column for each accumulator", names=("same", "advance")),),
        (ACCUMULATORS, COUNT, SOURCE),
        (),
        _wrmac16,
    ),
    Instruction(
        "RDMAC16",
        50,
        CHANNEL,
        "rdmac16",
        "Read `count` accumulators from `accumulator` up, rounded to bf16, into scratch: one column (one element a "
        "bank) each. Does not clear.",
        (),
        (ACCUMULATORS, COUNT, TARGET),
        (),
        _rdmac16,
    ),
)
