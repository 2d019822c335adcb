"""Why a trace or a submission takes as long as it does: its critical path (``docs/profiling.md``).

A part of the path is a stretch of cycles and the one rule that was waited for in it; the parts follow each other from
cycle 0 to the end, so they sum to the total. Where several rules end together the first in the machine file is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from wordline import _native
from wordline.machines import Machine
from wordline.machines.generations import native_formula

RULES: tuple[str, ...] = tuple(_native.RULES)
"""What can be waited for: fields of the machine with their section, derived ones too, and names without a point."""

EVENT_KINDS: tuple[str, ...] = tuple(_native.EVENT_KINDS)

MEANINGS: Mapping[str, str] = {
    "signal": "a signal of another stream or channel",
    "completion": "requests of a channel complete in order, one a cycle",
    "turn": "requests of the same channel that went first",
    "call_back": "the host goes on the cycle after a blocking instruction has called back",
    "decode": "the host decodes one line a cycle",
    "issue": "a stream issues one instruction a cycle, a channel one command",
    "refresh_charge": "nRFC for the share of nREFI since the last refresh; a credit if negative",
}
"""The rules that are no constants of the machine."""

_ROW = re.compile(r"timing\.(nRP|nRAS|nRC|nRTP|nRCD\w+|nRRD.|nFAW|nWR2PRE|nEWMUL2PRE|nWRA2ACT)|aim_simulator\.nRRD.")
_LANDING = re.compile(r"timing\.\w+_latency|scratch\.landing_cycles|completion")
_PREFIXES = {"vector_unit.": "vector", "link.": "link"}
_BY_RULE = {
    "timing.nMODCH": "mode_switch",
    "timing.nMAC2TMOD": "mode_switch",
    "timing.nCMD2TMOD": "mode_switch",
    "timing.nRFC": "refresh",
    "timing.nREFI": "refresh",
    "refresh_charge": "refresh",
    "signal": "wait",
    "aim_simulator.queue_requests": "host",
    "call_back": "host",
    "decode": "host",
    "turn": "issue",
    "issue": "issue",
}
_BY_COMMAND = {
    "TMOD": "mode_switch",
    "MAC16": "mac",
    "MAC": "mac",
    "EWMUL16": "mac",
    "WRGB": "fill",
    "WRMAC16": "readout",
    "RDMAC16": "readout",
    "RDAF16": "readout",
}


class PathPart(NamedTuple):
    """Cycles ``begin .. end - 1`` of the path. ``begin`` lies after ``end`` for a refresh charge that is a credit.

    ``command`` is the DRAM command that waited, or the kind of another event. Under "turn", "call_back", "decode" and
    "issue" command and instruction are those whose turn it was.
    """

    begin: int
    end: int
    times: int
    """How often the rule counts in it, for example 63 times the pitch of a burst of 64."""
    lane: int
    rule: str
    command: str
    bank: int
    """-1 for all banks or none."""
    row: int
    instruction: int
    """Line of a trace from 1, else index of the instruction in the stream of the lane."""

    @property
    def cycles(self) -> int:
        """Length; negative for a credit."""
        return self.end - self.begin

    @property
    def kind(self) -> str:
        """What such a wait belongs to: "mac", "row_turn", "mode_switch", "refresh", "fill", "readout", ..."""
        if self.rule in _BY_RULE:
            return _BY_RULE[self.rule]
        for prefix, kind in _PREFIXES.items():
            if self.rule.startswith(prefix):
                return kind
        if _ROW.fullmatch(self.rule):
            return "row_turn"
        if _LANDING.fullmatch(self.rule):
            return "landing"
        return _BY_COMMAND.get(self.command, "column_access")


@dataclass(frozen=True)
class Lane:
    """Where things happen one after another: channels that do the same, vector unit, link, or the host of a trace."""

    kind: str
    stream: int
    """Of a device program, -1 for a trace."""
    channels: tuple[int, ...]

    @property
    def name(self) -> str:
        """For people."""
        if self.kind != "channel":
            return {"vector": "vector unit"}.get(self.kind, self.kind)
        runs: list[list[int]] = []
        for channel in self.channels:
            if runs and runs[-1][-1] == channel - 1:
                runs[-1].append(channel)
            else:
                runs.append([channel])
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
        return ("channel " if len(self.channels) == 1 else "channels ") + ",".join(texts)


class Share(NamedTuple):
    """All parts of a path with one key, together."""

    cycles: int
    times: int


Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class CriticalPath:
    """The path of one run."""

    cycles: int
    parts: tuple[PathPart, ...]
    """In order of time; each begins where the one before ends, the first at 0, the last ends at ``cycles``."""
    lanes: tuple[Lane, ...]
    recorded: _native.Explanation

    @classmethod
    def of(cls, recorded: _native.Explanation, cycles: int, commands: tuple[str, ...]) -> CriticalPath:
        """From what a native model recorded; ``commands`` are the names of DRAM commands."""
        lanes = tuple(
            Lane(kind, stream, tuple(channel for channel in range(32) if mask >> channel & 1))
            for kind, stream, mask in recorded.lanes
        )
        parts = []
        for begin, end, times, lane, rule, kind, command, bank, row, instruction in np.asarray(recorded.path).tolist():
            of_command = lanes[lane].kind == "channel" and EVENT_KINDS[kind] in ("command", "landing")
            what = commands[command] if of_command else EVENT_KINDS[kind]
            parts.append(PathPart(begin, end, times, lane, RULES[rule], what, bank, row, instruction))
        return cls(cycles, tuple(parts), lanes, recorded)

    def events(self, lane: int) -> npt.NDArray[np.int64]:
        """All that was recorded of a lane, see ``_native.Explanation.events``."""
        return np.asarray(self.recorded.events(lane))

    def shares(self, key: Callable[[PathPart], Key]) -> dict[Key, Share]:
        """Cycles and times by ``key``, longest first; they sum to ``cycles``."""
        return shares(self.parts, key)

    @cached_property
    def rules(self) -> dict[str, Share]:
        """By rule, longest first."""
        return self.shares(lambda part: part.rule)

    def constants(self, machine: Machine) -> dict[str, int]:
        """How often each interval of the machine counts on the path, in the order of the machine file.

        A path with n times nRP is longer by n cycles if nRP is longer by one; the whole run then takes at least that
        much longer, and at most n cycles less if nRP is shorter by one.
        """
        found: dict[str, int] = {}
        for rule, share in self.rules.items():
            for path, factor in terms(rule).items():
                found[path] = found.get(path, 0) + factor * share.times
        return {path: found[path] for path in machine.flat() if found.get(path, 0) != 0}


def shares(parts: Iterable[PathPart], key: Callable[[PathPart], Key]) -> dict[Key, Share]:
    """Cycles and times of ``parts`` by ``key``, longest first."""
    found: dict[Key, Share] = {}
    for part in parts:
        cycles, times = found.get(key(part), (0, 0))
        found[key(part)] = Share(cycles + part.cycles, times + part.times)
    return dict(sorted(found.items(), key=lambda item: -item[1].cycles))


def terms(rule: str) -> dict[str, int]:
    """The fields of the machine, in cycles, of which a rule's interval is the sum; empty if it is no such sum."""
    section, _, name = rule.partition(".")
    if section not in ("timing", "aim_simulator", "scratch") or name == "queue_requests":
        return {}
    formula = native_formula(section, name)
    if formula is None:
        return {rule: 1}
    found: dict[str, int] = {}
    for sign, field in re.findall(r"([+-]?) ?(n\w+)", formula.removeprefix("max(0, ")):
        path = f"{section}.{field}"
        found[path] = found.get(path, 0) + (-1 if sign == "-" else 1)
    return found


def interval_text(rule: str) -> str:
    """What a rule is: the sum that a derived field stands for, or its meaning."""
    if rule in MEANINGS:
        return MEANINGS[rule]
    parts = terms(rule)
    if len(parts) < 2:
        return ""
    text = " ".join(f"{'-' if factor < 0 else '+'} {path.partition('.')[2]}" for path, factor in parts.items())
    return text.removeprefix("+ ")
