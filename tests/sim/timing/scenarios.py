"""Small programs with schedules computed by hand from the rules: each rule of docs/timing.md binds in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.support.timing_programs import ins, program, vector_pass
from wordline.isa.instruction import Instr
from wordline.isa.program import Program
from wordline.machines import Machine, load_machine
from wordline.sim.timing import TimingResult, time_program

NO_REFRESH: Mapping[str, str | int | float | bool] = {"refresh.enabled": False}


@dataclass(frozen=True)
class Scenario:
    """``schedule``: "cycle COMMAND" of channel 0, bursts "first..last COMMAND"; ``cycles``: total, where pinned."""

    program: Program
    schedule: str
    cycles: int | None = None
    overrides: Mapping[str, str | int | float | bool] = field(default_factory=lambda: NO_REFRESH)


def machine_for(scenario: Scenario, extra: Mapping[str, str | int | float | bool] | None = None) -> Machine:
    return load_machine("gddr6-aim-chip", {**scenario.overrides, **(extra or {})})


def measure(scenario: Scenario, extra: Mapping[str, str | int | float | bool] | None = None) -> TimingResult:
    return time_program(machine_for(scenario, extra), scenario.program, trace=True)


def schedule(result: TimingResult) -> str:
    """The commands of channel 0 as in :class:`Scenario`: equal commands at one pitch of 2 are folded."""
    runs: list[tuple[int, int, str]] = []
    for entry in result.trace:
        if entry.channel:
            continue
        if runs and runs[-1][2] == entry.command and entry.cycle == runs[-1][1] + 2:
            runs[-1] = (runs[-1][0], entry.cycle, entry.command)
        else:
            runs.append((entry.cycle, entry.cycle, entry.command))
    return "  ".join(f"{a} {name}" if a == b else f"{a}..{b} {name}" for a, b, name in runs)


def _mac(row: int, count: int = 1) -> Instr:
    return ins("MAC16", row=row, count=count)


def _visit(n: int) -> Scenario:
    """Rule 1: the row turn is shared with a visit of n buffer writes; the MAC follows 108 + 2n after the last MAC."""
    instrs = [_mac(0), ins("PREA"), ins("ACT16", row=1), ins("WRGB", count=n), _mac(1)]
    fill = "133" if n == 1 else f"133..{133 + 2 * (n - 1)}"
    leave = 133 + 2 * (n - 1) + 1
    return Scenario(
        program(instrs),
        f"0 ACT16  56 MAC16  68 PREA  100 ACT16  101 TMOD  {fill} WRGB  {leave} TMOD  {56 + 108 + 2 * n} MAC16",
    )


SCENARIOS: dict[str, Scenario] = {
    "row turn": Scenario(
        program([_mac(0, 2), _mac(1)]), "0 ACT16  56..58 MAC16  70 PREA  102 ACT16  158 MAC16", cycles=159
    ),
    "row switches of 226 cycles": Scenario(
        program([_mac(row, 64) for row in range(4)]),
        "0 ACT16  56..182 MAC16  194 PREA  226 ACT16  282..408 MAC16  420 PREA  452 ACT16  508..634 MAC16  "
        "646 PREA  678 ACT16  734..860 MAC16",
        cycles=861,
    ),
    "bare row cycle": Scenario(
        program([ins("ACT16", row=0), ins("PREA"), ins("ACT16", row=1)]), "0 ACT16  54 PREA  89 ACT16", cycles=90
    ),
    "precharge after precharge": Scenario(
        program([ins("ACT", bank=0), ins("ACT", bank=1), ins("PRE", bank=0), ins("PREA")]),
        "0 ACT  11 ACT  54 PRE  86 PREA",
    ),
    "activates of single banks": Scenario(
        program(
            [ins("ACT", bank=0), ins("ACT", bank=1), ins("ACT", bank=4), ins("ACT", bank=0, row=1), ins("ACT16", row=1)]
        ),
        # 22 ACT of another group; bank 0 turns: PRE after nRAS, ACT after nRC; ACT16: PREA after nRAS, then nRC
        "0 ACT  11 ACT  22 ACT  54 PRE  89 ACT  143 PREA  178 ACT16",
    ),
    "first use after ACT": Scenario(
        program([ins(n, bank=b, count=1) for b, n in [(0, "MAC"), (4, "RD"), (8, "RDCP"), (12, "WRCP"), (5, "WR")]]),
        # WR: RD -> WR was 50 earlier; WRCP: RDCP -> WRCP 52 ends at 212
        "0 ACT  56 MAC  57 ACT  93 RD  94 ACT  160 RDCP  161 ACT  212 WRCP  213 ACT  241 WR",
    ),
    "copy into a bank alone": Scenario(program([ins("WRCP", bank=3, count=2)]), "0 ACT  48..50 WRCP"),
    "reads of two groups": Scenario(
        program(
            [ins("ACT", bank=0), ins("ACT", bank=4), ins("ACT", bank=1)]
            + [ins("RD", bank=bank, count=count) for bank, count in [(1, 2), (4, 1), (0, 1)]]
        ),
        "0 ACT  11 ACT  22 ACT  58..64 RD",
    ),
    "write to read and write recovery": Scenario(
        program(
            [
                ins("ACT", bank=4),
                ins("ACT", bank=0),
                ins("WR", bank=0, count=1),
                ins("RD", bank=4, count=1),
                ins("RD", bank=0, count=1),
                ins("PRE", bank=0),
            ]
        ),
        # RD of the other group 17 after WR, of the same group 19; PRE 41 after WR
        "0 ACT  11 ACT  39 WR  56..58 RD  80 PRE",
    ),
    "read to write": Scenario(
        program([ins("RD", bank=0, count=1), ins("WR", bank=0, count=1), ins("WRE", bank=0)]),
        "0 ACT  36 RD  86..88 WR",
    ),
    "data hazards of the bank units": Scenario(
        program(
            [
                _mac(0),
                ins("WR", bank=3, count=1),
                _mac(0),
                ins("RDCP", bank=3, count=1),
                _mac(0),
                ins("WRCP", bank=3, count=1),
                _mac(0),
                ins("WR", bank=3, count=1),
                ins("RDCP", bank=3, count=1),
            ]
        ),
        # 19 after WR, WRCP; 52 after RDCP
        "0 ACT16  56 MAC16  57 WR  76 MAC16  78 RDCP  130 MAC16  131 WRCP  150 MAC16  151 WR  170 RDCP",
    ),
    "register visit": Scenario(
        program(
            [
                ins("WRGB", count=2),
                ins("RDMAC16", count=1),
                ins("WRMAC16", count=2),
                ins("RDMAC16", count=2),
                ins("WRGB", count=1),
                _mac(0),
                ins("WRGB", count=1),
            ]
        ),
        # write -> read 12 (buffer), 14 (accumulators); read -> write 5; TMOD 1 after a register command, 2 after MAC16
        "0 TMOD  32..34 WRGB  46 RDMAC16  51..53 WRMAC16  67..69 RDMAC16  74 WRGB  75 TMOD  107 ACT16  163 MAC16  "
        "165 TMOD  197 WRGB",
    ),
    "explicit mode switches": Scenario(
        program([ins("TMOD", mode=1), ins("TMOD", mode=1), ins("TMOD", mode=0), ins("TMOD", mode=0), _mac(0)]),
        "0 TMOD  32 TMOD  64 ACT16  120 MAC16",
    ),
    "read, then buffer write": Scenario(
        program([ins("RD", bank=0, count=1), ins("WRGB", count=1)]), "0 ACT  36 RD  37 TMOD  91 WRGB"
    ),
    "read, then accumulator write": Scenario(
        program([ins("RD", bank=0, count=1), ins("WRMAC16", count=1)]), "0 ACT  36 RD  37 TMOD  91 WRMAC16"
    ),
    "visit of 1": _visit(1),
    "visit of 8": _visit(8),
    "visit of 64": _visit(64),
    "refresh, strict": Scenario(
        program([ins("LOOP", rd=2, body=1, count=64), _mac(0, 64)]),
        # the last MAC before cycle 3333, then nRTP, nRP, nRFC, nRCD: a bubble of 310
        "1 ACT16  57..3331 MAC16  3343 PREA  3375 REFab  3585 ACT16  3641..6665 MAC16  6677 PREA  6709 REFab  "
        "6919 ACT16  6975..8863 MAC16",
        # debt left: 8864 / 3333 - 2 intervals of 210 cycles = 138.5
        cycles=8864 + 138,
        overrides={"refresh.pull_in": 0, "refresh.postpone": 0},
    ),
    "refresh, postponed once": Scenario(
        program([ins("LOOP", rd=2, body=1, count=60), _mac(0, 64)]),
        "1 ACT16  57..6665 MAC16  6677 PREA  6709 REFab  6919 ACT16  6975..8043 MAC16",
        # debt left: 8044 / 3333 - 1 intervals of 210 cycles = 296.8
        cycles=8044 + 297,
        overrides={},
    ),
    "refresh in register mode": Scenario(
        program([ins("LOOP", rd=2, body=1, count=26), ins("WRGB", count=64)]),
        "1 TMOD  33..3331 WRGB  3333 TMOD  3365 REFab  3575 TMOD  3607..3633 WRGB",
        overrides={"refresh.pull_in": 0, "refresh.postpone": 0},
    ),
    "refresh hidden under a wait": Scenario(
        program([_mac(0), ins("WAIT", signal=9, value=1), _mac(0)], [vector_pass(65536), ins("SIGNAL", signal=9)]),
        # the pass takes 4096 + 1; the signal is seen in 4098; PREA, REFab at the due time
        "0 ACT16  56 MAC16  3333 PREA  3365 REFab  4099 ACT16  4155 MAC16",
        overrides={"refresh.pull_in": 0, "refresh.postpone": 0},
    ),
    "refresh by the program": Scenario(
        program([ins("REF"), ins("REF"), _mac(0)]),
        # the second one exceeds pull_in and does nothing; 267 = end; credit (1 - 267 / 3333) * 210 = 193.2
        "0 REFab  210 ACT16  266 MAC16",
        cycles=267 - 193,
        overrides={},
    ),
    "refresh late, by the program": Scenario(
        program(
            [ins("REF", when=1), ins("WAIT", signal=9, value=1), ins("REF", when=1), ins("REF", when=1), _mac(0)],
            [vector_pass(65536), ins("SIGNAL", signal=9)],
        ),
        # nothing is owed at first; one is after nREFI; then 4366 / 3333 - 1 of a refresh is, 65.1 cycles
        "4099 REFab  4309 ACT16  4365 MAC16",
        cycles=4366 + 65,
        overrides={},
    ),
    "refresh after a bare activation": Scenario(
        program([ins("ACT16", row=0), ins("REF")]),
        # PREA after nRAS; nRP after that would be 86, nRC after the activation is 89; nRFC is waited for and credited
        "0 ACT16  54 PREA  89 REFab",
        cycles=89 + 210 - 191,
        overrides={},
    ),
    "activation power limit": Scenario(
        program([ins("ACT16", row=0), ins("PREA"), ins("ACT16", row=1)]),
        "0 ACT16  54 PREA  168 ACT16",
        overrides={**NO_REFRESH, "rules.faw_enforced": True},
    ),
    "rows turned in register mode": Scenario(
        program([_mac(0), ins("WRGB", count=1), ins("PREA"), ins("ACT16", row=1), _mac(1)]),
        "0 ACT16  56 MAC16  58 TMOD  90 WRGB  91 PREA  123 ACT16  124 TMOD  179 MAC16",
        overrides={**NO_REFRESH, "rules.row_commands_in_register_mode": True},
    ),
    "register commands during refresh": Scenario(
        program([ins("REF"), ins("WRGB", count=1), _mac(0)]),
        "0 REFab  1 TMOD  33 WRGB  34 TMOD  210 ACT16  266 MAC16",
        overrides={"rules.commands_during_refresh": True},
    ),
    "accumulators land and signal": Scenario(
        program([ins("RDMAC16", count=1), ins("SIGNAL", signal=0)], [ins("WAIT", signal=0, value=1), vector_pass(16)]),
        # read at 32, landed 2 + 10 later, seen in 45; the pass: 1 column + 1
        "0 TMOD  32 RDMAC16",
        cycles=48,
    ),
    "columns land and signal": Scenario(
        program(
            [ins("RD", bank=0, count=3), ins("SIGNAL", signal=0)], [ins("WAIT", signal=0, value=1), vector_pass(16)]
        ),
        # last read at 40, landed 52 + 10 later, seen in 103
        "0 ACT  36..40 RD",
        cycles=106,
    ),
    "vector pass": Scenario(
        # 2 operands of ceil(100 / 16) = 7 columns; chain mul, exp: 1 + 11; 1 to end
        program([], [vector_pass(100, 2, [("mul", 0, 1, 0), ("exp", 12, 0, 0), ("add", 0, 0, 0)], 13)]),
        "",
        cycles=27,
    ),
    "vector pass of every function": Scenario(
        program(
            [],
            [
                vector_pass(16, 1, [(name, 0, 0, 0)], 12)
                for name in ("exp", "recip", "rsqrt", "sigmoid", "tanh", "sin", "cos", "max")
            ],
        ),
        "",
        cycles=8 * 2 + 11 + 6 * 16 + 1,
    ),
    "link transfer": Scenario(
        # 1280 bytes at 128 GB/s are 10 ns; 180 ns later they land
        program([], [], [ins("XOUT", blocks=20, bytes=64, stride=64), ins("XOUT", blocks=20, bytes=64, stride=64)]),
        "",
        cycles=40 + 360,
    ),
}
