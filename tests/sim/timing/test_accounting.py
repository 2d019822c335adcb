"""What cycles are charged to, signals between streams, channels that are shared, and refused programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.timing_programs import ins, program, random_program, stepwise_program, vector_pass
from wordline.errors import WordlineError
from wordline.isa.affine import affine
from wordline.isa.declare import Engine
from wordline.isa.instruction import Instr
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine
from wordline.sim.timing import CAUSES, Span, TimingModel, TimingResult, time_program

QUIET = load_machine("gddr6-aim-chip", {"refresh.enabled": False})
STRICT = load_machine("gddr6-aim-chip", {"refresh.pull_in": 0, "refresh.postpone": 0})


def causes(
    channel: Sequence[Instr], vector: Sequence[Instr] = (), link: Sequence[Instr] = (), machine: Machine = QUIET
) -> dict[str, int]:
    """Causes of channel 0 that are not zero."""
    result = time_program(machine, program(channel, vector, link))
    assert sum(result.channels[0].causes.values()) == result.cycles
    return {cause: cycles for cause, cycles in result.channels[0].causes.items() if cycles}


def instruction_causes(result: TimingResult) -> list[dict[str, int]]:
    return [{c: int(n) for c, n in zip(CAUSES, row, strict=True) if n} for row in result.streams[0].causes]


def test_row_turn_and_mac() -> None:
    # ACT16 and its wait 56; two MACs 3; PREA, ACT16 and their waits 12 + 32 + 55
    assert causes([ins("MAC16", count=2), ins("MAC16", row=1, count=1)]) == {"mac": 4, "row_turn": 56 + 99}


def test_a_visit_hides_the_activation() -> None:
    turn = [ins("MAC16", count=1), ins("PREA"), ins("ACT16", row=1)]
    fill = [*turn, ins("WRGB", count=4), ins("MAC16", row=1, count=1)]
    # MAC@56 PREA@68 ACT16@100 TMOD@101 WRGB@133..139 TMOD@140 MAC@172
    assert causes(fill) == {"mac": 2, "row_turn": 56 + 44, "fill": 71}
    readout = [*turn, ins("RDMAC16", count=4), ins("MAC16", row=1, count=1)]
    assert causes(readout) == {"mac": 2, "row_turn": 56 + 44, "readout": 71}


def test_a_mode_switch_serves_the_visit() -> None:
    explicit = time_program(QUIET, program([ins("TMOD", mode=1), ins("RDMAC16", count=1), ins("TMOD", mode=0)]))
    assert instruction_causes(explicit) == [{"readout": 1}, {"readout": 32 + 10}, {"readout": 1}]
    # entry for the read-out, exit for the fill that comes last
    mixed = causes([ins("RDMAC16", count=1), ins("WRGB", count=1), ins("MAC16", count=1)])
    # TMOD@0 RDMAC16@32 WRGB@37 TMOD@38 ACT16@70 MAC@126
    assert mixed == {"readout": 33, "fill": 5 + 32, "row_turn": 56, "mac": 1}
    empty = causes([ins("TMOD", mode=1), ins("TMOD", mode=0), ins("MAC16", count=1)])
    assert empty == {"fill": 64, "row_turn": 56, "mac": 1}


def test_refresh_includes_opening_the_row_again() -> None:
    result = time_program(STRICT, program([ins("LOOP", rd=2, body=1, count=26), ins("MAC16", count=64)]))
    channel = result.channels[0]
    assert channel.causes["refresh"] == 309 + channel.refresh_charge
    assert channel.causes["row_turn"] == 56
    assert channel.causes["mac"] == (3332 - 57) + (3692 - 3641)
    # another row after the refresh is a turn of its own
    switched = causes(
        [ins("MAC16", count=1), ins("WAIT", signal=9, value=1), ins("MAC16", row=1, count=1)],
        [vector_pass(65536), ins("SIGNAL", signal=9)],
        machine=STRICT,
    )
    # end 4156: PREA and REFab hide under the wait; debt 4156 / 3333 - 1 of 210 cycles = 51.9
    assert switched == {"mac": 2, "row_turn": 112, "vector": 4098 - 57, "issue": 1, "refresh": 52}


def test_prepaid_refresh_is_credited() -> None:
    # REFab@0, nRFC, 1 slot of the refused second one; ends at 267
    assert causes([ins("REF"), ins("REF"), ins("MAC16", count=1)], machine=load_machine("gddr6-aim-chip")) == {
        "refresh": 1 + 208 - 193,
        "issue": 1,
        "row_turn": 56,
        "mac": 1,
    }


def test_a_last_refresh_is_waited_for() -> None:
    result = time_program(load_machine("gddr6-aim-chip"), program([ins("REF")]))
    assert (result.channels[0].end, result.channels[0].refresh_charge) == (210, -197)


def test_waits_are_charged_to_who_gives_the_signal() -> None:
    vector = [vector_pass(160), ins("SIGNAL", signal=1)]
    link = [ins("XOUT", blocks=1, bytes=256, stride=0), ins("SIGNAL", signal=2)]
    # the pass ends at 11, the transfer lands at 4 + 360
    both = causes([ins("WAIT", signal=1, value=1), ins("WAIT", signal=2, value=1)], vector, link)
    assert both == {"vector": 12, "issue": 2, "link": 365 - 13}
    itself = causes([ins("RD", count=1), ins("SIGNAL", signal=3), ins("WAIT", signal=3, value=1)])
    # RD@36 lands at 98, the wait issues at 99
    assert itself == {"row_turn": 36, "column_access": 1, "issue": 2, "wait": 99 - 38}


def test_column_access_and_its_hazard() -> None:
    # RDCP@66, MAC 52 later; MAC16 then finds one bank open and opens all, nRC after
    assert causes([ins("RDCP", count=1), ins("MAC", count=1)]) == {"row_turn": 66, "column_access": 52, "mac": 1}


def test_empty_bursts_and_needless_row_commands_cost_their_slot() -> None:
    nothing = [
        ins("MAC16", count=0),
        ins("WRGB", count=-3),
        ins("PREA"),
        ins("PRE", bank=3),
        ins("TMOD", mode=0),
        ins("WAIT", signal=9, value=0),
        ins("LOOP", rd=2, body=1, count=0),
        ins("MAC16", count=1),
        ins("SIGNAL", signal=9),
    ]
    assert causes(nothing) == {"issue": 8}


def test_tail_and_idle_channels() -> None:
    result = time_program(QUIET, program([ins("MAC16", count=1)], [vector_pass(1600)], mask=1))
    assert result.cycles == 101
    assert result.channels[0].causes["tail"] == 101 - 57
    assert result.channels[1].causes == {cause: 101 * (cause == "tail") for cause in CAUSES}
    assert sum(result.causes.values()) == result.cycles
    assert result.nanoseconds == 50.5


def test_an_empty_program() -> None:
    assert time_program(QUIET, Program(program([]).isa, ())).cycles == 0
    assert time_program(QUIET, program([])).cycles == 0


def test_a_signal_counts_on_the_slowest_channel() -> None:
    # channel 1 runs 1 + 1 more bursts of MACs before its signal
    channel = [
        ins("LOOP", rd=2, body=1, count=affine(1, (1, 2))),
        ins("MAC16", count=64),
        ins("SIGNAL", signal=0),
    ]
    result = time_program(QUIET, program(channel, [ins("WAIT", signal=0, value=1)], mask=3))
    assert [c.end for c in result.channels] == [185 + 0, 185 + 256]
    assert result.streams[1].end == 184 + 256 + 2


def test_channels_are_shared_only_if_they_cannot_differ() -> None:
    card = load_machine("gddr6-aim-card")
    body = [ins("LDA", rd=3, index=0), ins("MAC16", row=affine(0, (3, 1)), count=64), ins("RDMAC16", count=1)]
    shared = time_program(card, program([*body, ins("SIGNAL", signal=0)], mask=0xFFFFFFFF), [5])
    model = TimingModel(card)
    slot = model.load(program([*body, ins("SIGNAL", signal=0)], mask=0xFFFFFFFF))
    alone = model.run(slot, 0, [5], share_channels=False)
    assert (shared.simulated_channels, alone.simulated_channels) == (1, 32)
    assert shared.channels == alone.channels
    assert (shared.streams[0].causes == alone.streams[0].causes).all()
    numbered = time_program(card, program([*body, ins("ADD", rd=4, a=affine(0, (1, 1)))], mask=0xFFFFFFFF))
    assert numbered.simulated_channels == 32


def alike(program_: Program, machine: Machine, memory: list[int]) -> TimingResult:
    """The program's timing with sharing, which must equal that without in everything that is counted."""
    model = TimingModel(machine)
    slot = model.load(program_)
    shared = model.run(slot, 0, memory, instruction_commands=True)
    alone = model.run(slot, 0, memory, share_channels=False, instruction_commands=True)
    assert alone.shared_segments == 0
    assert shared.channels == alone.channels
    assert shared.cycles == alone.cycles
    for one, other in zip(shared.streams, alone.streams, strict=True):
        assert one.end == other.end
        assert (one.causes == other.causes).all()
        assert (one.busy == other.busy).all()
        assert (one.commands == other.commands).all()
    return shared


