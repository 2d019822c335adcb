"""The cycle model once more, slow and obvious: every engine is asked in every cycle what it does (profile `corrected`).

Written from the rules (docs/timing.md), not from the native code: intervals between commands are one list of (earlier,
later, scope, cycles); a command may issue when no earlier one forbids it. Intervals come from the primary fields of the
machine, so that derived ones are checked too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor
from types import SimpleNamespace

from wordline.isa.controller.vector import FIRST_RESULT, VECTOR_OPS
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, evaluate
from wordline.isa.program import Program, Stream
from wordline.machines import Machine

COLUMN_READS = {"RD", "MAC", "MAC16", "RDCP"}
COLUMN_WRITES = {"WR", "WRCP"}
REGISTER_COMMANDS = {"WRGB", "WRMAC16", "RDMAC16"}
ROW_COMMANDS = {"ACT", "ACT16", "PRE", "PREA", "REFab"}
ALL = COLUMN_READS | COLUMN_WRITES | REGISTER_COMMANDS | ROW_COMMANDS | {"TMOD"}
SINGLE_BANK = {"ACT", "PRE", "RD", "MAC", "RDCP", "WR", "WRCP"}
DRAM_NAME = {"WRE": "WR", "REF": "REFab"}


@dataclass(frozen=True)
class Rule:
    """A command of ``later`` issues at least ``cycles`` after one of ``earlier`` in the same ``scope``."""

    earlier: frozenset[str]
    later: frozenset[str]
    scope: str  # "channel", "group" or "bank": an all-bank command is in every bank, register commands are in none
    cycles: int


def rules(machine: Machine) -> list[Rule]:
    t = machine.timing
    activate, precharge = {"ACT", "ACT16"}, {"PRE", "PREA"}
    reads, writes = COLUMN_READS | {"RDMAC16"}, COLUMN_WRITES | {"WRGB", "WRMAC16"}
    write, write_register, write_buffer = t.nCWL + t.nBL, t.nCWLREG + t.nBL, t.nCWLGB + t.nBL
    read = t.nCL + t.nBL + t.nRTW + t.nWPRE
    read_register = t.nCLREG + t.nBL + t.nRTW + t.nWPRE
    table: list[tuple[Iterable[str], Iterable[str], str, int]] = [
        (activate, {"MAC", "MAC16"}, "bank", t.nRCDRDMAC),
        (activate, {"RD"}, "bank", t.nRCDRD),
        (activate, {"RDCP"}, "bank", t.nRCDRDCP),
        (activate, {"WR"}, "bank", t.nRCDWR),
        (activate, {"WRCP"}, "bank", t.nRCDWRCP),
        (activate, activate, "bank", t.nRC),
        ({"ACT"}, {"ACT"}, "channel", t.nRRDS),
        ({"ACT"}, {"ACT"}, "group", t.nRRDL),
        (activate, precharge, "bank", t.nRAS),
        (precharge, activate, "bank", t.nRP),
        (precharge, precharge, "bank", t.nRP),
        (precharge, {"REFab"}, "channel", t.nRP),
        (activate, {"REFab"}, "channel", t.nRC),
        (reads, reads, "channel", t.nCCDS),
        (COLUMN_READS, COLUMN_READS, "group", t.nCCDL),
        (writes, writes, "channel", t.nCCDS),
        (COLUMN_WRITES, COLUMN_WRITES, "group", t.nCCDL),
        (COLUMN_READS, precharge, "bank", t.nRTP),
        (COLUMN_WRITES, precharge, "bank", write + t.nWR),
        ({"WRMAC16"}, {"RD", "RDMAC16"}, "channel", write_register + t.nWTRL),
        ({"WRGB"}, {"RD", "RDMAC16"}, "channel", write_buffer + t.nWTRS),
        ({"WR"}, {"RDMAC16"}, "channel", write + t.nWTRL),
        ({"WR"}, {"RD"}, "channel", write + t.nWTRS),
        ({"WR"}, {"RD"}, "group", write + t.nWTRL),
        ({"RD"}, {"WR"}, "channel", read - t.nCWL),
        ({"RD"}, {"WRGB"}, "channel", read - t.nCWLGB),
        ({"RD"}, {"WRMAC16"}, "channel", read - t.nCWLREG),
        ({"RDMAC16"}, {"WR"}, "channel", read_register - t.nCWL),
        ({"RDMAC16"}, {"WRGB"}, "channel", read_register - t.nCWLGB),
        ({"RDMAC16"}, {"WRMAC16"}, "channel", read_register - t.nCWLREG),
        (COLUMN_WRITES, {"MAC", "MAC16", "RDCP"}, "channel", write + t.nWTRL),
        ({"RDCP"}, {"MAC", "MAC16", "WRCP"}, "channel", t.nCL + t.nBL),
        ({"TMOD"}, ALL, "channel", t.nMODCH),
        ({"MAC16"}, {"TMOD"}, "channel", t.nMAC2TMOD),
        (ALL - {"MAC16"}, {"TMOD"}, "channel", t.nCMD2TMOD),
        (ALL, ALL, "channel", 1),
    ]
    held = ALL - REGISTER_COMMANDS - {"TMOD"} if machine.rules.commands_during_refresh else ALL
    table.append(({"REFab"}, held, "channel", t.nRFC))
    return [Rule(frozenset(earlier), frozenset(later), scope, cycles) for earlier, later, scope, cycles in table]


@dataclass
class Submission:
    machine: Machine
    memory: dict[int, int]
    argument_base: int
    streams: list[list[Processor]] = field(default_factory=list)  # [stream][channel]
    producer: dict[int, int] = field(default_factory=dict)

    def reached(self, signal: int, value: int, cycle: int) -> bool:
        """Whether a WAIT in ``cycle`` passes: it sees what took effect in earlier cycles."""
        if value <= 0:
            return True
        if signal not in self.producer:
            return False
        return all(
            sum(effect < cycle for effect in p.effects.get(signal, ())) >= value
            for p in self.streams[self.producer[signal]]
        )


class Processor:
    """Registers, loops and scalar instructions of one stream; subclasses add what the engine does."""

    def __init__(self, submission: Submission, stream: Stream, channel: int) -> None:
        self.submission = submission
        self.instrs = stream.instrs
        self.registers = [0] * 32
        self.channel = channel
        if stream.engine is Engine.CHANNEL:
            self.registers[1] = channel
        self.pc = 0
        self.loops: list[tuple[int, int, int, int, int]] = []  # first, end, index, count, rd
        self.argument_base = submission.argument_base
        self.shared = [0] * 64
        self.effects: dict[int, list[int]] = {}
        self.landed = 0
        self.last_issue = -1
        self.pending: tuple[Instr, SimpleNamespace] | None = None

    def load_word(self, address: int) -> int:
        return self.submission.memory.get(address, 0)

    def store_word(self, address: int, value: int) -> None:
        self.submission.memory[address] = value

    @property
    def finished(self) -> bool:
        self._close_loops()
        return self.pc >= len(self.instrs)

    def _close_loops(self) -> None:
        while self.loops and self.pc == self.loops[-1][1]:
            first, end, index, count, rd = self.loops.pop()
            if index + 1 < count:
                self.loops.append((first, end, index + 1, count, rd))
                self.registers[rd] = index + 1
                self.pc = first

    def current(self) -> tuple[Instr, SimpleNamespace]:
        """The instruction that is next; its operands do not change while it waits."""
        if self.pending is None:
            instr = self.instrs[self.pc]
            self.pending = instr, evaluate(instr, self.registers)
        return self.pending

    def control(self, cycle: int) -> bool:
        """Execute the current instruction if it is control or scalar; True if the stream's cycle is used up."""
        instr, o = self.current()
        if instr.name == "LOOP":
            self.issued(cycle)
            if o.count <= 0:
                self.pc += o.body
            elif o.body == 0:
                self.registers[o.rd] = o.count - 1
            else:
                self.registers[o.rd] = 0
                self.loops.append((self.pc, self.pc + o.body, 0, o.count, o.rd))
        elif instr.name == "WAIT":
            if self.submission.reached(o.signal, o.value, cycle):
                self.issued(cycle)
        elif instr.name == "SIGNAL":
            self.effects.setdefault(o.signal, []).append(max(cycle, self.landed))
            self.issued(cycle)
        elif instr.declaration.timing == "scalar":
            assert instr.declaration.semantics is not None
            instr.declaration.semantics(self, o)
            self.issued(cycle)
        else:
            return False
        return True

    def issued(self, cycle: int) -> None:
        self.pc += 1
        self.last_issue = cycle
        self.pending = None


