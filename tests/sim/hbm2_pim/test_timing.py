"""Cycles of pseudo-channels: the published kernels, a model that ticks through every cycle, and single rules."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import pytest

from tests.support.published_kernels import published_elementwise, published_gemv
from tests.support.ticking_pseudo_channel import TickingPseudoChannel
from wordline.isa import instruction_set
from wordline.isa.affine import affine
from wordline.isa.assemble import assemble
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr, make
from wordline.isa.program import Program, Stream
from wordline.machines import Machine, load_machine
from wordline.sim.fault import Fault
from wordline.sim.hbm2_pim.timing import PseudoChannelTime, time_program

ISA = instruction_set("hbm2-pim")
TABLE = Path(__file__).resolve().parents[2] / "reference" / "hbm2-pim" / "kernel_cycles.csv"
STACKS = load_machine("hbm2-pim-4stacks")
ONE = {"organisation.channels": 1}
#: When the published simulator refreshes first: after all kernels without a refresh, the longest of 2042 cycles, and
#: before the end of the shortest one with a refresh, 2546 cycles less the refresh.
FIRST_REFRESH = 2100


def published() -> list[tuple[str, int, int, int]]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines)
    return [
        (row["kernel"], int(row["outputs"]), int(row["inputs"]), int(row["cycles_at_1ns"]))
        for row in rows
        if row["mode"] == "pim"
    ]


def timed(program: Program, machine: Machine, phase: int = 0) -> PseudoChannelTime:
    return time_program(machine, program, refresh_phase=phase, trace=True).channels[0]


@pytest.mark.parametrize(("kernel", "outputs", "inputs", "cycles"), published(), ids=str)
def test_published_kernels(kernel: str, outputs: int, inputs: int, cycles: int) -> None:
    program = published_gemv(outputs, inputs) if kernel == "gemv" else published_elementwise(kernel, outputs)
    machine = load_machine("hbm2-pim-4stacks", {"refresh.postpone": 0})
    phase = machine.flat()["timing.nREFI"] - FIRST_REFRESH
    assert timed(program, machine, phase).end == pytest.approx(cycles, rel=0.03)


def test_published_periods_are_met_exactly() -> None:
    machine = load_machine("hbm2-pim-4stacks", {"refresh.enabled": False})
    gemv = [timed(published_gemv(4096, inputs), machine).end for inputs in (512, 1024)]
    assert gemv[1] - gemv[0] == 2 * (341 + 388)
    for kernel, period in (("add", 161), ("mul", 161), ("relu", 102)):
        times = [timed(published_elementwise(kernel, n << 16), machine).end for n in (8, 16)]
        assert times[1] - times[0] == 8 * period


def test_refresh_among_reads() -> None:
    lines = ["MODE mode=pim", "LOOP rd=r2 count=40 {", "PIMRD row=3 count=32", "}"]
    off = timed(one(lines), load_machine("hbm2-pim-stack", {**ONE, "refresh.enabled": False}))
    postponed = timed(one(lines), load_machine("hbm2-pim-stack", ONE))
    assert (postponed.end, postponed.refreshes) == (off.end, 0)
    strict = timed(one(lines), load_machine("hbm2-pim-stack", {**ONE, "refresh.postpone": 0}))
    # read to precharge, precharge, refresh, activation, in place of one gap of 4 cycles
    assert (strict.end - off.end, strict.refreshes) == (3 + 14 + 350 + 14 - 4, 1)


def one(*lines: str | list[str]) -> Program:
    flat = [text for line in lines for text in ([line] if isinstance(line, str) else line)]
    return assemble(ISA, "\n".join(["stream channel mask=0x1", *flat]))


def cycles_of(trace: PseudoChannelTime) -> list[tuple[int, str]]:
    return [(c.cycle, c.command) for c in trace.trace]


def test_mode_switches() -> None:
    machine = load_machine("hbm2-pim-stack", ONE)
    run = timed(one("MODE mode=all_bank", "MODE mode=pim parity=odd", "MODE mode=single parity=odd"), machine)
    n = machine.flat()["timing.nMOD"]
    assert isinstance(n, int)
    enter = [(0, "ACT"), (4, "ACT"), (8, "ACT"), (12, "ACT"), (45, "PREA")]
    to_pim = [(45 + n, "ACT"), (55 + n, "WR")]
    back = [(59 + n, "WR"), (85 + n, "PREA"), (99 + n, "ACT"), (105 + n, "ACT"), (138 + n, "PREA")]
    assert cycles_of(run) == enter + to_pim + back
    assert run.end == 138 + 2 * n
    assert sum(run.causes.values()) == run.end


def test_what_is_set_already_costs_a_slot() -> None:
    machine = load_machine("hbm2-pim-stack", ONE)
    run = timed(one("MODE mode=single", "PREA", "ACT row=4", "ACT row=4", "PRE", "PRE", "RD count=0"), machine)
    assert cycles_of(run) == [(2, "ACT"), (35, "PRE")]
    assert run.end == 38


def test_the_debt_that_is_left_is_charged() -> None:
    machine = load_machine("hbm2-pim-stack", ONE)
    run = timed(one("RD count=1"), machine)
    assert (run.end, run.refreshes) == (14 + 22, 0)
    assert run.refresh_charge == round(350 * 36 / 3900)


def test_faults_name_the_place() -> None:
    with pytest.raises(Fault, match="PIMRD needs pim mode, the pseudo-channel is in single mode") as caught:
        timed(one("PREA", "PIMRD count=1"), load_machine("hbm2-pim-stack", ONE))
    assert caught.value.instruction == 1


def test_transfers_are_copies_in_host_memory() -> None:
    text = """
        stream channel mask=0x1
        RD row=1 count=4 target=0
        SIGNAL signal=0
        stream link
        WAIT signal=0 value=1
        XOUT slot=0 blocks=1 bytes=128
    """
    time = time_program(load_machine("hbm2-pim-stack"), assemble(ISA, text))
    assert (time.host_calls, time.host_end) == (0, 14 + 12 + 22 + 10 + 1)


PASSES = """
stream channel mask=0xf
  RD row=1 count=4 target=0
  SIGNAL signal=0
  WAIT signal=1 value=1
  WR row=1 count=1 source=0
