"""Programs and schedules of the published AiM simulator (tests/reference/gddr6-aim) in our terms."""

from __future__ import annotations

import re

from tests.support.reference import REFERENCE, reference_rows
from tests.support.timing_programs import ins
from wordline.isa.instruction import Instr

FOLDER = REFERENCE / "gddr6-aim"


def micro_totals() -> dict[str, int]:
    """Total cycles by name of the micro program."""
    return {row["trace"]: int(row["total_cycles"]) for row in reference_rows("gddr6-aim/micro_cycles.csv")}


def micro_instructions(name: str) -> list[Instr] | None:
    """The program as channel instructions; None if it uses what device programs do not have."""
    instrs: list[Instr] = []
    for line in (FOLDER / "micro_traces" / f"micro_{name}.trace").read_text(encoding="ascii").splitlines():
        _, op, *fields = line.split()
        values = [int(f, 0) for f in fields]
        match op:
            case "MAC_ABK":
                instrs.append(ins("MAC16", count=values[0], row=values[2]))
            case "MAC_SBK":
                instrs.append(ins("MAC", count=values[0], bank=values[2], row=values[3]))
            case "COPY_BKGB":
                instrs.append(ins("RDCP", count=values[0], bank=values[2], row=values[3]))
            case "COPY_GBBK":
                instrs.append(ins("WRCP", count=values[0], bank=values[2], row=values[3]))
            case "WR_GB":
                instrs.append(ins("WRGB", count=values[0]))
            case "WR_BIAS":
                instrs.append(ins("WRMAC16", count=1))
            case "RD_MAC":
                instrs.append(ins("RDMAC16", count=1))
            case "EOC":
                return instrs
            case _:
                return None
    return None


def micro_schedules() -> dict[str, list[tuple[int, str, int]]]:
    """(cycle, command, bank or -1) of every command, by name of the micro program."""
    schedules: dict[str, list[tuple[int, str, int]]] = {}
    current: list[tuple[int, str, int]] = []
    for line in (FOLDER / "command_schedules.txt").read_text(encoding="ascii").splitlines():
        if header := re.fullmatch(r"== micro_(\w+)\.trace total=\d+", line):
            current = schedules.setdefault(header[1], [])
        elif entry := re.match(r"  (\d+)(?:\.\.\d+ step (\d+))? (\w+) (?:x(\d+) )?\d+ (-?\d+) (-?\d+) ", line):
            first, step, command, times, group, bank = entry.groups()
            place = -1 if int(group) < 0 else 4 * int(group) + int(bank)
            current += [(int(first) + i * int(step or 0), command, place) for i in range(int(times or 1))]
    return schedules