def test_channels_in_step_share_what_lies_between_waits() -> None:
    """Only the first stretch depends on the channel's number; after the second wait all are in the same state."""
    card = load_machine("gddr6-aim-card")
    channel = [
        ins("LOOP", rd=2, body=1, count=affine(0, (1, 1))),
        ins("MAC16", row=1, count=8),
        ins("PREA"),
        ins("SIGNAL", signal=0),
        ins("WAIT", signal=1, value=1),
        ins("LDA", rd=3, index=0),
        ins("MAC16", row=affine(0, (3, 1)), count=64),
        ins("RDMAC16", count=4),
        ins("SIGNAL", signal=0),
    ]
    vector = [
        ins("WAIT", signal=0, value=1),
        vector_pass(100000),
        ins("SIGNAL", signal=1),
        ins("WAIT", signal=0, value=2),
    ]
    result = alike(program(channel, vector, mask=0xFFFFFFFF), card, [5])
    assert result.simulated_channels == 32
    assert result.shared_segments == 31


@pytest.mark.parametrize("make_program", [random_program, stepwise_program])
def test_sharing_changes_nothing(make_program: Callable[[int], Program]) -> None:
    machine = load_machine("gddr6-aim-chip")
    shared = 0
    for seed in range(300):
        whole = make_program(seed)
        streams = tuple(replace(s, channel_mask=3 if s.engine is Engine.CHANNEL else 0) for s in whole.streams)
        shared += alike(replace(whole, streams=streams), machine, [seed % 7] * 8).shared_segments
    assert shared > (50 if make_program is stepwise_program else 0)