stream vector
  WAIT signal=0 value=1
  VPASS n0=1 n1=1 n2=4000 high=4000 {
    operands base=0 s2=2
    operations op=mul a=x0 b=x0
    operations op=add a=t0 b=x0
    result base=0 s2=2 value=t1
  }
  VPASS n0=1 n1=1 n2=16 high=16 {
    operands base=0 s2=2
    result base=0 s2=2 value=x0
  }
  SIGNAL signal=1
"""


def test_the_host_runs_the_vector_stream() -> None:
    time = time_program(load_machine("hbm2-pim-stack"), assemble(ISA, PASSES), trace=True)
    # Last read at 14 + 3 x 4, its data 22 later, landing 10; the host sees it one cycle on.
    landed = 14 + 12 + 22 + 10
    call = 500 + 8000 // 1000 + 1
    assert (time.host_calls, time.host_cycles, time.host_end) == (1, call, landed + 1 + call)
    assert [c.cycle for c in time.channels[3].trace if c.command == "WR"] == [time.host_end + 2]
    assert time.channels[0].causes["vector"] > call
    assert sum(time.causes.values()) == pytest.approx(time.cycles)


def test_refresh_goes_on_under_a_wait() -> None:
    machine = load_machine("hbm2-pim-stack", {"host.call_latency_ns": 5000, "refresh.postpone": 0})
    time = time_program(machine, assemble(ISA, PASSES))
    assert time.channels[0].refreshes == 1
    assert time.channels[0].causes["refresh"] == 0


def test_streams_that_wait_for_each_other_are_a_fault() -> None:
    text = """
        stream channel mask=0x1
        WAIT signal=1 value=1
        SIGNAL signal=0
        stream channel mask=0x2
        WAIT signal=0 value=1
        SIGNAL signal=1
    """
    with pytest.raises(Fault, match="deadlock"):
        time_program(load_machine("hbm2-pim-stack"), assemble(ISA, text))


def test_channels_that_differ_are_timed_apart() -> None:
    text = "stream channel mask=0x7\nLOOP rd=r2 count=r1 {\nRD row=r2 count=1\n}"
    channels = time_program(load_machine("hbm2-pim-stack"), assemble(ISA, text)).channels
    assert [channels[c].commands.get("RD", 0) for c in (0, 1, 2)] == [0, 1, 2]


def random_stream(rng: random.Random) -> list[Instr]:
    """Valid in every mode that it goes through; loops over registers."""
    instrs: list[Instr] = []
    mode = 0

    def add(name: str, **values: object) -> None:
        instrs.append(make(ISA, name, **values))

    for _ in range(rng.randrange(5, 40)):
        bank, row, column = rng.randrange(16), rng.randrange(4), rng.randrange(16)
        count, parity = rng.choice([0, 1, 2, 7, 16]), rng.randrange(2)
        choice = rng.random()
        if choice < 0.12:
            mode = rng.randrange(3)
            add("MODE", mode=mode, parity=parity)
        elif choice < 0.24:
            add(*rng.choice([("ACT",), ("PRE",), ("PREA",)])) if rng.random() < 0.3 else add("ACT", bank=bank, row=row)
        elif choice < 0.3:
            add("PRE", bank=bank)
        elif choice < 0.36:
            add("REF", when=rng.randrange(2))
        elif choice < 0.46:
            for _ in range(rng.randrange(1, 30)):
                add("ADD", rd=4, a=affine(1, (4, 1)), b=0)
        elif choice < 0.55:
            add("LOOP", rd=3, body=2, count=rng.randrange(4))
            if mode == 2:
                add("PIMRD", parity=parity, row=affine(0, (3, 1)), column=column, count=count)
            else:
                add("WR", bank=bank, row=affine(0, (3, 1)), column=column, count=count, source=0)
            add("ADD", rd=5, a=1, b=affine(0, (3, 1)))
        elif mode == 0:
            name = rng.choice(["RD", "WR"])
            add(name, bank=bank, row=row, column=column, count=count)
        elif rng.random() < 0.4:
            name = rng.choice(["WRSRF", "WRGRF", "WRCRF"])
            values = {"WRSRF": {}, "WRGRF": {"count": rng.randrange(1, 9)}, "WRCRF": {"column": rng.randrange(2)}}[name]
            if name == "WRCRF":
                values["program"] = [{"instruction": {"word": 0}}] * rng.randrange(1, 17)
            add(name, parity=parity, **values)
        elif mode == 1:
            add("WR", bank=bank, row=row, column=column, count=count)
        else:
            add(rng.choice(["PIMRD", "PIMRD", "PIMWR"]), parity=parity, row=row, column=column, count=count)
    return instrs


VARIANTS = [
    {},
    {"refresh.enabled": False},
    {"timing.nREFI": 700, "timing.nRFC": 60},
    {"timing.nREFI": 900, "timing.nRFC": 50, "refresh.postpone": 0, "timing.nMOD": 20},
    {
        "timing.nREFI": 800,
        "timing.nRFC": 70,
        "refresh.pull_in": 3,
        "timing.nCCDL": 7,
        "timing.nRTPL": 11,
        "timing.nWTRS": 0,
    },
]


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@pytest.mark.parametrize("seed", range(25))
def test_random_streams_agree_with_a_model_that_ticks(seed: int, variant: int) -> None:
    machine = load_machine("hbm2-pim-stack", {**ONE, **VARIANTS[variant]})
    rng = random.Random(1000 * variant + seed)
    instrs = random_stream(rng)
    phase = rng.choice([0, 0, 300])
    run = timed(Program(ISA, (Stream(Engine.CHANNEL, 1, tuple(instrs)),)), machine, phase)
    history, end = TickingPseudoChannel(machine, phase).run(instrs)
    ours = [(c.cycle, c.command, c.row, c.column) for c in run.trace]
    assert ours == [(p.cycle, p.command, p.row, p.column) for p in history]
    assert run.end == end
    assert sum(run.causes.values()) == run.end
