"""What a schedule has to obey, as data: the intervals between commands, and in words what the state machine checks.

Every interval is a sum of constants of the machine file, by the names they have there: a bare name is a field of the
section ``timing``. Each row was written from the rules in docs/timing.md and their public sources.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.checker.commands import ALL_BANKS, COMMANDS, ONE_BANK, REGISTERS

CORRECTED, AIM_SIMULATOR = "corrected", "aim-simulator"
PROFILES = (CORRECTED, AIM_SIMULATOR)


class Scope(StrEnum):
    """Which earlier commands count."""

    BANK = "same bank"
    """Those that touch a bank that the later one touches; a command for all banks touches each."""
    GROUP = "same bank group"
    """Those that touch a bank group that the later one touches."""
    CHANNEL = "channel"


@dataclass(frozen=True)
class Interval:
    """A later command issues at least ``cycles`` after any earlier one that counts.

    ``when`` is a switch of the machine file and the value with which the row holds; none: always.
    """

    earlier: tuple[str, ...]
    later: tuple[str, ...]
    scope: Scope
    cycles: str
    when: tuple[str, bool] | None = None

    @property
    def name(self) -> str:
        """What reports call it: its sum of constants."""
        return "one-command-a-cycle" if self.cycles == "1" else self.cycles

    def __str__(self) -> str:
        if self.cycles == "1":
            return "a channel issues one command a cycle"
        return f"{', '.join(self.earlier)} -> {', '.join(self.later)} ({self.scope}): {self.cycles}"

    def holds(self, machine: Machine) -> bool:
        """Whether the machine's switches ask for it."""
        return self.when is None or bool(machine.field(self.when[0]).value) == self.when[1]


@dataclass(frozen=True)
class StateRule:
    """A rule about the state of a channel; ``constants`` are the paths in the machine file that it uses."""

    text: str
    constants: tuple[str, ...] = ()


_ACTIVATE, _PRECHARGE = ("ACT", "ACT16"), ("PRE", "PREA")
_READS = ("RD", "MAC", "MAC16", "RDCP", "EWMUL16")
_BANK_WRITES = ("WR", "WRCP", "WRA16")
_REGISTER_READS = ("RDMAC16", "RDAF16")
_ALL_BUT_TMOD = tuple(name for name in COMMANDS if name != "TMOD")

