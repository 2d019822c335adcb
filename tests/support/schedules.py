"""Schedules to check and to spoil: those of the cycle models, as bursts and as single commands."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.sim.timing.scenarios import SCENARIOS, machine_for, measure
from tests.support.random_traces import random_simulator, random_trace
from tests.support.timing_programs import ins, program, vector_pass
from wordline.isa.instruction import Instr
from wordline.machines import Machine, load_machine
from wordline.sim.checker import Burst, Checker, Report, fold
from wordline.sim.timing import time_program
from wordline.sim.traces import TraceModel

OURS, PUBLISHED = "corrected", "aim-simulator"
RECORD = 1_000_000

#: The host waits for none of these lines, and the first has columns enough: a channel always has its next command.
BUSY = ("MAC_ABK {n} {m} {r}", "MAC_SBK {n} {m} {b} {r}", "COPY_BKGB {n} {m} {b} {r}", "COPY_GBBK {n} {m} {b} {r}")
BUSY += ("EWMUL {n} {m} {r}", "WR_GB {n} 0 {m}", "AF {m}", "WR_BIAS 0 {m}", "WR_ABK 0 {m} {r}")


@dataclass(frozen=True)
class Schedule:
    """What a cycle model made of a program, every command by itself."""

    name: str
    machine: Machine
    profile: str
    commands: tuple[Burst, ...]

    def check(self, commands: Iterable[Burst] | None = None, machine: Machine | None = None) -> Report:
        """Check it, or what became of it, or by the rules of another machine."""
        checker = _checker((machine or self.machine).name, self.profile)
        checker.begin(self.name)
        checker.feed(self.commands if commands is None else commands)
        return checker.finish()


@functools.lru_cache(maxsize=256)
def _checker(machine: str, profile: str) -> Checker:
    return Checker(load_machine(machine), profile)


def recorded(name: str, machine: Machine, profile: str, text: str) -> Schedule:
    """A trace, timed."""
    time = TraceModel(machine, profile).run(text.encode(), record=RECORD)
    return schedule(name, machine, profile, time.schedule)


def schedule(name: str, machine: Machine, profile: str, entries: Iterable[tuple[int | str, ...]]) -> Schedule:
    """What a cycle model recorded."""
    singles = (
        burst._replace(
            first=burst.first + i * burst.step, length=1, step=0, column=burst.column + i if burst.column >= 0 else -1
        )
        for burst in fold(entries)
        for i in range(burst.length)
    )
    return Schedule(name, machine, profile, tuple(sorted(singles, key=lambda b: (b.first, b.channel))))


@functools.cache
def scenarios() -> tuple[Schedule, ...]:
    """The schedules that were computed by hand, one rule each."""
    return tuple(
        schedule(name, machine_for(scenario), OURS, measure(scenario).trace) for name, scenario in SCENARIOS.items()
    )


def busy_trace(rng: random.Random, lines: int) -> str:
    """A trace of one channel that never has to wait for the host."""
    text = []
    for i in range(lines):
        form = rng.choice(BUSY[: 6 if i == 0 else None])
        text.append(
            "AiM "
            + form.format(n=rng.choice((2, 4, 9)) + 34 * (i == 0), m="0x1", b=rng.randrange(16), r=rng.randrange(3))
        )
    return "\n".join([*text, "AiM EOC", ""])


@functools.cache
def busy(profile: str, count: int = 8) -> tuple[Schedule, ...]:
    """Traces each of whose commands waits for nothing but the rules, without and with refresh."""
    made = []
    for seed in range(count):
        rng = random.Random(seed)
        settings: dict[str, int | bool] = {"organisation.channels": 1}
        settings["refresh.enabled"] = settings["aim_simulator.refresh"] = seed % 2 == 1
        settings["refresh.postpone"] = settings["refresh.pull_in"] = seed // 2 % 2
        settings["timing.nREFI"], settings["timing.nRFC"] = 1000, 90
        machine = load_machine("gddr6-aim-card", settings)
        made.append(recorded(f"busy {seed}", machine, profile, busy_trace(rng, 14)))
    return tuple(made)


@functools.cache
def random_schedules(profile: str, count: int = 16) -> tuple[Schedule, ...]:
    """Random traces of the whole language on random machines of four channels."""
    made = []
    for seed in range(count):
        rng = random.Random(seed)
        overrides = {"timing.nREFI": 1500} if profile == OURS else {}
        machine = load_machine(random_simulator(rng).name, overrides)
        text = random_trace(rng, ordinary=rng.choice((0, 0.3, 0.6)))
        made.append(recorded(f"random {seed}", machine, profile, text))
    return tuple(made)


def _program(name: str, instrs: list[Instr], settings: dict[str, int | bool], wait: int = 0) -> Schedule:
    """A device program; after a wait for a vector pass of ``wait`` cycles its rows are closed and its debt is due."""
    machine = load_machine("gddr6-aim-chip", settings)
    vector = [vector_pass(16 * wait), ins("SIGNAL", signal=9)] if wait else []
    made = program([*([ins("WAIT", signal=9, value=1)] if wait else []), *instrs], vector)
    return schedule(name, machine, OURS, time_program(machine, made, trace=True).trace)


@functools.cache
def particular() -> tuple[Schedule, ...]:
    """Device programs in which rules bind that traces never get to."""
    strict = {"refresh.pull_in": 0, "refresh.postpone": 0}
    still = {"refresh.enabled": False}
    acts = [ins("ACT", bank=bank, row=0) for bank in (0, 4, 8, 12, 1, 5)]
    return (
        _program("refresh of closed banks", [ins("MAC16", row=0, count=1)], strict, wait=7000),
        _program("prepaid refresh", [ins("REF"), ins("MAC16", row=0, count=1)], {}),
        _program("postponed refresh", [ins("MAC16", row=0, count=1)], {}, wait=7000),
        _program("windows", [*acts, ins("PREA"), ins("ACT16", row=1)], {**still, "rules.faw_enforced": True}),
        _program("columns", [ins("RD", bank=15, row=16383, column=63, count=1)], still),
        _program("buffer", [ins("WRGB", buffer=63, count=1), ins("RDMAC16", accumulator=31, count=1)], still),
        _program("no window", acts, {**still, "timing.nRRDS": 1, "timing.nRRDL": 1}),
        _program(
            "groups",
            [
                *acts,
                ins("RD", bank=0, count=1),
                ins("RD", bank=1, count=1),
                ins("WR", bank=0, count=1),
                ins("WR", bank=1, count=1),
            ],
            {**still, "timing.nCCDL": 5, "timing.nRRDL": 15},
        ),
    )


@functools.cache
def corpus(profile: str) -> tuple[Schedule, ...]:
    """Everything small."""
    traces = (*crowded(profile), *busy(profile), *random_schedules(profile))
    if profile == OURS:
        return (*scenarios(), *particular(), *traces)
    # Traces name no columns; these two programs do, and nothing else that the profiles see differently.
    named = [replace(s, profile=PUBLISHED) for s in particular() if s.name in {"columns", "buffer"}]
    return (*named, *traces)


@functools.cache
def crowded(profile: str) -> tuple[Schedule, ...]:
    """Traces, and machines of unusual intervals, for rules that seldom bind."""
    refreshed: dict[str, int | bool] = {"timing.nREFI": 1033, "timing.nRFC": 90, "aim_simulator.refresh": True}
    refreshed |= {"refresh.postpone": 0, "refresh.pull_in": 0}
    still: dict[str, int | bool] = {"refresh.enabled": False}
    turns = [f"MAC_SBK 1 0x1 0 {i % 2}" for i in range(60)]
    traces: list[tuple[str, dict[str, int | bool], list[str]]] = [
        ("idle channel", refreshed, [f"MAC_ABK 64 0x1 {row}" for row in range(12)]),
        ("writes that close", refreshed, ["WR_ABK 0 0x1 3"] * 25),
        ("turns of one bank", refreshed, ["MAC_SBK 1 0x1 1 0", *turns]),
        (
            "products behind writes",
            still,
            ["MAC_ABK 2 0x1 5", "COPY_GBBK 2 0x1 3 5", "EWMUL 2 0x1 5", "COPY_GBBK 2 0x1 3 5"],
        ),
        ("a result, then a bias", still, ["RD_MAC 0 0x1", "WR_BIAS 0 0x1"]),
        ("buffer behind a read", still, ["RD_SBK 0 0x1 0 0", *["EWADD 1 0 0"] * 60, "WR_GB 4 0 0x1"]),
        (
            "long turn to reads",
            {**still, "timing.nWTRL": 300},
            ["WR_ABK 0 0x1 3", "RD_SBK 0 0x1 2 3", "RD_SBK 0 0x1 2 3"],
        ),
        ("long turn to results", {**still, "timing.nWTRL": 300}, ["WR_ABK 0 0x1 3", "RD_MAC 0 0x1"]),
        ("long turn to writes", {**still, "timing.nRTW": 300}, ["RD_MAC 0 0x1", "WR_SBK 0 0x1 2 3", "WR_ABK 0 0x1 3"]),
    ]
    made = []
    for name, settings, lines in traces:
        text = "".join(f"AiM {line}\n" for line in [*lines, "EOC"])
        machine = load_machine("gddr6-aim-chip", {**settings, "aim_simulator.reversed_mask": False})
        made.append(recorded(name, machine, profile, text))
    return tuple(made)
