"""The critical path: its parts sum to the total, and it is one: its constants decide the time, the others do not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from functools import cache

import pytest

from tests.support.gemv_traces import gemv_trace
from tests.support.micro_traces import FOLDER
from tests.support.random_traces import random_trace
from tests.support.reference import reference_rows
from tests.support.timing_programs import ins, program, random_program, stepwise_program, vector_pass
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine
from wordline.machines.gddr6_aim import SECTIONS, Timing
from wordline.sim.critical_path import MEANINGS, RULES, CriticalPath, interval_text, terms
from wordline.sim.timing import TimingModel, TimingResult, time_program
from wordline.sim.traces import PROFILES, TraceModel, TraceTime

CARD = load_machine("gddr6-aim-card")
NO_REFRESH = {"refresh.enabled": False}
MICRO = sorted((FOLDER / "micro_traces").glob("*.trace"))
GEMV = reference_rows("gddr6-aim/gemv_cycles.csv")
FULL = [
    *((f"{name}/{p.name}", p) for name in ("random_traces", "random_traces2") for p in (FOLDER / name).glob("*.trace"))
]

INTERVALS = [
    *(f"timing.{f.name}" for f in fields(Timing) if f.name != "nREFI"),
    "scratch.landing_cycles",
    "aim_simulator.nRRDS",
    "aim_simulator.nRRDL",
]


@cache
def machine(name: str, overrides: tuple[tuple[str, object], ...] = ()) -> Machine:
    return load_machine(name, dict(overrides))  # type: ignore[arg-type]


def path_of(time: TraceTime | TimingResult) -> CriticalPath:
    path = time.critical_path
    assert path is not None
    return path


def check_sum(time: TraceTime | TimingResult) -> None:
    """The parts follow each other without a gap from cycle 0 to the end."""
    parts = path_of(time).parts
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])][: len(parts)]
    assert (parts[-1].end if parts else 0) == time.cycles
    assert sum(part.cycles for part in parts) == time.cycles == path_of(time).cycles
    assert all(part.cycles > 0 or part.rule == "refresh_charge" for part in parts)
    assert all(part.times > 0 for part in parts)


def check_traces(profile: str, text: bytes, using: Machine) -> TraceTime:
    model = TraceModel(using, profile)
    time = model.run(text, explain=True)
    plain = model.run(text)
    assert (time.cycles, time.commands, plain.critical_path) == (plain.cycles, plain.commands, None)
    check_sum(time)
    return time


def test_the_first_in_the_machine_file_is_named() -> None:
    """Ties: the native list of rules is in the order of the machine file, sums by their parts."""
    order = {path: i for i, path in enumerate(CARD.flat())}
    ranks = []
    for rule in RULES:
        if rule in MEANINGS:
            ranks.append([len(order)])
        elif terms(rule):
            ranks.append(sorted(order[path] for path in terms(rule)))
        else:
            ranks.append([min(i for path, i in order.items() if path == rule or path.startswith(f"{rule}."))])
    assert ranks == sorted(ranks)


def test_terms_are_the_formulas() -> None:
    flat = CARD.flat()
    for rule in RULES:
        if parts := terms(rule):
            assert max(0, sum(factor * int(flat[path]) for path, factor in parts.items())) == flat[rule]
    assert interval_text("timing.nRD2WR") == "nCL + nBL + nRTW + nWPRE - nCWL"
    assert interval_text("timing.nRP") == ""
    assert set(RULES) >= set(MEANINGS)
    assert set(SECTIONS["timing"].DERIVED) == {r.removeprefix("timing.") for r in RULES if len(terms(r)) > 1}


@pytest.mark.parametrize("profile", PROFILES)
def test_micro_traces(profile: str) -> None:
    for path in MICRO:
        check_traces(profile, path.read_bytes(), CARD)


@pytest.mark.parametrize("profile", PROFILES)
def test_random_traces_of_the_tables(profile: str) -> None:
    for _, path in FULL:
        check_traces(profile, path.read_bytes(), CARD)


@pytest.mark.parametrize("profile", PROFILES)
def test_gemv(profile: str) -> None:
    for row in GEMV:
        text = gemv_trace(int(row["out_rows"]), int(row["in_cols"]), int(row["channels"]), row["order"])
        time = check_traces(profile, text.encode(), CARD)
        assert {part.rule for part in path_of(time).parts} >= {"timing.nMODCH", "timing.nCCDS"}


MACHINES: tuple[tuple[tuple[str, object], ...], ...] = (
    (("aim_simulator.refresh", True), ("timing.nREFI", 1500)),
    (("timing.nREFI", 1300), ("aim_simulator.overtaking", False), ("scratch.landing_cycles", 0)),
    (("aim_simulator.refresh", True), ("timing.nREFI", 2000), ("rules.faw_enforced", True), ("refresh.postpone", 3)),
    (("timing.nREFI", 1700), ("aim_simulator.blocking_reads", False), ("rules.commands_during_refresh", True)),
)


@pytest.mark.parametrize("profile", PROFILES)
def test_random_traces(profile: str) -> None:
    for seed in range(240):
        using = machine("gddr6-aim-chip", (("organisation.channels", 4), *MACHINES[seed % 4]))
        check_traces(profile, random_trace(random.Random(seed), lines=60 if seed % 3 == 0 else 24).encode(), using)


@pytest.mark.parametrize("make", [random_program, stepwise_program])
def test_random_programs(make: Callable[[int], Program]) -> None:
    for seed in range(240):
        model = TimingModel(machine("gddr6-aim-chip", MACHINES[seed % 4]))
        slot = model.load(make(seed))
        time = model.run(slot, explain=True)
        plain = model.run(slot)
        assert (time.cycles, time.causes, time.channels) == (plain.cycles, plain.causes, plain.channels)
        check_sum(time)
        stepped = path_of(model.run(slot, explain=True, step_bursts=True)).parts
        assert stepped == path_of(time).parts


Runner = Callable[[tuple[tuple[str, object], ...]], TraceTime | TimingResult]


def check_constants(run: Runner) -> tuple[int, int]:
    """That the path holds whatever changes; how often a constant that is one lower saves all it could, of how many.

    The path is a chain of waits that stays one if an interval grows, so the run gets longer by n cycles at least if
    one that counts n times grows by one. If it shrinks by one, the run gets shorter by n cycles at most; not at all if
    it is not on the path, which then is as long as before.
    """
    before = run(())
    counts = path_of(before).constants(CARD)
    exact = tried = 0
    for path in INTERVALS:
        value, n = int(CARD.flat()[path]), counts.get(path, 0)
        assert run(((path, value + 1),)).cycles >= before.cycles + n, path
        if value > 1:
            shorter = run(((path, value - 1),)).cycles
            assert before.cycles - max(n, 0) <= shorter <= before.cycles - min(n, 0), path
            tried += n != 0
            exact += n != 0 and shorter == before.cycles - n
    return exact, tried


@pytest.mark.parametrize("profile", PROFILES)
def test_constants_of_micro_traces(profile: str) -> None:
    exact = tried = 0
    for path in MICRO:
        text = path.read_bytes()

        def run(change: tuple[tuple[str, object], ...], text: bytes = text) -> TraceTime:
            using = machine("gddr6-aim-card", (*NO_REFRESH.items(), *change))
            return TraceModel(using, profile).run(text, explain=True)

        these = check_constants(run)
        exact, tried = exact + these[0], tried + these[1]
    assert tried > 100
    assert exact > 0.7 * tried  # what is left has a second path as long: nCCDS and nCCDL, above all


@pytest.mark.parametrize("make", [random_program, stepwise_program])
def test_constants_of_random_programs(make: Callable[[int], Program]) -> None:
    for seed in range(25):
        image = make(1000 + seed).to_bytes()

        def run(change: tuple[tuple[str, object], ...], image: bytes = image) -> TimingResult:
            return time_program(machine("gddr6-aim-chip", (*NO_REFRESH.items(), *change)), image, explain=True)

        check_constants(run)


def test_hand_picked_constants() -> None:
    """Without a tie a constant that is one lower saves as many cycles as it counts."""
    text = (FOLDER / "micro_traces" / "micro_mac_abk_64_four_rows.trace").read_bytes()

    def run(**change: int) -> TraceTime:
        overrides = tuple((f"timing.{name}", value) for name, value in change.items())
        return TraceModel(machine("gddr6-aim-card", overrides), "aim-simulator").run(text, explain=True)

    time = run()
    counts = path_of(time).constants(CARD)
    assert counts == {"timing.nRCDRDMAC": 4, "timing.nRP": 3, "timing.nRTP": 3, "timing.nCCDS": 252}
    for name, saved in (("nRCDRDMAC", 4), ("nRP", 3), ("nRTP", 3)):
        assert run(**{name: int(CARD.flat()[f"timing.{name}"]) - 1}).cycles == time.cycles - saved
    assert run(nCCDS=1, nCCDL=1).cycles == time.cycles - 252  # the two are tied
    for name in ("nRAS", "nRC", "nRCDRD", "nMODCH", "nWTRL", "nCCDS", "nCCDL"):
        assert run(**{name: int(CARD.flat()[f"timing.{name}"]) - 1}).cycles == time.cycles


def parts(time: TraceTime | TimingResult) -> list[tuple[int, int, int, str, str, int]]:
    return [(p.begin, p.end, p.times, p.rule, p.command, p.instruction) for p in path_of(time).parts]


def micro(name: str, profile: str) -> list[tuple[int, int, int, str, str, int]]:
    text = (FOLDER / "micro_traces" / f"micro_{name}.trace").read_bytes()
    using = machine("gddr6-aim-card", tuple(NO_REFRESH.items()))
    return parts(TraceModel(using, profile).run(text, explain=True))


def test_a_row_turn_by_hand() -> None:
    assert micro("mac_abk_64_two_rows", "aim-simulator") == [
        (0, 56, 1, "timing.nRCDRDMAC", "MAC16", 1),
        (56, 182, 63, "timing.nCCDS", "MAC16", 1),
        (182, 194, 1, "timing.nRTP", "PREA", 2),
        (194, 226, 1, "timing.nRP", "ACT16", 2),
        (226, 282, 1, "timing.nRCDRDMAC", "MAC16", 2),
        (282, 408, 63, "timing.nCCDS", "MAC16", 2),
        (408, 409, 1, "completion", "MAC16", 2),  # counts as a write for a cycle
        (409, 410, 1, "completion", "barrier", 3),  # EOC
        (410, 411, 1, "call_back", "barrier", 3),
    ]
    assert micro("mac_abk_64_two_rows", "corrected") == [
        (0, 56, 1, "timing.nRCDRDMAC", "MAC16", 1),
        (56, 182, 63, "timing.nCCDS", "MAC16", 1),
        (182, 194, 1, "timing.nRTP", "PREA", 2),
        (194, 226, 1, "timing.nRP", "ACT16", 2),
        (226, 282, 1, "timing.nRCDRDMAC", "MAC16", 2),
        (282, 408, 63, "timing.nCCDS", "MAC16", 2),
        (408, 409, 1, "issue", "MAC16", 2),
    ]


def test_register_visits_by_hand() -> None:
    head = [
        (0, 32, 1, "timing.nMODCH", "WRMAC16", 1),
        (32, 33, 1, "issue", "WRMAC16", 1),
        (33, 65, 1, "timing.nMODCH", "ACT16", 2),
        (65, 121, 1, "timing.nRCDRDMAC", "MAC16", 2),
        (121, 247, 63, "timing.nCCDS", "MAC16", 2),
    ]
    assert micro("wr_bias_mac_rd_mac", "aim-simulator") == [
        *head,
        (247, 249, 1, "timing.nCCDS", "TMOD", 3),
        (249, 281, 1, "timing.nMODCH", "RDMAC16", 3),
        (281, 283, 1, "timing.nRDMAC_latency", "RDMAC16", 3),
        (283, 284, 1, "call_back", "RDMAC16", 3),
        (284, 285, 1, "completion", "barrier", 4),
        (285, 286, 1, "call_back", "barrier", 4),
    ]
    head[1] = (32, 33, 1, "timing.nCMD2TMOD", "TMOD", 2)
    assert micro("wr_bias_mac_rd_mac", "corrected") == [
        *head,
        (247, 249, 1, "timing.nMAC2TMOD", "TMOD", 3),
        (249, 281, 1, "timing.nMODCH", "RDMAC16", 3),
        (281, 283, 1, "timing.nRDMAC_latency", "RDMAC16", 3),
        (283, 293, 1, "scratch.landing_cycles", "RDMAC16", 3),
    ]


def test_a_full_queue_and_decoding_by_hand() -> None:
    text = b"W GPR 0\nW GPR 1\nAiM MAC_ABK 100 0x1 0\nAiM SYNC\nAiM EOC\n"
    time = TraceModel(CARD, "aim-simulator").run(text, explain=True)
    assert parts(time) == [
        (0, 1, 1, "decode", "decode", 1),
        (1, 2, 1, "decode", "decode", 2),
        (2, 58, 1, "timing.nRCDRDMAC", "MAC16", 3),
        (58, 256, 99, "timing.nCCDS", "MAC16", 3),
        (256, 257, 1, "completion", "MAC16", 3),
        (257, 258, 1, "completion", "barrier", 4),
        (258, 259, 1, "call_back", "barrier", 4),
        (259, 260, 1, "completion", "barrier", 5),
        (260, 261, 1, "call_back", "barrier", 5),
    ]
    # A queue takes 33 requests: the line after 40 columns is decoded two cycles after the seventh has issued.
    text = b"AiM MAC_ABK 40 0x1 0\nW GPR 0\nAiM MAC_SBK 1 0x2 0 0\nAiM EOC\n"
    using = machine("gddr6-aim-card", (("timing.nRCDRDMAC", 150),))
    time = TraceModel(using, "aim-simulator").run(text, explain=True)
    assert parts(time)[:6] == [
        (0, 150, 1, "timing.nRCDRDMAC", "MAC16", 1),
        (150, 162, 6, "timing.nCCDS", "MAC16", 1),
        (162, 164, 1, "aim_simulator.queue_requests", "decode", 2),
        (164, 165, 1, "decode", "decode", 2),
        (165, 315, 1, "timing.nRCDRDMAC", "MAC", 3),
        (315, 316, 1, "completion", "MAC", 3),
    ]


def test_a_program_of_three_streams_by_hand() -> None:
    made = program(
        [
            ins("MAC16", row=0, count=2),
            ins("RDMAC16", count=1),
            ins("SIGNAL", signal=0),
            ins("WAIT", signal=8, value=1),
        ],
        [ins("WAIT", signal=0, value=1), vector_pass(64, 2, [("exp", 0, 0, 0)], 12), ins("SIGNAL", signal=8)],
        [ins("WAIT", signal=8, value=1), ins("XOUT", slot=0, blocks=1, bytes=128, stride=64)],
    )
    time = time_program(machine("gddr6-aim-chip", tuple(NO_REFRESH.items())), made, explain=True)
    found = path_of(time)
    lanes = [(found.lanes[p.lane].name, *q) for p, q in zip(found.parts, parts(time), strict=True)]
    assert lanes == [
        ("channel 0", 0, 56, 1, "timing.nRCDRDMAC", "MAC16", 0),
        ("channel 0", 56, 58, 1, "timing.nCCDS", "MAC16", 0),
        ("channel 0", 58, 60, 1, "timing.nMAC2TMOD", "TMOD", 1),
        ("channel 0", 60, 92, 1, "timing.nMODCH", "RDMAC16", 1),
        ("channel 0", 92, 94, 1, "timing.nRDMAC_latency", "RDMAC16", 1),
        ("channel 0", 94, 104, 1, "scratch.landing_cycles", "RDMAC16", 1),
        ("vector unit", 104, 105, 1, "signal", "slot", 0),
        ("vector unit", 105, 106, 1, "issue", "slot", 0),
        ("vector unit", 106, 114, 1, "vector_unit.lanes", "pass", 1),  # 2 operands of 4 x 16 elements
        ("vector unit", 114, 125, 1, "vector_unit.latency", "pass", 1),
        ("vector unit", 125, 126, 1, "vector_unit.pass_overhead", "pass", 1),
        ("link", 126, 127, 1, "signal", "slot", 0),
        ("link", 127, 128, 1, "issue", "slot", 0),
        ("link", 128, 130, 1, "link.gb_per_s_per_lane", "transfer", 1),  # 128 bytes at 128 GB/s: 1 ns
        ("link", 130, 490, 1, "link.latency_ns", "landing", 1),
    ]
    assert time.cycles == 490


def test_a_refresh_under_a_wait_leaves_what_was_waited_for() -> None:
    """A refresh that fell due while the channel waited for the vector unit: what that did until then is on the path."""
    using = machine("gddr6-aim-chip", (("refresh.postpone", 0), ("refresh.pull_in", 0)))
    n = 16 * (CARD.timing.nREFI + 40)  # the pass ends in the refresh
    made = program(
        [ins("WAIT", signal=8, value=1), ins("MAC16", row=0, count=1)],
        [vector_pass(n, 1), ins("SIGNAL", signal=8)],
    )
    time = time_program(using, made, explain=True)
    check_sum(time)
    due, refresh = CARD.timing.nREFI, CARD.timing.nRFC
    assert parts(time)[:3] == [
        (0, due, 1, "vector_unit.lanes", "pass", 0),
        (due, due + refresh, 1, "timing.nRFC", "ACT16", 1),
        (due + refresh, due + refresh + 56, 1, "timing.nRCDRDMAC", "MAC16", 1),
    ]
    assert parts(time)[-1][3] == "refresh_charge"


def test_activation_windows_count_from_the_all_bank_activation() -> None:
    using = machine("gddr6-aim-chip", (*NO_REFRESH.items(), ("rules.faw_enforced", True), ("timing.nRC", 60)))
    made = program([ins("ACT16", row=0), ins("PREA"), ins("ACT", bank=0, row=1)])
    time = time_program(using, made, explain=True)
    assert parts(time)[0] == (0, 168, 4, "timing.nFAW", "ACT", 2)
    assert time.cycles == 169


def test_nothing_is_a_path_of_no_part() -> None:
    time = TraceModel(CARD, "corrected").run(b"AiM EOC\n", explain=True)
    assert (time.cycles, path_of(time).parts, path_of(time).constants(CARD)) == (0, (), {})