_COMMON = (
    Interval(COMMANDS, COMMANDS, Scope.CHANNEL, "1"),
    # rows
    Interval(_ACTIVATE, ("MAC", "MAC16"), Scope.BANK, "nRCDRDMAC"),
    Interval(_ACTIVATE, ("AF16",), Scope.BANK, "nRCDRDAF"),
    Interval(_ACTIVATE, ("EWMUL16",), Scope.BANK, "nRCDEWMUL"),
    Interval(_ACTIVATE, ("RD",), Scope.BANK, "nRCDRD"),
    Interval(_ACTIVATE, ("RDCP",), Scope.BANK, "nRCDRDCP"),
    Interval(_ACTIVATE, ("WR", "WRA16"), Scope.BANK, "nRCDWR"),
    Interval(_ACTIVATE, ("WRCP",), Scope.BANK, "nRCDWRCP"),
    Interval(_ACTIVATE, _ACTIVATE, Scope.BANK, "nRC"),
    Interval(_ACTIVATE, _PRECHARGE, Scope.BANK, "nRAS"),
    Interval(_ACTIVATE, ("REFab",), Scope.CHANNEL, "nRC"),
    Interval(_PRECHARGE, _ACTIVATE, Scope.BANK, "nRP"),
    Interval(_PRECHARGE, _PRECHARGE, Scope.BANK, "nRP"),
    Interval(_PRECHARGE, ("REFab",), Scope.CHANNEL, "nRP"),
    Interval((*_READS, "AF16"), _PRECHARGE, Scope.BANK, "nRTP"),
    Interval(("WR", "WRCP"), _PRECHARGE, Scope.BANK, "nCWL + nBL + nWR"),
    Interval(("EWMUL16",), _PRECHARGE, Scope.BANK, "nCWL + nWR"),
    Interval(("WRA16",), _ACTIVATE, Scope.BANK, "nCWL + nBL + nWR + nRP"),
    # columns and registers
    Interval((*_READS, *_REGISTER_READS), (*_READS, *_REGISTER_READS), Scope.CHANNEL, "nCCDS"),
    Interval(_READS, _READS, Scope.GROUP, "nCCDL"),
    Interval((*_BANK_WRITES, "WRGB", "WRMAC16"), (*_BANK_WRITES, "WRGB", "WRMAC16"), Scope.CHANNEL, "nCCDS"),
    Interval(_BANK_WRITES, _BANK_WRITES, Scope.GROUP, "nCCDL"),
    Interval(("EWMUL16",), (*_BANK_WRITES, "WRMAC16"), Scope.CHANNEL, "nCCDS"),
    Interval((*_BANK_WRITES, "WRMAC16"), ("EWMUL16",), Scope.CHANNEL, "nCCDS"),
    Interval(("WR",), ("RD",), Scope.CHANNEL, "nCWL + nBL + nWTRS"),
    Interval(("WR",), ("RD",), Scope.GROUP, "nCWL + nBL + nWTRL"),
    Interval(("WRA16",), ("RD",), Scope.CHANNEL, "nCWL + nBL + nWTRL"),
    Interval(("WR", "WRA16"), _REGISTER_READS, Scope.CHANNEL, "nCWL + nBL + nWTRL"),
    Interval(("WRGB",), ("RD", *_REGISTER_READS), Scope.CHANNEL, "nCWLGB + nBL + nWTRS"),
    Interval(("WRMAC16",), ("RD", *_REGISTER_READS), Scope.CHANNEL, "nCWLREG + nBL + nWTRL"),
    Interval(("RD",), ("WR", "WRA16"), Scope.CHANNEL, "nCL + nBL + nRTW + nWPRE - nCWL"),
    Interval(("RD",), ("WRGB",), Scope.CHANNEL, "nCL + nBL + nRTW + nWPRE - nCWLGB"),
    Interval(("RD",), ("WRMAC16",), Scope.CHANNEL, "nCL + nBL + nRTW + nWPRE - nCWLREG"),
    Interval(_REGISTER_READS, ("WRGB",), Scope.CHANNEL, "nCLREG + nBL + nRTW + nWPRE - nCWLGB"),
    Interval(_REGISTER_READS, ("WRMAC16",), Scope.CHANNEL, "nCLREG + nBL + nRTW + nWPRE - nCWLREG"),
    # mode
    Interval(("TMOD",), _ALL_BUT_TMOD, Scope.CHANNEL, "nMODCH"),
)

_OURS = (
    Interval(("ACT",), ("ACT",), Scope.CHANNEL, "nRRDS"),
    Interval(("ACT",), ("ACT",), Scope.GROUP, "nRRDL"),
    Interval(("WRA16",), ("REFab",), Scope.CHANNEL, "nCWL + nBL + nWR + nRP"),
    Interval(_REGISTER_READS, ("WR", "WRA16"), Scope.CHANNEL, "nCLREG + nBL + nRTW + nWPRE - nCWL"),
    Interval(("WR", "WRCP"), ("MAC", "MAC16", "RDCP"), Scope.CHANNEL, "nCWL + nBL + nWTRL"),
    Interval(("RDCP",), ("MAC", "MAC16", "WRCP"), Scope.CHANNEL, "nCL + nBL"),
    Interval(("TMOD",), ("TMOD",), Scope.CHANNEL, "nMODCH"),
    Interval(("MAC16",), ("TMOD",), Scope.CHANNEL, "nMAC2TMOD"),
    Interval(tuple(name for name in COMMANDS if name != "MAC16"), ("TMOD",), Scope.CHANNEL, "nCMD2TMOD"),
    Interval(("REFab",), (*ONE_BANK, *ALL_BANKS, "REFab"), Scope.CHANNEL, "nRFC"),
    Interval(("REFab",), (*REGISTERS, "TMOD"), Scope.CHANNEL, "nRFC", ("rules.commands_during_refresh", False)),
)

_PUBLISHED = (
    Interval(("ACT",), ("ACT",), Scope.CHANNEL, "aim_simulator.nRRDS"),
    Interval(("ACT",), ("ACT",), Scope.GROUP, "aim_simulator.nRRDL"),
    Interval(("REFab",), _ACTIVATE, Scope.CHANNEL, "nRFC"),
)

INTERVALS: Mapping[str, tuple[Interval, ...]] = {
    CORRECTED: (*_COMMON, *_OURS),
    AIM_SIMULATOR: (*_COMMON, *_PUBLISHED),
}
"""The intervals of each profile. Of the earlier commands that count, only the latest one matters."""