def test_split_by_span() -> None:
    channel = [ins("MAC16", count=64), ins("RDMAC16", count=1), ins("SIGNAL", signal=0)]
    vector = [ins("WAIT", signal=0, value=1), vector_pass(320)]
    result = time_program(QUIET, program(channel, vector, mask=3))
    spans = [Span(0, 0, 0, "gemv"), Span(0, 1, 2, "out"), Span(1, 0, 1, "out")]
    gemv, out = result.split(spans)
    assert (gemv.label, gemv.causes["mac"], gemv.causes["row_turn"], gemv.vector_busy) == ("gemv", 127.0, 56.0, 0)
    assert (out.label, out.vector_busy, out.link_busy) == ("out", 22, 0)
    assert gemv.cycles + out.cycles + result.causes["tail"] == result.cycles


def test_stores_reach_later_loads_and_stay_in_the_model() -> None:
    store = [ins("STA", index=2, value=7), ins("SIGNAL", signal=9)]
    load = [ins("WAIT", signal=9, value=1), ins("LDA", rd=3, index=2), ins("MAC16", count=affine(0, (3, 1)))]
    memory = [0] * 8
    result = time_program(QUIET, program(load, store), memory, argument_base=4)
    assert result.channels[0].commands["MAC16"] == 7
    assert memory == [0] * 8


@pytest.mark.parametrize(
    ("instrs", "text"),
    [
        ([ins("MAC16", row=16384, count=1)], "row 16384 is outside 0..16383"),
        (
            [ins("SIGNAL", signal=4), ins("WAIT", signal=4, value=2)],
            "deadlock: every stream that has not ended waits; this one for signal 4 to reach 2",
        ),
    ],
)
def test_faults_name_the_place(instrs: list[Instr], text: str) -> None:
    with pytest.raises(WordlineError) as caught:
        time_program(QUIET, program([ins("PREA"), *instrs]))
    assert caught.value.code == "device-fault"
    assert text in str(caught.value)
    assert f"stream 0, channel 0, instruction {len(instrs)}" in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"rules.row_buffers": 2}, "the timing model implements rules.row_buffers = 1 only"),
        ({"rules.buffer_halves": 2}, "the timing model implements rules.buffer_halves = 1 only"),
        ({"vector_unit.latency_per": "group"}, "the timing model implements vector_unit.latency_per = pass only"),
        ({"timing.nREFI": 700}, "refresh cannot keep up: timing.nREFI is 700 cycles"),
    ],
)
def test_machines_that_are_refused(overrides: dict[str, int | str], text: str) -> None:
    with pytest.raises(WordlineError) as caught:
        TimingModel(load_machine("gddr6-aim-chip", overrides))
    assert caught.value.code == "bad-machine"
    assert text in str(caught.value)