class Serial(Processor):
    """The vector unit or the link: one instruction after the other."""

    def __init__(self, submission: Submission, stream: Stream, channel: int) -> None:
        super().__init__(submission, stream, channel)
        self.busy_until = 0

    def tick(self, cycle: int) -> None:
        if cycle < self.busy_until or self.finished or self.control(cycle):
            return
        instr, o = self.current()
        if instr.name == "VPASS":
            duration = self._pass(instr, o)
        else:
            link, tck = self.submission.machine.link, Fraction(self.submission.machine.clock.tck_ns)
            data = Fraction(max(o.blocks, 0) * max(o.bytes, 0))
            duration = max(1, ceil(data / (link.lanes * Fraction(link.gb_per_s_per_lane)) / tck))
            if data:
                self.landed = max(self.landed, cycle + duration + ceil(Fraction(link.latency_ns) / tck))
        self.issued(cycle)
        self.busy_until = cycle + duration

    def _pass(self, instr: Instr, o: SimpleNamespace) -> int:
        unit = self.submission.machine.vector_unit
        elements = max(o.n0, 0) * max(o.n1, 0) * max(o.n2, 0)
        port = ceil(elements / unit.lanes)
        depth: dict[int, int] = {}
        for number, entry in enumerate(o.operations):
            op = next(op for op in VECTOR_OPS if op.code == entry.operation.op)
            sources = [entry.operation.a, entry.operation.b, entry.operation.c][: op.arity]
            depth[FIRST_RESULT + number] = max(depth.get(s, 0) for s in sources) + unit.latency_of(op.name)
        streaming = max(port * len(o.operands), port if o.result else 0)
        return max(1, streaming + max(depth.values(), default=0) + unit.pass_overhead)

    @property
    def end(self) -> int:
        return max(self.busy_until, self.last_issue + 1, self.landed)

    @property
    def idle(self) -> bool:
        return self.finished


