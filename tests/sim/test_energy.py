"""The ledger of energy: by hand, what has to add up, what has to scale, and that every constant counts."""

from __future__ import annotations

import math
import random
from dataclasses import fields
from pathlib import Path

import pytest

from tests.support.random_traces import random_trace
from tests.support.timing_programs import ins, program, random_program, vector_pass
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine
from wordline.machines.schema import Energy
from wordline.sim import energy as ledger_module
from wordline.sim.energy import COMPONENTS, KINDS, STANDBY, EnergyModel, Ledger, activity_of, activity_of_trace
from wordline.sim.energy import split_activity as split
from wordline.sim.timing import DRAM_COMMANDS, Span, TimingModel, TimingResult
from wordline.sim.traces import TraceModel

CHIP = load_machine("gddr6-aim-chip")
QUIET = load_machine("gddr6-aim-chip", {"refresh.enabled": False})
TILE = [
    ins("WRGB", count=64),
    ins("WRMAC16", accumulator=0, count=1),
    ins("MAC16", count=64),
    ins("RDMAC16", accumulator=0, count=1),
]


def run(machine: Machine, made: Program) -> TimingResult:
    model = TimingModel(machine)
    return model.run(model.load(made), instruction_commands=True)


def ledger_of(machine: Machine, made: Program) -> Ledger:
    return EnergyModel(machine).ledger(activity_of(run(machine, made), machine))


def trace_ledger(machine: Machine, text: str, profile: str = "corrected") -> Ledger:
    time = TraceModel(machine, profile).run(text.encode())
    return EnergyModel(machine).ledger(activity_of_trace(time, machine))


def test_two_macs_by_hand() -> None:
    """ACT16@0, MAC16@56 and 58, PREA@70: 71 cycles of 0.5 ns, 70 of them with a row open; the other channel idles."""
    found = ledger_of(QUIET, program([ins("MAC16", count=2), ins("PREA")]))
    controller = 95.26113155
    assert found.kinds == pytest.approx(
        {
            "ACT16": 16 * 2950.35 + controller,
            "PREA": controller,
            "MAC16": 2 * (1314.45 + 0.1392505026 + controller + 66.9270514),
            "standby, rows open": 35.0 * 263.75,
            "standby, rows closed": (71.0 - 35.0) * 183.15,
            "static": 35.5 * (2 * 0.06702101898 + 22.5),
        }
    )
    assert found.components == pytest.approx(
        {
            "banks": 16 * 2950.35 + 2 * (1314.45 + 0.1392505026),
            "controller": 4 * controller + 2 * 66.9270514,
            "standby": 35.0 * 263.75 + 36.0 * 183.15 + 35.5 * (2 * 0.06702101898 + 22.5),
        }
    )


def test_the_published_event_energies() -> None:
    """What the facts of the calculator imply, to the digits that are usually quoted."""
    parts = {name: parts["banks"] for name, parts in EnergyModel(CHIP).commands.items() if "banks" in parts}
    assert parts["ACT16"] == pytest.approx(47.2e3, rel=1e-3)
    assert parts["RD"] == pytest.approx(548, rel=1e-3)
    assert parts["WR"] == pytest.approx(691, rel=1e-3)
    assert parts["MAC16"] == pytest.approx(16 * parts["MAC"], rel=2e-3)
    assert parts["MAC16"] == pytest.approx(1310, rel=4e-3)
    assert parts["EWMUL16"] == pytest.approx(parts["MAC16"] / 4, rel=1e-3)
    assert parts["AF16"] == pytest.approx(16 * parts["RD"])
    for name in ("RD", "WR", "WRGB", "WRMAC16", "RDMAC16", "RDAF16", "WRA16"):
        assert EnergyModel(CHIP).commands[name]["I/O"] == 256 * 5.5


def test_every_command_and_every_constant_is_charged() -> None:
    assert set(EnergyModel(CHIP).commands) == set(DRAM_COMMANDS)
    for entry in fields(Energy):
        assert ledger_module.uses_of(entry.name), entry.name


def everything(machine: Machine) -> float:
    """The energy of a program and of traces that between them do everything."""
    channel = [*TILE, *(ins(name, bank=1, row=3, column=0, count=2) for name in ("RD", "WR", "RDCP", "WRCP", "MAC"))]
    refreshed = [ins("WAIT", signal=9, value=1), ins("REF")]
    vector = [vector_pass(16000), ins("SIGNAL", signal=9)]
    link = [ins("XOUT", slot=0, blocks=3, bytes=128, stride=128)]
    total = ledger_of(machine, program([*channel, *refreshed], vector, link, mask=3)).total
    trace = "\n".join(["AiM EWMUL 3 0x1 0", "AiM AF 0x1", "AiM RD_AF 0 0x1", "AiM WR_ABK 0 0x1 5", "AiM EOC", ""])
    return total + trace_ledger(machine, trace).total


@pytest.mark.parametrize("name", [entry.name for entry in fields(Energy)])
def test_each_constant_changes_the_total_in_proportion(name: str) -> None:
    value = getattr(CHIP.energy, name)
    larger = [load_machine("gddr6-aim-chip", {f"energy.{name}": value + extra}) for extra in (1.0, 2.0)]
    base, once, twice = (everything(machine) for machine in (CHIP, *larger))
    assert once > base * (1 + 1e-9)
    assert twice - base == pytest.approx(2 * (once - base), rel=1e-6)


