"""What the ledger of energy counts: open rows, commands by instruction, bytes over the link."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.bank_states import open_cycles
from tests.support.timing_programs import ins, program, random_program
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine
from wordline.sim.timing import DRAM_COMMANDS, Span, TimingModel, TimingResult, time_program

QUIET = load_machine("gddr6-aim-chip", {"refresh.enabled": False})
CHIP = load_machine("gddr6-aim-chip")


def run(machine: Machine, made: Program, *, trace: bool = False) -> TimingResult:
    model = TimingModel(machine)
    return model.run(model.load(made), trace=trace, instruction_commands=True)


@pytest.mark.parametrize(("commands", "expected"), [
    # ACT16@0, MAC@56..58, PREA@70: open for 70 cycles
    ([ins("MAC16", count=2), ins("PREA")], 70),
    # ACT@0, of another bank ACT@11, PRE of the first, then of the second at 11 + nRAS: open throughout
    ([ins("ACT", bank=0, row=1), ins("ACT", bank=4, row=2), ins("PRE", bank=0), ins("PRE", bank=4)], 65),
    # left open: to the end of the step, in which the read-out lands
    ([ins("MAC16", count=1), ins("RDMAC16", count=1)], 56 + 2 + 32 + 2 + 10),
    ([ins("RDMAC16", count=1)], 0),
])  # fmt: skip
def test_open_cycles_by_hand(commands: list[object], expected: int) -> None:
    result = time_program(QUIET, program(commands))  # type: ignore[arg-type]
    assert result.channels[0].open_cycles == expected
    assert result.channels[1].open_cycles == 0


def test_rows_stay_open_while_the_other_channel_works() -> None:
    together = time_program(QUIET, program([ins("MAC16", count=1)] * 3, mask=3))
    assert [channel.open_cycles for channel in together.channels] == [together.cycles] * 2
    alone = time_program(QUIET, program([ins("MAC16", count=1)], [ins("SIGNAL", signal=9)] * 500))
    assert alone.channels[0].open_cycles == alone.cycles == 500


def test_random_programs() -> None:
    opened = 0
    for seed in range(400):
        made = random_program(seed)
        traced, counted = run(CHIP, made, trace=True), run(CHIP, made)
        assert counted.channels == traced.channels
        commands = [(e.cycle, e.channel, e.command, e.bank) for e in traced.trace]
        for number, channel in enumerate(traced.channels):
            end = traced.cycles - channel.refresh_charge
            assert channel.open_cycles == open_cycles(commands, number, 16, end), f"seed {seed}"
            opened += channel.open_cycles
            refreshing = channel.refreshes * CHIP.timing.nRFC + channel.refresh_charge
            assert channel.open_cycles + refreshing <= traced.cycles
        table = np.asarray(traced.streams[0].commands)
        assert (table == counted.streams[0].commands).all()
        for index, name in enumerate(DRAM_COMMANDS):
            assert table[:, index].sum() == sum(channel.commands[name] for channel in traced.channels), f"seed {seed}"
    assert opened > 100_000


def test_commands_are_counted_only_if_asked_for() -> None:
    made = program([ins("MAC16", count=3), ins("SIGNAL", signal=0), ins("RDMAC16", count=2)], mask=3)
    assert time_program(CHIP, made).streams[0].commands.size == 0
    spans = [Span(0, 0, 0, "mac"), Span(0, 1, 2, "out")]
    mac, out = run(CHIP, made).split(spans)
    assert {name: count for name, count in mac.commands.items() if count} == {"ACT16": 2, "MAC16": 6}
    assert {name: count for name, count in out.commands.items() if count} == {"TMOD": 2, "RDMAC16": 4}
    assert not any(time_program(CHIP, made).split(spans)[0].commands.values())


def test_bytes_over_the_link() -> None:
    out = [ins("XOUT", slot=0, blocks=3, bytes=128, stride=128), ins("XOUT", slot=0, blocks=0, bytes=64, stride=64)]
    result = time_program(CHIP, program([], [], [*out, ins("XOUT", slot=0, blocks=1, bytes=64, stride=64)]))
    assert [list(stream.bytes) for stream in result.streams] == [[], [384, 0, 64]]
    assert [span.link_bytes for span in result.split([Span(0, 0, 0, "none"), Span(1, 0, 2, "link")])] == [0, 448]
