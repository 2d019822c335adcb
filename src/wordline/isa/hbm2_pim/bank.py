"""Commands of a pseudo-channel in a channel stream (rules: docs/hbm2-pim.md).

A column is 32 bytes: 16 fp16 elements. Column commands name their row; when another row is open the engine turns the
row itself (implicit opening), so an explicit ``PRE``/``ACT`` ahead of use only moves the turn earlier. In all-bank
modes a command to a bank reaches all banks of its parity. Reference state: ``state.own``, a
:class:`wordline.sim.hbm2_pim.banks.PseudoChannel`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wordline.isa.declare import AffineWord, Bits, Engine, Group, Instruction, Kind, PackedWord
from wordline.machines.hbm2_pim import Pim

CHANNEL = (Engine.CHANNEL,)
MODES = ("single", "all_bank", "pim")
PARITY = Bits("parity", 1, "banks that the command reaches", names=("even", "odd"))
BANK = AffineWord("bank", "bank", "bank of the pseudo-channel")
ROW = AffineWord("row", "row", "DRAM row")
COLUMN = AffineWord("column", "column", "first column of the burst")
COUNT = AffineWord("count", "count", "burst length; nothing happens when it is <= 0")
SOURCE = AffineWord("source", "scratch", "byte offset in this channel's scratch")
TARGET = AffineWord("target", "scratch", "byte offset in this channel's scratch")

KINDS = {
    "row": Kind("row", False, lambda machine: machine.section("pim", Pim).reserved_row),
    "grf": Kind("GRF register", True, lambda machine: machine.section("pim", Pim).grf_registers),
}

CRF_COLUMN_ENTRIES = 8
"""Entries in one column: 32 bytes of 4 bytes each."""
#: Columns of the reserved row: where the first entry, scalar or register of each kind is written.
CRF_COLUMN, SRF_COLUMN, GRF_COLUMN, MODE_COLUMN = 0, 4, 8, 24


def _rd(state: Any, o: SimpleNamespace) -> None:
    state.scratch_columns(o.target, o.count)[:] = state.own.read(o.bank, o.row, o.column, o.count)


def _wr(state: Any, o: SimpleNamespace) -> None:
    state.own.write(o.bank, o.row, o.column, state.scratch_columns(o.source, o.count))


def _pimrd(state: Any, o: SimpleNamespace) -> None:
    state.own.trigger_reads(o.parity, o.row, o.column, o.count)


def _pimwr(state: Any, o: SimpleNamespace) -> None:
    state.own.trigger_writes(o.parity, o.row, o.column, o.count)


def _mode(state: Any, o: SimpleNamespace) -> None:
    state.own.set_mode(MODES[o.mode])


def _wrcrf(state: Any, o: SimpleNamespace) -> None:
    state.own.load_crf(o.column, [entry.instruction.word for entry in o.program])


def _wrsrf(state: Any, o: SimpleNamespace) -> None:
    state.own.load_srf(state.scratch_columns(o.source, 1)[0])


def _wrgrf(state: Any, o: SimpleNamespace) -> None:
    state.own.load_grf(o.file, o.first, state.scratch_columns(o.source, o.count))


def _crf_text(entry: dict[str, Any]) -> str:
    from wordline.isa.hbm2_pim.crf_program import crf_text

    return crf_text(entry["instruction"].get("word", 0))


def _check_program(instr: Any) -> None:
    from wordline.isa.hbm2_pim.crf_program import check_crf

    before = [0] * (CRF_COLUMN_ENTRIES * instr.fields["column"])
    check_crf([*before, *(entry["instruction"]["word"] for entry in instr.groups["program"])])


BANK_COMMANDS = (
    Instruction(
        "ACT",
        32,
        CHANNEL,
        "row",
        "Open a row of a bank; in all-bank modes, of its parity.",
        (),
        (BANK, ROW),
    ),
    Instruction("PRE", 34, CHANNEL, "row", "Close the row of a bank; in all-bank modes, of its parity.", (), (BANK,)),
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
        "MODE",
        37,
        CHANNEL,
        "mode",
        "Go to a mode, over all_bank between single and pim; nothing happens in that mode already, but pim starts the "
        "CRF program again at entry 0, with the write that it takes. The write goes through banks of `parity`.",
        (Bits("mode", 2, "mode after the command", names=MODES), PARITY),
        (),
        (),
        _mode,
    ),
    Instruction(
        "RD",
        42,
        CHANNEL,
        "rd",
        "Read columns of one bank into this channel's scratch. Single-bank mode.",
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
        "Write columns of one bank from this channel's scratch; in all-bank mode the same data to all banks of its "
        "parity. Not in PIM mode.",
        (),
        (BANK, ROW, COLUMN, COUNT, SOURCE),
        (),
        _wr,
    ),
    Instruction(
        "PIMRD",
        44,
        CHANNEL,
        "pimrd",
        "Read a column of every bank of a parity, `count` times; each triggers one CRF instruction. PIM mode.",
        (PARITY,),
        (ROW, COLUMN, COUNT),
        (),
        _pimrd,
    ),
    Instruction(
        "PIMWR",
        45,
        CHANNEL,
        "pimwr",
        "Write a column of every bank of a parity, `count` times, from the register that column mod 8 names; each "
        "triggers one CRF instruction, which has to be NOP. PIM mode.",
        (PARITY,),
        (ROW, COLUMN, COUNT),
        (),
        _pimwr,
    ),
    Instruction(
        "WRCRF",
        48,
        CHANNEL,
        "wrreg",
        "Load CRF entries from entry 8 x `column` up; the rest of the last column becomes EXIT. Takes one column write "
        "for every 8 entries, in the reserved row of the banks of `parity`. All-bank or PIM mode, triggers nothing.",
        (PARITY, Bits("column", 2, "first column of 8 entries"), Bits("n_program", 6, "entries")),
        (),
        (
            Group(
                "program",
                "n_program",
                (PackedWord("instruction", (Bits("word", 32, "encoded CRF instruction"),), "one entry"),),
                "entries in order",
                comment=_crf_text,
            ),
        ),
        _wrcrf,
        check=_check_program,
    ),
    Instruction(
        "WRSRF",
        49,
        CHANNEL,
        "wrreg",
        "Load SRF_M0-7 and SRF_A0-7 of all blocks from one scratch column, in the reserved row of the banks of "
        "`parity`. All-bank or PIM mode, triggers nothing.",
        (PARITY,),
        (SOURCE,),
        (),
        _wrsrf,
    ),
    Instruction(
        "WRGRF",
        50,
        CHANNEL,
        "wrreg",
        "Load `count` registers of a file, in all blocks alike, from scratch columns, in the reserved row of the banks "
        "of `parity`. All-bank or PIM mode, triggers nothing.",
        (PARITY, Bits("file", 1, "register file", names=("GRF_A", "GRF_B"))),
        (AffineWord("first", "grf", "first register"), COUNT, SOURCE),
        (),
        _wrgrf,
    ),
)
