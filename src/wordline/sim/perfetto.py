"""Runs as trace-event files, which Perfetto and Chrome's tracing page show (docs/profiling.md).

The format is the JSON of the Trace Event Format: complete events ("X") with start and duration, named processes and
threads ("M"). One microsecond of the file is one cycle of the device, so that every number in it is whole.
A process is a channel (threads: bus, banks, buffer), the vector unit, the link, the host, or the critical path.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from wordline.machines import Machine
from wordline.sim.critical_path import EVENT_KINDS, RULES, CriticalPath
from wordline.sim.timing import DRAM_COMMANDS

Event = dict[str, Any]
Label = Callable[[int, int], dict[str, Any]]
"""What to say of an instruction: (lane, instruction) -> arguments of a slice."""

PATH, VECTOR, LINK, HOST, CHANNELS = 1, 2, 3, 4, 10
"""Process numbers; channels count up from the last."""
BUS, ALL_BANKS, BANK, BUFFER = 1, 2, 3, 40
"""Thread numbers of a channel; banks count up from the third."""

_BUFFER_USES = {"WRGB": "fill", "RDCP": "copy in", "WRCP": "copy out", "MAC16": "read", "MAC": "read"}
_SERIAL = {"vector": (VECTOR, "vector unit"), "link": (LINK, "link"), "host": (HOST, "host")}


def trace_events(
    path: CriticalPath, machine: Machine, label: Label, channels: set[int] | None = None
) -> Iterator[Event]:
    """The events of a file.

    Args:
        path: with what was recorded.
        machine: on which.
        label: what is said of instructions.
        channels: which channels to show; None: one of each group of channels that do the same.
    """
    yield from _names(PATH, "critical path", {1: "waited for"})
    for part in path.parts:
        if part.cycles > 0:
            arguments = {"where": path.lanes[part.lane].name, "command": part.command, "times": part.times}
            arguments |= label(part.lane, part.instruction)
            yield _slice(PATH, 1, part.rule, part.kind, part.begin, part.cycles, arguments)
    for number, lane in enumerate(path.lanes):
        if lane.kind != "channel":
            process, name = _SERIAL[lane.kind]
            yield from _names(process, name, {1: "decoding" if lane.kind == "host" else name})
            yield from _serial(path, number, process, label)
            continue
        shown = lane.channels[:1] if channels is None else [c for c in lane.channels if c in channels]
        for channel in shown:
            yield from _channel(path, number, channel, machine, label)


def document_lines(
    path: CriticalPath, machine: Machine, label: Label, title: str, channels: set[int] | None = None
) -> Iterator[str]:
    """A file, in pieces of a line each."""
    head = {
        "title": title,
        "machine": machine.name,
        "machine_hash": machine.hash,
        "cycles": path.cycles,
        "time": f"1 us in this file is 1 cycle of {machine.clock.tck_ns} ns",
    }
    yield '{"displayTimeUnit": "ns", "otherData": ' + json.dumps(head) + ', "traceEvents": [\n'
    separator = ""
    for event in trace_events(path, machine, label, channels):
        yield separator + json.dumps(event, separators=(",", ":"))
        separator = ",\n"
    yield "\n]}\n"


def _names(process: int, name: str, threads: dict[int, str]) -> Iterator[Event]:
    yield {"ph": "M", "pid": process, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": process, "name": "process_sort_index", "args": {"sort_index": process}}
    for thread, text in threads.items():
        yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": text}}
        yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_sort_index", "args": {"sort_index": thread}}


def _slice(
    process: int, thread: int, name: str, category: str, begin: int, cycles: int, arguments: dict[str, Any]
) -> Event:
    return {
        "ph": "X",
        "pid": process,
        "tid": thread,
        "name": name,
        "cat": category,
        "ts": begin,
        "dur": cycles,
        "args": arguments,
    }


def _serial(path: CriticalPath, number: int, process: int, label: Label) -> Iterator[Event]:
    """Passes, transfers; decodings of successive cycles are one slice."""
    run: list[int] = []  # first cycle, last cycle, first line, last line
    for first, last, _, kind, _, _, _, _, instruction, rule, *_ in path.events(number).tolist():
        name = EVENT_KINDS[kind]
        if name in ("pass", "transfer"):
            arguments = {"held_by": RULES[rule]} | label(number, instruction)
            yield _slice(process, 1, name, name, first, last - first, arguments)
        elif name == "decode":
            if run and run[1] == first - 1:
                run[1], run[3] = first, instruction
                continue
            if run:
                yield _decoding(process, run)
            run = [first, first, instruction, instruction]
    if run:
        yield _decoding(process, run)


def _decoding(process: int, run: list[int]) -> Event:
    first, last, line, to = run
    return _slice(
        process, 1, f"lines {line}-{to}" if to > line else f"line {line}", "decode", first, last + 1 - first, {}
    )


def _channel(path: CriticalPath, number: int, channel: int, machine: Machine, label: Label) -> Iterator[Event]:
    process, banks = CHANNELS + channel, machine.organisation.banks
    alike = path.lanes[number].name
    name = f"channel {channel}" + ("" if len(path.lanes[number].channels) == 1 else f" (as {alike})")
    threads = {BUS: "bus", ALL_BANKS: "all banks", **{BANK + b: f"bank {b}" for b in range(banks)}, BUFFER: "buffer"}
    yield from _names(process, name, threads)
    rows = _Rows(process, banks, machine.timing.nRFC)
    over = path.cycles  # a credit for refresh may end a run before its last command
    for first, last, count, kind, code, bank, row, column, instruction, rule, pitch, due in path.events(
        number
    ).tolist():
        if EVENT_KINDS[kind] != "command":
            continue
        command = DRAM_COMMANDS[code]
        arguments: dict[str, Any] = {"held_by": "refresh due" if due else RULES[rule]} | label(number, instruction)
        arguments |= {key: value for key, value in (("bank", bank), ("row", row), ("column", column)) if value >= 0}
        if count > 1:
            arguments |= {"commands": count, "apart_by": RULES[pitch]}
        yield _slice(process, BUS, command, "bus", first, last + 1 - first, arguments)
        if command in _BUFFER_USES:
            use = _BUFFER_USES[command]
            yield _slice(process, BUFFER, use, "buffer", first, last + 1 - first, {"columns": count})
        yield from rows.command(command, bank, row, last)
        over = max(over, last + 1)
    yield from rows.end(over)


class _Rows:
    """Open rows of the banks of a channel as slices; what all banks do together is on a thread of its own."""

    def __init__(self, process: int, banks: int, refresh_cycles: int) -> None:
        self.process = process
        self.banks = banks
        self.refresh_cycles = refresh_cycles
        self.open: dict[int, tuple[int, int]] = {}  # thread -> row, cycle from which it is open

    def command(self, command: str, bank: int, row: int, cycle: int) -> Iterator[Event]:
        match command:
            case "ACT":
                self.open[BANK + bank] = row, cycle
            case "ACT16":
                yield from self.end(cycle)
                self.open[ALL_BANKS] = row, cycle
            case "PRE":
                if ALL_BANKS in self.open:
                    common = self.open[ALL_BANKS][0]
                    yield from self.end(cycle)
                    self.open |= {BANK + other: (common, cycle) for other in range(self.banks) if other != bank}
                else:
                    yield from self._close(BANK + bank, cycle)
            case "PREA" | "WRA16":
                yield from self.end(cycle)
            case "REFab":
                yield _slice(self.process, ALL_BANKS, "refresh", "refresh", cycle, self.refresh_cycles, {})

    def end(self, cycle: int) -> Iterator[Event]:
        for thread in list(self.open):
            yield from self._close(thread, cycle)

    def _close(self, thread: int, cycle: int) -> Iterator[Event]:
        row, since = self.open.pop(thread)
        if cycle > since:
            yield _slice(self.process, thread, f"row {row}", "row", since, cycle - since, {})