class Channel(Processor):
    """One channel: its stream, its banks, and the refresh that is forced on it."""

    def __init__(self, submission: Submission, stream: Stream, channel: int) -> None:
        super().__init__(submission, stream, channel)
        machine = submission.machine
        self.rules: dict[tuple[str, str], list[Rule]] = {}  # by earlier and later command
        for rule in rules(machine):
            for pair in product(rule.earlier, rule.later):
                self.rules.setdefault(pair, []).append(rule)
        self.trace: list[tuple[int, int, str, int, int, int]] = []
        self.last: dict[tuple[str, int], int] = {}  # (command, bank or -1) -> cycle of the last one
        self.activates: list[int] = []
        self.rows = [-1] * machine.organisation.banks
        self.register_mode = False
        self.refreshes = 0
        self.forcing = False
        self.progress = 0  # columns of the current burst that have issued
        self.row_mode = machine.rules.row_commands_in_register_mode

    # --- what may issue when

    def banks_of(self, command: str, bank: int) -> set[int]:
        if command in REGISTER_COMMANDS or command in {"TMOD", "REFab"}:
            return set()
        return {bank} if command in SINGLE_BANK else set(range(len(self.rows)))

    def meets(self, scope: str, one: set[int], other: set[int]) -> bool:
        if scope == "channel":
            return True
        if scope == "bank":
            return bool(one & other)
        per_group = len(self.rows) // self.submission.machine.organisation.bank_groups
        return bool({b // per_group for b in one} & {b // per_group for b in other})

    def may_issue(self, command: str, bank: int, cycle: int) -> bool:
        banks = self.banks_of(command, bank)
        for (earlier, at), time in self.last.items():
            for rule in self.rules.get((earlier, command), ()):
                if cycle < time + rule.cycles and self.meets(rule.scope, self.banks_of(earlier, at), banks):
                    return False
        if self.submission.machine.rules.faw_enforced and command in {"ACT", "ACT16"}:
            # At most four activates in any nFAW cycles; ACT16 is sixteen, spread over four windows.
            window = self.submission.machine.timing.nFAW
            recent = sum(time > cycle - window for time in self.activates)
            return recent + (4 if command == "ACT16" else 1) <= 4
        return True

    def issue(self, command: str, bank: int, row: int, column: int, cycle: int) -> None:
        self.trace.append((cycle, self.channel, command, bank, row, column))
        self.last[command, bank] = cycle
        t = self.submission.machine.timing
        if command == "ACT":
            self.rows[bank] = row
            self.activates.append(cycle)
        elif command == "ACT16":
            self.rows = [row] * len(self.rows)
            self.activates += [cycle + window * t.nFAW for window in range(4) for _ in range(4)]
        elif command == "PRE":
            self.rows[bank] = -1
        elif command == "PREA":
            self.rows = [-1] * len(self.rows)
        elif command == "TMOD":
            self.register_mode = not self.register_mode
        elif command == "REFab":
            self.refreshes += 1

    # --- the two that want to issue: refresh first, then the stream

    def tick(self, cycle: int) -> None:
        refresh = self.submission.machine.refresh
        interval = self.submission.machine.timing.nREFI
        if refresh.enabled and not self.finished and cycle // interval - self.refreshes > refresh.postpone:
            self.forcing = True
        held = self.forcing
        if self.forcing:
            if self.register_mode and not self.row_mode:
                step = "TMOD"
            else:
                step = "PREA" if any(row >= 0 for row in self.rows) else "REFab"
            if self.may_issue(step, -1, cycle):
                self.issue(step, -1, -1, -1, cycle)
                self.forcing = step != "REFab"
        if not self.finished and not self.control(cycle) and not held:
            self.command(cycle)

    def command(self, cycle: int) -> None:
        instr, o = self.current()
        name = DRAM_NAME.get(instr.name, instr.name)
        bank = o.bank if name in SINGLE_BANK else -1
        row = getattr(o, "row", -1)
        if getattr(o, "count", 1) <= 0:
            self.issued(cycle)
            return
        step = self.next_step(name, bank, row, o, cycle)
        if step is None:
            self.issued(cycle)
            return
        if not self.may_issue(step, bank if step in SINGLE_BANK else -1, cycle):
            return
        columns = name in COLUMN_READS | COLUMN_WRITES | REGISTER_COMMANDS
        if step != name or not columns:
            opens = step in {"ACT", "ACT16"}
            self.issue(step, bank if step in SINGLE_BANK else -1, row if opens else -1, -1, cycle)
            if step == name:
                self.issued(cycle)
            return
        first = o.buffer if name == "WRGB" else o.accumulator if name in REGISTER_COMMANDS else o.column
        self.issue(name, bank, row, first + self.progress, cycle)
        timing, landing = self.submission.machine.timing, self.submission.machine.scratch.landing_cycles
        if name in {"RD", "RDMAC16"}:
            latency = (timing.nCL if name == "RD" else timing.nCLREG) + timing.nBL
            self.landed = max(self.landed, cycle + latency + landing)
        self.progress += 1
        if self.progress == getattr(o, "count", 1):
            self.progress = 0
            self.issued(cycle)

    def next_step(self, name: str, bank: int, row: int, o: SimpleNamespace, cycle: int) -> str | None:
        """The command that has to issue next for the instruction; None: it has nothing to do."""
        if name == "TMOD":
            return None if self.register_mode == bool(o.mode) else "TMOD"
        if name in REGISTER_COMMANDS:
            return name if self.register_mode else "TMOD"
        if name == "PREA":
            step = name if any(open_row >= 0 for open_row in self.rows) else None
        elif name == "PRE":
            step = name if self.rows[bank] >= 0 else None
        elif name == "REFab":
            refresh, interval = self.submission.machine.refresh, self.submission.machine.timing.nREFI
            earliest = 1 - refresh.pull_in
            least = max(earliest, refresh.postpone) if o.when else earliest
            legal = refresh.enabled and cycle // interval - self.refreshes >= least
            step = None if not legal else "PREA" if any(r >= 0 for r in self.rows) else name
        elif name in {"ACT16", "MAC16"}:
            if any(open_row not in {-1, row} for open_row in self.rows):
                step = "PREA"
            elif any(open_row == -1 for open_row in self.rows):
                step = "ACT16"
            else:
                step = name if name == "MAC16" else None
        elif self.rows[bank] != row:
            step = "PRE" if self.rows[bank] >= 0 else "ACT"
        else:
            step = None if name == "ACT" else name
        if step is not None and self.register_mode and not (self.row_mode and step in ROW_COMMANDS):
            return "TMOD"
        return step

    @property
    def idle(self) -> bool:
        return self.finished and not self.forcing

    @property
    def end(self) -> int:
        after_refresh = max((time for (name, _), time in self.last.items() if name == "REFab"), default=-(10**9))
        return max(self.last_issue + 1, self.landed, after_refresh + self.submission.machine.timing.nRFC)

    @property
    def refresh_charge(self) -> int:
        if not self.submission.machine.refresh.enabled:
            return 0
        t = self.submission.machine.timing
        debt = Fraction(self.end, t.nREFI) - self.refreshes
        return floor(t.nRFC * debt + Fraction(1, 2))


@dataclass
class Ticked:
    cycles: int
    ends: list[int]
    charges: list[int]
    refreshes: list[int]
    trace: list[tuple[int, int, str, int, int, int]]
    stream_ends: list[int]


def tick(
    machine: Machine, program: Program, memory: Iterable[int] = (), argument_base: int = 0, limit: int = 200_000
) -> Ticked:
    """Run ``program`` cycle by cycle. AssertionError if it does not end within ``limit`` cycles."""
    submission = Submission(machine, dict(enumerate(memory)), argument_base)
    count = machine.organisation.channels
    for number, stream in enumerate(program.streams):
        if stream.engine is Engine.CHANNEL:
            on = [c for c in range(count) if stream.channel_mask >> c & 1]
            submission.streams.append([Channel(submission, stream, c) for c in on])
        else:
            submission.streams.append([Serial(submission, stream, 0)])
        for instr in stream.instrs:
            if instr.name == "SIGNAL":
                submission.producer[instr.fields["signal"]] = number
    processors = [p for stream in submission.streams for p in stream]
    cycle = 0
    while not all(p.idle for p in processors):
        assert cycle < limit, "the program does not end"
        for processor in processors:
            processor.tick(cycle)
        cycle += 1
    channels: list[Channel | None] = [None] * count
    for p in processors:
        if isinstance(p, Channel):
            channels[p.channel] = p
    stream_ends = [max(p.end + getattr(p, "refresh_charge", 0) for p in stream) for stream in submission.streams]
    trace = sorted((e for c in channels if c is not None for e in c.trace), key=lambda e: (e[0], e[1]))
    return Ticked(
        max(stream_ends, default=0),
        [0 if c is None else c.end for c in channels],
        [0 if c is None else c.refresh_charge for c in channels],
        [0 if c is None else c.refreshes for c in channels],
        trace,
        stream_ends,
    )