_ALWAYS: Mapping[str, StateRule] = {
    "row-open": StateRule("a column command needs its row open: in its bank, or in every bank if it is for all"),
    "bank-closed": StateRule("ACT needs its bank closed; ACT16 needs a closed bank, and no bank with another row open"),
    "bank-open": StateRule("PRE needs its bank open, PREA any bank"),
    "refresh-closed": StateRule("REFab needs all banks closed"),
    "address": StateRule(
        "channel, bank, row, column, buffer column and accumulator exist; so do rows from `aim_simulator.lut_row` on, "
        "which hold the tables of functions",
        (
            "organisation.channels",
            "organisation.banks",
            "organisation.rows",
            "organisation.columns",
            "buffer.columns",
            "bank_unit.accumulators",
            "aim_simulator.lut_row",
        ),
    ),
}

STATE_RULES: Mapping[str, Mapping[str, StateRule]] = {
    CORRECTED: {
        **_ALWAYS,
        "mode": StateRule(
            "register commands need register mode, all others normal mode; with `rules.row_commands_in_register_mode` "
            "row commands need none",
            ("rules.row_commands_in_register_mode",),
        ),
        "refresh-early": StateRule(
            "REFab needs `refresh.enabled`, and before it a debt above -`refresh.pull_in`: the number of whole nREFI "
            "since the start, less the REFab issued",
            ("refresh.enabled", "refresh.pull_in", "timing.nREFI"),
        ),
        "refresh-due": StateRule(
            "from the cycle in which the debt exceeds `refresh.postpone` until REFab, nothing issues but TMOD to leave "
            "register mode, then PREA to close what is open, then REFab",
            ("refresh.enabled", "refresh.postpone", "timing.nREFI"),
        ),
        "refresh-late": StateRule("each of these three issues in the first cycle that is due and that intervals allow"),
        "activation-window": StateRule(
            "with `rules.faw_enforced`, no five activations issue within nFAW; ACT16 is one for each bank, and takes a "
            "window for every four",
            ("rules.faw_enforced", "timing.nFAW", "organisation.banks"),
        ),
    },
    AIM_SIMULATOR: {
        **_ALWAYS,
        "mode": StateRule("register commands need register mode, all others normal mode"),
        "mode-switch": StateRule(
            "TMOD issues in place of a command that intervals would allow in that cycle; checked with the command that "
            "follows, where that can only be what an AiM request needs"
        ),
        "refresh-early": StateRule(
            "the k-th REFab needs `aim_simulator.refresh`, and issues in cycle k x nREFI - 1 at the earliest",
            ("aim_simulator.refresh", "timing.nREFI"),
        ),
        "refresh-due": StateRule(
            "from that cycle until then, nothing issues but TMOD, PREA, REFab and what ordinary accesses need",
            ("aim_simulator.refresh", "timing.nREFI"),
        ),
    },
}
"""Rules about the state of a channel, by profile and name."""

_TERM = re.compile(r"([+-]?)\s*(?:(\d+)|((?:\w+\.)?\w+))\s*")


def constants_of(formula: str) -> list[str]:
    """Paths in the machine file of the constants in an interval."""
    return [_path(name) for _, _, name in _TERM.findall(formula) if name]


def cycles_of(formula: str, machine: Machine) -> int:
    """The value of an interval on a machine; not less than 0."""
    total = 0
    for sign, number, name in _TERM.findall(formula):
        value = int(number) if number else int(str(machine.field(_path(name)).value))
        total += -value if sign == "-" else value
    return max(0, total)


def profile_constants(profile: str) -> set[str]:
    """Paths of all constants and switches that the rules of a profile use."""
    paths = {path for row in INTERVALS[profile] for path in constants_of(row.cycles)}
    paths |= {row.when[0] for row in INTERVALS[profile] if row.when is not None}
    return paths | {path for rule in STATE_RULES[profile].values() for path in rule.constants}


def require_profile(profile: str) -> None:
    """Raises ``WordlineError("unknown-profile")`` for a name that is none."""
    if profile not in PROFILES:
        raise WordlineError(
            "unknown-profile",
            f"there is no timing profile {profile!r}",
            remedy=f"choose one of {', '.join(PROFILES)}",
        )


def _path(name: str) -> str:
    return name if "." in name else f"timing.{name}"
