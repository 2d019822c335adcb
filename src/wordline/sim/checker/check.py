"""Checks schedules of DRAM commands against a machine file; knows nothing of how they came about."""

from __future__ import annotations

from collections.abc import Iterable

from wordline.errors import WordlineError
from wordline.machines import Machine
from wordline.sim.checker.bounds import Bounds
from wordline.sim.checker.channel import Channel
from wordline.sim.checker.commands import COMMANDS, NAME_A_ROW, ONE_BANK, Burst
from wordline.sim.checker.rules import CORRECTED, require_profile
from wordline.sim.checker.violation import Findings, Report

LIMIT = 100
"""How many violations a report keeps by default."""


class Checker:
    """Checks one schedule after another on one machine, by the rules of one profile. Works on a stream of bursts."""

    def __init__(self, machine: Machine, profile: str = CORRECTED, *, limit: int = LIMIT) -> None:
        """Prepare.

        Raises:
            WordlineError: "unknown-profile".
        """
        require_profile(profile)
        self.machine, self.profile, self._limit = machine, profile, limit
        self._bounds = Bounds(machine, profile)
        self.begin("schedule")

    def begin(self, name: str, source: str = "") -> None:
        """Start a schedule; its cycle 0 finds every channel in normal mode, all banks closed, without refresh debt.

        ``source`` is where it is read from, for errors.
        """
        self._name, self._source = name, source or name
        self._findings = Findings(self._limit)
        self._channels: dict[int, Channel] = {}
        self._commands = 0

    def feed(self, bursts: Iterable[Burst]) -> None:
        """Check what comes next. The commands of a channel come in order; channels may mix.

        Raises:
            WordlineError: "bad-schedule" for a command that does not exist, or out of order.
        """
        for burst in bursts:
            channel = self._channels.get(burst.channel)
            if channel is None:
                channel = Channel(self.machine, self.profile, self._bounds, self._findings)
                self._channels[burst.channel] = channel
            self._require_sound(burst, channel.last)
            channel.take(burst)
            self._commands += burst.length

    def finish(self) -> Report:
        """What was found since :meth:`begin`."""
        return Report(
            self._name,
            self.profile,
            self._commands,
            tuple(sorted(self._channels)),
            max((channel.last for channel in self._channels.values()), default=-1) + 1,
            self._findings.count,
            dict(self._findings.by_rule),
            tuple(self._findings.kept),
        )

    def _require_sound(self, burst: Burst, last: int) -> None:
        if burst.command not in COMMANDS:
            problem = f"there is no command {burst.command!r}"
        elif (burst.bank >= 0) != (burst.command in ONE_BANK):
            problem = f"{burst.command} of bank {burst.bank}" if burst.bank >= 0 else f"{burst.command} without a bank"
        elif burst.row < 0 and burst.command in NAME_A_ROW:
            problem = f"{burst.command} without a row"
        elif burst.channel < 0 or burst.length < 1 or burst.step < (burst.length > 1):
            problem = "a burst needs a channel, at least one command, and a step of at least one cycle"
        elif burst.first < max(last, 0):
            problem = f"cycle {burst.first} of channel {burst.channel} comes after its cycle {last}"
        else:
            return
        where = f"{self._source}:{burst.line}" if burst.line else self._source
        raise WordlineError("bad-schedule", problem, where=where, remedy="list the commands of a channel in order")


def check(
    machine: Machine, bursts: Iterable[Burst], profile: str = CORRECTED, *, name: str = "schedule", limit: int = LIMIT
) -> Report:
    """Check one schedule, see :class:`Checker`."""
    checker = Checker(machine, profile, limit=limit)
    checker.begin(name)
    checker.feed(bursts)
    return checker.finish()