def test_each_command_counts() -> None:
    """Without its energies a command costs nothing: no command shares an entry with another."""
    model = EnergyModel(CHIP)
    for name in DRAM_COMMANDS:
        made = {other: int(other == name) for other in DRAM_COMMANDS}
        activity = ledger_module.Activity(made, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)
        assert model.ledger(activity).kinds == {name: pytest.approx(sum(model.commands[name].values()))}


def test_parts_add_up_to_the_whole() -> None:
    for seed in range(120):
        made = random_program(seed)
        result = run(CHIP, made)
        spans = [
            Span(number, at, min(at + 1, len(stream.instrs) - 1), f"part {at % 3}")
            for number, stream in enumerate(made.streams)
            for at in range(0, len(stream.instrs), 2)
            if at % 7  # some belong to no part
        ]
        model = EnergyModel(load_machine("gddr6-aim-chip", {"energy.refresh_rows": 2.0}))
        activity = activity_of(result, CHIP)
        parts, rest = split(activity, result.split(spans))
        whole = model.ledger(activity)
        ledgers = [model.ledger(part) for part in (*parts.values(), rest)]
        assert sum(ledger.total for ledger in ledgers) == pytest.approx(whole.total, rel=1e-9), f"seed {seed}"
        for names, attribute in ((KINDS, "kinds"), (COMPONENTS, "components")):
            table = getattr(whole, attribute)
            assert sum(table.values()) == pytest.approx(whole.total, rel=1e-9)
            for name in names:
                together = math.fsum(getattr(ledger, attribute).get(name, 0.0) for ledger in ledgers)
                assert together == pytest.approx(table.get(name, 0.0), rel=1e-9, abs=1e-3), f"seed {seed}, {name}"
        assert all(count >= 0 for count in rest.commands.values())


def test_the_background_covers_all_channels_all_the_time() -> None:
    for seed in range(120):
        result = run(CHIP, random_program(seed))
        activity = activity_of(result, CHIP)
        states = (activity.open_cycles, activity.closed_cycles, activity.refresh_cycles)
        assert sum(states) == 2 * result.cycles
        assert activity.open_cycles >= 0
        assert activity.closed_cycles >= 0


@pytest.mark.parametrize("profile", ["aim-simulator", "corrected"])
def test_the_background_of_traces(profile: str) -> None:
    machine = load_machine("gddr6-aim-card", {"organisation.channels": 4, "aim_simulator.refresh": True})
    for seed in range(150):
        time = TraceModel(machine, profile).run(random_trace(random.Random(seed)).encode())
        activity = activity_of_trace(time, machine)
        assert activity.open_cycles + activity.closed_cycles + activity.refresh_cycles == 4 * time.cycles
        assert min(activity.open_cycles, activity.closed_cycles) >= 0, f"seed {seed}"


@pytest.mark.parametrize("tokens", [2, 5])
def test_dynamic_energy_scales_with_the_work(tokens: int) -> None:
    def dynamic(count: int) -> float:
        found = ledger_of(QUIET, program([ins("LOOP", rd=2, body=5, count=count), *TILE, ins("PREA")], mask=3))
        return found.total - found.components[STANDBY]

    assert dynamic(tokens) == pytest.approx(tokens * dynamic(1), rel=1e-12)


def test_energy_scales_with_the_channels_that_work() -> None:
    one, two = (ledger_of(QUIET, program(TILE, mask=mask)) for mask in (1, 3))
    assert two.kinds["MAC16"] == pytest.approx(2 * one.kinds["MAC16"])
    assert two.kinds["standby, rows open"] == pytest.approx(2 * one.kinds["standby, rows open"])
    assert two.kinds["static"] == pytest.approx(one.kinds["static"])


def test_refresh_is_charged_if_a_machine_says_so() -> None:
    """Some ten intervals of nREFI; what is due at the end is charged too, so that refreshes are counted pro rata."""
    machine = load_machine("gddr6-aim-chip", {"energy.refresh_rows": 1.0})
    made = program([ins("LOOP", rd=2, body=1, count=250), ins("MAC16", count=64)])
    result = run(machine, made)
    found = EnergyModel(machine).ledger(activity_of(result, machine))
    refreshes = result.channels[0].end / machine.timing.nREFI
    assert refreshes > 9
    assert found.kinds["refresh"] == pytest.approx(refreshes * 16 * 2950.35, rel=1e-3)
    assert "refresh" not in ledger_of(CHIP, made).kinds
    assert not any("refresh_rows" in what for what in EnergyModel(machine).not_accounted)
    assert EnergyModel(CHIP).not_accounted[0].startswith("energy.refresh_rows: no public figure")


def test_totals_are_in_joules_and_watts() -> None:
    model = EnergyModel(QUIET)
    result = run(QUIET, program(TILE))
    found = model.ledger(activity_of(result, QUIET))
    totals = model.totals(found, result.nanoseconds)
    assert totals.joules == pytest.approx(found.total * 1e-12)
    assert totals.watts == pytest.approx(totals.joules / (result.nanoseconds * 1e-9))
    assert sum(totals.kinds_j.values()) == pytest.approx(totals.joules)
    assert sum(totals.components_j.values()) == pytest.approx(totals.joules)


def test_the_worked_example_of_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs" / "energy.md").read_text()
    machine = load_machine("gddr6-aim-card", {"organisation.channels": 1})
    trace = "AiM WR_BIAS 0 0x1\nAiM MAC_ABK 64 0x1 0\nAiM RD_MAC 0 0x1\nAiM EOC\n"
    found = trace_ledger(machine, trace, "aim-simulator")
    for name, pj in {**found.kinds, "together": found.total}.items():
        assert f"| {name} | " in page, name
        assert f" | {pj / 1e3:,.3f} |" in page, name
