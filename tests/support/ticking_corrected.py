"""Traces by the rules of profile `corrected`, cycle by cycle: the channel of tests/support/ticking.py, fed with lines.

Adds the four commands that only traces have: AF16, RDAF16, EWMUL16 and WRA16.
"""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

from tests.support.ticking import COLUMN_READS, COLUMN_WRITES, REGISTER_COMMANDS, Channel, Rule, Submission, Ticked
from tests.support.ticking_aim import ALL_BANKS, SINGLE_BANK, parse
from wordline.isa.declare import Engine
from wordline.isa.program import Stream
from wordline.machines import Machine, load_machine

REGISTER = REGISTER_COMMANDS | {"RDAF16"}
ALL = (
    COLUMN_READS
    | COLUMN_WRITES
    | REGISTER
    | {"ACT", "ACT16", "PRE", "PREA", "REFab", "TMOD", "AF16", "EWMUL16", "WRA16"}
)
ONLY_IN_TRACES = {"AF16", "RDAF16", "EWMUL16", "WRA16"}


def more_rules(machine: Machine) -> list[Rule]:
    """Rules with one of the four commands in them."""
    t = machine.timing
    activate, precharge = {"ACT", "ACT16"}, {"PRE", "PREA"}
    reads, writes = COLUMN_READS | {"RDMAC16", "RDAF16", "EWMUL16"}, COLUMN_WRITES | {"WRGB", "WRMAC16", "WRA16"}
    write = t.nCWL + t.nBL
    read, register_read = t.nCL + t.nBL + t.nRTW + t.nWPRE, t.nCLREG + t.nBL + t.nRTW + t.nWPRE
    written = COLUMN_WRITES | {"WRA16", "WRMAC16"}
    table = [
        (activate, {"AF16"}, "bank", t.nRCDRDAF),
        (activate, {"EWMUL16"}, "bank", t.nRCDEWMUL),
        (activate, {"WRA16"}, "bank", t.nRCDWR),
        (reads, reads, "channel", t.nCCDS),
        (COLUMN_READS | {"EWMUL16"}, COLUMN_READS | {"EWMUL16"}, "group", t.nCCDL),
        (writes, writes, "channel", t.nCCDS),
        (COLUMN_WRITES | {"WRA16"}, COLUMN_WRITES | {"WRA16"}, "group", t.nCCDL),
        ({"EWMUL16"}, written, "channel", t.nCCDS),
        (written, {"EWMUL16"}, "channel", t.nCCDS),
        ({"AF16", "EWMUL16"}, precharge, "bank", t.nRTP),
        ({"EWMUL16"}, precharge, "bank", t.nCWL + t.nWR),
        ({"WRA16"}, activate | {"REFab"}, "channel", write + t.nWR + t.nRP),
        ({"WRA16"}, {"RD", "RDMAC16", "RDAF16"}, "channel", write + t.nWTRL),
        ({"WR"}, {"RDAF16"}, "channel", write + t.nWTRL),
        ({"WRMAC16"}, {"RDAF16"}, "channel", t.nCWLREG + t.nBL + t.nWTRL),
        ({"WRGB"}, {"RDAF16"}, "channel", t.nCWLGB + t.nBL + t.nWTRS),
        ({"RD"}, {"WRA16"}, "channel", read - t.nCWL),
        ({"RDMAC16", "RDAF16"}, {"WR", "WRA16"}, "channel", register_read - t.nCWL),
        ({"RDAF16"}, {"WRGB"}, "channel", register_read - t.nCWLGB),
        ({"RDAF16"}, {"WRMAC16"}, "channel", register_read - t.nCWLREG),
        ({"TMOD"}, ONLY_IN_TRACES, "channel", t.nMODCH),
        (ONLY_IN_TRACES, {"TMOD"}, "channel", t.nCMD2TMOD),
        (ALL, ALL, "channel", 1),
    ]
    held = ONLY_IN_TRACES - {"RDAF16"} if machine.rules.commands_during_refresh else ONLY_IN_TRACES
    table.append(({"REFab"}, held, "channel", t.nRFC))
    return [Rule(frozenset(earlier), frozenset(later), scope, cycles) for earlier, later, scope, cycles in table]


