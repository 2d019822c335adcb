"""The profile `aim-simulator`, slow and obvious: host, queues and banks are asked in every cycle what they do.

Written from the rules (docs/timing.md, section 10), not from the native code: intervals between commands
are one list of (earlier, later, scope, cycles); a command may issue when no earlier one forbids it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product

from wordline.machines import Machine

READS = {"RD", "MAC", "MAC16", "RDCP", "RDMAC16", "RDAF16", "EWMUL16"}
WRITES = {"WR", "WRA16", "WRGB", "WRCP", "WRMAC16"}
REGISTER = {"WRGB", "WRMAC16", "RDMAC16", "RDAF16"}
ALL_BANKS = {"ACT16", "PREA", "MAC16", "AF16", "EWMUL16", "WRA16"}
SINGLE_BANK = {"ACT", "PRE", "RD", "WR", "MAC", "RDCP", "WRCP"}
EVERY = READS | WRITES | ALL_BANKS | SINGLE_BANK | {"TMOD", "REFab"}

AIM_OPS = {  # operation -> (DRAM command, fields)
    "WR_SBK": ("WR", "gpr mask bank row"),
    "RD_SBK": ("RD", "gpr mask bank row"),
    "WR_GB": ("WRGB", "opsize gpr mask"),
    "WR_BIAS": ("WRMAC16", "gpr mask"),
    "RD_MAC": ("RDMAC16", "gpr mask"),
    "RD_AF": ("RDAF16", "gpr mask"),
    "COPY_BKGB": ("RDCP", "opsize mask bank row"),
    "COPY_GBBK": ("WRCP", "opsize mask bank row"),
    "MAC_SBK": ("MAC", "opsize mask bank row"),
    "MAC_ABK": ("MAC16", "opsize mask row"),
    "AF": ("AF16", "mask"),
    "EWMUL": ("EWMUL16", "opsize mask row"),
    "WR_ABK": ("WRA16", "gpr mask row"),
    "SYNC": ("SYNC", ""),
    "EOC": ("EOC", ""),
}


def intervals(machine: Machine) -> list[tuple[set[str], set[str], str, int]]:
    """(earlier, later, scope, cycles); an all-bank command is in every bank, register commands are in none."""
    t, sim = machine.timing, machine.aim_simulator
    activate, precharge = {"ACT", "ACT16"}, {"PRE", "PREA"}
    from_register, reads_rows = {"RDMAC16", "RDAF16"}, READS - {"RDMAC16", "RDAF16"} | {"AF16"}
    write, register_write, buffer_write = t.nCWL + t.nBL, t.nCWLREG + t.nBL, t.nCWLGB + t.nBL
    read, register_read = t.nCL + t.nBL + t.nRTW + t.nWPRE, t.nCLREG + t.nBL + t.nRTW + t.nWPRE
    return [
        (activate, {"MAC", "MAC16"}, "bank", t.nRCDRDMAC),
        (activate, {"AF16"}, "bank", t.nRCDRDAF),
        (activate, {"EWMUL16"}, "bank", t.nRCDEWMUL),
        (activate, {"RDCP"}, "bank", t.nRCDRDCP),
        (activate, {"WRCP"}, "bank", t.nRCDWRCP),
        (activate, {"RD"}, "bank", t.nRCDRD),
        (activate, {"WR", "WRA16"}, "bank", t.nRCDWR),
        (activate, activate, "bank", t.nRC),
        ({"ACT"}, {"ACT"}, "channel", sim.nRRDS),
        ({"ACT"}, {"ACT"}, "group", sim.nRRDL),
        (activate, precharge, "bank", t.nRAS),
        (precharge, activate, "bank", t.nRP),
        (precharge, precharge, "bank", t.nRP),
        (precharge, {"REFab"}, "channel", t.nRP),
        (activate, {"REFab"}, "channel", t.nRC),
        ({"REFab"}, activate, "channel", t.nRFC),
        (READS, READS, "channel", t.nCCDS),
        (WRITES, WRITES, "channel", t.nCCDS),
        (READS - from_register, READS - from_register, "group", t.nCCDL),
        ({"WR", "WRA16", "WRCP"}, {"WR", "WRA16", "WRCP"}, "group", t.nCCDL),
        ({"EWMUL16"}, {"WR", "WRA16", "WRCP", "WRMAC16"}, "channel", t.nCCDS),
        ({"WR", "WRA16", "WRCP", "WRMAC16"}, {"EWMUL16"}, "channel", t.nCCDS),
        (reads_rows, precharge, "bank", t.nRTP),
        ({"WR", "WRCP"}, precharge, "bank", write + t.nWR),
        ({"EWMUL16"}, precharge, "bank", t.nCWL + t.nWR),
        ({"WRA16"}, activate, "bank", write + t.nWR + t.nRP),
        ({"WRMAC16"}, {"RD"} | from_register, "channel", register_write + t.nWTRL),
        ({"WRGB"}, {"RD"} | from_register, "channel", buffer_write + t.nWTRS),
        ({"WR", "WRA16"}, from_register, "channel", write + t.nWTRL),
        ({"WRA16"}, {"RD"}, "channel", write + t.nWTRL),
        ({"WR"}, {"RD"}, "channel", write + t.nWTRS),
        ({"WR"}, {"RD"}, "group", write + t.nWTRL),
        ({"RD"}, {"WR", "WRA16"}, "channel", read - t.nCWL),
        ({"RD"}, {"WRGB"}, "channel", read - t.nCWLGB),
        ({"RD"}, {"WRMAC16"}, "channel", read - t.nCWLREG),
        (from_register, {"WRGB"}, "channel", register_read - t.nCWLGB),
        (from_register, {"WRMAC16"}, "channel", register_read - t.nCWLREG),
        ({"TMOD"}, EVERY - {"TMOD"}, "channel", t.nMODCH),
    ]


@dataclass(eq=False)
class Request:
    """What a queue holds: one command of an instruction."""

    command: str
    bank: int
    row: int
    blocking: bool
    arrival: int = 0
    due: int | None = None  # for the completion of reads; None until its data are on the way


@dataclass
class Line:
    """A decoded line: its requests in order, each for the channels named; none for lines that address no channel."""

    requests: list[Request] = field(default_factory=list)
    channels: list[int] = field(default_factory=list)
    wait: bool = False
    end: bool = False
    function: int | None = None  # W CFR 2: the activation function from here on


def parse(text: str, machine: Machine) -> list[Line]:
    """Lines of a well-formed trace up to EOC."""
    sim, channels = machine.aim_simulator, machine.organisation.channels
    lines: list[Line] = []
    function = 0
    for words in (line.split() for line in text.splitlines()):
        if not words or words[0] == "#":
            continue
        if words[0] in {"W", "R"}:
            values = [int(word, 0) for word in words[2:]]
            if words[1] == "MEM":
                request = Request("WR" if words[0] == "W" else "RD", values[1], values[2], False)
                lines.append(Line([request], [values[0]]))
            else:
                if words[:2] == ["W", "CFR"] and values[0] == 2:
                    function = values[1]
                lines.append(Line())
            continue
        op = words[1].removeprefix("ISR_")
        if op == "EWADD":
            lines.append(Line())
            continue
        command, names = AIM_OPS[op]
        values_of = dict(zip(names.split(), (int(word, 0) for word in words[2:]), strict=True))
        mask = values_of.get("mask", (1 << channels) - 1)
        on = [c for c in range(channels) if mask >> (channels - 1 - c if sim.reversed_mask else c) & 1]
        row = sim.lut_row + function if op == "AF" else values_of.get("row", -1)
        waits = op in {"SYNC", "EOC"} or (sim.blocking_reads and op in {"RD_MAC", "RD_AF"})
        requests = [Request(command, values_of.get("bank", -1), row, waits) for _ in range(values_of.get("opsize", 1))]
        lines.append(Line(requests if on else [], on, waits and bool(on), op == "EOC"))
        if op == "EOC":
            break
    return lines


class Channel:
    """Banks, queues and the order in which requests are served."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine, self.number = machine, number
        self.rules: dict[tuple[str, str], list[tuple[str, int]]] = {}
        for earlier, later, scope, cycles in intervals(machine):
            for pair in product(earlier, later):
                self.rules.setdefault(pair, []).append((scope, cycles))
        self.last: dict[tuple[str, int], int] = {}
        self.rows = [-1] * machine.organisation.banks
        self.register_mode = False
        self.aim: deque[Request] = deque()
        self.read: list[Request] = []
        self.write: list[Request] = []
        self.active: list[Request] = []
        self.overflow: deque[Request] = deque()
        self.reads_under_way: deque[Request] = deque()
        self.writes_under_way: list[int] = []  # cycle of the end of each
        self.write_mode = False
        self.refreshes_wanted = 0
        self.waiting = 0  # blocking requests that have not called back
        self.trace: list[tuple[int, int, str, int, int]] = []

    # --- enqueue

    def accept(self, request: Request, cycle: int) -> bool:
        sim = self.machine.aim_simulator
        if request.command not in {"RD", "WR"}:
            if self.read or self.write or len(self.aim) >= sim.queue_requests:
                return False
            if not sim.overtaking and self.active:
                return False
            self.aim.append(request)
        else:
            if self.aim:
                return False
            if request.command == "RD" and self.write and sim.read_forwarding:
                request.due = cycle + 1
                self.reads_under_way.append(request)
                return True
            queue = self.read if request.command == "RD" else self.write
            if len(queue) >= sim.queue_requests:
                return False
            queue.append(request)
        request.arrival = cycle
        return True

    def offer(self, requests: Iterable[Request], cycle: int) -> None:
        for request in requests:
            if self.overflow or not self.accept(request, cycle):
                self.overflow.append(request)

    def drain_overflow(self, cycle: int) -> None:
        while self.overflow and self.accept(self.overflow[0], cycle):
            self.overflow.popleft()

    # --- one cycle

    def tick(self, cycle: int) -> None:
        self._complete(cycle)
        sim, t = self.machine.aim_simulator, self.machine.timing
        if sim.refresh and (cycle + 1) % t.nREFI == 0:
            self.refreshes_wanted += 1
        if self.active:
            best = self._best(self.active, cycle)
            if self._ready(self._next(best), best.bank, cycle):
                self._serve(best, self.active, cycle)
                return
        if self.refreshes_wanted:
            step = "PREA" if any(row >= 0 for row in self.rows) else "REFab"
            if self._ready(step, -1, cycle):
                step = "TMOD" if self.register_mode else step
                self._issue(step, -1, -1, cycle)
                self.refreshes_wanted -= step == "REFab"
            return
        if self.aim:
            head = self.aim[0]
            if self._ready(self._next(head), head.bank, cycle):
                self._serve(head, self.aim, cycle)
            return
        self._choose_mode()
        queue = self.write if self.write_mode else self.read
        if queue:
            best = self._best(queue, cycle)
            if self._ready(self._next(best), best.bank, cycle):
                self._serve(best, queue, cycle)

    def _complete(self, cycle: int) -> None:
        if self.reads_under_way:
            oldest = self.reads_under_way[0]
            barrier = oldest.command in {"SYNC", "EOC"}
            if (not self.writes_under_way) if barrier else (oldest.due is not None and oldest.due <= cycle):
                self.reads_under_way.popleft()
                self.waiting -= oldest.blocking
        self.writes_under_way = [end for end in self.writes_under_way if end > cycle]

    def _choose_mode(self) -> None:
        sim = self.machine.aim_simulator
        if not self.write_mode:
            self.write_mode = not self.read or len(self.write) > sim.writes_to_start
        elif self.read and len(self.write) < sim.writes_to_stop:
            self.write_mode = False

    def _best(self, queue: list[Request], cycle: int) -> Request:
        ready = [r for r in queue if self._ready(self._next(r), r.bank, cycle)]
        return min(ready or queue, key=lambda r: r.arrival)

    def _next(self, request: Request) -> str:
        """The command that has to issue next for the request, without regard to the mode."""
        command = request.command
        if command in SINGLE_BANK:
            row = self.rows[request.bank]
            return command if row == request.row else "ACT" if row < 0 else "PRE"
        if command in ALL_BANKS:
            if any(row not in {-1, request.row} for row in self.rows):
                return "PREA"
            return "ACT16" if any(row == -1 for row in self.rows) else command
        return command

    def _ready(self, command: str, bank: int, cycle: int) -> bool:
        banks = self._banks(command, bank)
        per_group = len(self.rows) // self.machine.organisation.bank_groups
        for (earlier, at), time in self.last.items():
            for scope, cycles in self.rules.get((earlier, command), ()):
                other = self._banks(earlier, at)
                if scope == "bank":
                    meets = bool(banks & other)
                elif scope == "group":
                    meets = bool({b // per_group for b in banks} & {b // per_group for b in other})
                else:
                    meets = True
                if meets and cycle < time + cycles:
                    return False
        return True

    def _banks(self, command: str, bank: int) -> set[int]:
        if command in SINGLE_BANK:
            return {bank}
        return set(range(len(self.rows))) if command in ALL_BANKS else set()

    def _serve(self, request: Request, queue: list[Request] | deque[Request], cycle: int) -> None:
        step = self._next(request)
        if step == "PRE" and any(r.bank == request.bank for r in self.active):
            return  # not while an active request, be it this one, waits on that bank; nor is another one looked for
        barrier = step in {"SYNC", "EOC"}
        if not barrier and self.register_mode != (step in REGISTER):
            self._issue("TMOD", -1, -1, cycle)
            return
        if not barrier:
            self._issue(step, request.bank, request.row, cycle)
        if step == request.command:
            queue.remove(request)
            self._under_way(request, cycle)
        elif step == "ACT" and request.command in {"RD", "WR"}:
            if len(self.active) < self.machine.aim_simulator.queue_requests:
                self.active.append(request)
            queue.remove(request)  # even if the active list was full

    def _under_way(self, request: Request, cycle: int) -> None:
        t = self.machine.timing
        latency = {"RD": t.nCL + t.nBL, "RDMAC16": t.nCLREG + t.nBL, "RDAF16": t.nCLREG + t.nBL}
        if request.command in latency or request.command in {"SYNC", "EOC"}:
            request.due = cycle + latency.get(request.command, 0)
            self.reads_under_way.append(request)
            return
        register = {"WRGB": t.nCWLGB + t.nBL, "WRMAC16": t.nCWLREG + t.nBL}
        data = {"WR": t.nCWL + t.nBL, "WRA16": t.nCWL + t.nBL + t.nRP, **register}
        self.writes_under_way.append(cycle + data.get(request.command, 1))

    def _issue(self, command: str, bank: int, row: int, cycle: int) -> None:
        self.trace.append((cycle, self.number, command, bank if command in SINGLE_BANK else -1, row))
        self.last[command, bank if command in SINGLE_BANK else -1] = cycle
        if command == "ACT":
            self.rows[bank] = row
        elif command == "ACT16":
            self.rows = [row] * len(self.rows)
        elif command == "PRE":
            self.rows[bank] = -1
        elif command in {"PREA", "WRA16"}:
            self.rows = [-1] * len(self.rows)
        elif command == "TMOD":
            self.register_mode = not self.register_mode


@dataclass
class Ticked:
    cycles: int
    trace: list[tuple[int, int, str, int, int]]  # cycle, channel, command, bank, row


def tick(machine: Machine, text: str, limit: int = 1_000_000) -> Ticked:
    """Run a trace cycle by cycle. AssertionError if it does not end within ``limit`` cycles."""
    channels = [Channel(machine, number) for number in range(machine.organisation.channels)]
    lines = deque(parse(text, machine))
    blocked: list[Channel] = []
    last = False
    for cycle in range(limit):
        overflow = [channel for channel in channels if channel.overflow]
        for channel in overflow:
            channel.drain_overflow(cycle)
        if not overflow and not blocked and lines:
            line = lines.popleft()
            last = line.end
            for number in line.channels:
                copies = [Request(r.command, r.bank, r.row, r.blocking) for r in line.requests]
                channels[number].waiting += sum(r.blocking for r in copies)
                channels[number].offer(copies, cycle)
            if line.wait:
                blocked = [channels[number] for number in line.channels]
        for channel in channels:
            channel.tick(cycle)
        blocked = [channel for channel in blocked if channel.waiting]
        if last and not blocked:
            trace = sorted((entry for channel in channels for entry in channel.trace), key=lambda e: (e[0], e[1]))
            return Ticked(cycle + 1, trace)
    raise AssertionError("the trace does not end")