def _line(name: str, timing: str = "", **operands: Any) -> tuple[Any, SimpleNamespace]:
    return SimpleNamespace(name=name, declaration=SimpleNamespace(timing=timing)), SimpleNamespace(**operands)


class TraceChannel(Channel):
    """A channel whose stream is the lines of a trace that address it."""

    def __init__(self, submission: Submission, channel: int) -> None:
        super().__init__(submission, Stream(Engine.CHANNEL, 1 << channel, ()), channel)
        self.lines: list[tuple[Any, SimpleNamespace]] = []
        for rule in more_rules(submission.machine):
            for pair in product(rule.earlier, rule.later):
                self.rules.setdefault(pair, []).append(rule)

    @property
    def finished(self) -> bool:
        return self.pc >= len(self.lines)

    def current(self) -> tuple[Any, SimpleNamespace]:
        return self.lines[self.pc]

    def banks_of(self, command: str, bank: int) -> set[int]:
        return set() if command == "RDAF16" else super().banks_of(command, bank)

    def next_step(self, name: str, bank: int, row: int, o: SimpleNamespace, cycle: int) -> str | None:
        """As for device programs; the four commands stand for others that need the same row and mode."""
        alike = {"RDAF16": "RDMAC16", "AF16": "MAC16", "EWMUL16": "MAC16", "WRA16": "MAC16"}.get(name, name)
        step = super().next_step(alike, bank, row, o, cycle)
        return name if step == alike else step

    def issue(self, command: str, bank: int, row: int, column: int, cycle: int) -> None:
        super().issue(command, bank, row, column, cycle)
        if command == "WRA16":
            self.rows = [-1] * len(self.rows)

    def command(self, cycle: int) -> None:
        name = self.current()[0].name
        if name not in ONLY_IN_TRACES:
            super().command(cycle)
            return
        _, o = self.current()
        step = self.next_step(name, -1, o.row, o, cycle)
        assert step is not None
        if not self.may_issue(step, -1, cycle):
            return
        self.issue(step, -1, o.row, -1, cycle)
        if step != name:
            return
        if name == "RDAF16":
            timing, landing = self.submission.machine.timing, self.submission.machine.scratch.landing_cycles
            self.landed = max(self.landed, cycle + timing.nCLREG + timing.nBL + landing)
        self.progress += 1
        if self.progress == o.count:
            self.progress = 0
            self.issued(cycle)


def tick_trace(machine: Machine, text: str, limit: int = 200_000) -> Ticked:
    """Run a trace cycle by cycle. AssertionError if it does not end within ``limit`` cycles."""
    straight = load_machine(machine.name, {"aim_simulator.reversed_mask": False})
    submission = Submission(machine, {}, 0)
    channels = [TraceChannel(submission, c) for c in range(machine.organisation.channels)]
    submission.streams, submission.producer = [list(channels)], {0: 0}
    syncs, addressed = 0, set()
    for line in parse(text, straight):
        for number in line.channels:
            for request in line.requests[:1]:
                name = request.command
                if name == "SYNC":
                    syncs += number == 0
                    channels[number].lines += [_line("SIGNAL", signal=0), _line("WAIT", signal=0, value=syncs)]
                elif name != "EOC":
                    addressed.add(number)
                    bank = request.bank if name in SINGLE_BANK else -1
                    row = request.row if name in SINGLE_BANK | ALL_BANKS else -1
                    operands = {"bank": bank, "row": row, "count": len(line.requests), "column": 0, "buffer": 0}
                    channels[number].lines.append(_line(name, accumulator=0, **operands))
    cycle = 0
    while not all(channel.idle for channel in channels):
        assert cycle < limit, "the trace does not end"
        for channel in channels:
            channel.tick(cycle)
        cycle += 1
    trace = sorted((entry for channel in channels for entry in channel.trace), key=lambda e: (e[0], e[1]))
    ends = [channel.end for channel in channels]
    charges = [channel.refresh_charge for channel in channels]
    cycles = max((ends[c] + charges[c] for c in addressed), default=0)
    return Ticked(cycles, ends, charges, [channel.refreshes for channel in channels], trace, [])
